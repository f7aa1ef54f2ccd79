//! The program against what the fields of a frame say.

use fastlane::capture::{Instruction, MAX_INSTRUCTIONS, Program};
use proptest::prelude::*;

use super::*;

/// Fields of a frame.
#[derive(Clone, Debug)]
struct Frame {
    addresses: [IpAddr; 2],
    protocol: u8,
    /// Octets of options of IPv4, a multiple of four.
    options: u8,
    fragment_offset: u16,
    ports: [u16; 2],
    teid: u32,
    /// Length to which the frame is cut.
    length: usize,
}

impl Frame {
    fn header_length(&self) -> usize {
        if self.addresses[0].is_ipv4() { 20 + usize::from(self.options) } else { 40 }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![2; 12];
        match self.addresses {
            [IpAddr::V4(source), IpAddr::V4(destination)] => {
                bytes.extend([8, 0, 0x45 + self.options / 4, 0, 0, 60, 0, 0]);
                bytes.extend((self.fragment_offset | 0x2000).to_be_bytes());
                bytes.extend([64, self.protocol, 0, 0]);
                bytes.extend([source.octets(), destination.octets()].concat());
                bytes.extend(vec![0; self.options.into()]);
            }
            [IpAddr::V6(source), IpAddr::V6(destination)] => {
                bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, self.protocol, 64]);
                bytes.extend([source.octets(), destination.octets()].concat());
            }
            _ => unreachable!("both are of one family"),
        }
        bytes.extend(self.ports.map(u16::to_be_bytes).concat());
        // An ICMP echo has its identifier where UDP has its length.
        bytes.extend(self.ports[0].to_be_bytes());
        bytes.extend([0, 0, 0x30, 255, 0, 4]);
        bytes.extend(self.teid.to_be_bytes());
        bytes.truncate(self.length);
        bytes
    }

    /// Returns true if the filter means this frame.
    fn is_meant(&self, filter: &SessionFilter) -> bool {
        let [source, destination] = self.addresses;
        let has = |end: usize| self.length >= 14 + end;
        let header = self.header_length();
        let is_v4 = source.is_ipv4();
        // Only the words that the prefix covers must be there.
        let of_user = |address: &IpAddr, start: usize| {
            filter.prefixes.iter().any(|(prefix, length)| {
                let words = if is_v4 { 1 } else { usize::from(*length).div_ceil(32) };
                has(start + 4 * words) && is_in(*address, *prefix, *length)
            })
        };
        let starts = if is_v4 { [12, 16] } else { [8, 24] };
        if of_user(&source, starts[0]) || of_user(&destination, starts[1]) {
            return true;
        }
        let is_first = !is_v4 || self.fragment_offset == 0;
        let is_external = |&(address, first, last): &(Ipv4Addr, u16, u16)| {
            let sides = [(source, self.ports[0], 2), (destination, self.ports[1], 4)];
            sides.into_iter().any(|(own, port, end)| {
                let (port, end) = match self.protocol {
                    1 => (self.ports[0], 6),
                    0 => return false,
                    _ => (port, end),
                };
                own == IpAddr::V4(address)
                    && is_first
                    && has(header + end)
                    && (first..=last).contains(&port)
            })
        };
        let is_tunnel = |&(address, teid): &(IpAddr, u32)| {
            destination == address
                && is_first
                && self.protocol == 17
                && self.ports[1] == 2152
                && has(header + 16)
                && self.teid == teid
        };
        filter.external.iter().any(is_external) || filter.tunnels.iter().any(is_tunnel)
    }
}

fn is_in(address: IpAddr, prefix: IpAddr, length: u8) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    let ((address, size), (prefix, other)) = (bits(address), bits(prefix));
    size == other && (length == 0 || (address ^ prefix) >> (128 - u32::from(length)) == 0)
}

/// Addresses that differ in few bits, so that many frames are meant.
fn v4() -> impl Strategy<Value = Ipv4Addr> {
    (0..4_u8, 0..3_u8).prop_map(|(third, last)| Ipv4Addr::new(10, 45, third, last))
}

fn v6() -> impl Strategy<Value = Ipv6Addr> {
    (0..3_u16, 0..3_u16, 0..2_u16)
        .prop_map(|(a, b, c)| Ipv6Addr::new(0x2001, 0xdb8, a, b, 0, c, 0, c))
}

fn frame() -> impl Strategy<Value = Frame> {
    let addresses = prop_oneof![
        [v4(), v4()].prop_map(|it| it.map(IpAddr::V4)),
        [v6(), v6()].prop_map(|it| it.map(IpAddr::V6)),
    ];
    let protocol = prop_oneof![Just(17_u8), Just(17), Just(1), Just(6), Just(0)];
    let port = || prop_oneof![Just(2152_u16), 1000..1008_u16];
    let offset = prop_oneof![Just(0_u16), Just(0), Just(185)];
    let length = prop_oneof![Just(200_usize), Just(200), 14..80_usize];
    (addresses, protocol, 0..3_u8, offset, [port(), port()], 1..4_u32, length).prop_map(
        |(addresses, protocol, options, fragment_offset, ports, teid, length)| Frame {
            addresses,
            protocol,
            options: 4 * options,
            fragment_offset,
            ports,
            teid,
            length,
        },
    )
}

fn filter() -> impl Strategy<Value = SessionFilter> {
    let address = || prop_oneof![v4().prop_map(IpAddr::V4), v6().prop_map(IpAddr::V6)];
    let prefix = prop_oneof![
        (v4(), prop_oneof![Just(32_u8), 0..33_u8]).prop_map(|(it, length)| (it.into(), length)),
        (v6(), prop_oneof![Just(64_u8), 30..129_u8]).prop_map(|(it, length)| (it.into(), length)),
    ];
    let external = (v4(), 1000..1008_u16, 0..4_u16)
        .prop_map(|(address, first, count)| (address, first, first + count));
    (
        prop::collection::vec((address(), 1..4_u32), 0..4),
        prop::collection::vec(prefix, 0..2),
        prop::collection::vec(external, 0..2),
    )
        .prop_map(|(tunnels, prefixes, external)| SessionFilter {
            tunnels,
            prefixes,
            external,
        })
}

fn checked(filter: &SessionFilter) -> Program {
    let instructions = filter.program().expect("a short program").into_iter().map(
        |(code, jump_true, jump_false, operand)| Instruction {
            code,
            jump_true,
            jump_false,
            operand,
        },
    );
    Program::new(&instructions.collect::<Vec<_>>()).expect("a program that lanes accept")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn the_program_accepts_what_the_fields_say(frame in frame(), filter in filter()) {
        let is_accepted = checked(&filter).accepts(&frame.bytes());
        prop_assert_eq!(is_accepted, frame.is_meant(&filter), "{:02x?}", frame.bytes());
    }
}

#[test]
fn a_program_that_lanes_would_not_take_is_refused() {
    let tunnels = |count| (0..count).map(|teid| (IpAddr::from([10, 0, 0, 1]), teid)).collect();
    let filter = |count| SessionFilter { tunnels: tunnels(count), ..SessionFilter::default() };
    let most = MAX_INSTRUCTIONS as u32 / 14;
    assert!(filter(most).program().is_some());
    assert_eq!(filter(most + 1).program(), None);
}
