//! The control plane process: the PFCP server (3GPP TS 29.244).
//!
//! It runs in one thread. [`Node`](node) and all that it calls use neither sockets nor clocks. They
//! receive datagrams, lane messages and the time ([`Now`](crate::time::Now)), and put what is to be
//! sent into an [`Outbox`]. [`run`](mod@run) is the event loop around them. What must outlive this
//! process is in the tables of the user plane process.

pub mod associations;
pub mod neighbours;
pub mod node;
pub mod overload;
pub mod paths;
pub mod run;
pub mod sessions;

pub use associations::{NodeName, Peer};
pub use node::Node;
pub use run::{LoopService, RunError, run};
pub use sessions::Context;

pub use crate::transactions::{LaneMessage, Outbox, Outgoing, Request, RequestKey, Requests, Tag};
