//! Filter program of sessions: which frames on N3, N9 and N6 are theirs.
//!
//! A frame with a tunnel is one of a session if its outer destination and TEID are those of an end
//! of one of its tunnels. Any other frame is if its source or destination is a UE's. Lanes evaluate
//! the program before they copy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::assembler::{Assembler, Condition, Instruction, Load};
use crate::api::view::{CapturedSession, ExternalView};

/// UDP port of GTP-U (TS 29.281 clause 4.4.2).
const GTP_U: u32 = 2152;
const UDP: u32 = 17;
const ICMP: u32 = 1;
/// Bits of the fragment offset in an IPv4 header.
const FRAGMENT_OFFSET: u32 = 0x1fff;

/// Offsets in a frame with an Ethernet header.
const ETHERTYPE: u32 = 12;
const IP: u32 = 14;
const V4_FRAGMENT: u32 = IP + 6;
const V4_PROTOCOL: u32 = IP + 9;
const V4_ADDRESSES: [u32; 2] = [IP + 12, IP + 16];
const V6_PROTOCOL: u32 = IP + 6;
const V6_ADDRESSES: [u32; 2] = [IP + 8, IP + 24];
const V6_HEADER: u32 = 40;
/// Offsets in a UDP packet.
const PORTS: [u32; 2] = [0, 2];
const TEID: u32 = 8 + 4;
/// Offset of the identifier in an ICMP echo.
const IDENTIFIER: u32 = 4;

/// Frames of one or more sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SessionFilter {
    /// Tunnel endpoints: destination addresses and TEIDs.
    pub(super) tunnels: Vec<(IpAddr, u32)>,
    /// UE addresses and networks behind them.
    pub(super) prefixes: Vec<(IpAddr, u8)>,
    /// External addresses with their first and last port.
    pub(super) external: Vec<(Ipv4Addr, u16, u16)>,
}

impl SessionFilter {
    /// Returns the filter of sessions as the API describes them; `None` if it is of another
    /// release.
    pub(super) fn of(sessions: &[CapturedSession]) -> Option<Self> {
        let mut filter = Self::default();
        for session in sessions {
            for tunnel in &session.tunnels {
                filter.tunnels.push((tunnel.address.parse().ok()?, tunnel.teid));
            }
            for prefix in &session.prefixes {
                let (address, length) = prefix.split_once('/')?;
                filter.prefixes.push((address.parse().ok()?, length.parse().ok()?));
            }
            if let Some(ExternalView { address, first_port, last_port }) = &session.external {
                filter.external.push((address.parse().ok()?, *first_port, *last_port));
            }
        }
        Some(filter)
    }

    /// Returns the program; `None` if it would be too long.
    pub(super) fn program(&self) -> Option<Vec<Instruction>> {
        let mut program = Assembler::default();
        for (address, length) in &self.prefixes {
            match address {
                IpAddr::V4(address) => match_v4(&mut program, *address, *length),
                IpAddr::V6(address) => match_v6(&mut program, *address, *length),
            }
        }
        for &(address, first, last) in &self.external {
            match_external(&mut program, address, [first, last]);
        }
        for &(address, teid) in &self.tunnels {
            match address {
                IpAddr::V4(address) => match_tunnel_v4(&mut program, address, teid),
                IpAddr::V6(address) => match_tunnel_v6(&mut program, address, teid),
            }
        }
        program.end(false);
        program.assemble()
    }
}

/// Returns true if a frame is UDP to the port of GTP-U.
pub(super) fn is_gtp_u(frame: &[u8]) -> bool {
    let half = |offset: usize| Some(u16::from_be_bytes(*frame.get(offset..)?.first_chunk()?));
    let header = match half(ETHERTYPE as usize) {
        Some(0x0800) if frame.get(V4_PROTOCOL as usize) == Some(&(UDP as u8)) => {
            usize::from(frame[IP as usize] & 0xf) * 4
        }
        Some(0x86dd) if frame.get(V6_PROTOCOL as usize) == Some(&(UDP as u8)) => 40,
        _ => return false,
    };
    half(IP as usize + header + 2).is_some_and(|port| u32::from(port) == GTP_U)
}

/// Returns the mask of a prefix of up to 32 bits.
const fn mask(length: u32) -> u32 {
    match length {
        0 => 0,
        1..32 => u32::MAX << (32 - length),
        _ => u32::MAX,
    }
}

