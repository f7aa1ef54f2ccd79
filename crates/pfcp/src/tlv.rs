//! Information elements as type, length and value (TS 29.244 clause 8.1.1).

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
