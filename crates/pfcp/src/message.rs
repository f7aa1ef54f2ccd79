//! Messages (TS 29.244 clauses 7.2.2 and 7.3): [`Message`] parses the header, [`Group`] finds
//! elements by type, and [`Writer`] encodes.

use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

use crate::ie::Octets;
use crate::{Cause, Fault, Ie, IeType, Ies};

/// Type of a message (clause 7.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageType(pub u8);

macro_rules! messages {
    ($($name:ident = $number:literal, $words:literal;)*) => {
        impl MessageType {
            $(#[doc = concat!("PFCP ", $words)] pub const $name: Self = Self($number);)*

            /// Returns the name in TS 29.244, or `None` for unknown types.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some($words),)*
                    _ => None,
                }
            }
        }
    };
}

messages! {
    HEARTBEAT_REQUEST = 1, "Heartbeat Request";
    HEARTBEAT_RESPONSE = 2, "Heartbeat Response";
    PFD_MANAGEMENT_REQUEST = 3, "PFD Management Request";
    PFD_MANAGEMENT_RESPONSE = 4, "PFD Management Response";
    ASSOCIATION_SETUP_REQUEST = 5, "Association Setup Request";
    ASSOCIATION_SETUP_RESPONSE = 6, "Association Setup Response";
    ASSOCIATION_UPDATE_REQUEST = 7, "Association Update Request";
    ASSOCIATION_UPDATE_RESPONSE = 8, "Association Update Response";
    ASSOCIATION_RELEASE_REQUEST = 9, "Association Release Request";
    ASSOCIATION_RELEASE_RESPONSE = 10, "Association Release Response";
    VERSION_NOT_SUPPORTED_RESPONSE = 11, "Version Not Supported Response";
    NODE_REPORT_REQUEST = 12, "Node Report Request";
    NODE_REPORT_RESPONSE = 13, "Node Report Response";
    SESSION_SET_DELETION_REQUEST = 14, "Session Set Deletion Request";
    SESSION_SET_DELETION_RESPONSE = 15, "Session Set Deletion Response";
    SESSION_SET_MODIFICATION_REQUEST = 16, "Session Set Modification Request";
    SESSION_SET_MODIFICATION_RESPONSE = 17, "Session Set Modification Response";
    SESSION_ESTABLISHMENT_REQUEST = 50, "Session Establishment Request";
    SESSION_ESTABLISHMENT_RESPONSE = 51, "Session Establishment Response";
    SESSION_MODIFICATION_REQUEST = 52, "Session Modification Request";
    SESSION_MODIFICATION_RESPONSE = 53, "Session Modification Response";
    SESSION_DELETION_REQUEST = 54, "Session Deletion Request";
    SESSION_DELETION_RESPONSE = 55, "Session Deletion Response";
    SESSION_REPORT_REQUEST = 56, "Session Report Request";
    SESSION_REPORT_RESPONSE = 57, "Session Report Response";
}

impl MessageType {
    /// Returns true if the message belongs to a session, so that its header has a SEID: types 50 to
    /// 99.
    #[must_use]
    pub const fn is_session(self) -> bool {
        matches!(self.0, 50..=99)
    }

    /// Returns true if the message is a response. Unknown types count as requests.
    #[must_use]
    pub const fn is_response(self) -> bool {
        matches!(self.0, 2 | 4 | 6 | 8 | 10 | 11 | 13 | 15 | 17 | 51 | 53 | 55 | 57)
    }

    /// Returns the type of the response, if this is the type of a request.
    #[must_use]
    pub const fn response(self) -> Option<Self> {
        if self.name().is_none() || self.is_response() { None } else { Some(Self(self.0 + 1)) }
    }
}

impl fmt::Display for MessageType {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(to, "PFCP {name}"),
            None => write!(to, "PFCP message {}", self.0),
        }
    }
}

impl fmt::Debug for MessageType {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, to)
    }
}

/// Header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Type of the message.
    pub message_type: MessageType,
    /// SEID of the receiver, in session messages; 0 if it is unknown.
    pub seid: Option<u64>,
    /// Sequence number, 24 bits. A response has that of its request.
    pub sequence: u32,
    /// Priority of the message, 0 (highest) to 15 (clause 5.7.3).
    pub priority: Option<u8>,
    /// True if another message follows in the same datagram (clause 7.2.2.1).
    pub follow_on: bool,
}

