//! The mirror: Linux's forwarding state in tables that lanes read.
//!
//! Linux (or a routing daemon on it) decides; the mirror follows. A [`Follower`], in a thread of
//! the application, reads the links, addresses, neighbours, next-hop objects and routes of a
//! network namespace by rtnetlink(7), follows their events and keeps tables in shared memory. A
//! [`Mirror`], one for each lane, looks packets up in them. A lookup returns a port, Ethernet
//! addresses and an MTU, or the reason why Linux must handle the packet ([`FallbackReason`]).
//!
//! ```text
//! rtnetlink ─► message (parsing) ─► model (forwarding state) ─► publish (differences) ─► tables
//!
//! routes4-N, routes6-N   prefix ─► group           a Linux table overlaid with the local table
//! groups                 id ─► hops and weights, or a fallback reason
//! hops                   id ─► port, Ethernet addresses, MTU; or on-link; or a fallback reason
//! neighbours             interface and address ─► Ethernet address
//! links, addresses       interfaces and addresses of the host
//! status                 fallback reason of a whole table, if it is incomplete
//! generation             number that changes with every write
//! ```
//!
//! Invariant: in doubt, packets go to Linux. That holds while a table is too small, when routing
//! rules consult other tables, and when an interface is down. Events are subscribed to before the
//! first dump. When the kernel loses events, or changes something without an event, the follower
//! reads everything again while lanes continue with the current tables.

#![forbid(unsafe_code)]

pub mod blackhole;
pub mod conntrack;
mod error;
mod fallback_reason;
pub mod flows;
mod follower;
pub mod fuzz;
pub mod ipsec;
mod lookup;
mod memories;
pub mod message;
pub mod model;
mod netconf_listener;
pub mod packet_rules;
mod prefix;
mod publish;
pub mod query;
mod records;
mod route_listener;
mod route_mtus;
mod settings;
mod socket;
mod waiting_neighbours;

pub use error::Error;
pub use fallback_reason::FallbackReason;
pub use follower::{Follower, FollowerStatistics};
pub use lookup::{Family, Mirror, NextHop, PrefixReaders, ReturnRoute, RouteLookup, TableId};
pub use memories::Memories;
pub use netconf_listener::{NetconfEvents, NetconfListener};
pub use prefix::Prefix;
pub(crate) use publish::GENERATION;
pub use publish::Occupancy;
pub use records::{
    AddressKey, GROUP_HOPS, GroupRecord, HopRecord, LinkRecord, NeighbourKey, NeighbourRecord,
    StatusRecord,
};
pub use route_listener::{RouteChange, RouteListener};
pub use settings::{KeepAlive, MirrorSettings};
