//! What Linux knows of forwarding, in tables that lanes read.
//!
//! Linux (or a routing daemon on it) stays the one who decides; the mirror follows. A [`Follower`],
//! in a thread of the slow half, reads the links, addresses, neighbours, next-hop objects and
//! routes of a network namespace by rtnetlink(7), follows their events, and keeps tables of shared
//! memory. A [`Mirror`], one for each lane, looks packets up in them: it answers with a port,
//! Ethernet addresses and an MTU, or that Linux has to be asked, and why ([`FallbackReason`]).
//!
//! ```text
//! rtnetlink ─► message (octets to values) ─► state (the model) ─► publish (what differs) ─► tables
//!
//! routes4-N, routes6-N   prefix ─► group           a table of Linux's, the local one laid over it
//! groups                 number ─► hops and shares, or a reason
//! hops                   number ─► port, Ethernet addresses, MTU; on the link; or a reason
//! neighbours             interface and address ─► Ethernet address
//! links, addresses       what the host itself has
//! status                 whether a table is the whole truth
//! ```
//! In doubt the answer is Linux: while a table is too small for what Linux has, when routing rules
//! decide beside the main table, when an interface is down. Events are subscribed to before the
//! first dump; when the kernel loses some, or changes things without an event, everything is read
//! anew, while lanes go on with what is there.

#![forbid(unsafe_code)]

pub mod blackhole;
mod error;
mod fallback_reason;
mod follower;
pub mod fuzz;
mod lookup;
mod memories;
pub mod message;
pub mod model;
mod netconf_listener;
mod prefix;
mod publish;
pub mod query;
mod records;
mod settings;
mod socket;

pub use error::Error;
pub use fallback_reason::FallbackReason;
pub use follower::{Follower, FollowerStatistics};
pub use lookup::{Family, Mirror, NextHop, RouteLookup, TableId};
pub use memories::Memories;
pub use netconf_listener::{NetconfEvents, NetconfListener};
pub use prefix::Prefix;
pub use publish::Occupancy;
pub use records::{
    AddressKey, GROUP_HOPS, GroupRecord, HopRecord, LinkRecord, NeighbourKey, NeighbourRecord,
    StatusRecord,
};
pub use settings::{KeepAlive, MirrorSettings};
