//! Rules replaced while frames arrive: each frame is evaluated with the old list or the new one.

mod support;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{ErrorKind, Read, Write},
    net::UdpSocket,
    os::fd::AsFd,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use fastlane_steer::{
    MAX_RULES, Program, ProgramError, ProgramHandover, Rule, Rules, Settings, XdpMode,
};
use support::machine::{self, ip};

const SETTINGS: Settings = Settings { max_length: 1600, mark: 0, reenter_ifindex: 0 };
const PORT: u16 = 2152;

/// Returns the number of replacements of the rules.
fn times() -> u32 {
    if std::env::var_os("FASTLANE_SOAK").is_some() { 2000 } else { 60 }
}

/// Runs `body` in a namespace with a pair of veth interfaces, `near` and `far`, or skips `test`.
fn between_veth(test: &'static str, body: impl FnOnce() + Send + 'static) {
    let run = machine::in_namespace(move || {
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

fn to(port: u16) -> Rule {
    Rule { udp_port: Some(port.into()), ..Rule::default() }
}

/// Returns a list of maximum length in which the rule at `index` matches frames to [`PORT`].
fn at(index: usize) -> Rules {
    let list = (0..MAX_RULES).map(|rule| to(if rule == index { PORT } else { 10 + rule as u16 }));
    Rules::new(list.collect()).expect("sound rules")
}

/// Returns a UDP datagram from 10.7.0.2 to 10.7.0.1 that carries a number.
fn datagram(port: u16, number: u32) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0x66, 0xbd, 10, 7, 0, 2, 10, 7, 0, 1]);
    frame.extend([0x10, 0x00]);
    frame.extend(port.to_be_bytes());
    frame.extend([0, 12, 0, 0]);
    frame.extend(number.to_be_bytes());
    frame
}

/// Returns the number at the end of a frame or datagram to [`PORT`].
fn number(octets: &[u8]) -> u32 {
    u32::from_be_bytes(*octets.last_chunk().expect("four octets"))
}

#[test]
fn xdp_never_mixes_two_lists() {
    between_veth("xdp_never_mixes_two_lists", || {
        // One rule of each list claims frames to the port; no other rule does.
        let lists = [at(0), at(MAX_RULES - 1), Rules::default()];
        let mut program = Program::load(&lists[0], SETTINGS).expect("the programs load");
        program.attach_xdp("near", XdpMode::Native).expect("near is free");
        let stop = AtomicBool::new(false);
        let sent = thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let mut far = File::from(machine::packet_socket("far").expect("far is there"));
                let frame = datagram(PORT, 0);
                let mut sent = 0;
                while !stop.load(Ordering::Relaxed) {
                    sent += u64::from(far.write(&frame).is_ok());
                }
                sent
            });
            for round in 0..times() {
                program.replace_rules(&lists[round as usize % 3]).expect("rules");
            }
            stop.store(true, Ordering::Relaxed);
            sender.join().expect("the sender ends")
        });
        let end = Instant::now() + Duration::from_secs(5);
        // No socket is in the table, so claimed frames are uncovered.
        while program.counts().expect("counts").uncovered < sent && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        let counts = program.counts().expect("counts");
        println!("{sent} frames under {} lists: {counts:?}", times());
        assert!(sent > 1000, "only {sent} frames");
        assert_eq!((counts.uncovered, counts.passed), (sent, 0));
    });
}

