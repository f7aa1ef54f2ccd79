//! Tests of AF_PACKET on a veth pair with a real Linux at both ends.
#![allow(unsafe_code, reason = "a socket option without a safe form")]

mod support;

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use fastlane_core::{Burst, Packet, Partial, Pool, PortId, Queue, Sent};
use fastlane_kernel::af_packet::{AfPacketQueue, AfPacketSettings, Device};
use fastlane_steer::{Rule, Rules};
use fastlane_testing::{Addresses, DEVICE_IP, Peer, STRANGER_IP, Tag, all_losses};
use fastlane_wire::checksum::Sum;
use rustix::event::{PollFd, PollFlags, Timespec};
use support::{Hosts, interface, pool, run, udp, wire};

/// UDP address that the rules claim in these tests.
const FAST: &str = "192.0.2.1:2152";

/// Lane that sends every packet back.
struct Echo {
    device: Device,
    queue: AfPacketQueue,
    pool: Pool,
    burst: Burst,
    seen: usize,
}

impl Echo {
    fn new(settings: &AfPacketSettings, rules: &Rules) -> Self {
        let mut device = Device::open(settings, rules).unwrap();
        let queue = device.queue(PortId(0), 0).unwrap();
        assert!(device.queue(PortId(0), 0).is_none());
        Self { device, queue, pool: pool(1024), burst: Burst::new(32), seen: 0 }
    }

    fn claiming() -> Self {
        Self::new(&AfPacketSettings::new(interface("d0")), &fast_rules())
    }

    /// Runs one turn; `change` sees every packet.
    fn turn(&mut self, mut change: impl FnMut(&mut Packet)) -> Sent {
        self.queue.receive(&mut self.burst, &mut self.pool);
        self.seen += self.burst.len();
        for packet in self.burst.packets() {
            swap(packet.bytes_mut());
            change(packet);
        }
        let sent = self.queue.transmit(self.burst.packets(), &mut self.pool);
        self.burst.clear(&mut self.pool);
        self.queue.flush(&mut self.pool);
        sent
    }

    /// Runs turns until `count` packets arrived or a second has passed.
    fn see(&mut self, count: usize) {
        let end = Instant::now() + Duration::from_secs(1);
        while self.seen < count && Instant::now() < end {
            self.turn(|_| {});
        }
        assert_eq!(self.seen, count);
    }

    /// Closes the lane and checks that all frames are back.
    fn close(mut self) {
        self.queue.close(&mut self.pool);
        assert_eq!(self.pool.free(), self.pool.frames());
    }
}

fn fast_rules() -> Rules {
    let rule = Rule { udp_port: Some(2152.into()), ..Rule::default() };
    Rules::new(vec![rule]).expect("a good rule")
}

/// Swaps Ethernet addresses, and IPv4 addresses and UDP ports after at most one VLAN tag.
fn swap(frame: &mut [u8]) {
    for index in 0..6 {
        frame.swap(index, index + 6);
    }
    let tag = if frame.get(12..14) == Some(&[0x81, 0]) { 4 } else { 0 };
    if frame.len() >= 42 + tag && frame[12 + tag..14 + tag] == [8, 0] {
        for index in 26 + tag..30 + tag {
            frame.swap(index, index + 4);
        }
        for index in 34 + tag..36 + tag {
            frame.swap(index, index + 2);
        }
    }
}

fn peer_socket(hosts: &Hosts) -> UdpSocket {
    hosts.at_peer(|| {
        let socket = udp("192.0.2.2:0");
        socket.connect(FAST).unwrap();
        socket
    })
}

#[test]
fn a_datagram_comes_back_whole() {
    let Some(hosts) = Hosts::new("") else { return };
    let socket = peer_socket(&hosts);
    let mut echo = Echo::claiming();
    for length in [1, 18, 100, 1472] {
        let payload = vec![length as u8; length];
        assert!(!wakes(&echo.queue));
        socket.send(&payload).unwrap();
        assert!(wakes(&echo.queue), "who waits for the queue learns of the frame");
        echo.see(echo.seen + 1);
        let mut answer = [0; 2000];
        // The socket checks the checksum, which was partial when the frame came and went.
        assert_eq!(socket.recv(&mut answer).unwrap(), length);
        assert_eq!(answer[..length], payload);
    }
    assert_eq!(support::losses(all_losses(&echo.queue)), 0);
    assert_eq!(echo.device.counts().unwrap().claimed, 4);
    echo.close();
}

