//! Interfaces of ports: those of this process's network namespace, or the agent's.

use std::sync::Arc;

use fastlane_kernel::Interface;

use super::AgentClient;

/// Source of the properties of interfaces.
#[derive(Clone, Debug, Default)]
pub(crate) enum Interfaces {
    /// Network namespace of this process.
    #[default]
    Own,
    /// Network namespace of the agent, where this process is not.
    Agent(Arc<AgentClient>),
}

impl Interfaces {
    /// Returns the source of the interfaces of ports that this agent opens, or this process.
    pub(crate) fn of(agent: Option<&Arc<AgentClient>>) -> Self {
        match agent {
            Some(agent) if agent.rights().is_elsewhere => Self::Agent(Arc::clone(agent)),
            _ => Self::Own,
        }
    }

    /// Returns the agent in whose network namespace the interfaces are, if this process is in
    /// another one.
    pub(crate) fn agent(&self) -> Option<&Arc<AgentClient>> {
        match self {
            Self::Own => None,
            Self::Agent(agent) => Some(agent),
        }
    }

    /// Returns the properties of an interface.
    ///
    /// # Errors
    /// It does not exist, or the reason of the kernel or the agent.
    pub(crate) fn query(&self, name: &str) -> Result<Interface, String> {
        match self {
            Self::Own => Interface::query(name).map_err(|error| error.to_string()),
            Self::Agent(agent) => agent.interface(name, None)?.ok_or_else(|| {
                format!("no interface {name} in the network namespace of the agent")
            }),
        }
    }

    /// Returns the present properties of an interface, which may have another name now. `None` if
    /// it was removed.
    ///
    /// # Errors
    /// The reason of the kernel or the agent.
    pub(crate) fn again(&self, before: &Interface) -> Result<Option<Interface>, String> {
        match self {
            Self::Own => Interface::with_index(before.index).map_err(|error| error.to_string()),
            Self::Agent(agent) => agent.interface(&before.name, Some(before.index)),
        }
    }
}
