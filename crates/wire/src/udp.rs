//! UDP (RFC 768).

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The UDP header, 8 bytes.
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
    /// The port it comes from, 0 if none.
    pub source_port: U16,
    /// The port it goes to.
    pub destination_port: U16,
    /// Bytes of header and data.
    pub length: U16,
    /// Checksum over pseudo header, header and data; 0 if the sender made none (IPv4 only).
    pub checksum: U16,
}

impl Udp {
    /// Bytes it takes.
    pub const LENGTH: usize = size_of::<Self>();
    /// Where the checksum lies in the header, in bytes.
    pub const CHECKSUM_OFFSET: u16 = 6;
}
