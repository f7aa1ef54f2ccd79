//! Parser of GTP-U messages: header, optional part, chain of extension headers, payload.

use super::{GtpExtensionType, GtpU, GtpUOptional, PduSession};
use crate::error::{HeaderName, ParseError};
use crate::header;

/// Maximum number of extension headers that the parser reads.
pub const MAX_GTPU_EXTENSIONS: u8 = 8;

/// Parsed GTP-U header, and the position of its payload in the parsed bytes.
///
/// # Examples
/// ```
/// use fastlane_wire::{GtpMessage, GtpMessageType};
///
/// // Version 1, G-PDU, 4 bytes of payload, TEID 7.
/// let bytes = [0x30, 255, 0, 4, 0, 0, 0, 7, 0x45, 0, 0, 0];
/// let message = GtpMessage::parse(&bytes)?;
/// assert_eq!((message.message_type, message.teid), (GtpMessageType::G_PDU, 7));
/// assert_eq!(message.payload(&bytes), Some(&bytes[8..]));
/// # Ok::<(), fastlane_wire::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GtpMessage {
    /// Tunnel endpoint identifier.
    pub teid: u32,
    /// End of the message, in bytes from its start.
    pub end: u32,
    /// Length of all headers, which is the offset of the payload, in bytes.
    pub header_length: u16,
    /// Type of the message, a [`GtpMessageType`](super::GtpMessageType).
    pub message_type: u8,
    /// Number of extension headers.
    pub extensions: u8,
    /// Sequence number, if present.
    pub sequence_number: Option<u16>,
    /// N-PDU number, if present.
    pub n_pdu_number: Option<u8>,
    /// PDU session container, if present; the first of several.
    pub pdu_session: Option<PduSession>,
    /// Type of the first extension header that an endpoint must comprehend and that is unknown
    /// here. Clause 5.2.1 requires that such a message is dropped and answered. PDCP PDU numbers
    /// are known: they are forwarded with the message or ignored.
    pub not_understood: Option<u8>,
}

impl GtpMessage {
    /// Parses the message at the start of `bytes` (a UDP payload). Bytes after the message are
    /// ignored.
    ///
    /// # Errors
    /// Returns the header that is cut short or inconsistent. GTP' and other versions are a version
    /// error.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let (message, flags, bytes) = Self::begin(bytes)?;
        match flags & (GtpU::EXTENSION | GtpU::SEQUENCE | GtpU::N_PDU) {
            0 => Ok(message),
            _ => message.with_optional(flags, bytes),
        }
    }

    /// Parses only the mandatory part. Everything after it counts as the payload.
    ///
    /// # Errors
    /// Returns the errors of [`parse`](Self::parse).
    #[inline(always)]
    pub fn parse_header(bytes: &[u8]) -> Result<Self, ParseError> {
        Self::begin(bytes).map(|(message, ..)| message)
    }

    /// Returns the mandatory part, its flags and the whole message.
    #[inline(always)]
    fn begin(bytes: &[u8]) -> Result<(Self, u8, &[u8]), ParseError> {
        let gtpu: &GtpU = header(bytes, 0).ok_or(ParseError::Short(HeaderName::GtpU))?;
        if gtpu.version() != 1 || !gtpu.is_gtp() {
            return Err(ParseError::Version(HeaderName::GtpU));
        }
        let end = GtpU::LENGTH + usize::from(gtpu.length.get());
        let bytes = bytes.get(..end).ok_or(ParseError::Short(HeaderName::GtpU))?;
        let message = Self {
            teid: gtpu.teid.get(),
            end: end as u32,
            header_length: GtpU::LENGTH as u16,
            message_type: gtpu.message_type,
            extensions: 0,
            sequence_number: None,
            n_pdu_number: None,
            pdu_session: None,
            not_understood: None,
        };
        Ok((message, gtpu.flags, bytes))
    }

    /// Adds any optional part and extension headers.
    #[inline(never)]
    fn with_optional(mut self, flags: u8, bytes: &[u8]) -> Result<Self, ParseError> {
        let optional: &GtpUOptional =
            header(bytes, GtpU::LENGTH).ok_or(ParseError::Length(HeaderName::GtpU))?;
        if flags & GtpU::SEQUENCE != 0 {
            self.sequence_number = Some(optional.sequence_number.get());
        }
        if flags & GtpU::N_PDU != 0 {
            self.n_pdu_number = Some(optional.n_pdu_number);
        }
        let mut offset = GtpU::LENGTH + GtpUOptional::LENGTH;
        if flags & GtpU::EXTENSION != 0 {
            let mut chain = Extensions { bytes, offset, next_type: optional.next_extension };
            while let Some((extension_type, content)) = chain.next()? {
                self.extensions += 1;
                if self.extensions > MAX_GTPU_EXTENSIONS {
                    return Err(ParseError::TooMany(HeaderName::GtpUExtension));
                }
                self.note(extension_type, content);
            }
            offset = chain.offset;
        }
        // Eight extension headers of at most 1020 bytes: far below 65536.
        self.header_length = offset as u16;
        Ok(self)
    }

    fn note(&mut self, extension_type: u8, content: [u8; 2]) {
        match extension_type {
            GtpExtensionType::PDU_SESSION_CONTAINER => {
                self.pdu_session.get_or_insert(PduSession::read(content));
            }
            // For the next base station when data is forwarded at a handover. An endpoint that does
            // not forward ignores them.
            GtpExtensionType::PDCP_PDU_NUMBER | GtpExtensionType::LONG_PDCP_PDU_NUMBER => {}
            _ if GtpExtensionType::is_required(extension_type) => {
                self.not_understood.get_or_insert(extension_type);
            }
            _ => {}
        }
    }

    /// Returns the payload, in the bytes that were parsed: the user's IP packet of a G-PDU.
    #[inline]
    #[must_use]
    pub fn payload<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        bytes.get(self.header_length.into()..self.end as usize)
    }
}

/// Chain of extension headers (clause 5.2.1). Each begins with its length in units of 4 bytes and
/// ends with the type of the next one.
struct Extensions<'a> {
    bytes: &'a [u8],
    offset: usize,
    next_type: u8,
}

impl Extensions<'_> {
    /// Returns the type of the next extension header and the first two bytes of its content, which
    /// has at least that length.
    fn next(&mut self) -> Result<Option<(u8, [u8; 2])>, ParseError> {
        let extension_type = self.next_type;
        if extension_type == GtpExtensionType::NONE {
            return Ok(None);
        }
        let short = ParseError::Short(HeaderName::GtpUExtension);
        let &[units, first, second] = header::<[u8; 3]>(self.bytes, self.offset).ok_or(short)?;
        if units == 0 {
            return Err(ParseError::Length(HeaderName::GtpUExtension));
        }
        let end = self.offset + usize::from(units) * 4;
        self.next_type = *self.bytes.get(end - 1).ok_or(short)?;
        self.offset = end;
        Ok(Some((extension_type, [first, second])))
    }
}
