//! The control plane process: the PFCP server (3GPP TS 29.244).
//!
//! It runs in one thread. [`Node`](node) and all that it calls use neither sockets nor clocks. They
//! receive datagrams, lane messages and the time ([`Now`](crate::time::Now)), and put what is to be
//! sent into an [`Outbox`]. [`run`] is the event loop around them. What must outlive this process
//! is in the tables of the user plane process.

pub mod end_marker;
pub mod heartbeat;
pub mod neighbours;
pub mod node;
pub mod overload;
pub mod path;
pub mod peer;
pub mod run;
pub mod sessions;
pub mod socket;
pub mod transaction;

pub use node::Node;
pub use peer::{NodeName, Peer};
pub use run::{Beside, RunError, run};
pub use socket::outbox::{LaneMessage, Outbox, Outgoing};
pub use transaction::requests::{Request, Requests, Tag};
pub use transaction::{Context, RequestKey};
