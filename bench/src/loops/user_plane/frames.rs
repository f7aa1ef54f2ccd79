//! Frames of randomly chosen UEs.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;

use fastlane_core::Packet;
use fastlane_wire::checksum::checksum;

use crate::Result;
use crate::loops::lookup::workload::Random;
use crate::loops::user_plane::STATION;
use crate::loops::user_plane::sessions::{
    FIRST_INSIDE, Flows, Sessions, Shape, Users, far_teid, user,
};

/// Number of frames of the list.
const LIST: usize = 1 << 20;
/// Length of the inner IP packet in octets.
const INNER: usize = 64;
/// Length of the IP and UDP headers of the inner packet, which differ from frame to frame.
const HEADERS: usize = 28;
const ETHERNET: usize = 14;
/// Length of the GTP-U header with its optional part and a PDU session container of 4 octets.
const GTPU: usize = 8 + 4 + 4;

/// Direction of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the UE.
    Uplink,
    /// To the UE.
    Downlink,
}

impl Direction {
    /// Returns the name used in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uplink => "uplink",
            Self::Downlink => "downlink",
        }
    }
}

/// Part of a frame that differs from frame to frame.
#[derive(Clone, Copy, Debug)]
struct Entry {
    session: u32,
    teid: u32,
    headers: [u8; HEADERS],
}

/// Frames of one direction.
pub(crate) struct Template {
    /// All octets before the inner packet.
    outside: Vec<u8>,
    /// Offset of the TEID, if there is a tunnel.
    teid: Option<usize>,
    list: Vec<Entry>,
}

impl Template {
    /// Creates frames of UEs of these sessions, in random order.
    pub(crate) fn new(sessions: &Sessions, direction: Direction) -> Self {
        Self::of(sessions.users(), direction, LIST, |_| true)
    }

    /// Creates `count` frames of the sessions for which `is_wanted` returns true.
    pub(crate) fn of(
        users: Users,
        direction: Direction,
        count: usize,
        is_wanted: impl Fn(u32) -> bool,
    ) -> Self {
        let mut random = Random::new(0x0075_7066);
        let ports = users.shape.ports();
        let entry = |_| {
            let mut session = random.below(u64::from(users.count)) as u32;
            while !is_wanted(session) {
                session = random.below(u64::from(users.count)) as u32;
            }
            let port = ports.start + random.below(ports.len() as u64) as u16;
            let far = Ipv4Addr::from_bits(0xc612_0000 | random.next() as u32 & 0x1_ffff);
            let headers = match direction {
                Direction::Uplink => {
                    headers(SocketAddrV4::new(user(session), 40_000), SocketAddrV4::new(far, port))
                }
                Direction::Downlink => {
                    headers(SocketAddrV4::new(far, port), SocketAddrV4::new(user(session), 40_000))
                }
            };
            Entry { session, teid: users.teid(session), headers }
        };
        let list = (0..count).map(entry).collect();
        let (outside, teid) = outside(direction, users.shape);
        Self { outside, teid, list }
    }

    /// Creates frames of random flows, whose checksums have to be updated by NAT.
    ///
    /// # Errors
    /// Returns an error if a flow has no mapping although NAT translates its user.
    pub(crate) fn of_flows(
        sessions: &Sessions,
        direction: Direction,
        flows: Flows,
    ) -> Result<Self> {
        let mut random = Random::new(0x006e_6174);
        let users = sessions.users();
        let mut ends = Vec::new();
        for session in 0..users.count {
            for port in FIRST_INSIDE..FIRST_INSIDE + flows.each {
                let own = SocketAddrV4::new(user(session), port);
                ends.push(match direction {
                    Direction::Uplink => own,
                    Direction::Downlink => sessions.external(session, port)?.unwrap_or(own),
                });
            }
        }
        let mut entry = || {
            let session = random.below(u64::from(users.count)) as u32;
            let port = random.below(u64::from(flows.each)) as usize;
            let far = SocketAddrV4::new((0xc612_0000 | random.next() as u32 & 0x1_ffff).into(), 53);
            let end = ends[session as usize * usize::from(flows.each) + port];
            let headers = match direction {
                Direction::Uplink => headers(end, far),
                Direction::Downlink => headers(far, end),
            };
            Entry { session, teid: users.teid(session), headers: with_checksum(headers) }
        };
        let list = (0..LIST).map(|_| entry()).collect();
        let (outside, teid) = outside(direction, users.shape);
        Ok(Self { outside, teid, list })
    }

    /// Creates an uplink frame of each flow.
    pub(crate) fn of_each_flow(sessions: &Sessions, flows: Flows) -> Self {
        let users = sessions.users();
        let ports = FIRST_INSIDE..FIRST_INSIDE + flows.each;
        let all = (0..users.count).flat_map(|session| ports.clone().map(move |it| (session, it)));
        let far = SocketAddrV4::new(0xc612_0001.into(), 53);
        let list = all.map(|(session, port)| {
            let headers = with_checksum(headers(SocketAddrV4::new(user(session), port), far));
            Entry { session, teid: users.teid(session), headers }
        });
        let list = list.collect();
        let (outside, teid) = outside(Direction::Uplink, users.shape);
        Self { outside, teid, list }
    }

    /// Returns the number of frames.
    pub(crate) fn count(&self) -> usize {
        self.list.len()
    }