impl Header {
    /// Creates the header of a node message.
    #[must_use]
    pub const fn node(message_type: MessageType, sequence: u32) -> Self {
        Self { message_type, seid: None, sequence, priority: None, follow_on: false }
    }

    /// Creates the header of a session message. `seid` is the receiver's SEID of the session.
    #[must_use]
    pub const fn session(message_type: MessageType, seid: u64, sequence: u32) -> Self {
        Self { message_type, seid: Some(seid), sequence, priority: None, follow_on: false }
    }

    /// Appends the header with the length of a message without elements.
    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        let flag = |set: bool, bit: u8| u8::from(set) << bit;
        let flags = 1 << 5
            | flag(self.follow_on, 2)
            | flag(self.priority.is_some(), 1)
            | flag(self.seid.is_some(), 0);
        let length = if self.seid.is_some() { 12 } else { 4 };
        to.extend_from_slice(&[flags, self.message_type.0, 0, length]);
        if let Some(seid) = self.seid {
            to.extend_from_slice(&seid.to_be_bytes());
        }
        let [_, a, b, c] = self.sequence.to_be_bytes();
        to.extend_from_slice(&[a, b, c, self.priority.unwrap_or(0) << 4]);
    }
}

/// Reason why a datagram is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Shorter than a header, so no response is possible.
    TooShort,
    /// Version other than 1. The response is Version Not Supported (clause 7.6.2), unless it is one
    /// itself.
    Version {
        /// Version in the header.
        version: u8,
        /// Type that the message would have in version 1.
        message_type: MessageType,
        /// Sequence number at its place in version 1, for the response.
        sequence: u32,
    },
    /// Length field beyond the datagram or shorter than a header. The message is discarded (clause
    /// 7.6.3).
    Length(Header),
    /// Session message without a SEID (clause 7.2.2).
    SeidFlag(Header),
}

impl fmt::Display for HeaderError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort => to.write_str("the datagram is shorter than a PFCP header"),
            Self::Version { version, .. } => write!(to, "PFCP version {version} is not supported"),
            Self::Length(header) => {
                write!(to, "the length of a {} does not fit its datagram", header.message_type)
            }
            Self::SeidFlag(header) => {
                write!(to, "the S flag of a {} is wrong", header.message_type)
            }
        }
    }
}

impl core::error::Error for HeaderError {}

/// Message in the datagram that contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Header of the message.
    pub header: Header,
    /// Elements of the message.
    pub body: &'a [u8],
}

impl<'a> Message<'a> {
    /// Parses the first message of a datagram. The SEID of a node message, which has none, is
    /// skipped. Also returns the rest of the datagram, which is another message if `follow_on` is
    /// set. Otherwise the rest is empty: octets after the message are dropped (clause 7.6.3).
    ///
    /// # Errors
    ///
    /// Returns an error if the header is no PFCP header, or does not fit the datagram.
    pub fn parse(datagram: &'a [u8]) -> Result<(Self, &'a [u8]), HeaderError> {
        let mut octets = Octets::new(datagram);
        let short = |_: Cause| HeaderError::TooShort;
        let flags = octets.u8().map_err(short)?;
        let message_type = MessageType(octets.u8().map_err(short)?);
        let length = usize::from(octets.u16().map_err(short)?);
        let seid = octets.when(flags & 1 != 0, Octets::u64).map_err(short)?;
        let sequence = octets.u24().map_err(short)?;
        let last = octets.u8().map_err(short)?;
        let version = flags >> 5;
        if version != 1 {
            return Err(HeaderError::Version { version, message_type, sequence });
        }
        let priority = (flags & 2 != 0).then_some(last >> 4);
        let follow_on = flags & 4 != 0;
        let mut header = Header { message_type, seid, sequence, priority, follow_on };
        let read = datagram.len() - octets.rest().len();
        let body = length.checked_sub(read - 4).and_then(|body| octets.take(body).ok());
        let body = body.ok_or(HeaderError::Length(header))?;
        if message_type.name().is_some() && !message_type.is_session() {
            // Some peers send node messages with a SEID, which means nothing there.
            header.seid = None;
        } else if message_type.is_session() && message_type.name().is_some() && seid.is_none() {
            return Err(HeaderError::SeidFlag(header));
        }
        let rest = if follow_on { octets.rest() } else { &[] };
        Ok((Self { header, body }, rest))
    }

    /// Returns the elements in their order.
    #[must_use]
    pub const fn ies(&self) -> Ies<'a> {
        Ies::new(self.body)
    }

    /// Returns the elements as a group, to be found by type.
    #[must_use]
    pub const fn group(&self) -> Group<'a> {
        Group::new(self.body)
    }
}

