//! Writer of the pcapng format (draft-ietf-opsawg-pcapng).
//!
//! The functions append blocks to bytes that the caller writes to a file: a [`section`] first, then
//! an [`interface`] for each that packets name, then [`packet`]s. Numbers are little endian, times
//! are nanoseconds since 1970, and the link type is Ethernet.

use super::blocks::{BYTE_ORDER, ENHANCED_PACKET, INTERFACE, SECTION_HEADER};
use super::cursor::ETHERNET;

const COMMENT: u16 = 1;
const USER_APPLICATION: u16 = 4;
const NAME: u16 = 2;
const DESCRIPTION: u16 = 3;
const RESOLUTION: u16 = 9;
const NANOSECONDS: u8 = 9;
const FLAGS: u16 = 2;

/// Length of a packet's block without the packet, its padding and its options, in bytes.
pub(super) const PACKET: usize = 32;

/// Interface of a capture.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interface<'a> {
    /// Name; omitted if empty.
    pub name: &'a str,
    /// Description; omitted if empty.
    pub description: &'a str,
    /// Maximum number of captured bytes of a packet; 0 for no limit.
    pub snap_length: u32,
}

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The packet arrived.
    Inbound,
    /// The packet left.
    Outbound,
}

/// Packet of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Index of the interface in its section, from 0.
    pub interface: u32,
    /// Time, in nanoseconds since 1970.
    pub time: u64,
    /// Captured bytes.
    pub bytes: &'a [u8],
    /// Original length, in bytes.
    pub length: u32,
    /// Direction, if known.
    pub direction: Option<Direction>,
    /// Comment; omitted if empty.
    pub comment: &'a str,
}

/// Appends the header of a section that `application` writes, with a comment. Empty strings are
/// omitted.
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

/// Appends a block between its two equal lengths.
fn block(into: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = into.len();
    into.extend(kind.to_le_bytes());
    into.extend([0; 4]);
    body(into);
    let length = (into.len() - start + 4) as u32;
    into.extend(length.to_le_bytes());
    into[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
}

/// Appends the options that have a value, and the end of options if there is one.
fn options(body: &mut Vec<u8>, options: &[(u16, &[u8])]) {
    let mut any = false;
    for (code, value) in options {
        // A longer text would be cut inside a character, so it is omitted.
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
