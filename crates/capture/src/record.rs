//! Records: the layout of a captured packet in a ring, in the byte order of the machine.
//!
//! ```text
//! word 0  time, nanoseconds of CLOCK_MONOTONIC
//! word 1  verdict (32 bits), port (16), event (8), flags (8), from the lowest bit on
//! word 2  bytes in the packet (32), bytes captured (32)
//! words   the bytes, padded with zeros
//! ```

use fastlane_core::{Packet, PortId, RawVerdict};
use fastlane_table::journal::{JournalWriter, RecordOffset};

/// Number of words before the bytes.
const HEADER: usize = 3;
const PARTIAL: u8 = 1;
const FROM_KERNEL: u8 = 2;
const UNLABELLED: u8 = 4;

/// Event of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The packet arrived, and the application labelled it.
    Arrived,
    /// The packet left by the port.
    Sent,
    /// The port took the packet with others, and sent only some of them: the rest had a length that
    /// it cannot send. It does not report which.
    SentUnlessLength,
    /// The port was full.
    Full,
    /// The port transmits from other memory, in which no frame was free.
    NoFrame,
    /// No lane has a queue of the port.
    NoQueue,
}

impl Event {
    const ALL: [Self; 6] = [
        Self::Arrived,
        Self::Sent,
        Self::SentUnlessLength,
        Self::Full,
        Self::NoFrame,
        Self::NoQueue,
    ];

    /// Returns the name of the event; for a loss the name of its counter.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Arrived => "arrived",
            Self::Sent => "sent",
            Self::SentUnlessLength => "sent or drop_transmit_length",
            Self::Full => "drop_transmit_full",
            Self::NoFrame => "drop_copy_no_frame",
            Self::NoQueue => "drop_no_port",
        }
    }
}

/// Captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Time of the turn in which it was captured, in nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// Port of arrival or departure.
    pub port: PortId,
    /// Event of the packet.
    pub event: Event,
    /// Verdict; `None` for packets from Linux, and if the application has replaced the packet.
    pub verdict: Option<RawVerdict>,
    /// True if the packet has a partial checksum.
    pub is_partial: bool,
    /// True if the packet is from Linux, through the kernel peer of its port.
    pub is_from_kernel: bool,
    /// Length of the packet, in bytes.
    pub length: u32,
    /// Captured bytes, from the start of the packet.
    pub bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// Reads a record, or returns `None` if the bytes are no record.
    #[must_use]
    pub fn read(record: &'a [u8]) -> Option<Self> {
        let (words, _) = record.as_chunks::<8>();
        let word = |index: usize| words.get(index).map(|word| u64::from_ne_bytes(*word));
        let (time, word_1, lengths) = (word(0)?, word(1)?, word(2)?);
        let flags = (word_1 >> 56) as u8;
        let verdict = Some(RawVerdict(word_1 as u32)).filter(|_| flags & UNLABELLED == 0);
        let (length, captured) = (lengths as u32, (lengths >> 32) as u32);
        let bytes = record.get(8 * HEADER..)?.get(..captured as usize)?;
        (captured <= length).then_some(())?;
        Some(Self {
            time,
            port: PortId((word_1 >> 32) as u16),
            event: *Event::ALL.get(usize::from((word_1 >> 48) as u8))?,
            verdict,
            is_partial: flags & PARTIAL != 0,
            is_from_kernel: flags & FROM_KERNEL != 0,
            length,
            bytes,
        })
    }
}

/// Returns the number of words of a record with `captured` bytes.
#[inline]
pub(super) fn words(captured: usize) -> usize {
    HEADER + captured.div_ceil(8)
}

/// Writes the time, the lengths and the bytes of a record.
#[inline]
pub(super) fn copy(
    ring: &JournalWriter,
    offset: RecordOffset,
    packet: &Packet,
    captured: usize,
    time: u64,
) {
    ring.write_word(offset, 0, time);
    ring.write_word(offset, 2, packet.len() as u64 | (captured as u64) << 32);
    ring.write_bytes(offset, HEADER, &packet.bytes()[..captured]);
}

/// Returns the flags of a packet.
#[inline]
pub(super) fn flags(packet: &Packet) -> u8 {
    let partial = if packet.partial_checksum().is_some() { PARTIAL } else { 0 };
    let from_kernel = if packet.is_from_kernel() { FROM_KERNEL } else { 0 };
    partial | from_kernel
}

/// Fields of a record that are known at its end.
pub(super) struct Completion {
    pub(super) verdict: Option<RawVerdict>,
    pub(super) port: PortId,
    pub(super) event: Event,
    pub(super) flags: u8,
}

/// Writes the rest of a record and marks it as complete.
#[inline]
pub(super) fn complete(ring: &JournalWriter, offset: RecordOffset, completion: &Completion) {
    let Completion { verdict, port, event, flags } = *completion;
    let flags = if verdict.is_some() { flags } else { flags | UNLABELLED };
    let verdict = verdict.unwrap_or_default();
    let word = u64::from(verdict.0)
        | u64::from(port.0) << 32
        | (event as u64) << 48
        | u64::from(flags) << 56;
    ring.write_word(offset, 1, word);
    ring.seal(offset);
}
