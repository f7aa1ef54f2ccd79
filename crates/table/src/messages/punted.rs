//! A packet on its way to the slow path.

/// A packet that a lane shows to the slow path: the body of a message of the kind
/// [`PUNT`](super::PUNT).
///
/// ```text
/// word 0  time, nanoseconds of CLOCK_MONOTONIC
/// word 1  bytes that the packet had (32 bits), bytes that are here (32), from the lowest bit on
/// word 2  reason (32), port (16), lane (16)
/// word 3  flags (16), where the sum of a partial checksum begins (16), where its field is (16), 0
/// words   the bytes
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Punted<'a> {
    /// The time of the turn that it was sent in: nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// Bytes that the packet had.
    pub length: u32,
    /// Why, as the application says.
    pub reason: u32,
    /// The port that it came from.
    pub port: u16,
    /// The lane that had it.
    pub lane: u16,
    /// Whether it came from Linux, through the port's kernel peer.
    pub is_from_kernel: bool,
    /// A checksum that is not complete: where in the packet the sum begins, and where from there
    /// the field is (`VIRTIO_NET_HDR_F_NEEDS_CSUM`, virtio 1.2 section 5.1.6).
    pub partial_checksum: Option<(u16, u16)>,
    /// The packet, or its first bytes if it was longer than a message.
    pub bytes: &'a [u8],
}

const HEADER: usize = 32;
const PARTIAL: u64 = 1;
const FROM_KERNEL: u64 = 2;

impl<'a> Punted<'a> {
    /// Bytes before the packet.
    pub const HEADER: usize = HEADER;

    /// Reads the body of a message of the kind [`PUNT`](super::PUNT); `None` when it is none.
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

    /// The words before the packet.
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