#[test]
fn a_frame_in_the_ring_keeps_its_lane_from_waiting() {
    let Some(hosts) = Hosts::new("") else { return };
    let socket = peer_socket(&hosts);
    let mut echo = Echo::claiming();
    for count in 1..=2 {
        assert!(!echo.queue.arm());
        socket.send(b"frame").unwrap();
        assert!(wakes(&echo.queue) && echo.queue.arm());
        echo.see(count);
    }
    socket.send(b"frame").unwrap();
    assert!(wakes(&echo.queue));
    echo.queue.close(&mut echo.pool);
    assert!(!echo.queue.arm(), "nobody can receive it");
    echo.close();
}

/// Returns true if Linux reports that no socket listens.
fn is_refused(socket: &UdpSocket) -> bool {
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let answer = socket.recv(&mut [0; 2000]);
    answer.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[test]
fn linux_gets_what_the_rules_leave_and_nothing_else() {
    let Some(hosts) = Hosts::new("") else { return };
    let socket = peer_socket(&hosts);
    socket.send(b"before").unwrap();
    assert!(is_refused(&socket), "without us Linux answers that nobody is there");

    let mut echo = Echo::claiming();
    socket.send(b"fast").unwrap();
    echo.see(1);
    socket.recv(&mut [0; 100]).expect("the echo");
    assert!(!is_refused(&socket), "Linux answered what is not its");

    let other = hosts.at_peer(|| udp("192.0.2.2:0"));
    other.connect("192.0.2.1:2153").unwrap();
    other.send(b"slow").unwrap();
    assert!(is_refused(&other), "Linux did not get what is its");
    hosts.at_peer(|| run("ping -c 2 -i 0.05 -W 1 -q 192.0.2.1"));
    run("ping -c 2 -i 0.05 -W 1 -q 192.0.2.2");
    echo.turn(|_| panic!("not claimed"));
    let counts = echo.device.counts().unwrap();
    assert_eq!((counts.claimed, counts.too_long), (1, 0));
    assert!(counts.passed >= 5, "{counts:?}");

    drop(echo);
    let is_back = || {
        socket.send(b"after").unwrap();
        is_refused(&socket)
    };
    assert!(support::soon(is_back), "Linux has its interface back");
}

#[test]
fn vlan_tags_are_put_back() {
    let Some(hosts) = Hosts::new("") else { return };
    let mut wire = hosts.at_peer(|| wire("p0"));
    let mut echo = Echo::new(&AfPacketSettings::new(interface("d0")), &Rules::default());
    // Linux's sockets send frames whose 802.1Q tag makes them longer than those without may be.
    let frames = [
        ([0x81, 0, 0x20, 100], [60, 1514]),
        ([0x88, 0xa8, 0, 100], [60, 1510]),
        ([0x81, 0, 0, 0], [60, 1514]),
    ];
    for (tag, lengths) in frames {
        for length in lengths {
            let plain = Tag { test: 1, sequence: 0 }.frame(Addresses::default(), length);
            let frame = [&plain[..12], &tag, &plain[12..]].concat();
            assert!(wire.send(&frame));
            let end = Instant::now() + Duration::from_secs(1);
            let seen = echo.seen;
            while echo.seen == seen && Instant::now() < end {
                echo.turn(|packet| {
                    assert_eq!(packet.bytes()[12..16], tag);
                    assert_eq!(packet.len(), length + 4);
                    swap(packet.bytes_mut());
                });
            }
            assert_eq!(echo.seen, seen + 1, "{tag:x?} with {length} octets");
            assert_eq!(wire.receive(Duration::from_secs(1)), Some(frame));
        }
    }
    assert_eq!(support::losses(all_losses(&echo.queue)), 0);
    echo.close();
}

#[test]
fn a_partial_checksum_behind_a_tag_is_told_and_taken() {
    let Some(hosts) = Hosts::new("") else { return };
    let everything = Rules::default();
    let mut sender =
        hosts.at_peer(|| Echo::new(&AfPacketSettings::new(interface("p0")), &everything));
    let mut receiver = Echo::new(&AfPacketSettings::new(interface("d0")), &everything);
    let content = Tag { test: 1, sequence: 0 }.frame(Addresses::default(), 100);
    let content = [&content[..12], &[0x81, 0, 0, 100], &content[12..]].concat();
    let frame = sender.pool.take().unwrap();
    let offset = sender.pool.data_offset();
    let mut packet = sender.pool.packet(frame, offset, content.len(), PortId(0)).unwrap();
    packet.bytes_mut().copy_from_slice(&content);
    let partial = Partial { start: 38, offset: 6 };
    packet.set_partial_checksum(Some(partial));
    // The sum of the pseudo header: that of the complete packet, less the UDP part.
    let pseudo = Sum::pseudo_ipv4(STRANGER_IP, DEVICE_IP, 17, 66).fold().to_be_bytes();
    packet.bytes_mut()[44..46].copy_from_slice(&pseudo);
    assert_eq!(sender.queue.transmit(&mut [packet], &mut sender.pool).packets, 1);
    sender.queue.flush(&mut sender.pool);

    let end = Instant::now() + Duration::from_secs(1);
    while receiver.burst.is_empty() && Instant::now() < end {
        receiver.queue.receive(&mut receiver.burst, &mut receiver.pool);
    }
    let packet = &mut receiver.burst.packets()[0];
    assert_eq!(packet.partial_checksum(), Some(partial));
    assert!(packet.complete_checksum());
    assert_eq!(packet.bytes(), content, "completed, it is what it would have been");

    // One that is not inside the packet is not sent.
    packet.set_partial_checksum(Some(Partial { start: 38, offset: 65 }));
    let sent = receiver.queue.transmit(std::slice::from_mut(packet), &mut receiver.pool);
    assert_eq!((sent.taken, sent.packets), (1, 0));
    receiver.burst.clear(&mut receiver.pool);
    receiver.close();
    sender.close();
}

#[test]
fn what_does_not_fit_is_counted() {
    let Some(hosts) = Hosts::new("mtu 9000") else { return };
    let mut wire = hosts.at_peer(|| wire("p0"));
    let mut frame = |sequence, length| {
        assert!(wire.send(&Tag { test: 1, sequence }.frame(Addresses::default(), length)));
    };
    let usual = AfPacketSettings::new(interface("d0"));
    let mut echo = Echo::new(&AfPacketSettings { ring_frames: 64, ..usual }, &Rules::default());
    // The ring holds 64.
    for sequence in 0..100 {
        frame(sequence, 100);
    }
    echo.see(64);
    let statistics = all_losses(&echo.queue);
    assert_eq!((statistics.device_full, statistics.receive_length), (36, 0));
    assert_eq!(all_losses(&echo.queue), statistics, "asking again changes nothing");
    // The pool's frames hold 1792 octets.
    for (sequence, length) in [(100, 1792), (101, 1793), (102, 9000), (103, 64)] {
        frame(sequence, length);
    }
    echo.see(66);
    assert_eq!(all_losses(&echo.queue).receive_length, 2);
    echo.close();
}

#[test]
fn what_is_too_long_for_the_fast_path_stays_in_linux() {
    let Some(hosts) = Hosts::new("") else { return };
    let socket = peer_socket(&hosts);
    let settings = AfPacketSettings { max_length: 200, ..AfPacketSettings::new(interface("d0")) };
    let mut echo = Echo::new(&settings, &fast_rules());
    socket.send(&[0; 159]).unwrap();
    assert!(is_refused(&socket));
    socket.send(&[0; 158]).unwrap();
    echo.see(1);
    let counts = echo.device.counts().unwrap();
    assert_eq!((counts.claimed, counts.too_long), (1, 1));
}

#[test]
fn merged_segments_stay_in_linux() {
    let Some(hosts) = Hosts::new("") else { return };
    let socket = peer_socket(&hosts);
    let segment: libc::c_int = 100;
    let length = size_of_val(&segment) as libc::socklen_t;
    // SAFETY: the kernel reads `length` octets of `segment`, which outlives the call.
    let set = unsafe {
        let value = (&raw const segment).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, value, length)
    };
    assert_eq!(set, 0);
    let linux = udp(FAST);
    let mut echo = Echo::claiming();
    socket.send(&[7; 300]).unwrap();
    let mut datagram = [0; 400];
    for _ in 0..3 {
        assert_eq!(linux.recv(&mut datagram).unwrap(), 100, "Linux has divided them");
    }
    echo.see(0);
    let counts = echo.device.counts().unwrap();
    assert_eq!((counts.claimed, counts.too_long), (0, 1));
    echo.close();
}

