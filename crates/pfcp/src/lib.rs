//! Codec of the Packet Forwarding Control Protocol (3GPP TS 29.244, Release 16, with the elements
//! of Releases 17 and 18 that peers send).
//!
//! * [`Message::parse`] parses a header in place; nothing is copied.
//! * [`Message::check`] compares the whole message with its grammar and returns the first fault.
//! * [`Message::group`] finds elements by type; [`ie`] has their fields.
//! * [`Writer`] encodes messages.
//!
//! # Invariants
//! Every function is total: for any octets it ends in time proportional to their number and does
//! not panic.
//!
//! # Examples
//! ```
//! use fastlane_pfcp::{Header, Message, MessageType, Writer, ie::RecoveryTimeStamp};
//!
//! let header = Header::node(MessageType::HEARTBEAT_REQUEST, 7);
//! let mut datagram = Vec::new();
//! Writer::new(&mut datagram).message(header, |w| w.put(&RecoveryTimeStamp(1)));
//!
//! let (message, _) = Message::parse(&datagram).unwrap();
//! message.check().unwrap();
//! assert_eq!(message.group().need::<RecoveryTimeStamp>(), Ok(RecoveryTimeStamp(1)));
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod cause;
#[doc(hidden)]
pub mod fuzz;
mod grammar;
pub mod ie;
mod ie_type;
mod message;

pub use cause::{Cause, Fault};
pub use ie::{Ie, Ies, RawIe, Truncated};
pub use ie_type::IeType;
pub use message::{Group, Groups, Header, HeaderError, Message, MessageType, TypedIes, Writer};

/// UDP port of PFCP (clause 4.2.2).
pub const PORT: u16 = 8805;
