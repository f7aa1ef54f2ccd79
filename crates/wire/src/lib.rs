//! Protocol headers as plain structs, a parser and checksums.
//!
//! * Header structs such as [`Ethernet`], [`Ipv4`] and [`GtpU`] have public big-endian fields,
//!   which
//!   are read and written in place by [`header()`] and [`header_mut`].
//! * [`Layers`] finds the layers of a frame in one pass, [`GtpMessage`] those of a GTP-U message.
//! * [`checksum`] computes, updates and completes Internet checksums.
//!
//! # Invariants
//! Nothing here allocates, blocks or panics, and nothing reads beyond its input: every input is
//! hostile. All types are plain data, so any thread may use them. Headers are borrowed from the
//! frame, never copied out of it.
//!
//! # Examples
//! ```
//! use fastlane_wire::{EtherType, Ethernet, header};
//!
//! let frame = [0u8; 60];
//! let ethernet: &Ethernet = header(&frame, 0).expect("a whole header");
//! assert_ne!(ethernet.ethertype.get(), EtherType::IPV4);
//! ```
#![forbid(unsafe_code)]

mod arp;
pub mod checksum;
mod error;
mod ethernet;
#[doc(hidden)]
pub mod fuzz;
mod gtpu;
mod icmp;
mod ipv4;
mod ipv6;
mod layers;
mod tcp;
mod udp;
mod vlan;

pub use arp::Arp;
pub use error::{HeaderName, ParseError};
pub use ethernet::{EtherType, Ethernet, InvalidMacAddress, MacAddress};
pub use gtpu::{
    GtpExtensionType, GtpMessage, GtpMessageType, GtpU, GtpUOptional, MAX_GTPU_EXTENSIONS,
    PduSession, PduSessionContainer,
};
pub use icmp::{Icmp, Icmpv6, LinkLayerAddress, NeighborAdvertisement, NeighborSolicitation};
pub use ipv4::{IpProtocol, Ipv4};
pub use ipv6::{Ipv6, Ipv6Authentication, Ipv6Extension, Ipv6Fragment};
pub use layers::{Fragment, Layers, MAX_IPV6_EXTENSIONS, MAX_VLANS};
pub use tcp::Tcp;
pub use udp::Udp;
pub use vlan::Vlan;

pub use zerocopy::byteorder::network_endian::{U16, U32, U64};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Type of a header struct: bytes at any address, without padding, for which any value is valid.
///
/// It is implemented for every type that derives the five zerocopy traits, so an application can
/// define headers of its own.
pub trait Header: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned {}

impl<T: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned> Header for T {}

/// Returns the header of type `T` at `offset` in `bytes`, or `None` if it does not fit.
#[inline]
#[must_use]
pub fn header<T: Header>(bytes: &[u8], offset: usize) -> Option<&T> {
    T::ref_from_prefix(bytes.get(offset..)?).ok().map(|(header, _)| header)
}

/// Returns the header of type `T` at `offset` in `bytes` for writing, or `None` if it does not fit.
#[inline]
#[must_use]
pub fn header_mut<T: Header>(bytes: &mut [u8], offset: usize) -> Option<&mut T> {
    T::mut_from_prefix(bytes.get_mut(offset..)?).ok().map(|(header, _)| header)
}