/// Returns true if a poll of the queue returns at once.
fn wakes(queue: &AfPacketQueue) -> bool {
    let interrupt = queue.interrupt().unwrap();
    let mut watched = [PollFd::from_borrowed_fd(interrupt, PollFlags::IN)];
    rustix::event::poll(&mut watched, Some(&Timespec::default())).unwrap() > 0
}

/// Transmits 20 packets of which one is too short; returns how many were sent.
fn send(echo: &mut Echo) -> usize {
    let mut packets: Vec<_> = (0..20)
        .map(|number| {
            let frame = echo.pool.take().unwrap();
            let (offset, length) = (echo.pool.data_offset(), if number == 7 { 13 } else { 60 });
            echo.pool.packet(frame, offset, length, PortId(0)).unwrap()
        })
        .collect();
    let sent = echo.queue.transmit(&mut packets, &mut echo.pool);
    assert!(sent.taken == 20 || sent.packets == 0);
    assert_eq!(sent.bytes, 60 * sent.packets as u64);
    assert!(!echo.queue.flush(&mut echo.pool), "it wants to be kicked");
    packets.iter_mut().for_each(|packet| echo.pool.release(packet));
    sent.packets
}

#[test]
fn a_dead_link_costs_nothing() {
    let Some(hosts) = Hosts::new("") else { return };
    let mut wire = hosts.at_peer(|| wire("p0"));
    let settings = AfPacketSettings { ring_frames: 64, ..AfPacketSettings::new(interface("d0")) };
    let mut echo = Echo::new(&settings, &Rules::default());
    let clean = |echo: &mut Echo| {
        while wakes(&echo.queue) {
            echo.turn(|_| {});
            let _ = all_losses(&echo.queue);
        }
    };
    clean(&mut echo);
    assert_eq!(all_losses(&echo.queue).transmit_error, 0);

    run("ip link set d0 down");
    assert!(wakes(&echo.queue), "the socket has an error");
    let _ = all_losses(&echo.queue);
    assert!(!wakes(&echo.queue), "and then no more");
    assert_eq!(send(&mut echo), 19);
    assert_eq!(all_losses(&echo.queue).transmit_error, 19, "taken, but not sent");

    run("ip link set d0 up");
    hosts.at_peer(|| run("ip link set p0 down"));
    assert_eq!(send(&mut echo), 0, "no carrier: the device is full");

    hosts.at_peer(|| run("ip link set p0 up"));
    while wire.receive(Duration::from_millis(50)).is_some() {}
    clean(&mut echo);
    assert_eq!(send(&mut echo), 19);
    let came = std::iter::from_fn(|| wire.receive(Duration::from_millis(50)));
    assert_eq!(came.filter(|frame| frame.len() == 60).count(), 19);
    assert_eq!(all_losses(&echo.queue).transmit_error, 19);
    assert!(wire.send(&Tag { test: 1, sequence: 0 }.frame(Addresses::default(), 100)));
    let seen = echo.seen;
    echo.see(seen + 1);
    echo.close();
}

