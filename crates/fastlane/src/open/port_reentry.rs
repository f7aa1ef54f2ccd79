//! Re-entry of a port, which this process or the agent has opened.

use std::sync::Arc;

use fastlane_kernel::Interface;
use fastlane_kernel::reentry::{self, Method, Reentry};
use fastlane_kernel::tap::TapQueue;

use crate::agent::AgentClient;
use crate::agent::records::REENTRY_MARK;

/// Re-entry into the interface of a port, for the main thread, which follows the interface.
#[derive(Debug)]
pub(crate) enum PortReentry {
    /// Re-entry of this process.
    Own(Box<Reentry>),
    /// Re-entry of the agent, with its number.
    Agent(Arc<AgentClient>, u32),
}

impl PortReentry {
    /// Opens re-entry queues, by the agent if there is one.
    ///
    /// # Errors
    /// The reason of the kernel or of the agent.
    pub(super) fn open(
        interface: &Interface,
        method: Method,
        queues: usize,
        agent: Option<&Arc<AgentClient>>,
    ) -> Result<(Self, Vec<TapQueue>), String> {
        let Some(agent) = agent else {
            let opened = reentry::open(interface, method, queues);
            let (reentry, queues) = opened.map_err(|error| error.to_string())?;
            return Ok((Self::Own(Box::new(reentry)), queues));
        };
        let (number, files) = agent.reenter(interface.index, queues)?;
        let queues = reentry::adopt(files).map_err(|error| error.to_string())?;
        Ok((Self::Agent(Arc::clone(agent), number), queues))
    }

    /// Follows another Ethernet address of the interface.
    ///
    /// # Errors
    /// The reason of the kernel or of the agent.
    pub(crate) fn follow_mac(&self, interface: &Interface) -> Result<(), String> {
        match self {
            Self::Own(reentry) => reentry.follow_mac(interface).map_err(|error| error.to_string()),
            Self::Agent(agent, number) => agent.redirect(*number, interface.index),
        }
    }

    /// Enters by an interface, in the manner of another driver. Frames on their way enter in one
    /// manner or the other.
    ///
    /// # Errors
    /// The reason of the kernel.
    pub(super) fn enter(&mut self, interface: &Interface, method: Method) -> Result<(), String> {
        match self {
            Self::Own(reentry) => {
                reentry.enter(interface, method).map_err(|error| error.to_string())
            }
            // The agent chooses the method; `fastlane switch` refuses its ports.
            Self::Agent(agent, number) => agent.redirect(*number, interface.index),
        }
    }

    /// Enters so that neither AF_XDP nor AF_PACKET sees the frames again, until it
    /// [enters](Self::enter) in the manner of the next driver. The agent switches no ports.
    ///
    /// # Errors
    /// The reason of the kernel.
    pub(super) fn enter_beside_both(&mut self, next: Method) -> Result<(), String> {
        let Self::Own(reentry) = self else { return Ok(()) };
        reentry.enter_beside_both(next, REENTRY_MARK).map_err(|error| error.to_string())
    }

    /// Enters in the manner of the present driver, as the next one did not come about.
    ///
    /// # Errors
    /// The reason of the kernel.
    pub(super) fn enter_as_before(&mut self) -> Result<(), String> {
        let Self::Own(reentry) = self else { return Ok(()) };
        reentry.enter_as_before().map_err(|error| error.to_string())
    }

    /// Redirects to another interface, which has taken the place of a removed one.
    ///
    /// # Errors
    /// The reason of the kernel or of the agent.
    pub(super) fn redirect_to(&mut self, interface: &Interface) -> Result<(), String> {
        match self {
            Self::Own(reentry) => reentry.redirect_to(interface).map_err(|error| error.to_string()),
            Self::Agent(agent, number) => agent.redirect(*number, interface.index),
        }
    }
}
