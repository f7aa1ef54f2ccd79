//! The agent: the process that does what needs privilege for applications that have none.
//!
//! [`records`] is the protocol between both, [`seqpacket`] its transport. The agent itself is crate
//! `fastlane-agent`; the client's side is here, because applications find the agent by themselves.

mod agent_client;
mod interfaces;
pub mod records;
mod remote_steering;
pub mod seqpacket;

pub(crate) use agent_client::AgentClient;
pub(crate) use interfaces::Interfaces;
pub(crate) use remote_steering::RemoteSteering;
