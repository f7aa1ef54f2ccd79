//! Encodes messages.

use alloc::vec::Vec;

use crate::{Header, Ie, IeType};

/// Writer that appends messages and elements to a buffer and fills in their lengths.
///
/// It omits an element whose value exceeds a length field (65,535 octets), or which does not fit
/// into the group or message around it. [`Writer::is_cut`] reports that. So lengths are always
/// correct.
///
/// # Examples
/// ```
/// use fastlane_pfcp::ie::{ApplyAction, FarId};
/// use fastlane_pfcp::{Header, IeType, Message, MessageType, Writer};
///
/// let mut datagram = Vec::new();
/// let header = Header::session(MessageType::SESSION_MODIFICATION_REQUEST, 0x1234, 1);
/// let mut writer = Writer::new(&mut datagram);
/// writer.message(header, |w| {
///     w.group(IeType::UPDATE_FAR, |w| {
///         w.put(&FarId(1));
///         w.put(&ApplyAction::FORW);
///     });
/// });
/// assert!(!writer.is_cut());
/// let (message, _) = Message::parse(&datagram)?;
/// assert_eq!(message.check(), Ok(()));
/// # Ok::<(), fastlane_pfcp::HeaderError>(())
/// ```
#[derive(Debug)]
pub struct Writer<'v> {
    to: &'v mut Vec<u8>,
    /// Offset of the innermost group's value.
    start: usize,
    cut: bool,
}

impl<'v> Writer<'v> {
    /// Creates a writer that appends to `to`.
    pub const fn new(to: &'v mut Vec<u8>) -> Self {
        Self { to, start: 0, cut: false }
    }

    /// Appends a message. In a bundle (clause 7.2.2.1), set `follow_on` in all messages but the
    /// last.
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

    /// Appends an element if it is present.
    pub fn maybe<'a, T: Ie<'a>>(&mut self, ie: Option<&T>) {
        if let Some(ie) = ie {
            self.put(ie);
        }
    }

    /// Appends an element with an encoded value.
    pub fn raw(&mut self, ie_type: IeType, value: &[u8]) {
        self.element(ie_type, |w| w.to.extend_from_slice(value));
    }

    /// Appends a grouped element.
    pub fn group(&mut self, ie_type: IeType, body: impl FnOnce(&mut Self)) {
        self.element(ie_type, body);
    }

    /// Returns true if an element was omitted.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.cut
    }

    /// Returns the number of octets that still fit into the innermost open message or group.
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

    /// Fills in the length field at `at` with the number of octets after it.
    fn fill(&mut self, at: usize) {
        let length = u16::try_from(self.to.len() - at - 2).unwrap_or(u16::MAX);
        self.to[at..at + 2].copy_from_slice(&length.to_be_bytes());
    }
}
