//! C interface of Fastlane: the symbols behind `include/fastlane.h`.
//!
//! The header is generated from this crate: types, functions and their comments from the files
//! below, what is inline from `inline.h`. A test compares; `BLESS=1 cargo test -p fastlane-capi
//! --test header` writes it anew. Documentation comments here are therefore written for readers of
//! the header.
//!
//! An application in C is one call for each burst, with the lane's own array of packets; nothing is
//! done for each packet on the way there and back. What that trusts is said in `application.rs`.

pub mod application;
mod check;
pub mod entry;
pub mod lane;
pub mod packet;
pub mod turn;

pub use application::{App, application};
pub use lane::Lane;
pub use packet::Packet;
pub use turn::Message;
