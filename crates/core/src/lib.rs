//! Packet, verdict, application, queue, pool and lane: the parts of Fastlane that every packet of
//! every application needs, without any I/O.
//!
//! A [`Lane`] is one core. In each [`Turn`] it receives bursts of [`Packet`]s from its [`Queue`]s,
//! shows them to its [`App`], which labels each with a [`Verdict`], and carries the verdicts out.
//! Frames belong to the lane's [`Pool`].
//!
//! Most authors use these types through the crate `fastlane`, which opens ports and runs lanes from
//! a configuration. This crate is for drivers, which implement [`Queue`] (see the crate
//! `fastlane-local` for small ones), and for the layers around a lane:
//!
//! | seam | layer |
//! |---|---|
//! | [`PacketObserver`] | `fastlane-capture` records packets |
//! | [`HoldBuffer`] | `fastlane-hold` holds packets until the application resumes them |
//! | [`Exchange`] | `fastlane-sharding` passes packets between lanes |
//! | [`LogicalPorts`] | `fastlane-local` has VLANs as ports |
//!
//! Invariants: the crate opens no file descriptor and reads no configuration. After start a lane
//! neither allocates, locks, logs nor returns an error; it counts. An application can neither keep
//! nor lose a frame.

mod burst;
mod copy;
mod egress;
mod exchange;
mod hold;
mod idle;
mod lane;
mod logical_ports;
mod losses;
mod mailbox;
mod messages;
mod observer;
mod packet;
mod packet_ring;
mod pool;
mod port;
mod queue;
mod queue_change;
mod queue_swap;
mod run;
mod timers;
mod turn;
mod verdict;

pub use burst::Burst;
pub use exchange::{Exchange, ShardOwnership};
pub use fastlane_table::prefetch;
pub use hold::{HoldBuffer, Resume};
pub use idle::Idle;
pub use lane::{Lane, LaneConfig};
pub use logical_ports::LogicalPorts;
pub use losses::{LossReader, Statistics};
pub use mailbox::Mailbox;
pub use messages::Messages;
pub use observer::{Departure, PacketObserver};
pub use packet::{Frame, METADATA_LENGTH, MOVED, Packet, PacketOwnership, Partial, RegionId};
pub use packet_ring::PacketRing;
pub use pool::{Pool, PoolError, PoolLayout};
pub use port::{Filter, KernelPath, Port};
pub use queue::{Congestion, Queue, Sent, TxMemory};
pub use queue_change::QueueChange;
pub use queue_swap::{DetachedQueue, QueueSwap, SwapResult};
pub use run::Run;
pub use turn::{App, Turn, now};
pub use verdict::{HoldKey, PortId, RawVerdict, Verdict};
