//! Kernel peer of a port whose interface is in another network namespace: a TAP device that follows
//! the interface.

use std::sync::Arc;

use fastlane_kernel::Interface;
use fastlane_kernel::tap::Carrier;

use crate::agent::AgentClient;
use crate::agent::records::Request;

/// Kernel peer with the agent that has the interface.
#[derive(Debug)]
pub(super) struct KernelPeer {
    pub(super) tap: String,
    pub(super) carrier: Carrier,
    pub(super) agent: Arc<AgentClient>,
    /// True if the configuration sets its Ethernet address or MTU, so that it keeps them.
    pub(super) is_fixed: bool,
}

impl KernelPeer {
    /// Follows the interface: Ethernet address, MTU and carrier. `None` is a removed interface.
    ///
    /// # Errors
    /// The reason of the kernel or of the agent. The carrier has followed then.
    pub(super) fn follow(&self, now: Option<&Interface>) -> Result<(), String> {
        let has_carrier = now.is_some_and(|interface| interface.carrier);
        self.carrier.set(has_carrier).map_err(|error| error.to_string())?;
        let Some(interface) = now.filter(|_| !self.is_fixed) else { return Ok(()) };
        let device = self.agent.token(interface.index);
        let device = device.ok_or("the agent has no device on its interface")?;
        self.agent.change(&Request::Follow { tap: self.tap.clone(), device }, &[])
    }
}
