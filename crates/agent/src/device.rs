//! Device of a client: an interface with its steering program, pinned, and the queues that the
//! client may have.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use fastlane::agent::records::{Attach, Resume};
use fastlane::kernel::Interface;
use fastlane_af_xdp::{self as af_xdp, DeviceDescription};
use fastlane_steer::Rules;

use crate::config::Pool;
use crate::orphans::Orphan;
use crate::registry::{Lease, Pins};

/// Interface that a client has.
#[derive(Debug)]
pub(crate) struct ClientDevice {
    pub(crate) device: af_xdp::Device,
    /// Number of queues that the client may have.
    pub(crate) queues: u32,
    /// Queues whose sockets are bound.
    pub(crate) bound: BTreeSet<u32>,
    pub(crate) pool: Arc<Pool>,
    // Dropped in this order: the program is detached before another client may have the interface.
    _pins: Pins,
    _lease: Lease,
}

/// Device that a client wants: an interface of a pool, with rules.
pub(crate) struct WantedDevice {
    pool: Arc<Pool>,
    interface: Interface,
    rules: Rules,
}

impl WantedDevice {
    /// Checks that one of the pools has the interface and allows the rules.
    ///
    /// # Errors
    /// The reason of the refusal.
    pub(crate) fn new(pools: &[Arc<Pool>], attach: &Attach) -> Result<Self, String> {
        let name = &attach.driver.interface;
        let pool =
            pools.iter().find(|pool| pool.interfaces.contains_key(name)).ok_or_else(|| {
                let names = pools.iter().flat_map(|pool| pool.interfaces.keys());
                let names: Vec<&str> = names.map(String::as_str).collect();
                format!("this client may not use `{name}`, only [{}]", names.join(", "))
            })?;
        let rules = allowed(pool, &attach.steer)?;
        let interface = Interface::query(name).map_err(|error| error.to_string())?;
        Ok(Self { pool: Arc::clone(pool), interface, rules })
    }

    /// Returns the index of the interface.
    pub(crate) fn interface(&self) -> u32 {
        self.interface.index
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
    ) -> Result<(DeviceDescription, ClientDevice), String> {
        let settings = attach.driver.device_settings(&self.interface);
        let device = af_xdp::Device::open(settings, &self.rules, attach.max_length as usize);
        let device = device.map_err(|error| error.to_string())?;
        let (description, program) = device.handover().ok_or("its program is not attached")?;
        program.pin(pins).map_err(|error| {
            let path = pins.display();
            format!("the steering program cannot be pinned at {path}: {error}")
        })?;
        let device = self.device(device, Pins::new(pins.to_owned()), lease);
        Ok((description, device))
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
        let settings = resume.attach.driver.device_settings(&self.interface);
        let device = af_xdp::Device::adopt(settings, &description, program);
        let mut device = device.map_err(|error| error.to_string())?;
        let steered = match resume.is_released {
            true => device.release(),
            false => device.replace_rules(&self.rules),
        };
        steered.map_err(|error| error.to_string())?;
        Ok(self.device(device, pins, lease))
    }

    fn device(self, device: af_xdp::Device, pins: Pins, lease: Lease) -> ClientDevice {
        let limit = self.pool.interfaces.get(&self.interface.name).and_then(|it| it.queues);
        let queues = self.interface.receive_queues;
        let queues = limit.map_or(queues, |limit| limit.min(queues));
        let (bound, pool) = (BTreeSet::new(), self.pool);
        ClientDevice { device, queues, bound, pool, _pins: pins, _lease: lease }
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
