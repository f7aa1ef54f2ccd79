//! Information elements: type, length and value (TS 29.244 clause 8.1.1), and their fields (clause
//! 8.2) under the names of the specification.
//!
//! A value may be longer than this crate knows; the additional octets are ignored (clause 7.6.7).
//! Enumerations keep unknown values, which the user of the crate must interpret. Spare bits are
//! written as zero and not read.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::{Cause, Fault, IeType};

/// Undecoded element of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawIe<'a> {
    /// Type of the element.
    pub ie_type: IeType,
    /// Private enterprise number (IANA), for types from 0x8000 on.
    pub enterprise: Option<u16>,
    /// Content, without the enterprise number.
    pub value: &'a [u8],
}

/// Element that extends beyond the message or group that contains it. Nothing after it can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// Type of the element, if it is complete.
    pub ie_type: Option<IeType>,
}

impl From<Truncated> for Fault {
    fn from(truncated: Truncated) -> Self {
        Self { cause: Cause::INVALID_LENGTH, offending: truncated.ie_type }
    }
}

/// Iterator over the elements of a message or of a grouped element, in their order.
///
/// It ends after the first [`Truncated`].
#[derive(Clone, Copy, Debug)]
pub struct Ies<'a> {
    rest: &'a [u8],
}

impl<'a> Ies<'a> {
    /// Creates an iterator over the consecutive elements in `body`.
    #[must_use]
    pub const fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    fn read(&mut self) -> Option<RawIe<'a>> {
        let (head, rest) = self.rest.split_first_chunk::<4>()?;
        let [t0, t1, l0, l1] = *head;
        let (value, rest) = rest.split_at_checked(u16::from_be_bytes([l0, l1]).into())?;
        let ie_type = IeType(u16::from_be_bytes([t0, t1]));
        let (enterprise, value) = if ie_type.is_enterprise() {
            let (enterprise, value) = value.split_first_chunk::<2>()?;
            (Some(u16::from_be_bytes(*enterprise)), value)
        } else {
            (None, value)
        };
        self.rest = rest;
        Some(RawIe { ie_type, enterprise, value })
    }
}

impl<'a> Iterator for Ies<'a> {
    type Item = Result<RawIe<'a>, Truncated>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        Some(self.read().ok_or_else(|| {
            let ie_type = self.rest.first_chunk().map(|t| IeType(u16::from_be_bytes(*t)));
            self.rest = &[];
            Truncated { ie_type }
        }))
    }
}

/// Rest of an element that has not been read. Reading past its end is cause 68.
#[derive(Clone, Copy)]
pub(crate) struct Octets<'a> {
    rest: &'a [u8],
}

