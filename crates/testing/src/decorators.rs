//! Queues around queues: what a test wants a port to do besides.
//!
//! Unlike drivers they may allocate and lock.

mod decorated;
mod fault;
mod noting;
mod record;
mod trace;

pub use decorated::{Decorate, Decorated};
pub use fault::{Account, Fault, Faults};
pub use noting::{Note, Noting};
pub use record::{Record, Recorded};
pub use trace::{Event, Trace};

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the application.
    Received,
    /// From the application.
    Sent,
}
