//! Tagged frames of the suite.

use fastlane_wire::checksum::{Sum, checksum};

/// IPv4 address of Linux behind the device under test.
pub const DEVICE_IP: [u8; 4] = [192, 0, 2, 1];
/// IPv4 address of the peer's own stack.
pub const PEER_IP: [u8; 4] = [192, 0, 2, 2];
/// Source address of the suite's frames: an unused address of the same network.
pub const STRANGER_IP: [u8; 4] = [192, 0, 2, 77];
/// Destination UDP port of the suite's frames.
pub const UDP_PORT: u16 = 40_000;

/// Start of a tag.
const MAGIC: [u8; 8] = *b"FLconfo1";
/// IEEE 802 local experimental ethertype 1, of frames without a tag.
const EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];
/// Length of the headers before the tag: Ethernet, IPv4 without options, UDP.
const HEADERS: usize = 14 + 20 + 8;

/// MAC addresses of both ends of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Address of the device under test.
    pub device: [u8; 6],
    /// Address of its peer.
    pub peer: [u8; 6],
}

impl Default for Addresses {
    fn default() -> Self {
        Self { device: [2, 0, 0, 0, 0, 1], peer: [2, 0, 0, 0, 0, 2] }
    }
}

/// Identification of a frame by test and sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Number of the test.
    pub test: u32,
    /// Sequence number within the test, from 0.
    pub sequence: u32,
}

impl Tag {
    const LENGTH: usize = 16;
    /// Length of the shortest frame with a tag.
    pub const SHORTEST: usize = HEADERS + Self::LENGTH;

    fn bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.test.to_be_bytes());
        bytes[12..].copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }

    /// Returns the tag in a frame or datagram payload, and the bytes behind it.
    #[must_use]
    pub fn find(bytes: &[u8]) -> Option<(Self, &[u8])> {
        // The usual position, unless headers were added or removed.
        let usual = bytes.get(HEADERS..HEADERS + 8).filter(|magic| **magic == MAGIC);
        let start = match usual {
            Some(_) => HEADERS,
            None => bytes.windows(8).position(|window| window == MAGIC)?,
        };
        let (tag, rest) = bytes[start..].split_at_checked(Self::LENGTH)?;
        let word = |at: usize| u32::from_be_bytes([tag[at], tag[at + 1], tag[at + 2], tag[at + 3]]);
        Some((Self { test: word(8), sequence: word(12) }, rest))
    }

    /// Returns a UDP payload with this tag, `length` bytes long, but at least 16.
    #[must_use]
    pub fn payload(self, length: usize) -> Vec<u8> {
        let mut payload = self.bytes().to_vec();
        payload.extend((Self::LENGTH..length).map(|index| self.filling(index - Self::LENGTH)));
        payload
    }

    fn filling(self, index: usize) -> u8 {
        (self.sequence as usize + index) as u8
    }

    /// Returns true if the bytes behind the tag are unchanged. Zeros up to a frame of 60 bytes are
    /// Ethernet padding and accepted.
    #[must_use]
    pub fn is_intact(self, rest: &[u8]) -> bool {
        let padding = 60 - Self::SHORTEST;
        let end = rest.iter().zip(0..).take_while(|(byte, at)| **byte == self.filling(*at)).count();
        end == rest.len() || rest.len() <= padding && rest[end..].iter().all(|byte| *byte == 0)
    }

    /// Builds a UDP datagram in an Ethernet frame of `length` bytes, with valid checksums. Its
    /// source port depends on the sequence number, so that RSS spreads the frames over the queues.
    ///
    /// # Panics
    /// When `length` is less than [`Tag::SHORTEST`] or exceeds the longest IPv4 packet.
    #[must_use]
    pub fn frame(self, addresses: Addresses, length: usize) -> Vec<u8> {
        assert!((Self::SHORTEST..=65_535 + 14).contains(&length), "no frame of {length} bytes");
        let payload = self.payload(length - HEADERS);
        let mut ip = [0; 20];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&((length - 14) as u16).to_be_bytes());
        ip[8..10].copy_from_slice(&[64, 17]); // time to live, UDP
        ip[12..16].copy_from_slice(&STRANGER_IP);
        ip[16..20].copy_from_slice(&DEVICE_IP);
        let sum = checksum(&ip).to_be_bytes();
        ip[10..12].copy_from_slice(&sum);

        let udp_length = (length - 14 - 20) as u16;
        let source = 50_000 + (self.sequence % 251) as u16;
        let mut udp = [0; 8];
        udp[0..2].copy_from_slice(&source.to_be_bytes());
        udp[2..4].copy_from_slice(&UDP_PORT.to_be_bytes());
        udp[4..6].copy_from_slice(&udp_length.to_be_bytes());
        let sum = Sum::pseudo_ipv4(STRANGER_IP, DEVICE_IP, 17, udp_length);
        let sum = match sum.add_bytes(&udp).add_bytes(&payload).checksum() {
            0 => 0xffff, // RFC 768: zero means no checksum
            sum => sum,
        };
        udp[6..8].copy_from_slice(&sum.to_be_bytes());
        let ethernet = [&addresses.device[..], &addresses.peer, &[0x08, 0x00]].concat();
        [&ethernet[..], &ip, &udp, &payload].concat()
    }

    /// Builds a frame of at least 14 bytes without a tag. Its source address holds the sequence
    /// number.
    #[must_use]
    pub fn plain(self, addresses: Addresses, length: usize) -> Vec<u8> {
        let mut frame = addresses.device.to_vec();
        frame.extend([6, self.test as u8]);
        frame.extend(self.sequence.to_be_bytes());
        frame.extend(EXPERIMENTAL);
        frame.extend((14..length).map(|index| self.filling(index)));
        frame
    }
}

/// Returns true if the suite has built the frame by [`Tag::plain`].
pub(crate) fn is_plain(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&EXPERIMENTAL)
}

/// Swaps the Ethernet addresses of a frame.
pub(crate) fn swap(frame: &mut [u8]) {
    if let Some((destination, rest)) = frame.split_at_mut_checked(6)
        && let Some(source) = rest.get_mut(..6)
    {
        destination.swap_with_slice(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_found_and_damage_is_detected() {
        let tag = Tag { test: 7, sequence: 1_000_000 };
        for length in [Tag::SHORTEST, 60, 100, 1514] {
            let frame = tag.frame(Addresses::default(), length);
            assert_eq!(frame.len(), length);
            let (found, rest) = Tag::find(&frame).unwrap();
            assert_eq!(found, tag);
            assert!(found.is_intact(rest));
            assert_eq!(Tag::find(&frame[HEADERS..]).unwrap().0, tag, "as a datagram's payload");
        }
        let mut frame = tag.frame(Addresses::default(), 200);
        frame[150] ^= 1;
        let (found, rest) = Tag::find(&frame).unwrap();
        assert!(!found.is_intact(rest));
        assert_eq!(Tag::find(&[0; 100]), None);
        assert_eq!(Tag::find(b"FLconfo1short"), None);
    }

    #[test]
    fn checksums_are_valid() {
        let frame = Tag { test: 1, sequence: 2 }.frame(Addresses::default(), 99);
        assert_eq!(checksum(&frame[14..34]), 0);
        let sum = Sum::pseudo_ipv4(STRANGER_IP, DEVICE_IP, 17, (99 - 34) as u16);
        assert_eq!(sum.add_bytes(&frame[34..]).checksum(), 0);
    }
}
