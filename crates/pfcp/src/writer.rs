//! Makes messages.

use alloc::vec::Vec;

use crate::{Header, Ie, IeType};

/// Appends messages and their elements to a buffer and fills the lengths in.
///
/// An element of which the length field (65,535 octets) would not hold the value, or that does not
/// fit into what such a field still holds of the group or message around it, is left out whole, and
/// [`Writer::is_cut`] says so: lengths are always right.
#[derive(Debug)]
pub struct Writer<'v> {
    to: &'v mut Vec<u8>,
    /// Where the value of the innermost group begins.
    start: usize,
    cut: bool,
}

impl<'v> Writer<'v> {
    /// A writer that appends to `to`.
    pub const fn new(to: &'v mut Vec<u8>) -> Self {
        Self { to, start: 0, cut: false }
    }

    /// Appends a message. Of a bundle (clause 7.2.2.1), all but the last have `follow_on`.
    pub fn message(&mut self, header: Header, body: impl FnOnce(&mut Self)) {
        let at = self.to.len();
        header.encode(self.to);
        let outer = core::mem::replace(&mut self.start, at + 4);
        body(self);
        self.start = outer;
        self.fill(at + 2);
    }

    /// Appends an element.
    pub fn put<'a, T: Ie<'a>>(&mut self, ie: &T) {
        self.element(T::TYPE, |w| ie.encode(w.to));
    }

    /// Appends an element if it is there.
    pub fn maybe<'a, T: Ie<'a>>(&mut self, ie: Option<&T>) {
        if let Some(ie) = ie {
            self.put(ie);
        }
    }

    /// Appends an element with that value as it is.
    pub fn raw(&mut self, ie_type: IeType, value: &[u8]) {
        self.element(ie_type, |w| w.to.extend_from_slice(value));
    }

    /// Appends a grouped element.
    pub fn group(&mut self, ie_type: IeType, body: impl FnOnce(&mut Self)) {
        self.element(ie_type, body);
    }

    /// Whether an element was left out.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.cut
    }

    /// The octets that the innermost open message or group still holds.
    #[must_use]
    pub fn room(&self) -> usize {
        usize::from(u16::MAX).saturating_sub(self.to.len() - self.start)
    }

    fn element(&mut self, ie_type: IeType, value: impl FnOnce(&mut Self)) {
        let at = self.to.len();
        let outer = core::mem::replace(&mut self.start, at + 4);
        self.to.extend_from_slice(&ie_type.0.to_be_bytes());
        self.to.extend_from_slice(&[0, 0]);
        value(self);
        let fits = self.to.len() - self.start <= u16::MAX.into()
            && (outer == 0 || self.to.len() - outer <= u16::MAX.into());
        self.start = outer;
        if fits {
            self.fill(at + 2);
        } else {
            self.to.truncate(at);
            self.cut = true;
        }
    }

    /// Writes the number of octets after the length field at `at` into it.
    fn fill(&mut self, at: usize) {
        let length = u16::try_from(self.to.len() - at - 2).unwrap_or(u16::MAX);
        self.to[at..at + 2].copy_from_slice(&length.to_be_bytes());
    }
}
