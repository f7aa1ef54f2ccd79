//! Devices: network cards, virtual functions and virtual devices.

use std::sync::Arc;

use fastlane_core::PortId;
use fastlane_steer::Rules;

use crate::ethdev::EthPort;
use crate::flow::{self, Steering};
use crate::plugin::{DeviceConfig, DeviceInfo, QueueConfig, RawQueue, text};
use crate::vfio;
use crate::{DpdkQueue, Environment, Error, LaneMemory};

/// Default number of descriptors of a receive queue.
pub const RECEIVE_DESCRIPTORS: u16 = 1024;
/// Default number of descriptors of a transmit queue.
pub const TRANSMIT_DESCRIPTORS: u16 = 1024;
/// Octets of a frame besides the MTU: the Ethernet header and a VLAN tag.
const L2_OVERHEAD: usize = 18;

/// Settings of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSettings {
    /// PCI address (`0000:04:02.0`), or a virtual device with its arguments
    /// (`net_memif0,role=client,socket=...`).
    pub device: String,
    /// MTU: octets of a packet without its Ethernet header. `None` keeps the MTU of the device.
    pub mtu: Option<u16>,
    /// True if frames to other addresses are received. This is the default: Linux gets the packets
    /// that the application does not claim, and knows its own addresses.
    pub promiscuous: bool,
    /// True if checksums are offloaded to a device that supports it.
    pub checksums: bool,
    /// True if the interrupts of the device are used, if it has any.
    pub interrupts: bool,
    /// Descriptors of a receive queue; the device may round the number.
    pub receive_descriptors: u16,
    /// Descriptors of a transmit queue; the device may round the number.
    pub transmit_descriptors: u16,
}

impl DeviceSettings {
    /// Returns the default settings of a device.
    #[must_use]
    pub fn new(device: impl Into<String>) -> Self {
        Self {
            device: device.into(),
            mtu: None,
            promiscuous: true,
            checksums: true,
            interrupts: true,
            receive_descriptors: RECEIVE_DESCRIPTORS,
            transmit_descriptors: TRANSMIT_DESCRIPTORS,
        }
    }
}

/// A running device. It stops when it and all its queues are dropped.
#[derive(Debug)]
pub struct Device {
    port: Arc<EthPort>,
    info: DeviceInfo,
    config: DeviceConfig,
    steering: Steering,
    mtu: u16,
    handed_out: Vec<bool>,
}

impl Device {
    /// Opens a device with as many queues as there are memories. Queue `n` receives into and sends
    /// from memory `n`, that of its lane. Virtual devices are created in the network namespace of
    /// the calling thread. The rules are installed in the device if it accepts all of them.
    ///
    /// # Errors
    /// [`Error::Unfit`] if the device has fewer queues or the frames are too short,
    /// [`Error::FewFrames`], [`Error::Refused`].
    pub fn open(
        environment: &Arc<Environment>,
        settings: &DeviceSettings,
        memories: &[LaneMemory],
        rules: &Rules,
    ) -> Result<Self, Error> {
        let name = &settings.device;
        let refused = |reason| Error::Refused { device: name.clone(), reason };
        let number = environment.with(|plugin| plugin.probe(name)).map_err(refused)?;
        if environment.plugin().is_removed(number) {
            return Err(refused("it was removed, and DPDK has not released it".to_owned()));
        }
        let mut port = EthPort::new(environment, number, name);
        let info = environment.with(|plugin| plugin.device_info(number)).map_err(refused)?;
        let queues = check_fit(settings, &info, memories)?;
        let mut config = DeviceConfig {
            queues,
            receive_descriptors: settings.receive_descriptors,
            transmit_descriptors: settings.transmit_descriptors,
            mtu: settings.mtu.unwrap_or(0),
            promiscuous: settings.promiscuous.into(),
            checksums: settings.checksums.into(),
            interrupts: (settings.interrupts && !is_virtual(name)).into(),
            symmetric_rss: 0,
        };
        environment.with(|plugin| plugin.configure(number, &mut config)).map_err(refused)?;
        port.reserve(memories, &config)?;
        let pools: Vec<_> = memories.iter().map(|memory| &memory.shared.memory).collect();
        environment.with(|plugin| plugin.start_device(number, &config, &pools)).map_err(refused)?;
        port.queues = queues;
        vfio::check_locked_memory(name, environment.with(|plugin| plugin.mapped_memory()))?;
        let info = environment.with(|plugin| plugin.device_info(number)).map_err(refused)?;
        port.before = environment.with(|plugin| plugin.losses(number)).unwrap_or_default();
        let steering = flow::offer(rules, |flat| {
            environment.with(|plugin| plugin.steer(number, queues, flat))
        });
        let handed_out = vec![false; memories.len()];
        let mtu = info.mtu;
        Ok(Self { port: Arc::new(port), info, config, steering, mtu, handed_out })
    }

