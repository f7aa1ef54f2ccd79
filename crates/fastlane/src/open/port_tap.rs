//! Switch of the TAP device of a port.

use std::sync::Arc;

use fastlane_kernel::tap::TapSwitch;

use crate::agent::AgentClient;
use crate::agent::records::Request;

/// Switch of the TAP device of a port, which this process or the agent operates.
#[derive(Debug)]
pub(super) struct PortTap {
    switch: TapSwitch,
    agent: Option<Arc<AgentClient>>,
}

impl PortTap {
    pub(super) fn new(switch: TapSwitch, agent: Option<Arc<AgentClient>>) -> Self {
        Self { switch, agent }
    }

    /// Sets the interface down.
    ///
    /// # Errors
    /// The reason of the kernel or of the agent; the interface stays up.
    pub(super) fn set_down(&self) -> Result<(), String> {
        match &self.agent {
            None => self.switch.set_down().map_err(|error| error.to_string()),
            Some(agent) => {
                let name = self.switch.name().to_owned();
                agent.change(&Request::SetTapDown { name }, &[])
            }
        }
    }
}
