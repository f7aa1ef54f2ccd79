//! Devices: network cards, virtual functions, virtual devices.

use std::fmt;
use std::sync::Arc;

use fastlane_core::PortId;
use fastlane_steer::Rules;

use crate::plugin::{Facts, Losses, QueueParts, RawQueue, Settings, text};
use crate::steering::{self, Steering};
use crate::{DpdkQueue, Environment, Error, LaneMemory};

/// Descriptors of a receive queue, unless set or limited by the device.
pub const RECEIVE_DESCRIPTORS: u16 = 1024;
/// The same of a transmit queue.
pub const TRANSMIT_DESCRIPTORS: u16 = 1024;
/// Octets around an MTU: the Ethernet header and a VLAN tag.
const AROUND: usize = 18;

/// What a device shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSettings {
    /// A PCI address (`0000:04:02.0`), or a virtual device with its arguments
    /// (`net_memif0,role=client,socket=...`).
    pub device: String,
    /// Octets of a packet without its Ethernet header; `None` leaves what the device has.
    pub mtu: Option<u16>,
    /// Whether frames to other addresses are received. They are by default: the device is ours, and
    /// what the application does not claim goes to Linux, which knows its own addresses.
    pub promiscuous: bool,
    /// Whether checksums are left to a device that can complete them.
    pub checksums: bool,
    /// Whether to use the interrupts of a device that has them.
    pub interrupts: bool,
    /// Packets that a receive queue holds; the device may round that.
    pub receive_descriptors: u16,
    /// The same of a transmit queue.
    pub transmit_descriptors: u16,
}

impl DeviceSettings {
    /// The default settings for a device.
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

/// A device that runs. It stops when it and all its queues are dropped.
#[derive(Debug)]
pub struct Device {
    port: Arc<Port>,
    facts: Facts,
    settings: Settings,
    steering: Steering,
    mtu: u16,
    given: Vec<bool>,
}

/// The device as its queues share it.
pub(crate) struct Port {
    pub(crate) environment: Arc<Environment>,
    /// As DPDK numbers it.
    number: u16,
    name: String,
    /// What each queue receives into; the device holds frames of it.
    memories: Vec<LaneMemory>,
    /// Frames promised in each memory.
    promised: usize,
    /// Queues that run.
    queues: u16,
    /// What it had lost before it was ours.
    before: Losses,
}

impl Device {
    /// Opens a device with as many queues as there are memories: queue `n` receives into, and sends
    /// from, memory `n`, which is that of its lane. Virtual devices are made in the network
    /// namespace of the calling thread. The rules go to the device if it takes them all.
    ///
    /// # Errors
    /// [`Error::Unfit`] when it has fewer queues or the frames are too short, [`Error::FewFrames`],
    /// [`Error::Refused`].
    pub fn open(
        environment: &Arc<Environment>,
        settings: &DeviceSettings,
        memories: &[LaneMemory],
        rules: &Rules,
    ) -> Result<Self, Error> {
        let name = &settings.device;
        let refused = |reason| Error::Refused { device: name.clone(), reason };
        let number = environment.with(|plugin| plugin.probe(name)).map_err(refused)?;
        let mut port = Port {
            environment: Arc::clone(environment),
            number,
            name: name.clone(),
            memories: Vec::new(),
            promised: 0,
            queues: 0,
            before: Losses::default(),
        };
        let facts = environment.with(|plugin| plugin.facts(number)).map_err(refused)?;
        let queues = fit(settings, &facts, memories)?;
        let mut plain = Settings {
            queues,
            receive_descriptors: settings.receive_descriptors,
            transmit_descriptors: settings.transmit_descriptors,
            mtu: settings.mtu.unwrap_or(0),
            promiscuous: settings.promiscuous.into(),
            checksums: settings.checksums.into(),
            interrupts: (settings.interrupts && !is_virtual(name)).into(),
            spreads: 0,
        };
        environment.with(|plugin| plugin.configure(number, &mut plain)).map_err(refused)?;
        port.promise(memories, &plain)?;
        let pools: Vec<_> = memories.iter().map(|memory| &memory.shared.memory).collect();
        environment.with(|plugin| plugin.begin(number, &plain, &pools)).map_err(refused)?;
        port.queues = queues;
        let facts = environment.with(|plugin| plugin.facts(number)).map_err(refused)?;
        port.before = environment.with(|plugin| plugin.losses(number));
        let steering = steering::give(rules, |flat| {
            environment.with(|plugin| plugin.steer(number, queues, flat))
        });
        let given = vec![false; memories.len()];
        let mtu = facts.mtu;
        Ok(Self { port: Arc::new(port), facts, settings: plain, steering, mtu, given })
    }

    /// A queue, for the lane whose memory it has; its packets come from `port`. `None` for one that
    /// is not there or was asked for before.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn queue(&mut self, port: PortId, number: usize) -> Result<Option<DpdkQueue>, Error> {
        let Some(given) = self.given.get_mut(number).filter(|given| !**given) else {
            return Ok(None);
        };
        *given = true;
        let memory = &self.port.memories[number];
        let longest = (usize::from(self.mtu) + AROUND).min(memory.room());
        let parts = QueueParts {
            port: self.port.number,
            number: number as u16,
            packet_port: port,
            home: memory.shared.home,
            longest: longest as u32,
            checksums: self.settings.checksums != 0,
            steered: self.steering == Steering::Device,
            memory: &memory.shared.memory,
        };
        let raw = RawQueue::new(self.port.environment.plugin(), &parts);
        let raw =
            raw.map_err(|reason| Error::Refused { device: self.port.name.clone(), reason })?;
        let interrupt = if self.settings.interrupts != 0 { raw.interrupt() } else { None };
        // The losses of the device are told once: by its first queue.
        Ok(Some(DpdkQueue::new(raw, memory, &self.port, number == 0, interrupt)))
    }