impl<'a> Octets<'a> {
    pub(crate) const fn new(value: &'a [u8]) -> Self {
        Self { rest: value }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Cause> {
        let (first, rest) = self.rest.split_first_chunk().ok_or(Cause::INVALID_LENGTH)?;
        self.rest = rest;
        Ok(*first)
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Cause> {
        let (first, rest) = self.rest.split_at_checked(length).ok_or(Cause::INVALID_LENGTH)?;
        self.rest = rest;
        Ok(first)
    }

    /// Reads a string after its length in two octets.
    pub(crate) fn string16(&mut self) -> Result<&'a [u8], Cause> {
        let length = self.u16()?;
        self.take(length.into())
    }

    /// Reads a string after its length in one octet.
    pub(crate) fn string8(&mut self) -> Result<&'a [u8], Cause> {
        let length = self.u8()?;
        self.take(length.into())
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Cause> {
        self.array::<1>().map(|[octet]| octet)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Cause> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u24(&mut self) -> Result<u32, Cause> {
        self.array().map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Cause> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u40(&mut self) -> Result<u64, Cause> {
        self.array().map(|[a, b, c, d, e]| u64::from_be_bytes([0, 0, 0, a, b, c, d, e]))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Cause> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn v4(&mut self) -> Result<Ipv4Addr, Cause> {
        self.array().map(|octets: [u8; 4]| Ipv4Addr::from(octets))
    }

    pub(crate) fn v6(&mut self) -> Result<Ipv6Addr, Cause> {
        self.array().map(|octets: [u8; 16]| Ipv6Addr::from(octets))
    }

    /// Reads a field if it is `present`.
    pub(crate) fn when<T>(
        &mut self,
        present: bool,
        read: impl FnOnce(&mut Self) -> Result<T, Cause>,
    ) -> Result<Option<T>, Cause> {
        if present { read(self).map(Some) } else { Ok(None) }
    }

    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

/// Information element with known fields.
pub trait Ie<'a>: Sized {
    /// Type of the element.
    const TYPE: IeType;

    /// Decodes the value.
    ///
    /// # Errors
    ///
    /// Returns cause 68 if fields are missing, and 69 if a field is invalid.
    fn decode(value: &'a [u8]) -> Result<Self, Cause>;

    /// Appends the value.
    fn encode(&self, to: &mut Vec<u8>);
}

/// Defines elements that are a number of a fixed number of octets.
macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident($int:ty) = $type:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $int);

        impl Ie<'_> for $name {
            const TYPE: IeType = IeType::$type;

            fn decode(value: &[u8]) -> Result<Self, Cause> {
                let octets = value.first_chunk().ok_or(Cause::INVALID_LENGTH)?;
                Ok(Self(<$int>::from_be_bytes(*octets)))
            }

            fn encode(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.0.to_be_bytes());
            }
        }
    )*};
}

/// Defines elements that are a number in the lower bits of an octet.
macro_rules! small {
    ($($(#[$doc:meta])* $name:ident & $mask:literal = $type:ident {
        $($(#[$value_doc:meta])* $value:ident = $number:literal,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u8);

        impl $name {
            $($(#[$value_doc])* pub const $value: Self = Self($number);)*
        }

        impl Ie<'_> for $name {
            const TYPE: IeType = IeType::$type;

            fn decode(value: &[u8]) -> Result<Self, Cause> {
                let octet = value.first().ok_or(Cause::INVALID_LENGTH)?;
                Ok(Self(octet & $mask))
            }

            fn encode(&self, to: &mut Vec<u8>) {
                to.push(self.0 & $mask);
            }
        }
    )*};
}

/// Defines elements that are bit flags. Bit 1 of octet 5 has number 0, bit 1 of octet 6 has 8. At
/// least the given number of octets is written, and more if their bits are set.
macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident[$least:literal] = $type:ident {
        $($flag:ident = $bit:literal, $words:literal;)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub u64);

        impl $name {
            $(#[doc = $words] pub const $flag: Self = Self(1 << $bit);)*

            /// No bit.
            pub const NONE: Self = Self(0);

            /// Returns true if all of the given bits are set.
            #[must_use]
            pub const fn has(self, flags: Self) -> bool {
                self.0 & flags.0 == flags.0
            }

            /// Returns true if any of the given bits is set.
            #[must_use]
            pub const fn has_any(self, flags: Self) -> bool {
                self.0 & flags.0 != 0
            }

            /// Returns the bits with the given ones set too.
            #[must_use]
            pub const fn with(self, flags: Self) -> Self {
                Self(self.0 | flags.0)
            }

            /// Returns the bits with the given ones cleared.
            #[must_use]
            pub const fn without(self, flags: Self) -> Self {
                Self(self.0 & !flags.0)
            }

            /// Returns true if no bit is set.
            #[must_use]
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }
        }

        impl core::ops::BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                self.with(other)
            }
        }

        impl Ie<'_> for $name {
            const TYPE: IeType = IeType::$type;

            fn decode(value: &[u8]) -> Result<Self, Cause> {
                if value.is_empty() {
                    return Err(Cause::INVALID_LENGTH);
                }
                let mut octets = [0; 8];
                for (to, from) in octets.iter_mut().zip(value) {
                    *to = *from;
                }
                Ok(Self(u64::from_le_bytes(octets)))
            }

            fn encode(&self, to: &mut Vec<u8>) {
                let needed = 8 - self.0.leading_zeros() as usize / 8;
                to.extend_from_slice(&self.0.to_le_bytes()[..needed.max($least)]);
            }
        }
    )*};
}

