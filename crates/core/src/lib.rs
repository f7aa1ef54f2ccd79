//! The framework without any I/O.
//!
//! A [`Lane`] is the world of one core: it takes bursts of [`Packet`]s from its [`Queue`]s, shows
//! them to its [`App`], which labels each with a [`Verdict`], and carries the verdicts out. Frames
//! belong to the lane's [`Pool`]. This crate opens no file descriptor and reads no configuration;
//! after start it neither allocates, locks, logs nor fails: it counts.

mod app;
mod burst;
pub mod capture;
mod dispatch;
pub mod exchange;
mod hold;
mod home;
mod idle;
mod lane;
mod mailbox;
mod messages;
mod packet;
mod pool;
mod port;
mod queue;
mod relocate;
mod timers;
mod turn;
mod verdict;

pub use app::App;
pub use burst::Burst;
pub use exchange::Passage;
pub use hold::HoldLimits;
pub use home::Home;
pub use idle::Idle;
pub use lane::{Lane, LaneParts};
pub use mailbox::Mailbox;
pub use messages::Messages;
pub use packet::{Custody, METADATA_LENGTH, Packet, Partial, PortId};
pub use pool::{Frame, Pool};
pub use port::{Filter, KernelPath, Port};
pub use queue::{Queue, Sent, Statistics, Takes};
pub use turn::{Turn, now};
pub use verdict::{HoldKey, RawVerdict, Verdict};
