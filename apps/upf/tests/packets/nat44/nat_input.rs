//! The input of the fuzz target of NAT: events as octets, and the packets of its corpus.

use super::nat_events::{AnyPacket, Event, play};
use super::nat_lane::*;
use crate::frames::ipv4;
use crate::test_lane::*;

/// First inside port of events, the distance of ports, and their number.
const FIRST: u16 = 3000;
const DISTANCE: u16 = 37;
const COUNT: u16 = 90;
/// Ticks that pass at a time. Their sums keep away from all timers but that of TCP.
pub(crate) const PASSES: [u32; 3] = [26, 65, 403];

/// Returns one of the inside ports of events.
pub(crate) const fn inside_port(number: u16) -> u16 {
    FIRST + number % COUNT * DISTANCE
}

/// Reads events from the input of the fuzz target.
pub(crate) fn decode(mut input: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = decode_one(&mut input) {
        events.push(event);
    }
    events
}

fn decode_one(input: &mut &[u8]) -> Option<Event> {
    let [kind, flags] = take(input)?;
    let (other, server) = (flags & 1 != 0, flags & 8 != 0);
    let protocol = [UDP, UDP, TCP, ICMP][usize::from(flags >> 1 & 3)];
    Some(match kind % 8 {
        0 | 1 => {
            let [port, control, data] = take(input)?;
            let port = inside_port(port.into());
            Event::Up { other, protocol, port, server, control, data }
        }
        2 | 3 => {
            let [offset, control, high, low] = take(input)?;
            let from = u16::from_be_bytes([high, low]);
            Event::Down { protocol, offset: u16::from(offset) % (2 * PORTS), from, control }
        }
        4 => Event::Pass(PASSES[usize::from(flags) % PASSES.len()]),
        5 => {
            let [length] = take(input)?;
            let (octets, rest) = input.split_at(usize::from(length).min(input.len()));
            *input = rest;
            let [is_up, is_addressed, is_repaired] = [16, 32, 64].map(|bit| flags & bit != 0);
            let octets = octets.to_vec();
            Event::Any(AnyPacket { is_up, other, is_addressed, is_repaired, octets })
        }
        6 => {
            let [kind, code, length] = take(input)?;
            Event::Error { is_up: flags & 16 != 0, kind, code, length }
        }
        _ => {
            let [port, offset] = take(input)?;
            let offset = u16::from(offset) % (2 * PORTS);
            Event::Between { other, protocol, port: inside_port(port.into()), offset }
        }
    })
}

fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*taken)
}

/// Returns the input with a packet of any octets. Their number has one octet.
pub(crate) fn input_of(packet: &AnyPacket) -> Vec<u8> {
    let AnyPacket { is_up, other, is_addressed, is_repaired, octets } = packet;
    let bits = [(*other, 1), (*is_up, 16), (*is_addressed, 32), (*is_repaired, 64)];
    let flags = bits.iter().map(|(is_set, bit)| u8::from(*is_set) * bit).sum();
    let octets = &octets[..octets.len().min(255)];
    [&[5, flags, octets.len() as u8], octets].concat()
}

/// Plays the input of the fuzz target on a lane, which forgets its mappings first.
pub(crate) fn play_input(lane: &mut NatLane, input: &[u8]) {
    play(lane, &decode(input));
}

/// Returns packets of every kind that NAT reads, for the corpus.
pub(crate) fn kinds() -> Vec<AnyPacket> {
    let mut all = Vec::new();
    let any = |is_up, octets: Vec<u8>| AnyPacket {
        is_up,
        other: false,
        is_addressed: true,
        is_repaired: true,
        octets,
    };
    for protocol in [UDP, TCP] {
        let up = Flow { protocol, from: (USER, 3000), to: (SERVER, 53) };
        let down = Flow { protocol, from: (SERVER, 53), to: (EXTERNAL, 1216) };
        all.push(any(true, transport(up, 2, b"data")));
        all.push(any(false, transport(down, 0x12, b"answer")));
        all.push(any(true, icmp_error(3, 3, USER, SERVER, &transport(up.answer(), 16, b"answer"))));
        all.push(any(false, icmp_error(3, 1, SERVER, EXTERNAL, &transport(down.answer(), 2, b""))));
    }
    all.push(any(true, echo(8, USER, SERVER, 3000)));
    all.push(any(false, echo(0, SERVER, EXTERNAL, 1216)));
    all.push(any(true, ipv4(USER, SERVER, 47, 64, b"gre")));
    all.push(any(true, ipv4(USER, SERVER, UDP, 1, &[0, 1, 0, 2, 0, 8, 0, 0])));
    all.push(any(true, ipv4(USER, OTHER, UDP, 64, &[0, 1, 0, 2, 0, 8, 0, 0])));
    let passing = ipv4(SERVER, USER, UDP, 64, &[0, 53, 11, 184, 0, 8, 0, 0]);
    all.push(AnyPacket { other: true, ..any(false, passing) });
    all
}
