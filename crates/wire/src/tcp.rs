//! TCP (RFC 9293).

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// TCP header without its options, 20 bytes. Options extend it to [`Tcp::header_length`].
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
pub struct Tcp {
    /// Source port.
    pub source_port: U16,
    /// Destination port.
    pub destination_port: U16,
    /// Sequence number of the first data byte.
    pub sequence_number: U32,
    /// Next expected sequence number, if [`Tcp::ACK`] is set.
    pub acknowledgment_number: U32,
    /// Data offset (4 bits), reserved (4 bits), control bits (8 bits).
    pub data_offset_control: U16,
    /// Receive window of the sender, before scaling.
    pub window: U16,
    /// Checksum over pseudo header, header and data.
    pub checksum: U16,
    /// End of urgent data, if [`Tcp::URG`] is set.
    pub urgent_pointer: U16,
}

impl Tcp {
    /// Length without options, in bytes.
    pub const LENGTH: usize = size_of::<Self>();
    /// Offset of the checksum in the header, in bytes.
    pub const CHECKSUM_OFFSET: u16 = 16;

    /// Control bit: the sender has no more data.
    pub const FIN: u8 = 0x01;
    /// Control bit: synchronize sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Control bit: reset the connection.
    pub const RST: u8 = 0x04;
    /// Control bit: push.
    pub const PSH: u8 = 0x08;
    /// Control bit: the acknowledgment number is valid.
    pub const ACK: u8 = 0x10;
    /// Control bit: the urgent pointer is valid.
    pub const URG: u8 = 0x20;
    /// Control bit: ECN echo (RFC 3168).
    pub const ECE: u8 = 0x40;
    /// Control bit: congestion window reduced (RFC 3168).
    pub const CWR: u8 = 0x80;

    /// Returns the data offset in words of 4 bytes, 5 to 15 in a valid header.
    #[inline]
    #[must_use]
    pub const fn data_offset(&self) -> u8 {
        (self.data_offset_control.get() >> 12) as u8
    }

    /// Returns the length of header and options in bytes, 20 to 60 in a valid header.
    #[inline]
    #[must_use]
    pub const fn header_length(&self) -> usize {
        self.data_offset() as usize * 4
    }

    /// Returns the eight control bits.
    #[inline]
    #[must_use]
    pub const fn control(&self) -> u8 {
        self.data_offset_control.get() as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_and_control_come_apart() {
        let tcp = Tcp { data_offset_control: U16::new(0xa012), ..Tcp::default() };
        assert_eq!((tcp.data_offset(), tcp.header_length()), (10, 40));
        assert_eq!(tcp.control(), Tcp::SYN | Tcp::ACK);
    }
}
