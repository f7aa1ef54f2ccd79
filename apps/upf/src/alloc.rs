//! Allocation of session indices (UP SEIDs), TEIDs and UE addresses.
//!
//! All state follows from the session records: nothing here is stored, and a successor process
//! rebuilds it.

pub mod seid;
pub mod teid;
pub mod ue_address;

pub use seid::SessionIndices;
pub use ue_address::{Addresses, Family};