/// Defines elements that are a string of octets.
macro_rules! strings {
    ($($(#[$doc:meta])* $name:ident = $type:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name<'a>(pub &'a [u8]);

        impl<'a> $name<'a> {
            /// Returns the string as text, if it is UTF-8.
            #[must_use]
            pub const fn text(&self) -> Option<&'a str> {
                match core::str::from_utf8(self.0) {
                    Ok(text) => Some(text),
                    Err(_) => None,
                }
            }
        }

        impl<'a> Ie<'a> for $name<'a> {
            const TYPE: IeType = IeType::$type;

            fn decode(value: &'a [u8]) -> Result<Self, Cause> {
                Ok(Self(value))
            }

            fn encode(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(self.0);
            }
        }
    )*};
}

// The macros are in scope of the modules after them.
mod address;
mod detection;
mod enforcement;
mod features;
mod flags;
mod forwarding;
mod identity;
mod node;
mod numbers;
mod redirect;
mod report;
mod strings;
mod usage;
mod user;

pub use address::{
    AlternativeSmfIpAddress, CpPfcpEntityIpAddress, FTeid, IpVersion, UeIpAddress,
    UeIpAddressPoolIdentity,
};
pub use detection::{FlowInformation, SNssai, SdfFilter, SourceInterface, ThreeGppInterfaceType};
pub use enforcement::{DlFlowLevelMarking, Gate, GateStatus, Gbr, Mbr, PacketRate, Rate};
pub use features::{CpFunctionFeatures, UpFunctionFeatures};
pub use flags::*;
pub use forwarding::{
    DestinationInterface, ForwardingPolicy, HeaderEnrichment, OuterHeaderCreation,
    OuterHeaderRemoval, TransportLevelMarking,
};
pub use identity::{FSeid, FailedRuleId, FqCsid, NodeId};
pub use node::{RemoteGtpUPeer, SmfSetId, UserPlaneIpResourceInformation};
pub use numbers::*;
pub use redirect::{RedirectAddress, RedirectInformation};
pub use report::{DownlinkDataServiceInformation, PfdContents};
pub use strings::*;
pub use usage::{
    AdditionalUsageReportsInformation, DroppedDlTrafficThreshold, Multiplier,
    SubsequentVolumeQuota, SubsequentVolumeThreshold, TimeQuotaMechanism, VolumeMeasurement,
    VolumeQuota, VolumeThreshold, Volumes,
};
pub use user::UserId;

/// Returns bit `number` of the octet that flags the present fields, if `set`.
const fn bit(set: bool, number: u8) -> u8 {
    (set as u8) << number
}

/// Appends a string of at most 65,535 octets after its length in two octets.
fn put_string16(to: &mut Vec<u8>, string: &[u8]) {
    let length = u16::try_from(string.len()).unwrap_or(u16::MAX);
    to.extend_from_slice(&length.to_be_bytes());
    to.extend_from_slice(&string[..length.into()]);
}

/// Appends a string of at most 255 octets after its length in one octet.
fn put_string8(to: &mut Vec<u8>, string: &[u8]) {
    let length = u8::try_from(string.len()).unwrap_or(u8::MAX);
    to.push(length);
    to.extend_from_slice(&string[..length.into()]);
}

/// Appends the lower 24 bits.
fn put_u24(to: &mut Vec<u8>, number: u32) {
    to.extend_from_slice(&number.to_be_bytes()[1..]);
}

/// Appends the octets of an address, if present.
fn put_address<const N: usize>(to: &mut Vec<u8>, octets: Option<[u8; N]>) {
    to.extend(octets.into_iter().flatten());
}
