//! Changes of the interfaces of ports, told by the kernel or by the agent.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use fastlane_kernel::{LinkEvent, LinkEvents};

use crate::agent::{AgentClient, Interfaces};

/// Source of the changes of interfaces.
#[derive(Debug)]
pub(super) enum InterfaceEvents {
    /// Events of this process's network namespace.
    Own(LinkEvents),
    /// Number by which the agent tells changes in its network namespace, as of the last look.
    Agent(Arc<AgentClient>, u64),
    /// The kernel refuses the subscription: each look takes all interfaces for changed.
    Missing,
}

impl InterfaceEvents {
    /// Subscribes to the changes.
    pub(super) fn of(interfaces: &Interfaces) -> Self {
        if let Some(agent) = interfaces.agent() {
            return Self::Agent(Arc::clone(agent), agent.changes());
        }
        LinkEvents::open().map_or_else(
            |error| {
                tracing::warn!(
                    "changes of interfaces cannot be followed ({error}); they are looked for ten \
                     times a second instead"
                );
                Self::Missing
            },
            Self::Own,
        )
    }

    /// Returns the descriptor that becomes readable on a change. Those that the agent tells come
    /// with the counters, ten times a second.
    pub(super) fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Own(events) => Some(events.as_fd()),
            Self::Agent(..) | Self::Missing => None,
        }
    }

    /// Passes the changes since the last look to `take`. Returns false if any interface may have
    /// changed.
    pub(super) fn receive(&mut self, take: impl FnMut(LinkEvent)) -> bool {
        match self {
            Self::Own(events) => matches!(events.receive(take), Ok(true)),
            Self::Agent(agent, seen) => {
                let now = agent.changes();
                std::mem::replace(seen, now) == now
            }
            Self::Missing => false,
        }
    }
}
