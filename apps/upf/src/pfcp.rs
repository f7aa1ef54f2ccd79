//! The control plane process: the PFCP server (3GPP TS 29.244).
//!
//! It runs in one thread. [`Node`](node) and all that it calls use neither sockets nor clocks. They
//! receive datagrams, lane messages and the time ([`Now`](crate::time::Now)), and put what is to be
//! sent into an [`Outbox`]. [`run`](mod@run) is the event loop around them. What must outlive this
//! process is in the tables of the user plane process.

pub mod access_list;
pub mod associations;
pub mod neighbours;
pub mod node;
mod node_name;
pub mod overload;
pub mod paths;
pub mod reload;
mod reload_check;
pub mod resolver;
pub mod run;
pub mod sessions;
pub mod shutdown;
pub mod sockets;

pub use associations::Peer;
pub use node::Node;
pub use node_name::NodeName;
pub use reload::{ConfigurationFile, ReloadReport, Reloader};
pub use run::{LoopService, RunError, run};
pub use sessions::Context;
pub use shutdown::Shutdown;

pub use crate::transactions::{
    LaneMessage, N4Protocol, Outbox, Outgoing, Request, RequestKey, Requests, Tag,
};
