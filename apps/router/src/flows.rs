//! Flows: packets of connections that Linux has established and marked.
//!
//! With flows, the rules and the NAT of Linux decide, so a packet is forwarded only if its
//! connection is in the table `flows`; its route alone does not suffice. The slow path
//! ([`offload`]) writes that table, and for ports of the kernel tier that of an XDP program, which
//! `tier_ports` attaches. [`LaneFlows`] is what a lane has of it, `translate` changes a
//! packet, `list` and `explain` show flows to people.

mod explain;
pub mod flows_command;
mod lane_flows;
pub(crate) mod list;
pub mod offload;
mod offload_metrics;
mod resolve;
mod tier_ports;

pub(crate) use lane_flows::Candidate;
pub use lane_flows::LaneFlows;
pub use list::kernel_outcomes;
pub use offload_metrics::offload_metrics;
pub(crate) use resolve::Resolver;
