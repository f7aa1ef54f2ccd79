//! Flows: connections that Linux tracks, in a table by which lanes forward their packets.
//!
//! Linux establishes a connection: its rules, NAT and connection tracking see the first packets.
//! Once Linux has marked it, a [`FlowFollower`], in the slow path, writes the directions that Linux
//! has seen to a table of [`FlowKey`] and [`FlowRecord`]. Lanes translate the packets that they
//! find in it and leave all others to Linux. What lanes see of a flow is lane state
//! ([`FlowState`]), by which the follower keeps the timeouts of Linux right.
//!
//! ```text
//! ctnetlink ─► FlowPolicy (may it be fast?) ─► FlowTable ─► table `flows` ─► lanes
//!     ▲                                                                       │
//!     └──── timeouts, TCP flags, marks ◄── sweep ◄── lane state `flows` ◄─────┘
//! ```
//!
//! Invariants: a connection is in the table only while Linux reports its events, so that its end
//! and a cleared mark remove it. Packets that begin or end connections always pass Linux. Without a
//! living follower lanes leave everything to Linux after a grace time ([`FlowStatus`]).
//!
//! A [`FlowTier`] is a second table with the same flows, for a tier inside the kernel.

mod flow_follower;
mod flow_key;
mod flow_policy;
mod flow_state;
mod flow_status;
mod flow_sweep;
mod flow_table;
mod flow_tier;
mod judged_rules;
mod policy_timeouts;

pub use flow_follower::{FlowFollower, FlowSettings};
pub use flow_key::{FlowKey, FlowRecord};
pub use flow_policy::{FlowPolicy, REFUSALS, Refusal, Suitability};
pub use flow_state::{FLOW_WORDS, FlowState, RememberedHop};
pub use flow_status::{FlowStatistics, FlowStatus, PinsPath};
pub use flow_sweep::FlowTimeouts;
pub use flow_tier::{FlowTier, TierFlow, TierTotals};