    /// Queues, of each direction.
    #[must_use]
    pub fn queues(&self) -> usize {
        usize::from(self.settings.queues)
    }

    /// The device's Ethernet address.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        self.facts.mac
    }

    /// Octets of a packet without its Ethernet header.
    #[must_use]
    pub fn mtu(&self) -> usize {
        usize::from(self.mtu)
    }

    /// Whether there is a carrier, as of now. It may ask the device: not for a lane.
    #[must_use]
    pub fn link_up(&self) -> bool {
        self.port.link_up()
    }

    /// Asks the device to take its link down or up; false when it cannot.
    #[must_use]
    pub fn set_link(&self, up: bool) -> bool {
        self.port.environment.with(|plugin| plugin.set_link(self.port.number, up))
    }

    /// A handle that tells the state of the link for as long as the device is there: for whoever
    /// passes it on to Linux.
    #[must_use]
    pub fn link(&self) -> Link {
        Link(Arc::clone(&self.port))
    }

    /// DPDK's name of the driver.
    #[must_use]
    pub fn driver(&self) -> String {
        text(&self.facts.driver)
    }

    /// The NUMA node of the device; -1 when it has none.
    #[must_use]
    pub fn socket(&self) -> i32 {
        self.facts.socket
    }

    /// Who applies the rules.
    #[must_use]
    pub fn steering(&self) -> &Steering {
        &self.steering
    }

    /// Whether the device completes checksums; else they are completed here.
    #[must_use]
    pub fn completes_checksums(&self) -> bool {
        self.settings.checksums != 0
    }

    /// Whether the device spreads packets over its queues by a hash that is the same for both
    /// directions of a flow.
    #[must_use]
    pub fn spreads_flows(&self) -> bool {
        self.settings.spreads != 0
    }
}

/// The state of a device's link.
#[derive(Clone, Debug)]
pub struct Link(Arc<Port>);

impl Link {
    /// Whether there is a carrier, as of now. It may ask the device: not for a lane.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.0.link_up()
    }
}

/// Whether it is a virtual device. Their interrupts come without a way to see what came before, and
/// to ask for them costs system calls for each burst.
fn is_virtual(device: &str) -> bool {
    device.starts_with("net_")
}

/// How many queues, once the device is found to have them and the frames to be long enough.
fn fit(settings: &DeviceSettings, facts: &Facts, memories: &[LaneMemory]) -> Result<u16, Error> {
    let unfit = |reason: String, remedy: String| Error::Unfit {
        device: settings.device.clone(),
        reason,
        remedy,
    };
    let most = facts.most_receive_queues.min(facts.most_transmit_queues);
    let queues = memories.len();
    let fits = |count: &u16| (1..=most).contains(count);
    let Some(queues) = u16::try_from(queues).ok().filter(fits) else {
        let reason = format!("the device has 1 to {most} queues, not {queues}");
        return Err(unfit(reason, "set fewer queues, or fewer lanes".to_owned()));
    };
    let mtu = settings.mtu.unwrap_or(facts.mtu);
    let wanted = usize::from(mtu) + AROUND;
    let room = memories.iter().map(LaneMemory::room).min().unwrap_or(0);
    if wanted > room {
        return Err(unfit(
            format!("packets of MTU {mtu} take {wanted} bytes, and a frame holds {room}"),
            format!("set the MTU to {} at most, or longer frames", room.saturating_sub(AROUND)),
        ));
    }
    let (least, most) = (facts.least_mtu, facts.most_mtu);
    if settings.mtu.is_some() && !(least..=most).contains(&mtu) {
        let reason = format!("its MTU can be {least} to {most}, not {mtu}");
        return Err(unfit(reason, "set another".to_owned()));
    }
    Ok(queues)
}

impl Port {
    /// Sets frames aside for all queues.
    fn promise(&mut self, memories: &[LaneMemory], settings: &Settings) -> Result<(), Error> {
        self.promised =
            usize::from(settings.receive_descriptors) + usize::from(settings.transmit_descriptors);
        for memory in memories {
            memory.promise(&self.name, self.promised)?;
            self.memories.push(memory.clone());
        }
        Ok(())
    }

    fn link_up(&self) -> bool {
        self.environment.with(|plugin| plugin.link_up(self.number))
    }

    /// What the device has lost since it was opened. It may cost a system call; it does not lock.
    pub(crate) fn losses(&self) -> Losses {
        let now = self.environment.plugin().losses(self.number);
        let since = |now: u64, before: u64| now.saturating_sub(before);
        Losses {
            missed: since(now.missed, self.before.missed),
            receive_errors: since(now.receive_errors, self.before.receive_errors),
            transmit_errors: since(now.transmit_errors, self.before.transmit_errors),
            no_frames: since(now.no_frames, self.before.no_frames),
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.environment.with(|plugin| plugin.remove(self.number, self.queues));
        for memory in &self.memories {
            memory.take_back(self.promised);
        }
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Port")
            .field("number", &self.number)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
