//! The agent: opens ports for applications that have no privilege.
//!
//! An application connects to its Unix socket and asks; the kernel tells the agent who asks. The
//! [`Configuration`] says which users may use which interfaces, queues and steering rules. The
//! agent attaches the steering program, registers the application's own memory as UMEM, binds the
//! AF_XDP sockets and passes them. It reads and writes no packet.
//!
//! A program can embed it: [`Agent`] takes [grants](Agent::grant) while it runs, each with a socket
//! of its own, whose clients need no user id. The front doors of Kubernetes are such programs.
//!
//! * `listener` accepts connections; `admit` checks who connects, within limits; `client` serves
//!   one connection.
//! * `device` is an interface that a client has; `registry` has at most one client for each;
//!   `orphans` are the devices that a restarted agent found pinned, by their `owner`.
//! * `handshake` serves the protocol of Intel's AF_XDP device plugin, for the `map_devices` of a
//!   pool.
//! * `taps` are the TAP devices of a client; `elsewhere` serves clients of other network
//!   namespaces, such as pods, whose interfaces stay where the agent is.
//! * `pool_memory` checks the memory that a client sends.
//!
//! Every byte of a client is hostile. What a client has ends with its connection. If the agent
//! ends, the programs and sockets of its clients go on: they are pinned in a BPF file system, and
//! the next agent takes them over.

#![forbid(unsafe_code)]

mod admit;
mod agent;
mod answer;
mod client;
mod config;
mod device;
mod elsewhere;
mod error;
pub mod fuzz;
mod grant;
mod handshake;
mod listener;
mod map_devices;
mod orphans;
mod owner;
mod pool_memory;
mod preconditions;
mod registry;
mod server;
mod shared;
mod taps;
mod token;
mod vfio;

pub use agent::Agent;
pub use config::{
    Configuration, KubernetesApi, KubernetesSettings, PoolSettings, QueueLimit, TapLimit, read,
};
pub use error::Error;
pub use fastlane::kernel::peer::Peer;
pub use grant::{Admission, Grant, GrantUse};
pub use server::run;
pub use vfio::vfio_device;

/// Returns the JSON schema of the agent's configuration, as committed in `agent.schema.json`.
#[must_use]
pub fn schema() -> String {
    fastlane::config::schema_of::<Configuration>()
}
