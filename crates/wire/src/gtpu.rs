//! GTP-U (3GPP TS 29.281): tunnels for user traffic in mobile networks.

mod message;

pub use message::{GtpMessage, MAX_GTPU_EXTENSIONS};

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Mandatory part of the GTP-U header (TS 29.281 clause 5.1), 8 bytes.
#[derive(
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
)]
#[repr(C)]
pub struct GtpU {
    /// Version (3 bits), protocol type, spare, then [`GtpU::EXTENSION`], [`GtpU::SEQUENCE`] and
    /// [`GtpU::N_PDU`].
    pub flags: u8,
    /// Type of the message, a [`GtpMessageType`].
    pub message_type: u8,
    /// Number of bytes after this mandatory part, including the optional part and extension
    /// headers.
    pub length: U16,
    /// Tunnel endpoint identifier, allocated by the receiver.
    pub teid: U32,
}

impl GtpU {
    /// Length of the mandatory part, in bytes.
    pub const LENGTH: usize = size_of::<Self>();
    /// UDP destination port (clause 4.4.2).
    pub const PORT: u16 = 2152;
    /// Flags of a header without optional part: version 1, protocol type GTP.
    pub const VERSION_1: u8 = 0x30;
    /// Flag E: the next extension header type is valid.
    pub const EXTENSION: u8 = 0x04;
    /// Flag S: the sequence number is valid.
    pub const SEQUENCE: u8 = 0x02;
    /// Flag PN: the N-PDU number is valid.
    pub const N_PDU: u8 = 0x01;

    /// Returns the version, 1 for GTP-U.
    #[inline]
    #[must_use]
    pub const fn version(&self) -> u8 {
        self.flags >> 5
    }

    /// Returns true if the PT bit is set: GTP, not GTP' (charging, TS 32.295).
    #[inline]
    #[must_use]
    pub const fn is_gtp(&self) -> bool {
        self.flags & 0x10 != 0
    }

    /// Returns true if the optional part follows: one of E, S and PN is set.
    #[inline]
    #[must_use]
    pub const fn has_optional(&self) -> bool {
        self.flags & (Self::EXTENSION | Self::SEQUENCE | Self::N_PDU) != 0
    }
}

/// Optional part of the GTP-U header, 4 bytes. It is present if E, S or PN is set; each field is
/// valid only if its own flag is set.
#[derive(
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
)]
#[repr(C)]
pub struct GtpUOptional {
    /// Sequence number, valid if S is set.
    pub sequence_number: U16,
    /// N-PDU number, valid if PN is set.
    pub n_pdu_number: u8,
    /// Type of the first extension header, valid if E is set.
    pub next_extension: u8,
}

impl GtpUOptional {
    /// Length of the optional part, in bytes.
    pub const LENGTH: usize = size_of::<Self>();
}

/// Message types (TS 29.281 clause 6.1). A namespace: the values are `u8`.
#[derive(Debug)]
pub enum GtpMessageType {}

impl GtpMessageType {
    /// Echo Request: asks whether the peer is alive.
    pub const ECHO_REQUEST: u8 = 1;
    /// Echo Response.
    pub const ECHO_RESPONSE: u8 = 2;
    /// Error Indication: the receiver has no such tunnel.
    pub const ERROR_INDICATION: u8 = 26;
    /// Supported Extension Headers Notification: the extension headers that the sender supports.
    pub const SUPPORTED_EXTENSION_HEADERS: u8 = 31;
    /// Tunnel Status: state of a tunnel between base station and gateway.
    pub const TUNNEL_STATUS: u8 = 253;
    /// End Marker: the last packet of a path.
    pub const END_MARKER: u8 = 254;
    /// G-PDU: user data.
    pub const G_PDU: u8 = 255;
}

/// Types of extension headers (TS 29.281 figure 5.2.1-3). A namespace: the values are `u8`.
#[derive(Debug)]
pub enum GtpExtensionType {}

impl GtpExtensionType {
    /// No extension header follows.
    pub const NONE: u8 = 0x00;
    /// Service class indicator.
    pub const SERVICE_CLASS: u8 = 0x20;
    /// UDP port of the message to which an error indication refers.
    pub const UDP_PORT: u8 = 0x40;
    /// RAN container.
    pub const RAN_CONTAINER: u8 = 0x81;
    /// Long PDCP PDU number.
    pub const LONG_PDCP_PDU_NUMBER: u8 = 0x82;
    /// Xw RAN container.
    pub const XW_RAN_CONTAINER: u8 = 0x83;
    /// NR RAN container.
    pub const NR_RAN_CONTAINER: u8 = 0x84;
    /// PDU session container (TS 38.415), which carries the QFI.
    pub const PDU_SESSION_CONTAINER: u8 = 0x85;
    /// PDCP PDU number.
    pub const PDCP_PDU_NUMBER: u8 = 0xc0;

    /// Returns true if an endpoint must comprehend the extension header (figure 5.2.1-2: highest
    /// bit).
    #[inline]
    #[must_use]
    pub const fn is_required(extension_type: u8) -> bool {
        extension_type & 0x80 != 0
    }
}

/// Content of a PDU session container (TS 38.415 clause 5.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PduSession {
    /// PDU type, [`PduSession::DOWNLINK`] or [`PduSession::UPLINK`].
    pub pdu_type: u8,
    /// QoS flow identifier, 0 to 63.
    pub qfi: u8,
    /// Reflective QoS indicator, for downlink packets.
    pub reflective: bool,
}

impl PduSession {
    /// PDU type: downlink.
    pub const DOWNLINK: u8 = 0;
    /// PDU type: uplink.
    pub const UPLINK: u8 = 1;

    /// Parses the first two bytes of the container, which are the same in both PDU types.
    #[inline]
    #[must_use]
    pub const fn read([type_flags, flags_qfi]: [u8; 2]) -> Self {
        let pdu_type = type_flags >> 4;
        Self {
            pdu_type,
            qfi: flags_qfi & 0x3f,
            reflective: pdu_type == Self::DOWNLINK && flags_qfi & 0x40 != 0,
        }
    }
}

/// Shortest PDU session container as an extension header, 4 bytes. It follows [`GtpUOptional`].
#[derive(
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
)]
#[repr(C)]
pub struct PduSessionContainer {
    /// Length in units of 4 bytes, 1.
    pub length: u8,
    /// PDU type (4 bits), then flags for optional fields.
    pub type_flags: u8,
    /// Two flags, QFI (6 bits).
    pub flags_qfi: u8,
    /// Type of the next extension header.
    pub next_extension: u8,
}

impl PduSessionContainer {
    /// Length of the extension header, in bytes.
    pub const LENGTH: usize = size_of::<Self>();

    /// Creates the last extension header. Only the low six bits of `qfi` are used.
    #[inline]
    #[must_use]
    pub const fn new(pdu_type: u8, qfi: u8) -> Self {
        Self { length: 1, type_flags: pdu_type << 4, flags_qfi: qfi & 0x3f, next_extension: 0 }
    }
}
