//! Interfaces whose maps of sockets are handed out by the handshake, with their steering programs.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use fastlane::kernel::Interface;
use fastlane_steer::{Program, ProgramError, Settings, XdpMode};

use crate::config::Pool;
use crate::orphans::Orphan;
use crate::owner::Owner;
use crate::registry::{Holder, Lease, Pins};
use crate::shared::Shared;
use crate::token::new_token;

/// Length of an Ethernet header and two VLAN tags in bytes.
const HEADERS: u32 = 14 + 8;

/// Interfaces of a pool, with the rules of the pool.
///
/// The programs are attached as long as the value exists, and pinned, so that they work while the
/// agent is away. An interface may be moved to the network namespace of its application afterwards.
#[derive(Debug)]
pub(crate) struct MapDevices {
    devices: Vec<MapDevice>,
}

#[derive(Debug)]
struct MapDevice {
    name: String,
    program: Program,
    // Dropped in this order: the program is detached before another client may have the interface.
    _pins: Pins,
    _lease: Lease,
}

impl MapDevices {
    /// Attaches the steering program to each interface of a pool, or takes over those that an agent
    /// before this one has pinned.
    ///
    /// # Errors
    /// The first interface that is refused, with the reason; nothing stays.
    pub(crate) fn attach(shared: &Arc<Shared>, owner: &Owner, pool: &Pool) -> Result<Self, String> {
        let mut devices = Vec::new();
        for name in pool.interfaces.keys() {
            let interface = Interface::query(name);
            let index = interface.as_ref().ok().map(|interface| interface.index);
            // The only interface of a pool may have been moved to its application.
            let orphan = match index {
                None if pool.interfaces.len() == 1 => shared.orphans.take_any(owner, None),
                index => index.and_then(|index| shared.orphans.take_any(owner, Some(index))),
            };
            let device = match (orphan, interface) {
                (Some(orphan), _) => adopt(name, orphan, pool),
                (None, Ok(interface)) => attach(shared, owner, &interface, pool),
                (None, Err(error)) => Err(error.to_string()),
            };
            devices.push(device.map_err(|reason| format!("`{name}`: {reason}"))?);
        }
        Ok(Self { devices })
    }

    /// Returns the map of the sockets of an interface.
    pub(crate) fn map(&self, interface: &str) -> Option<BorrowedFd<'_>> {
        let device = self.devices.iter().find(|device| device.name == interface)?;
        Some(device.program.handover()?.sockets)
    }
}

fn adopt(name: &str, orphan: Orphan, pool: &Pool) -> Result<MapDevice, String> {
    let Orphan { program, interface, pins, lease, .. } = orphan;
    let mtu = Interface::with_index(interface).ok().flatten().map(|it| it.mtu);
    let program = Program::adopt(program, interface, settings(mtu.unwrap_or(u32::MAX)));
    let mut program = program.map_err(|error| error.to_string())?;
    program.replace_rules(&pool.rules).map_err(|error| error.to_string())?;
    tracing::info!("`{name}` is taken over for the handshake");
    Ok(MapDevice { name: name.to_owned(), program, _pins: pins, _lease: lease })
}

fn attach(
    shared: &Arc<Shared>,
    owner: &Owner,
    interface: &Interface,
    pool: &Pool,
) -> Result<MapDevice, String> {
    let name = interface.name.clone();
    let holder = Holder { owner: owner.clone(), process: std::process::id() };
    let lease = shared.registry.take(interface.index, holder);
    let lease = lease.map_err(|holder| match holder.process {
        0 => "it is reserved for a client of the agent before this one".to_owned(),
        process => format!("process {process} has it; end it first"),
    })?;
    let program = Program::load(&pool.rules, settings(interface.mtu));
    let mut program = program.map_err(|error| error.to_string())?;
    let attached = match program.attach_xdp(&name, XdpMode::Native) {
        Err(ProgramError::NoNativeXdp { .. }) => program.attach_xdp(&name, XdpMode::Generic),
        other => other,
    };
    attached.map_err(|error| error.to_string())?;
    let directory = owner.directory(&shared.pins, &new_token()?);
    let handover = program.handover().ok_or("its program is not attached")?;
    handover.pin(&directory).map_err(|error| format!("pinning its program: {error}"))?;
    let pins = Pins::new(directory);
    tracing::info!("`{name}` is for {owner} by the handshake");
    Ok(MapDevice { name, program, _pins: pins, _lease: lease })
}

fn settings(mtu: u32) -> Settings {
    Settings { max_length: mtu.saturating_add(HEADERS), mark: 0, reenter_ifindex: 0 }
}
