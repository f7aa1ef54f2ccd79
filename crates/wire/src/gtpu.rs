//! GTP-U (3GPP TS 29.281), the tunnel of user traffic in mobile networks.

mod message;

pub use message::{GtpMessage, MAX_GTPU_EXTENSIONS};

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The mandatory part of the GTP-U header (TS 29.281 clause 5.1), 8 bytes.
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
    /// A [`GtpMessageType`].
    pub message_type: u8,
    /// Bytes after this mandatory part, the optional part and extension headers included.
    pub length: U16,
    /// The tunnel endpoint identifier, of the receiver's choice.
    pub teid: U32,
}

impl GtpU {
    /// Bytes it takes.
    pub const LENGTH: usize = size_of::<Self>();
    /// The UDP port of the receiver (clause 4.4.2).
    pub const PORT: u16 = 2152;
    /// Flags of a header without optional part: version 1, protocol type GTP.
    pub const VERSION_1: u8 = 0x30;
    /// Flag E: the next extension header type is meant.
    pub const EXTENSION: u8 = 0x04;
    /// Flag S: the sequence number is meant.
    pub const SEQUENCE: u8 = 0x02;
    /// Flag PN: the N-PDU number is meant.
    pub const N_PDU: u8 = 0x01;

    /// The version, 1 for GTP-U.
    #[inline]
    #[must_use]
    pub const fn version(&self) -> u8 {
        self.flags >> 5
    }

    /// The PT bit: GTP if set, else GTP' (charging, TS 32.295).
    #[inline]
    #[must_use]
    pub const fn is_gtp(&self) -> bool {
        self.flags & 0x10 != 0
    }

    /// Whether the optional part follows: one of E, S and PN is set.
    #[inline]
    #[must_use]
    pub const fn has_optional(&self) -> bool {
        self.flags & (Self::EXTENSION | Self::SEQUENCE | Self::N_PDU) != 0
    }
}

/// The optional part of the GTP-U header, 4 bytes: all there when E, S or PN is set, each field
/// meant only when its own flag is.
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
    /// Meant if S is set.
    pub sequence_number: U16,
    /// Meant if PN is set.
    pub n_pdu_number: u8,
    /// The type of the first extension header, meant if E is set.
    pub next_extension: u8,
}

impl GtpUOptional {
    /// Bytes it takes.
    pub const LENGTH: usize = size_of::<Self>();
}

/// Message types (TS 29.281 clause 6.1). A namespace: the values are `u8`.
#[derive(Debug)]
pub enum GtpMessageType {}

impl GtpMessageType {
    /// Is the peer alive?
    pub const ECHO_REQUEST: u8 = 1;
    /// The answer to it.
    pub const ECHO_RESPONSE: u8 = 2;
    /// No such tunnel.
    pub const ERROR_INDICATION: u8 = 26;
    /// Which extension headers the peer understands.
    pub const SUPPORTED_EXTENSION_HEADERS: u8 = 31;
    /// What a tunnel between base station and gateway is about.
    pub const TUNNEL_STATUS: u8 = 253;
    /// The last packet of a path.
    pub const END_MARKER: u8 = 254;
    /// User data.
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
    /// The UDP port of the message that an error indication is about.
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

    /// Whether an endpoint that gets this must understand it (figure 5.2.1-2: the highest bit).
    #[inline]
    #[must_use]
    pub const fn is_required(extension_type: u8) -> bool {
        extension_type & 0x80 != 0
    }
}

/// What a PDU session container says (TS 38.415 clause 5.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PduSession {
    /// [`PduSession::DOWNLINK`] or [`PduSession::UPLINK`].
    pub pdu_type: u8,
    /// The QoS flow identifier, 0 to 63.
    pub qfi: u8,
    /// The reflective QoS indicator, of a downlink packet.
    pub reflective: bool,
}

impl PduSession {
    /// PDU type: towards the user.
    pub const DOWNLINK: u8 = 0;
    /// PDU type: from the user.
    pub const UPLINK: u8 = 1;

    /// From the first two bytes of the container, which are alike in both PDU types.
    #[inline]
    const fn read([type_flags, flags_qfi]: [u8; 2]) -> Self {
        let pdu_type = type_flags >> 4;
        Self {
            pdu_type,
            qfi: flags_qfi & 0x3f,
            reflective: pdu_type == Self::DOWNLINK && flags_qfi & 0x40 != 0,
        }
    }
}

/// The shortest PDU session container as an extension header, 4 bytes: to be written behind
/// [`GtpUOptional`].
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
    /// PDU type (4 bits), flags for what follows.
    pub type_flags: u8,
    /// Two flags, QFI (6 bits).
    pub flags_qfi: u8,
    /// The type of the next extension header.
    pub next_extension: u8,
}

impl PduSessionContainer {
    /// Bytes it takes.
    pub const LENGTH: usize = size_of::<Self>();

    /// As the last extension header; of `qfi` the low six bits count.
    #[inline]
    #[must_use]
    pub const fn new(pdu_type: u8, qfi: u8) -> Self {
        Self { length: 1, type_flags: pdu_type << 4, flags_qfi: qfi & 0x3f, next_extension: 0 }
    }
}