/// Accepts IPv4 packets from and to a prefix.
fn match_v4(program: &mut Assembler, address: Ipv4Addr, length: u8) {
    let mask = mask(length.into());
    for offset in V4_ADDRESSES {
        let next = program.label();
        program.load(Load::Half(ETHERTYPE));
        program.unless(Condition::Equal(0x0800), next);
        program.load(Load::Word(offset));
        program.mask(mask);
        program.unless(Condition::Equal(u32::from(address) & mask), next);
        program.end(true);
        program.place(next);
    }
}

/// Accepts IPv6 packets from and to a prefix.
fn match_v6(program: &mut Assembler, address: Ipv6Addr, length: u8) {
    for offset in V6_ADDRESSES {
        let next = program.label();
        program.load(Load::Half(ETHERTYPE));
        program.unless(Condition::Equal(0x86dd), next);
        for (index, word) in (0..).zip(words(address)) {
            let length = u32::from(length).saturating_sub(32 * index);
            if length > 0 {
                let mask = mask(length);
                program.load(Load::Word(offset + 4 * index));
                program.mask(mask);
                program.unless(Condition::Equal(word & mask), next);
            }
        }
        program.end(true);
        program.place(next);
    }
}

fn words(address: Ipv6Addr) -> [u32; 4] {
    let bits = address.to_bits();
    [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
}

/// Accepts TCP, UDP and ICMP packets from and to a range of external ports or identifiers.
fn match_external(program: &mut Assembler, address: Ipv4Addr, [first, last]: [u16; 2]) {
    for (offset, port) in V4_ADDRESSES.into_iter().zip(PORTS) {
        for is_icmp in [false, true] {
            let next = program.label();
            program.load(Load::Half(ETHERTYPE));
            program.unless(Condition::Equal(0x0800), next);
            program.load(Load::Word(offset));
            program.unless(Condition::Equal(address.into()), next);
            program.load(Load::Half(V4_FRAGMENT));
            program.unless(Condition::NoBitOf(FRAGMENT_OFFSET), next);
            program.load(Load::Byte(V4_PROTOCOL));
            if is_icmp {
                program.unless(Condition::Equal(ICMP), next);
            } else {
                program.unless(Condition::AtLeast(ICMP + 1), next);
            }
            program.index_header_length(IP);
            program.load(Load::IndexedHalf(IP + if is_icmp { IDENTIFIER } else { port }));
            program.unless(Condition::AtLeast(first.into()), next);
            program.unless(Condition::AtMost(last.into()), next);
            program.end(true);
            program.place(next);
        }
    }
}

/// Accepts GTP-U over IPv4 to a tunnel endpoint.
fn match_tunnel_v4(program: &mut Assembler, address: Ipv4Addr, teid: u32) {
    let next = program.label();
    program.load(Load::Half(ETHERTYPE));
    program.unless(Condition::Equal(0x0800), next);
    program.load(Load::Word(V4_ADDRESSES[1]));
    program.unless(Condition::Equal(address.into()), next);
    program.load(Load::Byte(V4_PROTOCOL));
    program.unless(Condition::Equal(UDP), next);
    program.load(Load::Half(V4_FRAGMENT));
    program.unless(Condition::NoBitOf(FRAGMENT_OFFSET), next);
    program.index_header_length(IP);
    program.load(Load::IndexedHalf(IP + PORTS[1]));
    program.unless(Condition::Equal(GTP_U), next);
    program.load(Load::IndexedWord(IP + TEID));
    program.unless(Condition::Equal(teid), next);
    program.end(true);
    program.place(next);
}

/// Accepts GTP-U over IPv6 to a tunnel endpoint.
fn match_tunnel_v6(program: &mut Assembler, address: Ipv6Addr, teid: u32) {
    let next = program.label();
    program.load(Load::Half(ETHERTYPE));
    program.unless(Condition::Equal(0x86dd), next);
    program.load(Load::Byte(V6_PROTOCOL));
    program.unless(Condition::Equal(UDP), next);
    program.load(Load::Half(IP + V6_HEADER + PORTS[1]));
    program.unless(Condition::Equal(GTP_U), next);
    program.load(Load::Word(IP + V6_HEADER + TEID));
    program.unless(Condition::Equal(teid), next);
    for (index, word) in (0..).zip(words(address)) {
        program.load(Load::Word(V6_ADDRESSES[1] + 4 * index));
        program.unless(Condition::Equal(word), next);
    }
    program.end(true);
    program.place(next);
}

#[cfg(test)]
mod tests;
