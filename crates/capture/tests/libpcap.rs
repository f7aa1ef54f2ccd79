//! Comparison of the filter machine with that of libpcap, run by tcpdump: same programs, same
//! frames.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use fastlane_capture::{Instruction, Program};
use fastlane_testing::skip;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

const EXPRESSIONS: [&str; 42] = [
    "",
    "ip",
    "ip6",
    "arp",
    "tcp",
    "udp or icmp",
    "icmp6",
    "not ip",
    "vlan",
    "vlan 5",
    "vlan and ip",
    "vlan and vlan and udp port 53",
    "host 10.0.0.1",
    "src host 10.0.0.1 and dst host 10.0.0.2",
    "net 10.0.0.0/30",
    "src net 10.0.0.0/31",
    "ip6 host fd00::1",
    "port 53",
    "src port 53",
    "dst port 2152",
    "udp port 2152 or tcp port 53",
    "portrange 50-60",
    "tcp portrange 1-1000 and not port 53",
    "ether host 02:00:00:00:00:01",
    "ether src 02:00:00:00:00:02",
    "ether broadcast",
    "ether multicast",
    "ether proto 0x88a8",
    "greater 100",
    "less 60",
    "len = 64",
    "len - ip[2:2] = 14",
    "ip[0] & 0xf != 5",
    "ip[6:2] & 0x1fff != 0",
    "tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn",
    "tcp[13] & 7 != 0",
    "udp[8:4] & 0xff000000 = 0x40000000",
    "ip[8] * 2 > 128",
    "ip[8] % 3 = 1 and ip[9] / 2 = 8",
    "(ip[8] << 2) ^ 3 = 0x103",
    "ip proto 17 and ip[8] >> (ip[9] & 3) > 9",
    "ip6[6] = 17 and ip6[40:2] = 53",
];

fn tcpdump(arguments: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let mut command = Command::new("tcpdump");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let mut pipe = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || pipe.write_all(&input));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join().unwrap(); // it may have ended before it read all
    output.status.success().then_some(output.stdout)
}

/// Compiles an expression as `fastlane capture` does: with `tcpdump -ddd`.
fn compile(expression: &str) -> Program {
    let text = tcpdump(&["-ddd", "-y", "EN10MB", "--", expression], &[]);
    let text = text.unwrap_or_else(|| panic!("tcpdump does not take `{expression}`"));
    let text = String::from_utf8(text).unwrap();
    let instructions = text.lines().skip(1).map(|line| {
        let mut numbers = line.split(' ').map(|number| number.parse::<u32>().unwrap());
        let mut next = || numbers.next().unwrap();
        let (code, jump_true, jump_false) = (next() as u16, next() as u8, next() as u8);
        Instruction { code, jump_true, jump_false, operand: next() }
    });
    Program::new(&instructions.collect::<Vec<_>>()).unwrap()
}

/// Creates a capture file (pcap-savefile(5)) in which the time of each frame is its number.
fn file(frames: &[Vec<u8>]) -> Vec<u8> {
    let header = [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65_535, 1];
    let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_ne_bytes()).collect();
    for (number, frame) in frames.iter().enumerate() {
        let length = frame.len() as u32;
        bytes.extend([number as u32, 0, length, length].iter().flat_map(|word| word.to_ne_bytes()));
        bytes.extend(frame);
    }
    bytes
}

/// Returns the numbers of the frames in such a file.
fn numbers(mut file: &[u8]) -> BTreeSet<usize> {
    let mut numbers = BTreeSet::new();
    file = &file[24..];
    while let Some((header, rest)) = file.split_at_checked(16) {
        let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap()) as usize;
        numbers.insert(word(0));
        file = &rest[word(8)..];
    }
    numbers
}

/// Generates octets with few values, so that comparisons are often true.
fn octets(count: usize) -> impl Strategy<Value = Vec<u8>> {
    let octet = prop_oneof![0..4_u8, Just(17), Just(6), Just(53), Just(64), any::<u8>()];
    proptest::collection::vec(octet, count)
}

fn transport() -> impl Strategy<Value = Vec<u8>> {
    let port = || prop_oneof![Just(53_u16), Just(2152), Just(55), Just(80), any::<u16>()];
    (port(), port(), octets(40)).prop_map(|(source, destination, rest)| {
        [&source.to_be_bytes()[..], &destination.to_be_bytes(), &rest].concat()
    })
}

