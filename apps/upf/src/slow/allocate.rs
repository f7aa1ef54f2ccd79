//! What this end gives out: places of sessions, tunnel identifiers, users' addresses.
//!
//! All of it follows from the records of sessions: nothing here is stored, and the next process
//! makes it anew.

pub mod addresses;
pub mod places;
pub mod tunnels;

pub use addresses::{Addresses, Family};
pub use places::Places;