    /// Returns a queue, for the lane whose memory it has; its packets carry `port`. Returns `None`
    /// for a queue that does not exist or was returned before.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn queue(&mut self, port: PortId, number: usize) -> Result<Option<DpdkQueue>, Error> {
        let Some(handed_out) = self.handed_out.get_mut(number).filter(|out| !**out) else {
            return Ok(None);
        };
        *handed_out = true;
        let memory = &self.port.memories[number];
        let max_length = (usize::from(self.mtu) + L2_OVERHEAD).min(memory.room());
        let queue = QueueConfig {
            port: self.port.number,
            number: number as u16,
            packet_port: port,
            region: memory.shared.region,
            max_length: max_length as u32,
            checksums: self.config.checksums != 0,
            steered: self.steering == Steering::Device,
            memory: &memory.shared.memory,
        };
        let raw = RawQueue::new(self.port.environment.plugin(), &queue);
        let raw =
            raw.map_err(|reason| Error::Refused { device: self.port.name.clone(), reason })?;
        let interrupt = if self.config.interrupts != 0 { raw.interrupt() } else { None };
        // Only the first queue reports the losses of the device, so that they are counted once.
        Ok(Some(DpdkQueue::new(raw, memory, &self.port, number == 0, interrupt)))
    }

    /// Returns the number of queues per direction.
    #[must_use]
    pub fn queues(&self) -> usize {
        usize::from(self.config.queues)
    }

    /// Returns the Ethernet address of the device.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        self.info.mac
    }

    /// Returns the MTU: octets of a packet without its Ethernet header.
    #[must_use]
    pub fn mtu(&self) -> usize {
        usize::from(self.mtu)
    }

    /// Returns true if the link is up now. May query the device, so a lane must not call it.
    #[must_use]
    pub fn link_up(&self) -> bool {
        self.port.link_up()
    }

    /// Sets the link of the device up or down; returns false if the device cannot.
    #[must_use]
    pub fn set_link(&self, up: bool) -> bool {
        self.port.set_link(up)
    }

    /// Returns a handle to the link state of the device, valid as long as the device exists. For
    /// the thread that passes the state on to Linux.
    #[must_use]
    pub fn link(&self) -> Link {
        Link(Arc::clone(&self.port))
    }

    /// Returns DPDK's name of the driver.
    #[must_use]
    pub fn driver(&self) -> String {
        text(&self.info.driver)
    }

    /// Returns the NUMA node of the device, or -1 if it has none.
    #[must_use]
    pub fn socket(&self) -> i32 {
        self.info.socket
    }

    /// Returns which part of the system applies the rules.
    #[must_use]
    pub fn steering(&self) -> &Steering {
        &self.steering
    }

    /// Returns true if the device completes checksums; otherwise the queue does.
    #[must_use]
    pub fn offloads_checksums(&self) -> bool {
        self.config.checksums != 0
    }

    /// Returns true if the device distributes packets over its queues by a hash that is the same
    /// for both directions of a flow.
    #[must_use]
    pub fn has_symmetric_rss(&self) -> bool {
        self.config.symmetric_rss != 0
    }
}

/// Handle to the link state of a device.
#[derive(Clone, Debug)]
pub struct Link(Arc<EthPort>);

impl Link {
    /// Returns true if the link is up now. May query the device, so a lane must not call it.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.0.link_up()
    }

    /// Returns true if the device was removed since it was opened: its driver or its bus reported
    /// it. Reads memory only.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.0.environment.plugin().is_removed(self.0.number)
    }

    /// Sets the link of a virtual device down, if it can: what arrives later is refused or counted
    /// at the other end, and the rings still hold what arrived before. The link of a card stays up,
    /// because frames in its transmit rings would not leave.
    pub fn end_arrivals(&self) {
        if is_virtual(&self.0.name) {
            self.0.set_link(false);
        }
    }
}

/// Returns true for a virtual device. Their interrupts do not tell what arrived before, and each
/// query costs system calls per burst.
fn is_virtual(device: &str) -> bool {
    device.starts_with("net_")
}

/// Checks that the device has enough queues and the frames are long enough; returns the number of
/// queues.
fn check_fit(
    settings: &DeviceSettings,
    info: &DeviceInfo,
    memories: &[LaneMemory],
) -> Result<u16, Error> {
    let unfit = |reason: String, remedy: String| Error::Unfit {
        device: settings.device.clone(),
        reason,
        remedy,
    };
    let most = info.max_receive_queues.min(info.max_transmit_queues);
    let queues = memories.len();
    let fits = |count: &u16| (1..=most).contains(count);
    let Some(queues) = u16::try_from(queues).ok().filter(fits) else {
        let reason = format!("the device has 1 to {most} queues, not {queues}");
        return Err(unfit(reason, "set fewer queues, or fewer lanes".to_owned()));
    };
    let mtu = settings.mtu.unwrap_or(info.mtu);
    let wanted = usize::from(mtu) + L2_OVERHEAD;
    let room = memories.iter().map(LaneMemory::room).min().unwrap_or(0);
    if wanted > room {
        return Err(unfit(
            format!("packets of MTU {mtu} take {wanted} bytes, and a frame holds {room}"),
            format!(
                "set the MTU to {} at most, or longer frames",
                room.saturating_sub(L2_OVERHEAD)
            ),
        ));
    }
    let (min, max) = (info.min_mtu, info.max_mtu);
    if settings.mtu.is_some() && !(min..=max).contains(&mtu) {
        let reason = format!("its MTU can be {min} to {max}, not {mtu}");
        return Err(unfit(reason, "set another".to_owned()));
    }
    Ok(queues)
}
