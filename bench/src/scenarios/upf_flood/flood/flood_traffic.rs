//! The frames of a flood: established traffic, echo requests, and packets for unknown tunnels.

use std::net::Ipv4Addr;

use fastlane_wire::checksum::checksum;

use crate::loops::lookup::workload::Random;
use crate::loops::user_plane::frames::Template;
use crate::loops::user_plane::{Direction, STATION, Sessions};

/// Number of established packets in the list, half of them in each direction.
const GOOD: usize = 1 << 15;
/// Number of junk packets of each kind in the list.
const JUNK: usize = 1 << 14;
/// Number of gNBs that send the flood.
const PEERS: u8 = 4;
/// Length of an echo request with the padding of an Ethernet frame, in octets.
const ECHO_LENGTH: usize = 60;
/// Offset of the type of a GTP-U message over IPv4; the octet before it holds the flags.
const TYPE: usize = 14 + 20 + 8 + 1;
/// Offset of the aligned word that contains the type.
pub(super) const TYPE_WORD: usize = 42;
/// Mark before the stamp; both are the last eight octets of a UE packet.
const MARK: u32 = 0x600d_0000;

/// Kind of a sent frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// Packet of an established UE.
    Good,
    /// Echo request.
    Echo,
    /// UE packet for an unknown tunnel.
    Unknown,
}

impl Kind {
    /// All kinds, by number.
    pub(super) const ALL: [Self; 3] = [Self::Good, Self::Echo, Self::Unknown];
}

/// Kind of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ReceivedKind {
    /// Packet of an established UE, forwarded or unchanged.
    Good,
    /// Echo request, unchanged.
    Echo,
    /// Packet for an unknown tunnel, unchanged.
    Unknown,
    /// Echo response.
    EchoResponse,
    /// Error indication.
    ErrorIndication,
    /// Unexpected frame.
    Strange,
}

/// All frames, ordered by kind.
pub(super) struct Traffic {
    /// Octets of the frames.
    pub frames: Vec<Vec<u8>>,
    /// Length of an established packet with and without its tunnel.
    lengths: [usize; 2],
}

impl Traffic {
    /// Creates the frames to and from UEs of these sessions.
    #[must_use]
    pub(super) fn new(sessions: &Sessions) -> Self {
        let ways = [Direction::Uplink, Direction::Downlink];
        let templates =
            ways.map(|direction| Template::of(sessions.users(), direction, GOOD, |_| true));
        let user = |number: usize, kind: Kind| {
            // Junk arrives through tunnels, as echo requests do.
            let template = if kind == Kind::Good { &templates[number % 2] } else { &templates[0] };
            let mut frame = vec![0; template.length()];
            template.fill(&mut frame, number);
            let end = frame.len() - 8;
            frame[end..end + 4].copy_from_slice(&(MARK | kind as u32).to_ne_bytes());
            frame
        };
        let mut random = Random::new(0x00f1_00d5);
        let good = (0..GOOD).map(|number| user(number, Kind::Good));
        let echoes = (0..JUNK).map(|number| echo(number as u16));
        let unknown = (0..JUNK).map(|number| {
            let mut frame = user(number, Kind::Unknown);
            // The TEID belongs to another generation of an existing session, as in late packets.
            let session = random.below(u64::from(sessions.count)) as u32;
            let teid = sessions.stale_teid(session, 2 + random.below(1000) as u32);
            frame[TYPE + 3..TYPE + 7].copy_from_slice(&teid.to_be_bytes());
            come_from(&mut frame, number);
            frame
        });
        let frames = good.chain(echoes).chain(unknown).collect();
        Self { frames, lengths: templates.map(|template| template.length()) }
    }

    /// Returns the range of a kind in the list.
    #[must_use]
    pub(super) const fn range(kind: Kind) -> std::ops::Range<usize> {
        match kind {
            Kind::Good => 0..GOOD,
            Kind::Echo => GOOD..GOOD + JUNK,
            Kind::Unknown => GOOD + JUNK..GOOD + 2 * JUNK,
        }
    }

    /// Returns the kind of a received frame of `length` octets; `read` returns four octets of it.
    #[inline]
    pub(super) fn tell(&self, length: usize, read: impl Fn(usize) -> [u8; 4]) -> ReceivedKind {
        if self.lengths.contains(&length) {
            let mark = u32::from_ne_bytes(read(length - 8));
            return match mark ^ MARK {
                0 => ReceivedKind::Good,
                2 => ReceivedKind::Unknown,
                _ => ReceivedKind::Strange,
            };
        }
        let [_, message_type, ..] = read(TYPE_WORD);
        match (message_type, length) {
            (1, ECHO_LENGTH) => ReceivedKind::Echo,
            (2, _) => ReceivedKind::EchoResponse,
            (26, _) => ReceivedKind::ErrorIndication,
            _ => ReceivedKind::Strange,
        }
    }
}

/// Creates an echo request (TS 29.281, clause 7.2.1) from one of the flooding gNBs.
fn echo(sequence: u16) -> Vec<u8> {
    let mut frame = [STATION, [2, 0, 0, 0, 0, 2]].concat();
    frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([10, 255, 0, 3, 10, 255, 0, 1]);
    frame.extend([0x08, 0x68, 0x08, 0x68, 0, 20, 0, 0]);
    let [high, low] = sequence.to_be_bytes();
    frame.extend([0x32, 1, 0, 4, 0, 0, 0, 0, high, low, 0, 0]);
    frame.resize(ECHO_LENGTH, 0);
    come_from(&mut frame, usize::from(sequence));
    frame
}

/// Sets the source address of a frame to one of the flooding gNBs.
fn come_from(frame: &mut [u8], number: usize) {
    let last = 3 + (number % usize::from(PEERS)) as u8;
    frame[26..30].copy_from_slice(&Ipv4Addr::new(10, 255, 0, last).octets());
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::user_plane::Shape;

    #[test]
    fn frames_are_told_apart() {
        let sessions = Sessions::new(100, Shape::Simple).unwrap();
        let traffic = Traffic::new(&sessions);
        let seen = [ReceivedKind::Good, ReceivedKind::Echo, ReceivedKind::Unknown];
        for (kind, seen) in Kind::ALL.into_iter().zip(seen) {
            let range = Traffic::range(kind);
            for frame in &traffic.frames[range] {
                let read = |at: usize| [frame[at], frame[at + 1], frame[at + 2], frame[at + 3]];
                assert_eq!(traffic.tell(frame.len(), read), seen, "{frame:x?}");
            }
        }
        assert_eq!(traffic.frames.len(), Traffic::range(Kind::Unknown).end);
    }
}
