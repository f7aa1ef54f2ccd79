//! Writing captures in the next generation format (draft-ietf-opsawg-pcapng).
//!
//! Blocks are appended to bytes that the caller writes out: a [`section`] first, then an
//! [`interface`] for each that packets name, then [`packet`]s. All numbers are little endian, all
//! times in nanoseconds since 1970, all link types Ethernet.

use super::blocks::{BYTE_ORDER, ENHANCED_PACKET, INTERFACE, SECTION_HEADER};
use super::cursor::ETHERNET;

const COMMENT: u16 = 1;
const USER_APPLICATION: u16 = 4;
const NAME: u16 = 2;
const DESCRIPTION: u16 = 3;
const RESOLUTION: u16 = 9;
const NANOSECONDS: u8 = 9;
const FLAGS: u16 = 2;

/// Bytes of a packet's block besides the packet, its padding and its options.
pub(super) const PACKET: usize = 32;

/// An interface of a capture.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interface<'a> {
    /// Its name; none when it is empty.
    pub name: &'a str,
    /// What it is; nothing when it is empty.
    pub description: &'a str,
    /// The most bytes of a packet, 0 for no limit.
    pub snap_length: u32,
}

/// Which way a packet went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It arrived.
    Inbound,
    /// It left.
    Outbound,
}

/// A packet of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The interface, in the order of the section's, from 0.
    pub interface: u32,
    /// Nanoseconds since 1970.
    pub time: u64,
    /// What was captured of it.
    pub bytes: &'a [u8],
    /// Bytes that it had.
    pub length: u32,
    /// Which way it went, when that is known.
    pub direction: Option<Direction>,
    /// What is to be said of it; nothing when it is empty.
    pub comment: &'a str,
}

/// Appends the header of a section that `application` writes (no word of it when it is empty), of
/// which `comment` is to be said.
pub fn section(into: &mut Vec<u8>, application: &str, comment: &str) {
    block(into, SECTION_HEADER, |body| {
        for word in [BYTE_ORDER, 1, u32::MAX, u32::MAX] {
            body.extend(word.to_le_bytes()); // version 1.0; the section length is not given
        }
        options(body, &[(COMMENT, comment.as_bytes()), (USER_APPLICATION, application.as_bytes())]);
    });
}

/// Appends an interface.
pub fn interface(into: &mut Vec<u8>, interface: &Interface<'_>) {
    block(into, INTERFACE, |body| {
        body.extend(ETHERNET.to_le_bytes());
        body.extend(interface.snap_length.to_le_bytes());
        let (name, description) = (interface.name.as_bytes(), interface.description.as_bytes());
        options(body, &[(NAME, name), (DESCRIPTION, description), (RESOLUTION, &[NANOSECONDS])]);
    });
}

/// Appends a packet.
pub fn packet(into: &mut Vec<u8>, packet: &Packet<'_>) {
    block(into, ENHANCED_PACKET, |body| {
        let (high, low) = ((packet.time >> 32) as u32, packet.time as u32);
        let captured = packet.bytes.len() as u32;
        for word in [packet.interface, high, low, captured, packet.length] {
            body.extend(word.to_le_bytes());
        }
        body.extend_from_slice(packet.bytes);
        pad(body, packet.bytes.len());
        let flags = packet.direction.map(|direction| match direction {
            Direction::Inbound => 1_u32.to_le_bytes(),
            Direction::Outbound => 2_u32.to_le_bytes(),
        });
        let flags = flags.as_ref().map_or(&[][..], |flags| &flags[..]);
        options(body, &[(COMMENT, packet.comment.as_bytes()), (FLAGS, flags)]);
    });
}

/// A block between its two equal lengths.
fn block(into: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = into.len();
    into.extend(kind.to_le_bytes());
    into.extend([0; 4]);
    body(into);
    let length = (into.len() - start + 4) as u32;
    into.extend(length.to_le_bytes());
    into[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
}

/// Those that have a value, and their end; nothing at all when none has.
fn options(body: &mut Vec<u8>, options: &[(u16, &[u8])]) {
    let mut any = false;
    for (code, value) in options {
        // A longer one would be cut inside a character: it is only text, and left out.
        let Some(length) = u16::try_from(value.len()).ok().filter(|length| *length > 0) else {
            continue;
        };
        body.extend(code.to_le_bytes());
        body.extend(length.to_le_bytes());
        body.extend_from_slice(value);
        pad(body, value.len());
        any = true;
    }
    if any {
        body.extend([0; 4]);
    }
}

fn pad(body: &mut Vec<u8>, length: usize) {
    body.extend_from_slice(&[0; 3][..length.next_multiple_of(4) - length]);
}
