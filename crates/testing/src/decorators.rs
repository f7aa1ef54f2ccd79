//! Queues around queues, which inject faults or record packets.
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

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the application.
    Received,
    /// From the application.
    Sent,
}
