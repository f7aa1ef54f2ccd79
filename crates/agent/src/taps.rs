//! TAP devices of a client: those of its pools, in its network namespace.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use fastlane::agent::records::{DESCRIPTORS, Response, TapRequest};
use fastlane::kernel::Interface;
use fastlane::kernel::tap::{ClientNamespace, TapSettings, TapSwitch};

use crate::answer::Answer;
use crate::config::Pool;

/// TAP devices that a client has had. A device ends with the client's queues.
#[derive(Debug, Default)]
pub(crate) struct ClientTaps {
    switches: Vec<TapSwitch>,
    /// Number of devices that were created.
    count: usize,
}

/// Maximum number of devices that a connection may create.
const MAX_TAPS: usize = 64;

impl ClientTaps {
    /// Creates a device of one of the pools in the network namespace of the connection. Addresses
    /// in another namespace than the agent's are set by `sockets` of the client.
    ///
    /// # Errors
    /// The reason of the refusal.
    pub(crate) fn open(
        &mut self,
        pools: &[Arc<Pool>],
        request: TapRequest,
        sockets: &[OwnedFd],
        connection: &OwnedFd,
    ) -> Answer {
        let TapRequest { name, mac, mtu, queues, addresses } = request;
        let allowed = pools.iter().find_map(|pool| pool.taps.get(&name)).ok_or_else(|| {
            let names = pools.iter().flat_map(|pool| pool.taps.keys());
            let names: Vec<&str> = names.map(String::as_str).collect();
            format!(
                "this client may not create the TAP device `{name}`, only [{}]",
                names.join(", ")
            )
        })?;
        if let Some((address, length)) = addresses.iter().find(|it| !allowed.contains(it)) {
            return Err(format!("the TAP device `{name}` may not have {address}/{length}"));
        }
        if self.count >= MAX_TAPS {
            return Err(format!("a connection creates at most {MAX_TAPS} TAP devices"));
        }
        if !(1..=DESCRIPTORS).contains(&(queues as usize)) {
            return Err(format!("a TAP device has 1 to {DESCRIPTORS} queues, not {queues}"));
        }
        let settings = TapSettings {
            name: Some(name),
            mac,
            mtu,
            queues: queues as usize,
            up: true,
            quiet: false,
            addresses,
        };
        let namespace = ClientNamespace::of(connection.as_fd());
        let opened = namespace.and_then(|namespace| namespace.open_tap(settings, sockets));
        let (files, switch) = opened.map_err(|error| error.to_string())?;
        self.count += 1;
        self.switches.extend(switch);
        Ok((Response::Tap, files))
    }

    /// Sets a device down.
    ///
    /// # Errors
    /// The reason of the kernel, or that the client has no such device.
    pub(crate) fn set_down(
        &self,
        pools: &[Arc<Pool>],
        name: &str,
        connection: &OwnedFd,
    ) -> Result<(), String> {
        if let Some(namespace) = elsewhere(pools, name, connection)? {
            return namespace.set_tap_down(name).map_err(|error| error.to_string());
        }
        let switch = self.switches.iter().rev().find(|switch| switch.name() == name);
        let switch = switch.ok_or("its TAP device is older than this agent")?;
        switch.set_down().map_err(|error| error.to_string())
    }

    /// Gives a device in another network namespace the Ethernet address and the MTU of an
    /// interface.
    ///
    /// # Errors
    /// The reason of the kernel, or that the client has no such device.
    pub(crate) fn follow(
        pools: &[Arc<Pool>],
        name: &str,
        interface: &Interface,
        connection: &OwnedFd,
    ) -> Result<(), String> {
        let namespace = elsewhere(pools, name, connection)?;
        let namespace = namespace.ok_or("its TAP device is where its interface is")?;
        namespace.change_tap(name, interface.mac, interface.mtu).map_err(|error| error.to_string())
    }
}

/// Returns the namespace of a client that is in another one than the agent, and whose pools have
/// the TAP device. There, a client after a restart of the agent is as good as one before it.
fn elsewhere<'a>(
    pools: &[Arc<Pool>],
    name: &str,
    connection: &'a OwnedFd,
) -> Result<Option<ClientNamespace<'a>>, String> {
    let failed = |error: fastlane::kernel::Error| error.to_string();
    let namespace = ClientNamespace::of(connection.as_fd()).map_err(failed)?;
    if !namespace.is_elsewhere().map_err(failed)? {
        return Ok(None);
    }
    match pools.iter().any(|pool| pool.taps.contains_key(name)) {
        true => Ok(Some(namespace)),
        false => Err(format!("this client has no TAP device `{name}`")),
    }
}
