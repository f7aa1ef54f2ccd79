//! Flows: packets of connections that Linux has established and marked.
//!
//! With flows, the rules and the NAT of Linux decide, so a packet is forwarded only if its
//! connection is in the table `flows`; its route alone does not suffice. The slow path
//! ([`offload`]) writes that table. [`LaneFlows`] is what a lane has of it, `translate` changes a
//! packet, `list` and `explain` show flows to people.

mod explain;
pub mod flows_command;
mod lane_flows;
mod list;
pub mod offload;
mod resolve;

pub use lane_flows::LaneFlows;
pub(crate) use lane_flows::{Candidate, Hop};
pub(crate) use resolve::Resolver;
