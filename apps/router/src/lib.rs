//! IPv4 and IPv6 forwarder beside Linux: forwards the simple cases as Linux would and leaves the
//! rest to Linux.
//!
//! [`headers`] reads a packet, [`Routes`] says where it leaves, [`acl`] whether it may, `rewrite`
//! sends it on its way, and [`Outcome`] names what became of it. A [`Router`] is the application.

#![forbid(unsafe_code)]

pub mod acl;
pub mod counts;
mod family;
mod flow;
pub mod flows;
pub mod forward;
pub mod headers;
mod outcome;
pub mod report;
mod rewrite;
mod routes;
pub mod settings;
mod translate;

pub use flow::FlowHash;
pub use forward::Router;
pub use outcome::{CAUSES, Outcome, names, of_mirror};
pub use routes::{BATCH, Routes};
