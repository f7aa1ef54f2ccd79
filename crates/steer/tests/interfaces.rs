//! The programs on real interfaces, in network namespaces of the test.

mod support;

use std::{
    fs::File,
    io::{ErrorKind, Read, Write},
    net::UdpSocket,
    os::fd::AsFd,
    time::Duration,
};

use fastlane_steer::{Counts, Program, ProgramError, Rule, Rules, Settings, XdpMode};
use support::machine::{self, ip};

// Bit numbers of capabilities (linux/capability.h).
const NET_ADMIN: u64 = 1 << 12;
const NET_RAW: u64 = 1 << 13;
const PERFMON: u64 = 1 << 38;
const BPF: u64 = 1 << 39;

const MARK: u32 = 0xfa57;
const OUR_ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SETTINGS: Settings = Settings { max_length: 1600, mark: MARK, reenter_ifindex: 0 };

/// Runs `body` in a namespace with a pair of veth interfaces, `near` and `far`, or skips `test`.
fn between_veth(test: &'static str, body: impl FnOnce() + Send + 'static) {
    let run = machine::in_namespace(move || {
        // Keeps the kernel from sending frames of its own. It may be built without IPv6.
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        ip("link add near type veth peer name far");
        ip("link set near address 02:00:00:00:00:01");
        ip("address add 10.7.0.1/24 dev near");
        for interface in ["lo", "near", "far"] {
            ip(&format!("link set {interface} up"));
        }
        body();
    });
    if let Err(error) = run {
        support::skip(test, &format!("no network namespace: {error}"));
    }
}

fn to_port_2152() -> Rules {
    let rule = Rule { udp_port: Some(2152.into()), ..Rule::default() };
    Rules::new(vec![rule]).expect("a sound rule")
}

fn load(settings: Settings) -> Program {
    Program::load(&to_port_2152(), settings).expect("a namespace needs more than this does")
}

/// Returns a UDP datagram from 10.7.0.2 to 10.7.0.1 after these VLAN tags, with one octet of
/// payload.
fn datagram(tags: &[u16], port: u16, content: u8) -> Vec<u8> {
    let mut frame = [OUR_ADDRESS, [2, 0, 0, 0, 0, 2]].concat();
    for tag in tags {
        frame.extend(tag.to_be_bytes());
        frame.extend([0, 7]);
    }
    frame.extend([0x08, 0x00]);
    let start = frame.len();
    frame.extend([0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0, 10, 7, 0, 2, 10, 7, 0, 1]);
    let sum: u32 = frame[start..]
        .as_chunks::<2>()
        .0
        .iter()
        .map(|pair| u32::from(u16::from_be_bytes(*pair)))
        .sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
    frame.extend([0x10, 0x00]);
    frame.extend(port.to_be_bytes());
    frame.extend([0, 9, 0, 0, content]);
    frame
}

/// Opens a socket of Linux on `port` whose reads time out after a second.
fn linux_socket(port: u16) -> UdpSocket {
    let socket = UdpSocket::bind(("10.7.0.1", port)).expect("the address is ours");
    socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a sound timeout");
    socket
}

