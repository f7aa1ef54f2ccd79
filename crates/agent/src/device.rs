//! Device of a client: an interface with its steering program, pinned, and the queues that the
//! client may have.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use fastlane::agent::records::{Attach, REENTRY_MARK, Resume, SharedDriver};
use fastlane::kernel::{Interface, af_packet};
use fastlane_af_xdp::{self as af_xdp, Counts, DeviceDescription};
use fastlane_steer::{Program, Rules, Settings};

use crate::config::Pool;
use crate::orphans::Orphan;
use crate::registry::{Lease, Pins};

/// Interface that a client has.
#[derive(Debug)]
pub(crate) struct ClientDevice {
    steered: Steered,
    /// Interface when the device was opened.
    pub(crate) interface: Interface,
    /// Number of queues that the client may have.
    pub(crate) queues: u32,
    /// Queues whose sockets are bound.
    pub(crate) bound: BTreeSet<u32>,
    /// Memory of its AF_PACKET rings in bytes.
    pub(crate) ring_memory: u64,
    pub(crate) pool: Arc<Pool>,
    // Dropped in this order: the program is detached before another client may have the interface.
    pub(crate) pins: Pins,
    _lease: Lease,
}

/// Steering program of a device, by driver.
#[derive(Debug)]
enum Steered {
    AfXdp(Box<af_xdp::Device>),
    AfPacket(Box<Program>),
}

impl ClientDevice {
    /// Returns the device of AF_XDP.
    ///
    /// # Errors
    /// It is one of AF_PACKET.
    pub(crate) fn xdp(&mut self) -> Result<&mut af_xdp::Device, String> {
        match &mut self.steered {
            Steered::AfXdp(device) => Ok(device),
            Steered::AfPacket(_) => Err("it is a device of AF_PACKET".to_owned()),
        }
    }

    /// Returns true if it is a device of AF_PACKET.
    pub(crate) fn is_af_packet(&self) -> bool {
        matches!(self.steered, Steered::AfPacket(_))
    }

    /// Replaces the rules.
    ///
    /// # Errors
    /// The refusal of the kernel; the old rules stay in force.
    pub(crate) fn replace_rules(&mut self, rules: &Rules) -> Result<(), String> {
        match &mut self.steered {
            Steered::AfXdp(device) => device.replace_rules(rules).map_err(|it| it.to_string()),
            Steered::AfPacket(program) => program.replace_rules(rules).map_err(|it| it.to_string()),
        }
    }

    /// Leaves all frames to Linux.
    ///
    /// # Errors
    /// The refusal of the kernel; the rules stay in force.
    pub(crate) fn release(&mut self) -> Result<(), String> {
        match &mut self.steered {
            Steered::AfXdp(device) => device.release().map_err(|error| error.to_string()),
            Steered::AfPacket(program) => program.release().map_err(|error| error.to_string()),
        }
    }

    /// Returns the counters.
    ///
    /// # Errors
    /// The refusal of the kernel.
    pub(crate) fn counts(&self) -> Result<Counts, String> {
        match &self.steered {
            Steered::AfXdp(device) => device.counts().map_err(|error| error.to_string()),
            Steered::AfPacket(program) => program.counts().map_err(|error| error.to_string()),
        }
    }
}

/// Device that a client wants: an interface of a pool, with rules.
pub(crate) struct WantedDevice {
    pool: Arc<Pool>,
    interface: Interface,
    rules: Rules,
}

/// Device that was attached, with its description and its AF_PACKET sockets.
pub(crate) struct AttachedDevice {
    pub(crate) description: DeviceDescription,
    pub(crate) device: ClientDevice,
    pub(crate) sockets: Vec<OwnedFd>,
}

impl WantedDevice {
    /// Checks that one of the pools has the interface and allows the driver and the rules.
    ///
    /// # Errors
    /// The reason of the refusal.
    pub(crate) fn new(pools: &[Arc<Pool>], attach: &Attach) -> Result<Self, String> {
        let name = attach.driver.interface();
        let pool =
            pools.iter().find(|pool| pool.interfaces.contains_key(name)).ok_or_else(|| {
                let names = pools.iter().flat_map(|pool| pool.interfaces.keys());
                let names: Vec<&str> = names.map(String::as_str).collect();
                format!("this client may not use `{name}`, only [{}]", names.join(", "))
            })?;
        if matches!(attach.driver, SharedDriver::AfPacket(_)) && !pool.af_packet {
            return Err(format!(
                "pool `{}` allows no AF_PACKET sockets; use the driver `af-xdp`, or write \
                 `\"af-packet\": true` there",
                pool.name
            ));
        }
        if pool.handshake.is_some() {
            return Err(format!(
                "pool `{}` has its interfaces for the `handshake` of device plugins only",
                pool.name
            ));
        }
        let rules = allowed(pool, &attach.steer)?;
        let interface = Interface::query(name).map_err(|error| error.to_string())?;
        Ok(Self { pool: Arc::clone(pool), interface, rules })
    }

    /// Returns the pool.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns the index of the interface.
    pub(crate) fn interface(&self) -> u32 {
        self.interface.index
    }

