//! A captured packet as it lies in a ring.
//!
//! ```text
//! word 0  time, nanoseconds of CLOCK_MONOTONIC
//! word 1  label (32 bits), port (16), event (8), flags (8), from the lowest bit on
//! word 2  bytes in the packet (32), bytes captured (32)
//! words   the bytes, filled up with zeros
//! ```
//! In the byte order of the machine.

use fastlane_table::journal::{JournalWriter, RecordOffset};

use crate::{Packet, PortId, RawVerdict};

/// Words before the bytes.
const HEADER: usize = 3;
const PARTIAL: u8 = 1;
const FROM_KERNEL: u8 = 2;
const UNLABELLED: u8 = 4;

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It arrived, and the application labelled it.
    Arrived,
    /// It left by the port.
    Sent,
    /// The port took it, but of what it took with it, it sent only a part: the rest was of a length
    /// that it cannot send. It does not say which.
    SentUnlessLength,
    /// The port was full.
    Full,
    /// The port takes other memory, and there was no frame of that.
    NoFrame,
    /// The lane has no queue of the port.
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

    /// In words; of a loss, the name of its counter.
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

/// A captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// When the turn began in which it was captured, more or less: nanoseconds of
    /// `CLOCK_MONOTONIC`.
    pub time: u64,
    /// The port that it came by, or left by.
    pub port: PortId,
    /// What became of it.
    pub event: Event,
    /// Its label; `None` when the application has put another packet in its place.
    pub label: Option<RawVerdict>,
    /// Whether a checksum is left to the device, as the packet stands.
    pub is_partial: bool,
    /// Whether it is from Linux, by the port's kernel peer: the application has not labelled it.
    pub is_from_kernel: bool,
    /// Bytes that the packet has.
    pub length: u32,
    /// The first of them.
    pub bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// Reads a record; `None` when it is none.
    #[must_use]
    pub fn read(record: &'a [u8]) -> Option<Self> {
        let (words, _) = record.as_chunks::<8>();
        let word = |index: usize| words.get(index).map(|word| u64::from_ne_bytes(*word));
        let (time, facts, lengths) = (word(0)?, word(1)?, word(2)?);
        let flags = (facts >> 56) as u8;
        let label = Some(RawVerdict(facts as u32)).filter(|_| flags & UNLABELLED == 0);
        let (length, captured) = (lengths as u32, (lengths >> 32) as u32);
        let bytes = record.get(8 * HEADER..)?.get(..captured as usize)?;
        (captured <= length).then_some(())?;
        Some(Self {
            time,
            port: PortId((facts >> 32) as u16),
            event: *Event::ALL.get(usize::from((facts >> 48) as u8))?,
            label,
            is_partial: flags & PARTIAL != 0,
            is_from_kernel: flags & FROM_KERNEL != 0,
            length,
            bytes,
        })
    }
}

/// Words of a record with so many bytes.
#[inline]
pub(super) fn words(captured: usize) -> usize {
    HEADER + captured.div_ceil(8)
}

/// Writes all that is known before the event.
#[inline]
pub(super) fn copy(
    ring: &JournalWriter,
    place: RecordOffset,
    packet: &Packet,
    captured: usize,
    time: u64,
) {
    ring.write_word(place, 0, time);
    ring.write_word(place, 2, packet.len() as u64 | (captured as u64) << 32);
    ring.write_bytes(place, HEADER, &packet.bytes()[..captured]);
}

/// The flags of a packet as it stands.
#[inline]
pub(super) fn flags(packet: &Packet) -> u8 {
    let partial = if packet.partial_checksum().is_some() { PARTIAL } else { 0 };
    let from_kernel = if packet.is_from_kernel() { FROM_KERNEL } else { 0 };
    partial | from_kernel
}

/// Writes the rest, and that the record is complete.
#[inline]
pub(super) fn complete(
    ring: &JournalWriter,
    place: RecordOffset,
    label: Option<RawVerdict>,
    port: PortId,
    event: Event,
    flags: u8,
) {
    let flags = if label.is_some() { flags } else { flags | UNLABELLED };
    let label = label.unwrap_or_default();
    let facts = u64::from(label.0)
        | u64::from(port.0) << 32
        | (event as u64) << 48
        | u64::from(flags) << 56;
    ring.write_word(place, 1, facts);
    ring.seal(place);
}