fn ipv4() -> impl Strategy<Value = Vec<u8>> {
    let words = prop_oneof![4 => Just(5_usize), 1 => 0..16_usize];
    let fragment = prop_oneof![3 => Just(0_u16), 1 => any::<u16>()];
    let protocol = prop_oneof![Just(6_u8), Just(17), Just(1), any::<u8>()];
    let host = || 0..4_u8;
    // An expression asks for 64, which one of 256 random values seldom meets.
    let lifetime = prop_oneof![Just(64_u8), any::<u8>()];
    let rest = (octets(60), transport());
    (words, fragment, protocol, host(), host(), lifetime, rest).prop_map(
        |(words, fragment, protocol, source, destination, lifetime, (options, transport))| {
            let options = &options[..(4 * words).saturating_sub(20)];
            let length = (20 + options.len() + transport.len()) as u16;
            let mut header = vec![0x40 | words as u8, 0];
            header.extend(length.to_be_bytes());
            header.extend([0, 1]);
            header.extend(fragment.to_be_bytes());
            header.extend([lifetime, protocol, 0, 0, 10, 0, 0, source, 10, 0, 0, destination]);
            [&header, options, &transport].concat()
        },
    )
}

fn ipv6() -> impl Strategy<Value = Vec<u8>> {
    let next = prop_oneof![Just(6_u8), Just(17), Just(58), Just(0), Just(44), any::<u8>()];
    (next, 0..3_u8, 0..3_u8, transport()).prop_map(|(next, source, destination, transport)| {
        let mut header = vec![0x60, 0, 0, 0, 0, transport.len() as u8, next, 64];
        for host in [source, destination] {
            header.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
        }
        [header, transport].concat()
    })
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    let address = || {
        prop_oneof![
            8 => (0..3_u8).prop_map(|host| vec![2, 0, 0, 0, 0, host]),
            1 => Just(vec![0xff; 6]),
            1 => Just(vec![1, 0, 0x5e, 0, 0, 1]),
        ]
    };
    let tag = (prop_oneof![Just(0x8100_u16), Just(0x88a8)], 0..8_u16)
        .prop_map(|(kind, number)| [kind.to_be_bytes(), number.to_be_bytes()].concat());
    let tags = proptest::collection::vec(tag, 0..3);
    let typed = |kind: u16| move |network| [kind.to_be_bytes().to_vec(), network].concat();
    let network = prop_oneof![
        4 => ipv4().prop_map(typed(0x0800)),
        2 => ipv6().prop_map(typed(0x86dd)),
        1 => octets(28).prop_map(typed(0x0806)),
        1 => octets(50),
    ];
    let whole = (address(), address(), tags, network)
        .prop_map(|(to, from, tags, network)| [to, from, tags.concat(), network].concat());
    (whole, any::<prop::sample::Index>(), 0..4_u8).prop_map(|(mut frame, index, cut)| {
        if cut == 0 {
            frame.truncate(1 + index.index(frame.len() - 1));
        }
        frame
    })
}

#[test]
fn filters_accept_what_libpcap_accepts() {
    if Command::new("tcpdump").arg("--version").output().is_err() {
        return skip("libpcap", "tcpdump is not installed");
    }
    let programs = EXPRESSIONS.map(|expression| (expression, compile(expression)));
    let mut met = [0_usize; EXPRESSIONS.len()];
    let mut runner = TestRunner::default();
    let frames = proptest::collection::vec(frame(), 2500);
    for _ in 0..2 {
        let frames = frames.new_tree(&mut runner).unwrap().current();
        let file = file(&frames);
        for ((expression, program), met) in programs.iter().zip(&mut met) {
            let accepted = tcpdump(&["-r", "-", "-w", "-", "--", expression], &file).unwrap();
            let theirs = numbers(&accepted);
            let ours = frames.iter().enumerate().filter(|(_, frame)| program.accepts(frame));
            let ours: BTreeSet<_> = ours.map(|(number, _)| number).collect();
            let differs = theirs.symmetric_difference(&ours).next();
            assert_eq!(differs, None, "`{expression}`: {:x?}", differs.map(|it| &frames[*it]));
            *met += ours.len();
        }
    }
    for (expression, met) in EXPRESSIONS.iter().zip(met) {
        assert!(met > 0, "no frame for `{expression}`: the comparison says nothing");
    }
}
