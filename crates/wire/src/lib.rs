//! Headers as they lie on the wire: plain structs with public big-endian fields that are read and
//! written in place, a one-pass parser that finds the layers of a frame, and Internet checksums.
//!
//! A header is borrowed from a frame, never copied out of it:
//!
//! ```
//! use fastlane_wire::{EtherType, Ethernet, header};
//!
//! let frame = [0u8; 60];
//! let ethernet: &Ethernet = header(&frame, 0).expect("a runt");
//! assert_ne!(ethernet.ethertype.get(), EtherType::IPV4);
//! ```
//!
//! Nothing here allocates, blocks or panics, and nothing reads past the bytes it was given: every
//! input is hostile. All types are plain data, so any thread may use them.
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

/// What any header struct is: bytes at any address, without padding, any value valid.
///
/// Implemented for every type that derives the five zerocopy traits, so an application's own
/// headers are headers too.
pub trait Header: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned {}

impl<T: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned> Header for T {}

/// The header of type `T` that begins `offset` bytes into `bytes`, or `None` if it would not end
/// within them.
#[inline]
#[must_use]
pub fn header<T: Header>(bytes: &[u8], offset: usize) -> Option<&T> {
    T::ref_from_prefix(bytes.get(offset..)?).ok().map(|(header, _)| header)
}

/// As [`header`], to be written to.
#[inline]
#[must_use]
pub fn header_mut<T: Header>(bytes: &mut [u8], offset: usize) -> Option<&mut T> {
    T::mut_from_prefix(bytes.get_mut(offset..)?).ok().map(|(header, _)| header)
}
