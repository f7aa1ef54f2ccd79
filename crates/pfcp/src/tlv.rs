//! Information elements as type, length and value (TS 29.244 clause 8.1.1), and the fields of a
//! value in order.

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
