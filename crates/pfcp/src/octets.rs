//! Reads the fields of an element in order.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::Cause;

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
