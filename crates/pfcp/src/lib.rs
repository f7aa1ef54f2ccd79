//! The Packet Forwarding Control Protocol (3GPP TS 29.244, Release 16, with the elements of
//! Releases 17 and 18 that peers send).
//!
//! A datagram is parsed in place and nothing is copied: [`Message::parse`] reads the header,
//! [`Message::check`] compares the whole message with its grammar and names what is wrong,
//! [`Message::group`] finds typed elements. [`Writer`] makes messages.
//!
//! Every function is total: whatever the octets are, it ends, in time proportional to their number,
//! and does not panic.
//!
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
mod group;
mod header;
pub mod ie;
mod ie_type;
mod octets;
mod tlv;
mod writer;

pub use cause::{Cause, Fault};
pub use group::{All, Group, Groups};
pub use header::{Header, HeaderError, Message, MessageType};
pub use ie::Ie;
pub use ie_type::IeType;
pub use tlv::{Ies, RawIe, Truncated};
pub use writer::Writer;

/// The UDP port of PFCP (clause 4.2.2).
pub const PORT: u16 = 8805;