/// Content of a message or of a grouped element.
///
/// Elements that nobody asks for, unknown and enterprise-specific ones are skipped (clause 7.6.9).
/// Of an element that may occur once, the first one counts (clause 7.6.10).
///
/// # Examples
/// ```
/// use fastlane_pfcp::ie::{FarId, PdrId, Precedence};
/// use fastlane_pfcp::{Group, IeType, Writer};
///
/// let mut body = Vec::new();
/// Writer::new(&mut body).group(IeType::CREATE_PDR, |w| {
///     w.put(&PdrId(1));
///     w.put(&Precedence(100));
/// });
///
/// let pdr = Group::new(&body).group(IeType::CREATE_PDR).expect("a Create PDR");
/// assert_eq!(pdr.need::<PdrId>(), Ok(PdrId(1)));
/// assert_eq!(pdr.find::<FarId>(), Ok(None));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    body: &'a [u8],
}

impl<'a> Group<'a> {
    /// Creates a group from consecutive elements in `body`.
    #[must_use]
    pub const fn new(body: &'a [u8]) -> Self {
        Self { body }
    }

    /// Returns the elements in their order.
    #[must_use]
    pub const fn ies(&self) -> Ies<'a> {
        Ies::new(self.body)
    }

    /// Returns the value of the first element of a type, unless an element before it is cut short.
    #[must_use]
    pub fn raw(&self, ie_type: IeType) -> Option<&'a [u8]> {
        self.values(ie_type).next()
    }

    /// Returns true if there is an element of the type.
    #[must_use]
    pub fn has(&self, ie_type: IeType) -> bool {
        self.raw(ie_type).is_some()
    }

    /// Returns the first element of a type, or `None` if there is none.
    ///
    /// # Errors
    ///
    /// Returns a fault if it is too short (cause 68) or invalid (69), or an element before it is
    /// cut short.
    pub fn find<T: Ie<'a>>(&self) -> Result<Option<T>, Fault> {
        self.all().next().transpose()
    }

    /// Returns the first element of a type, which must exist.
    ///
    /// # Errors
    ///
    /// Returns the faults of [`Group::find`], and cause 66 if there is none.
    pub fn need<T: Ie<'a>>(&self) -> Result<T, Fault> {
        self.find()?.ok_or(Fault::of(Cause::MANDATORY_IE_MISSING, T::TYPE))
    }

    /// Returns all elements of a type, up to an element that is cut short.
    #[must_use]
    pub const fn all<T: Ie<'a>>(&self) -> TypedIes<'a, T> {
        TypedIes { ies: self.ies(), of: PhantomData }
    }

    /// Returns the first grouped element of a type.
    #[must_use]
    pub fn group(&self, ie_type: IeType) -> Option<Self> {
        self.groups(ie_type).next()
    }

    /// Returns all grouped elements of a type, up to an element that is cut short.
    #[must_use]
    pub const fn groups(&self, ie_type: IeType) -> Groups<'a> {
        Groups { ies: self.ies(), ie_type }
    }

    fn values(&self, ie_type: IeType) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.groups(ie_type).map(|group| group.body)
    }
}

/// Iterator over the elements of a type; see [`Group::all`].
#[derive(Clone, Debug)]
pub struct TypedIes<'a, T> {
    ies: Ies<'a>,
    of: PhantomData<T>,
}

impl<'a, T: Ie<'a>> Iterator for TypedIes<'a, T> {
    type Item = Result<T, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let ie = match self.ies.next()? {
                Ok(ie) => ie,
                Err(truncated) => return Some(Err(truncated.into())),
            };
            if ie.ie_type == T::TYPE {
                return Some(T::decode(ie.value).map_err(|cause| Fault::of(cause, T::TYPE)));
            }
        }
    }
}

/// Iterator over the grouped elements of a type; see [`Group::groups`].
#[derive(Clone, Debug)]
pub struct Groups<'a> {
    ies: Ies<'a>,
    ie_type: IeType,
}

impl<'a> Iterator for Groups<'a> {
    type Item = Group<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let ie_type = self.ie_type;
        let found = self.ies.find_map(|ie| match ie {
            Ok(ie) if ie.ie_type == ie_type => Some(Some(Group::new(ie.value))),
            Ok(_) => None,
            Err(_) => Some(None),
        });
        found.flatten()
    }
}

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
