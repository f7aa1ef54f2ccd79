//! Punted packets: packets that a lane hands to the slow path.

/// Packet that a lane hands to the slow path: the body of a message of the kind
/// [`PUNT`](super::PUNT).
///
/// ```text
/// word 0  time, nanoseconds of CLOCK_MONOTONIC
/// word 1  length of the packet (32 bits), captured length (32), from the lowest bit on
/// word 2  reason (32), port (16), lane (16)
/// word 3  flags (16), start of a partial checksum's sum (16), offset of its field (16), 0
/// words   the packet's bytes
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Punted<'a> {
    /// Time of the turn in which it was sent, in nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// Length of the packet, in bytes.
    pub length: u32,
    /// Reason, defined by the application.
    pub reason: u32,
    /// Port on which it arrived.
    pub port: u16,
    /// Lane that received it.
    pub lane: u16,
    /// True if Linux sent it, through the port's kernel peer.
    pub is_from_kernel: bool,
    /// Partial checksum: start of the sum in the packet, and offset of the field from there
    /// (`VIRTIO_NET_HDR_F_NEEDS_CSUM`, virtio 1.2 section 5.1.6).
    pub partial_checksum: Option<(u16, u16)>,
    /// The packet, or its first bytes if it is longer than a message.
    pub bytes: &'a [u8],
}

const HEADER: usize = 32;
const PARTIAL: u64 = 1;
const FROM_KERNEL: u64 = 2;

impl<'a> Punted<'a> {
    /// Number of bytes before the packet.
    pub const HEADER: usize = HEADER;

    /// Parses the body of a message of the kind [`PUNT`](super::PUNT). Returns `None` if it is
    /// malformed.
    #[must_use]
    pub fn read(body: &'a [u8]) -> Option<Self> {
        let (header, bytes) = body.split_first_chunk::<HEADER>()?;
        let (words, _) = header.as_chunks::<8>();
        let word = |index: usize| u64::from_ne_bytes(words[index]);
        let (length, captured) = (word(1) as u32, (word(1) >> 32) as usize);
        let flags = word(3) & 0xffff;
        let partial = ((word(3) >> 16) as u16, (word(3) >> 32) as u16);
        let is_whole = captured == bytes.len() && captured <= length as usize;
        is_whole.then_some(Self {
            time: word(0),
            length,
            reason: word(2) as u32,
            port: (word(2) >> 32) as u16,
            lane: (word(2) >> 48) as u16,
            is_from_kernel: flags & FROM_KERNEL != 0,
            partial_checksum: (flags & PARTIAL != 0).then_some(partial),
            bytes,
        })
    }

    /// Returns the words before the packet.
    #[must_use]
    pub fn header(&self) -> [u64; HEADER / 8] {
        let partial = if self.partial_checksum.is_some() { PARTIAL } else { 0 };
        let from_kernel = if self.is_from_kernel { FROM_KERNEL } else { 0 };
        let (start, offset) = self.partial_checksum.unwrap_or_default();
        [
            self.time,
            u64::from(self.length) | (self.bytes.len() as u64) << 32,
            u64::from(self.reason) | u64::from(self.port) << 32 | u64::from(self.lane) << 48,
            partial | from_kernel | u64::from(start) << 16 | u64::from(offset) << 32,
        ]
    }
}