/// Reads all queued frames into `seen`.
fn collect(near: &mut File, linux: &UdpSocket, seen: &mut BTreeMap<u32, [u32; 2]>) {
    let mut octets = [0; 2048];
    loop {
        match near.read(&mut octets) {
            Ok(length) => seen.entry(number(&octets[..length])).or_default()[0] += 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    while let Ok(length) = linux.recv(&mut octets) {
        seen.entry(number(&octets[..length])).or_default()[1] += 1;
    }
}

#[test]
fn between_packet_sockets_and_linux_no_frame_is_lost_or_seen_twice() {
    between_veth("between_packet_sockets_and_linux_no_frame_is_lost_or_seen_twice", || {
        let lists = [at(0), Rules::new(vec![to(9)]).expect("a sound rule"), at(MAX_RULES - 1)];
        let mut program = Program::load(&lists[0], SETTINGS).expect("the programs load");
        let mut near = File::from(machine::packet_socket("near").expect("near is there"));
        program.attach_select(near.as_fd()).expect("select attaches");
        program.attach_claim("near").expect("claim attaches");
        let linux = UdpSocket::bind(("10.7.0.1", PORT)).expect("the address is ours");
        linux.set_nonblocking(true).expect("a flag");
        let stop = AtomicBool::new(false);
        let mut seen = BTreeMap::new();
        let sent = thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 0..times() {
                    program.replace_rules(&lists[round as usize % 3]).expect("rules");
                }
                stop.store(true, Ordering::Relaxed);
            });
            let mut far = File::from(machine::packet_socket("far").expect("far is there"));
            let mut sent = 0;
            while !stop.load(Ordering::Relaxed) {
                // A sent frame is received at once, in this thread or soon afterwards.
                for _ in 0..16 {
                    sent += u32::from(far.write(&datagram(PORT, sent)).is_ok());
                }
                collect(&mut near, &linux, &mut seen);
            }
            writer.join().expect("the writer ends");
            sent
        });
        let end = Instant::now() + Duration::from_secs(2);
        while seen.len() < sent as usize && Instant::now() < end {
            collect(&mut near, &linux, &mut seen);
        }
        let fast = seen.values().filter(|times| **times == [1, 0]).count();
        let slow = seen.values().filter(|times| **times == [0, 1]).count();
        let strange: Vec<_> =
            seen.iter().filter(|(_, times)| times[0] + times[1] != 1).take(5).collect();
        println!("{sent} frames: {fast} fast, {slow} Linux's");
        assert!(fast > 100 && slow > 100, "{fast} fast, {slow} not");
        assert_eq!(fast + slow, sent as usize, "twice: {strange:?}");
    });
}

/// Duplicates the descriptors of a program's handover.
fn kept(program: &Program) -> ProgramHandover<std::os::fd::OwnedFd> {
    let kept = program.handover().expect("it is attached");
    let own = |descriptor: std::os::fd::BorrowedFd<'_>| {
        descriptor.try_clone_to_owned().expect("a descriptor")
    };
    ProgramHandover {
        link: own(kept.link),
        steering: own(kept.steering),
        sockets: own(kept.sockets),
        counts: own(kept.counts),
    }
}

#[test]
fn a_program_is_taken_over_with_its_tables() {
    between_veth("a_program_is_taken_over_with_its_tables", || {
        let mut first = Program::load(&at(0), SETTINGS).expect("the programs load");
        assert!(first.handover().is_none(), "on no interface");
        first.attach_xdp("near", XdpMode::Native).expect("near is free");
        let mut far = File::from(machine::packet_socket("far").expect("far is there"));
        let index = machine::index_of("near").expect("near is there");
        let (keeps, again, gone) = (kept(&first), kept(&first), kept(&first));
        far.write_all(&datagram(PORT, 1)).expect("far sends");
        drop(first);
        far.write_all(&datagram(PORT, 2)).expect("far sends");

        let error = Program::adopt(again, index + 1, SETTINGS).expect_err("another interface");
        assert!(error.to_string().contains("is on interface"), "{error}");
        let mut second = Program::adopt(keeps, index, SETTINGS).expect("it goes on");
        let soon = |program: &Program, wanted: [u64; 2]| {
            let end = Instant::now() + Duration::from_secs(2);
            loop {
                let counts = program.counts().expect("counts");
                if [counts.uncovered, counts.passed] == wanted {
                    return;
                }
                assert!(Instant::now() < end, "{counts:?}, not {wanted:?}");
            }
        };
        soon(&second, [2, 0]);
        second.replace_rules(&Rules::new(vec![to(9)]).expect("a sound rule")).expect("rules");
        far.write_all(&datagram(PORT, 3)).expect("far sends");
        soon(&second, [2, 1]);
        second.replace_rules(&at(3)).expect("rules");
        far.write_all(&datagram(PORT, 4)).expect("far sends");
        soon(&second, [3, 1]);
        let error = second.attach_xdp("near", XdpMode::Native).expect_err("it was taken over");
        assert!(matches!(error, ProgramError::Adopted { .. }), "{error}");

        ip("link delete near");
        let error = Program::adopt(gone, index, SETTINGS).expect_err("no interface");
        assert!(error.to_string().contains("is removed"), "{error}");
        let (stdin, socket) = (std::io::stdin(), UdpSocket::bind("127.0.0.1:0").expect("a port"));
        let own = || socket.as_fd().try_clone_to_owned().expect("a descriptor");
        let strange =
            ProgramHandover { link: own(), steering: own(), sockets: own(), counts: own() };
        assert!(Program::adopt(strange, index, SETTINGS).is_err(), "{stdin:?}");
    });
}
