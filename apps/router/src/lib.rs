//! A forwarder of IPv4 and IPv6 that does what Linux would, as far as it is simple, and leaves the
//! rest to Linux.
//!
//! [`headers`] reads a packet, [`Routes`] says where it leaves, [`acl`] whether it may, [`rewrite`]
//! sends it on its way, and [`Cause`] names what became of it. A [`Router`] is the application.

#![forbid(unsafe_code)]

pub mod acl;
mod cause;
pub mod counts;
mod family;
mod flow;
pub mod forward;
pub mod headers;
pub mod report;
mod rewrite;
mod routes;
pub mod settings;

pub use cause::{CAUSES, Cause, names, of_mirror};
pub use flow::FlowHash;
pub use forward::Router;
pub use routes::{BATCH, Routes};
