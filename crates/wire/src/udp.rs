//! UDP (RFC 768).

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// UDP header, 8 bytes.
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
pub struct Udp {
    /// Source port, 0 if none.
    pub source_port: U16,
    /// Destination port.
    pub destination_port: U16,
    /// Length of header and data, in bytes.
    pub length: U16,
    /// Checksum over pseudo header, header and data; 0 for none (IPv4 only).
    pub checksum: U16,
}

impl Udp {
    /// Length of the header, in bytes.
    pub const LENGTH: usize = size_of::<Self>();
    /// Offset of the checksum in the header, in bytes.
    pub const CHECKSUM_OFFSET: u16 = 6;
}
