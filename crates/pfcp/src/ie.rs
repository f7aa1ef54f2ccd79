//! Information elements with their fields (TS 29.244 clause 8.2), under the names of the
//! specification.
//!
//! A value may be longer than this crate knows; the additional octets are ignored (clause 7.6.7).
//! Enumerations keep unknown values, which the user of the crate must interpret. Spare bits are
//! written as zero and not read.

use alloc::vec::Vec;

use crate::{Cause, IeType};

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
mod tunnel;
mod usage;
mod user;

pub use address::{
    AlternativeSmfIpAddress, CpPfcpEntityIpAddress, IpVersion, UeIpAddress, UeIpAddressPoolIdentity,
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
pub use tunnel::FTeid;
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
