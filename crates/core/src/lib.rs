//! The framework without any I/O.
//!
//! A [`Lane`] is the world of one core: it takes bursts of [`Packet`]s from its [`Queue`]s, shows
//! them to its [`App`], which labels each with a [`Verdict`], and carries the verdicts out. Frames
//! belong to the lane's [`Pool`]. This crate opens no file descriptor and reads no configuration;
//! after start it neither allocates, locks, logs nor fails: it counts.

mod app;
mod burst;
pub mod capture;
mod egress;
pub mod exchange;
mod hold;
mod idle;
mod lane;
mod mailbox;
mod memory;
mod messages;
mod packet;
mod port;
mod queue;
mod timers;
mod turn;
mod verdict;

pub use app::App;
pub use burst::Burst;
pub use exchange::LaneRing;
pub use hold::HoldLimits;
pub use idle::Idle;
pub use lane::{Lane, LaneConfig};
pub use mailbox::Mailbox;
pub use memory::{Frame, Pool, PoolError, RegionId};
pub use messages::Messages;
pub use packet::{METADATA_LENGTH, Packet, PacketOwnership, Partial, PortId};
pub use port::{Filter, KernelPath, Port};
pub use queue::{Queue, Sent, Statistics, TxMemory};
pub use turn::{Turn, now};
pub use verdict::{HoldKey, RawVerdict, Verdict};