    /// Returns the length of a frame and the offset of the inner packet, in octets.
    pub(crate) fn shape(&self) -> (usize, usize) {
        (self.length(), self.outside.len())
    }

    /// Returns the range of octets in which frames differ.
    pub(crate) fn differing(&self) -> Range<usize> {
        let inner = self.outside.len();
        self.teid.unwrap_or(inner)..inner + HEADERS
    }

    /// Checks that the user plane has forwarded one of these frames correctly.
    ///
    /// # Errors
    /// Returns an error that describes the difference.
    pub(crate) fn check(&self, direction: Direction, number: usize, bytes: &[u8]) -> Result<()> {
        let Entry { session, headers, .. } = &self.list[number % self.list.len()];
        let split = bytes.len().checked_sub(INNER).and_then(|at| bytes.split_at_checked(at));
        let (outer, inner) = split.ok_or("a frame is too short")?;
        // Forwarding changes the hop limit and the checksum over it.
        let same = |range: Range<usize>| inner.get(range.clone()) == headers.get(range);
        if !(same(0..8) && same(12..HEADERS) && inner[8] + 1 == headers[8]) {
            return Err(format!("the inner packet was changed: {inner:02x?}").into());
        }
        // The TEID is followed by a word of optional fields and the container.
        let teid = outer.len().checked_sub(12).and_then(|at| outer.get(at..at + 4));
        let is_right = match direction {
            Direction::Uplink => outer.len() == ETHERNET,
            Direction::Downlink => teid == Some(&far_teid(*session).to_be_bytes()),
        };
        if is_right {
            Ok(())
        } else {
            Err(format!("unexpected outer headers: {outer:02x?}").into())
        }
    }

    /// Returns the length of a frame in octets.
    pub(crate) fn length(&self) -> usize {
        self.outside.len() + INNER
    }

    /// Replaces the content of a packet with one of these frames.
    #[inline]
    pub(crate) fn write(&self, packet: &mut Packet, number: usize) {
        let length = self.length();
        let fits = match length.checked_sub(packet.len()) {
            Some(missing) => packet.prepend(missing).is_some(),
            None => packet.trim_front(packet.len() - length),
        };
        debug_assert!(fits, "the packet has headroom, or is longer than the frame");
        self.fill(packet.bytes_mut(), number);
    }

    /// Writes one of these frames into `bytes`, as far as it fits.
    #[inline]
    pub(crate) fn fill(&self, bytes: &mut [u8], number: usize) {
        let entry = &self.list[number];
        let Some((outside, inner)) = bytes.split_at_mut_checked(self.outside.len()) else { return };
        outside.copy_from_slice(&self.outside);
        if let Some(at) = self.teid
            && let Some(teid) = outside.get_mut(at..at + 4)
        {
            teid.copy_from_slice(&entry.teid.to_be_bytes());
        }
        if let Some(headers) = inner.first_chunk_mut() {
            *headers = entry.headers;
        }
    }
}

/// Returns the headers with a UDP checksum, which nobody verifies.
fn with_checksum(mut headers: [u8; HEADERS]) -> [u8; HEADERS] {
    headers[26..28].copy_from_slice(&[0x12, 0x34]);
    headers
}

/// Returns the IPv4 and UDP headers of an inner packet.
fn headers(from: SocketAddrV4, to: SocketAddrV4) -> [u8; HEADERS] {
    let mut bytes = [0; HEADERS];
    bytes[..10].copy_from_slice(&[0x45, 0, 0, INNER as u8, 0, 0, 0, 0, 64, 17]);
    bytes[12..16].copy_from_slice(&from.ip().octets());
    bytes[16..20].copy_from_slice(&to.ip().octets());
    let sum = checksum(&bytes[..20]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes[20..22].copy_from_slice(&from.port().to_be_bytes());
    bytes[22..24].copy_from_slice(&to.port().to_be_bytes());
    bytes[25] = (INNER - 20) as u8;
    bytes
}

/// Returns all octets before the inner packet, and the offset of the TEID.
fn outside(direction: Direction, shape: Shape) -> (Vec<u8>, Option<usize>) {
    let mut frame = [STATION, [2, 0, 0, 0, 0, 2]].concat();
    if direction == Direction::Downlink {
        frame.extend([8, 0]);
        return (frame, None);
    }
    // TS 29.281 clause 5.1, TS 38.415 clause 5.5.2.
    let udp = 8 + GTPU + INNER;
    match shape {
        Shape::Simple => {
            frame.extend([8, 0]);
            let mut ip = [0x45, 0, 0, (20 + udp) as u8, 0, 0, 0, 0, 64, 17, 0, 0].to_vec();
            ip.extend([10, 255, 0, 3, 10, 255, 0, 1]);
            let sum = checksum(&ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend(ip);
        }
        Shape::Filtered(_) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, udp as u8, 17, 64]);
            for last in [3, 1] {
                frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
            }
        }
    }
    // The UDP checksum is zero, over IPv6 too (RFC 6935).
    frame.extend([0x08, 0x68, 0x08, 0x68, 0, udp as u8, 0, 0]);
    let teid = frame.len() + 4;
    let after = GTPU - 8 + INNER;
    frame.extend([0x34, 255, 0, after as u8, 0, 0, 0, 0, 0, 0, 0, 0x85, 1, 0x10, 9, 0]);
    (frame, Some(teid))
}