    /// Returns the memory of the rings of its AF_PACKET sockets in bytes.
    ///
    /// # Errors
    /// The reason why there cannot be such rings.
    pub(crate) fn ring_memory(&self, attach: &Attach) -> Result<u64, String> {
        let SharedDriver::AfPacket(driver) = &attach.driver else { return Ok(0) };
        let (sockets, length) = (attach.sockets as usize, attach.max_length);
        let settings = driver.socket_settings(&self.interface, sockets, length);
        af_packet::ring_memory(&settings).map_err(|error| error.to_string())
    }

    /// Attaches the steering program and pins it in the directory `pins`.
    ///
    /// # Errors
    /// The reason of the kernel or the driver; nothing stays.
    pub(crate) fn attach(
        self,
        attach: &Attach,
        lease: Lease,
        pins: &Path,
    ) -> Result<AttachedDevice, String> {
        let pinned = |error| {
            let path = pins.display();
            format!("the steering program cannot be pinned at {path}: {error}")
        };
        let (description, steered, sockets) = match &attach.driver {
            SharedDriver::AfXdp(driver) => {
                let settings = driver.device_settings(&self.interface);
                let opened =
                    af_xdp::Device::open(settings, &self.rules, attach.max_length as usize);
                let device = opened.map_err(|error| driver.refusal(&self.interface, &error))?;
                let (description, program) =
                    device.handover().ok_or("its program is not attached")?;
                program.pin(pins).map_err(pinned)?;
                (description, Steered::AfXdp(Box::new(device)), vec![])
            }
            SharedDriver::AfPacket(driver) => {
                let (sockets, length) = (attach.sockets as usize, attach.max_length);
                let settings = driver.socket_settings(&self.interface, sockets, length);
                let opened = af_packet::open_for_client(&settings, &self.rules);
                let (program, sockets) = opened.map_err(|error| error.to_string())?;
                let handover = program.handover().ok_or("its program is not attached")?;
                handover.pin(pins).map_err(pinned)?;
                let description = DeviceDescription {
                    interface: self.interface.index,
                    is_native: false,
                    copies: true,
                    max_length: length,
                };
                (description, Steered::AfPacket(Box::new(program)), sockets)
            }
        };
        let ring_memory = self.ring_memory(attach)?;
        let device = self.device(steered, ring_memory, Pins::new(pins.to_owned()), lease);
        Ok(AttachedDevice { description, device, sockets })
    }

    /// Takes over a pinned program for its client.
    ///
    /// # Errors
    /// The reason of the refusal; the program is detached.
    pub(crate) fn resume(self, resume: &Resume, orphan: Orphan) -> Result<ClientDevice, String> {
        let Orphan { program, interface, pins, lease, .. } = orphan;
        if interface != self.interface.index {
            return Err(format!("its program is not on `{}`", self.interface.name));
        }
        let description = DeviceDescription::from_words(&resume.words);
        let description = description.ok_or("the description of the device is wrong")?;
        let steered = match &resume.attach.driver {
            SharedDriver::AfXdp(driver) => {
                let settings = driver.device_settings(&self.interface);
                let adopted = af_xdp::Device::adopt(settings, &description, program);
                Steered::AfXdp(Box::new(adopted.map_err(|error| error.to_string())?))
            }
            SharedDriver::AfPacket(_) => {
                let (max_length, mark) = (description.max_length, REENTRY_MARK);
                let settings = Settings { max_length, mark, reenter_ifindex: 0 };
                let adopted = Program::adopt(program, interface, settings);
                Steered::AfPacket(Box::new(adopted.map_err(|error| error.to_string())?))
            }
        };
        let (rules, ring_memory) = (self.rules.clone(), self.ring_memory(&resume.attach)?);
        let mut device = self.device(steered, ring_memory, pins, lease);
        match resume.is_released {
            true => device.release()?,
            false => device.replace_rules(&rules)?,
        }
        Ok(device)
    }

    fn device(self, steered: Steered, ring_memory: u64, pins: Pins, lease: Lease) -> ClientDevice {
        let Self { pool, interface, .. } = self;
        let limit = pool.interfaces.get(&interface.name).and_then(|limit| limit.queues);
        let queues = interface.receive_queues;
        let queues = limit.map_or(queues, |limit| limit.min(queues));
        let bound = BTreeSet::new();
        ClientDevice { steered, interface, queues, bound, ring_memory, pool, pins, _lease: lease }
    }
}

/// Checks that a pool allows rules of a client.
///
/// # Errors
/// Names the first rule that it does not allow.
pub(crate) fn allowed(pool: &Pool, steer: &[fastlane::config::Rule]) -> Result<Rules, String> {
    let rules = fastlane::config::resolve_rules(steer)?;
    match rules.first_outside(&pool.rules) {
        None => Ok(rules),
        Some(_) if rules.is_empty() => Err(format!(
            "without `steer` it would claim every frame, but pool `{}` allows some only",
            pool.name
        )),
        Some(index) => Err(format!(
            "rule {} of `steer` claims frames that pool `{}` does not allow",
            index + 1,
            pool.name
        )),
    }
}