/// Returns the octet of the next datagram, if one arrives in time.
fn received(socket: &UdpSocket) -> Option<u8> {
    let mut content = [0; 16];
    match socket.recv(&mut content) {
        Ok(length) => Some(content[length - 1]),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

/// Returns the last octets of all frames that are queued in a packet socket.
fn captured(socket: &mut File) -> Vec<u8> {
    let mut contents = Vec::new();
    let mut frame = [0; 2048];
    loop {
        match socket.read(&mut frame) {
            Ok(length) => contents.push(frame[length - 1]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return contents,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn packet_sockets_share_an_interface_with_linux() {
    between_veth("packet_sockets_share_an_interface_with_linux", || {
        let mut program = load(SETTINGS);
        let mut near = File::from(machine::packet_socket("near").expect("near is there"));
        program.attach_select(near.as_fd()).expect("select attaches");
        program.attach_claim("near").expect("claim attaches");
        let mut far = File::from(machine::packet_socket("far").expect("far is there"));
        let (fast, slow) = (linux_socket(2152), linux_socket(2153));

        // The kernel removes the outermost tag from the frame, but counts it in the length.
        let stacks: [&[u16]; 4] = [&[], &[0x8100], &[0x88a8, 0x8100], &[0x8100, 0x8100, 0x8100]];
        for (content, tags) in stacks.iter().enumerate() {
            far.write_all(&datagram(tags, 2152, content as u8)).expect("far sends");
        }
        far.write_all(&datagram(&[], 2153, 9)).expect("far sends");
        // The socket must not receive outgoing frames, although the kernel passes them to the
        // filter.
        near.write_all(&datagram(&[], 2152, 8)).expect("near sends");

        assert_eq!(received(&slow), Some(9), "what no rule matches is Linux's");
        assert_eq!(captured(&mut near), [0, 1, 2]);
        assert_eq!(received(&fast), None, "what a rule matches is not");
        let wanted = Counts { claimed: 3, passed: 2, ..Counts::default() };
        assert_eq!(program.counts().expect("counts"), wanted);

        drop(program);
        far.write_all(&datagram(&[], 2152, 7)).expect("far sends");
        assert_eq!(received(&fast), Some(7), "without the claim all is Linux's");
    });
}

#[test]
fn frames_reenter_once_and_without_their_mark() {
    between_veth("frames_reenter_once_and_without_their_mark", || {
        let mut tap = match machine::tap("again") {
            Ok(tap) => File::from(tap),
            Err(error) => {
                let reason = format!("no TAP: {error}");
                return support::skip("frames_reenter_once_and_without_their_mark", &reason);
            }
        };
        ip("link set again up");
        // A mark left on the frame would change its route.
        ip(&format!("rule add fwmark {MARK} blackhole"));
        let reenter_ifindex = machine::index_of("near").expect("near is there");
        let mut program = load(Settings { reenter_ifindex, ..SETTINGS });
        let mut near = File::from(machine::packet_socket("near").expect("near is there"));
        program.attach_select(near.as_fd()).expect("select attaches");
        program.attach_claim("near").expect("claim attaches");
        program.attach_reenter("again").expect("reenter attaches");
        let linux = linux_socket(2152);

        tap.write_all(&datagram(&[], 2152, 5)).expect("the TAP takes it");
        assert_eq!(received(&linux), Some(5));
        assert_eq!(captured(&mut near), [], "seen before, not seen again");
        let wanted = Counts { reentered: 1, ..Counts::default() };
        assert_eq!(program.counts().expect("counts"), wanted);
    });
}

#[test]
fn a_program_may_move_to_another_thread() {
    fn movable<T: Send>() {}
    movable::<Program>();
}

#[test]
fn an_interface_has_one_xdp_program_and_is_free_again_after() {
    between_veth("an_interface_has_one_xdp_program_and_is_free_again_after", || {
        let (mut first, mut second) = (load(SETTINGS), load(SETTINGS));
        for mode in [XdpMode::Native, XdpMode::Generic] {
            first.attach_xdp("near", mode).expect("near is free");
            for other in [XdpMode::Native, XdpMode::Generic] {
                let error = second.attach_xdp("near", other).expect_err("near is taken");
                assert!(matches!(error, ProgramError::InterfaceBusy { .. }), "{error}");
            }
            first.detach_xdp();
        }
        second.attach_xdp("near", XdpMode::Native).expect("near is free again");
        drop(second);
        first.attach_xdp("near", XdpMode::Native).expect("near is free once more");
    });
}

#[test]
fn xdp_refusals_say_why() {
    between_veth("xdp_refusals_say_why", || {
        let mut program = load(SETTINGS);
        let error = program.attach_xdp("lo", XdpMode::Native).expect_err("lo has no native XDP");
        assert!(matches!(error, ProgramError::NoNativeXdp { .. }), "{error}");
        program.attach_xdp("lo", XdpMode::Generic).expect("generic works everywhere");
        for name in ["absent", "", "n\0ul", "much-longer-than-a-name-may-be"] {
            for error in [
                program.attach_xdp(name, XdpMode::Native),
                program.attach_claim(name),
                program.attach_reenter(name),
            ] {
                let error = error.expect_err("there is none");
                assert!(matches!(error, ProgramError::NoInterface { .. }), "{error}");
            }
        }
        let stdin = std::io::stdin();
        let error = program.insert_socket(1024, stdin.as_fd()).expect_err("out of range");
        assert!(matches!(error, ProgramError::QueueOutOfRange { queue: 1024, .. }), "{error}");
        let error = program.insert_socket(0, stdin.as_fd()).expect_err("no socket");
        assert!(matches!(error, ProgramError::Kernel { .. }), "{error}");
        let error = program.remove_socket(1024).expect_err("out of range");
        assert!(matches!(error, ProgramError::QueueOutOfRange { queue: 1024, .. }), "{error}");
    });
}

#[test]
fn missing_capabilities_are_named() {
    const ALL: u64 = NET_ADMIN | NET_RAW | PERFMON | BPF;
    for (kept, missing) in [
        (0, "CAP_BPF and CAP_NET_ADMIN and CAP_PERFMON missing"),
        (ALL & !BPF, "CAP_BPF missing"),
        (ALL & !NET_ADMIN, "CAP_NET_ADMIN missing"),
        (ALL & !PERFMON, "CAP_PERFMON missing"),
    ] {
        between_veth("missing_capabilities_are_named", move || {
            machine::keep_capabilities(kept).expect("a thread may give up what it has");
            let error = Program::load(&to_port_2152(), SETTINGS)
                .and_then(|mut program| program.attach_xdp("near", XdpMode::Native))
                .expect_err("one is missing");
            assert!(matches!(error, ProgramError::NoPrivilege { .. }), "{error}");
            assert!(error.to_string().contains(missing), "{error}");
        });
    }
}

#[test]
fn the_capabilities_that_the_errors_ask_for_are_enough() {
    between_veth("the_capabilities_that_the_errors_ask_for_are_enough", || {
        let kept = NET_ADMIN | NET_RAW | PERFMON | BPF;
        machine::keep_capabilities(kept).expect("they are there");
        let mut program = load(SETTINGS);
        program.attach_xdp("near", XdpMode::Native).expect("xdp attaches");
        program.attach_claim("near").expect("claim attaches");
        program.attach_reenter("far").expect("reenter attaches");
        let socket = machine::packet_socket("near").expect("near is there");
        program.attach_select(socket.as_fd()).expect("select attaches");
    });
}
