//! TAP devices of a client: those of its pools, in its network namespace.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use fastlane::agent::records::{DESCRIPTORS, Response, TapRequest};
use fastlane::kernel::tap::{self, TapSettings, TapSwitch};

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
    /// Creates a device of one of the pools in the network namespace of the connection.
    ///
    /// # Errors
    /// The reason of the refusal.
    pub(crate) fn open(
        &mut self,
        pools: &[Arc<Pool>],
        request: TapRequest,
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
        let opened = tap::open_for_client(settings, connection.as_fd());
        let (files, switch) = opened.map_err(|error| error.to_string())?;
        self.count += 1;
        self.switches.extend(switch);
        Ok((Response::Tap, files))
    }

    /// Sets a device down.
    ///
    /// # Errors
    /// The reason of the kernel, or that the client has no such device here.
    pub(crate) fn set_down(&self, name: &str) -> Result<(), String> {
        let switch = self.switches.iter().rev().find(|switch| switch.name() == name);
        let switch = switch.ok_or("its TAP device is in another network namespace, or older")?;
        switch.set_down().map_err(|error| error.to_string())
    }
}
