//! What this end gives out: places of sessions, tunnel identifiers, users' addresses.
//!
//! All of it follows from the records of sessions: nothing here is stored, and the next process
//! makes it anew.

pub mod seid;
pub mod teid;
pub mod ue_address;

pub use seid::Places;
pub use ue_address::{Addresses, Family};