#[test]
fn the_mtu_of_the_moment_holds() {
    let Some(_hosts) = Hosts::new("mtu 3000") else { return };
    let mut echo = Echo::claiming();
    let mut sent = |length: usize| {
        let frame = echo.pool.take().unwrap();
        let packet = echo.pool.packet(frame, echo.pool.data_offset(), length, PortId(0));
        let sent = echo.queue.transmit(&mut [packet.unwrap()], &mut echo.pool);
        assert_eq!((sent.taken, echo.pool.free()), (1, echo.pool.frames()));
        sent.packets == 1
    };
    assert!(sent(1700));
    run("ip link set d0 mtu 1500");
    assert!(sent(1514) && !sent(1515));
    run("ip link set d0 mtu 1600");
    assert!(sent(1614) && !sent(1615));
    assert_eq!(support::losses(all_losses(&echo.queue)), 0, "said at once, so not lost below");
}

#[test]
fn refusals_name_the_reason() {
    let Some(_hosts) = Hosts::new("") else { return };
    let usual = AfPacketSettings::new(interface("d0"));
    let refusal = |settings: AfPacketSettings| {
        Device::open(&settings, &Rules::default()).unwrap_err().to_string()
    };
    assert_eq!(
        refusal(AfPacketSettings { ring_frames: 100, ..usual.clone() }),
        "d0: a ring of 100 frames: not a power of two from 64 to 65536; use 2048"
    );
    assert!(refusal(AfPacketSettings { queues: 0, ..usual.clone() }).contains("1 to 256"));
    assert!(refusal(AfPacketSettings { max_length: 9, ..usual.clone() }).contains("64 to 65536"));
    run("ip tuntap add tun0 mode tun");
    let message = refusal(AfPacketSettings::new(interface("tun0")));
    assert_eq!(message, "tun0: its frames have no Ethernet header; use an Ethernet interface");
    run("ip link delete d0");
    let message = refusal(usual);
    assert!(message.starts_with("d0: binding the AF_PACKET socket: "), "{message}");
}

#[test]
fn promiscuous_is_a_setting() {
    let Some(hosts) = Hosts::new("") else { return };
    let usual = AfPacketSettings::new(interface("d0"));
    for promiscuous in [false, true] {
        let settings = AfPacketSettings { promiscuous, ..usual.clone() };
        let mut device = Device::open(&settings, &Rules::default()).unwrap();
        let links = support::output("ip -details link show d0");
        assert!(links.contains(&format!("promiscuity {}", u8::from(promiscuous))), "{links}");
        device.queue(PortId(0), 0).unwrap().close(&mut pool(1));
    }
    drop(hosts);
}
