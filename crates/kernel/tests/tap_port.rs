//! Tests of TAP devices with a real Linux.

mod support;

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use fastlane_core::{Burst, Packet, PacketOwnership, Pool, Queue};
use fastlane_kernel::tap::{self, Tap, TapQueue, TapSettings};
use fastlane_kernel::{Error, Interface};
use fastlane_testing::{Addresses, Peer, Tag, all_losses};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use support::{Namespace, interface, pool, run, udp, wire};

fn settings() -> TapSettings {
    TapSettings {
        name: Some("tap0".to_owned()),
        mac: Some(support::DEVICE_MAC),
        addresses: vec![(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 24)],
        ..TapSettings::default()
    }
}

fn open() -> Tap {
    let tap = tap::open(settings()).unwrap();
    run("ip neighbour add 192.0.2.2 lladdr 02:00:00:00:00:02 dev tap0");
    tap
}

/// Receives the next UDP packet that Linux sends.
fn receive(queue: &mut TapQueue, pool: &mut Pool) -> Option<Packet> {
    let mut burst = Burst::new(1);
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        queue.receive(&mut burst, pool);
        if let Some(packet) = burst.last() {
            if packet.bytes().get(23) == Some(&17) && packet.bytes()[12..14] == [8, 0] {
                return Some(packet.take());
            }
            burst.clear(pool);
        }
    }
    None
}

/// Swaps the addresses and ports of a UDP packet.
fn swap(frame: &mut [u8]) {
    for (index, distance, count) in [(0, 6, 6), (26, 4, 4), (34, 2, 2)] {
        for index in index..index + count {
            frame.swap(index, index + distance);
        }
    }
}

#[test]
fn linux_talks_to_itself_with_partial_checksums() {
    let Some(_namespace) = Namespace::new() else { return };
    let mut tap = open();
    let mut pool = pool(64);
    let queue = &mut tap.queues[0];
    let socket: UdpSocket = udp("192.0.2.1:0");
    socket.connect("192.0.2.2:7").unwrap();
    for length in [1, 18, 1472] {
        let payload = vec![length as u8; length];
        socket.send(&payload).unwrap();
        let interrupt = queue.interrupt().expect("TAP devices wake whoever waits for them");
        let mut watched = [PollFd::from_borrowed_fd(interrupt, PollFlags::IN)];
        assert_eq!(rustix::event::poll(&mut watched, Some(&Timespec::default())), Ok(1));
        let mut packet = receive(queue, &mut pool).expect("what the socket sent");
        let partial = packet.partial_checksum().expect("Linux leaves the checksum to the device");
        assert_eq!((partial.start, partial.offset, packet.len()), (34, 6, 42 + length));
        swap(packet.bytes_mut());
        let sent = queue.transmit(std::slice::from_mut(&mut packet), &mut pool);
        assert_eq!((sent.taken, sent.packets, sent.bytes), (1, 1, 42 + length as u64));
        let mut answer = [0; 2000];
        assert_eq!(socket.recv(&mut answer).unwrap(), length);
        assert_eq!(answer[..length], payload);
    }
    // Completed by us, and broken by us.
    for (breaks, arrives) in [(false, true), (true, false)] {
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        socket.send(b"complete").unwrap();
        let mut packet = receive(queue, &mut pool).unwrap();
        assert!(packet.complete_checksum() && packet.partial_checksum().is_none());
        swap(packet.bytes_mut());
        packet.bytes_mut()[45] ^= u8::from(breaks);
        assert_eq!(queue.transmit(std::slice::from_mut(&mut packet), &mut pool).packets, 1);
        assert_eq!(socket.recv(&mut [0; 100]).is_ok(), arrives);
    }
    queue.close(&mut pool);
    assert_eq!(pool.free(), pool.frames());
    let is_gone = || matches!(Interface::query("tap0"), Err(Error::NoInterface { .. }));
    assert!(support::soon(is_gone), "the interface is still there");
}

#[test]
fn what_linux_cannot_put_in_is_counted() {
    let Some(_namespace) = Namespace::new() else { return };
    let mut tap = tap::open(TapSettings { quiet: true, ..settings() }).unwrap();
    let (mut pool, mut burst) = (pool(64), Burst::new(32));
    let mut wire = wire("tap0");
    const FRAMES: u32 = 3000;
    for sequence in 0..FRAMES {
        // The device refuses nothing: what does not fit it drops.
        wire.send(&Tag { test: 1, sequence }.frame(Addresses::default(), 100));
    }
    let queue = &mut tap.queues[0];
    let mut received = 0;
    loop {
        queue.receive(&mut burst, &mut pool);
        if burst.is_empty() {
            break;
        }
        received += burst.len() as u64;
        burst.clear(&mut pool);
    }
    let lost = all_losses(queue).device_full;
    assert!(received > 0 && lost > 0, "{received} received, {lost} lost");
    assert_eq!(received + lost, u64::from(FRAMES));
}

#[test]
fn a_frame_that_does_not_fit_is_counted() {
    let Some(_namespace) = Namespace::new() else { return };
    let mut tap = tap::open(TapSettings { mtu: Some(4000), quiet: true, ..settings() }).unwrap();
    let (mut pool, mut burst) = (pool(64), Burst::new(32));
    let mut wire = wire("tap0");
    let room = pool.room();
    for (sequence, length) in [(0, room), (1, room + 1), (2, 4000), (3, 60)] {
        assert!(wire.send(&Tag { test: 1, sequence }.frame(Addresses::default(), length)));
    }
    let queue = &mut tap.queues[0];
    queue.receive(&mut burst, &mut pool);
    let lengths: Vec<_> = burst.packets().iter().map(|packet| packet.len()).collect();
    assert_eq!(lengths, [room, 60]);
    assert_eq!(queue.statistics().receive_length, 2);
    burst.clear(&mut pool);
    assert_eq!(pool.free(), pool.frames());
}

#[test]
fn the_device_is_as_it_was_asked_for() {
    let Some(_namespace) = Namespace::new() else { return };
    let mut tap = tap::open(TapSettings {
        mtu: Some(9000),
        queues: 3,
        addresses: vec![
            (Ipv4Addr::new(192, 0, 2, 1).into(), 24),
            ("2001:db8::1".parse::<IpAddr>().unwrap(), 64),
        ],
        ..settings()
    })
    .unwrap();
    let made = interface("tap0");
    assert_eq!((tap.name.as_str(), tap.index), ("tap0", made.index));
    assert_eq!((made.mac, made.mtu, made.up), (support::DEVICE_MAC, 9000, true));
    assert!(made.is_virtual && made.ethernet && made.driver == "tun");
    assert_eq!(tap.queues.len(), 3);
    let addresses = support::output("ip address show tap0");
    assert!(addresses.contains("192.0.2.1/24") && addresses.contains("2001:db8::1/64"));

    let carrier = || support::output("ip link show tap0").contains("LOWER_UP");
    assert!(carrier());
    let handle = tap.queues[1].carrier().unwrap();
    handle.set(false).unwrap();
    assert!(!carrier());
    handle.set(true).unwrap();
    assert!(carrier());
    drop(handle);

    // The interface stays as long as one queue does, then ends, and the name is free at once.
    let mut pool = pool(1);
    for queue in &mut tap.queues[1..] {
        queue.close(&mut pool);
    }
    assert_eq!(interface("tap0").index, tap.index);
    tap.queues[0].close(&mut pool);
    assert!(tap.queues[0].carrier().is_err());
    let again = tap::open(settings()).unwrap();
    assert_ne!(again.index, tap.index);
}

#[test]
fn the_kernel_names_what_has_no_name() {
    let Some(_namespace) = Namespace::new() else { return };
    let unnamed = || tap::open(TapSettings::default()).unwrap();
    let (one, other) = (unnamed(), unnamed());
    assert_eq!((one.name.as_str(), other.name.as_str()), ("fl0", "fl1"));
}

#[test]
fn refusals_name_the_reason() {
    let Some(_namespace) = Namespace::new() else { return };
    let _tap = open();
    let refusal = |settings| tap::open(settings).unwrap_err().to_string();
    assert_eq!(
        refusal(settings()),
        "the interface name tap0 is taken: choose another, or remove that interface"
    );
    let named = |name: &str| TapSettings { name: Some(name.to_owned()), ..TapSettings::default() };
    assert!(refusal(named("lo")).contains("the interface name lo is taken"));
    assert!(refusal(named("much-too-long-a-name")).contains("much-too-long-a-name"));
    let message = refusal(TapSettings { mtu: Some(70000), ..named("tap1") });
    assert!(message.starts_with("setting the MTU 70000 of the TAP device tap1: "), "{message}");
    let message = refusal(TapSettings { queues: 257, ..named("tap1") });
    assert!(message.contains("1 to 256"), "{message}");
    let is_gone = || Interface::query("tap1").is_err();
    assert!(support::soon(is_gone), "something is left of what failed");
}

#[test]
fn without_the_capability_the_refusal_names_it() {
    // In a thread of its own, as it cannot get the capability back.
    let refusal = std::thread::spawn(|| {
        let _namespace = Namespace::new()?;
        let mut left = capabilities(None).unwrap();
        left.effective -= CapabilitySet::NET_ADMIN;
        set_capabilities(None, left).unwrap();
        Some(tap::open(settings()).unwrap_err().to_string())
    });
    let Some(refusal) = refusal.join().unwrap() else { return };
    assert_eq!(
        refusal,
        "making the TAP device tap0: the capability CAP_NET_ADMIN is missing: run as root, or \
         by systemd with `AmbientCapabilities=CAP_NET_ADMIN`"
    );
}

#[test]
fn a_device_that_is_down_takes_nothing() {
    let Some(_namespace) = Namespace::new() else { return };
    let mut tap = open();
    run("ip link set tap0 down");
    let mut pool = pool(4);
    let frame = pool.take().unwrap();
    let packet = pool.packet(frame, pool.data_offset(), 60, fastlane_core::PortId(0));
    let mut packet = packet.unwrap();
    let sent = tap.queues[0].transmit(std::slice::from_mut(&mut packet), &mut pool);
    assert_eq!((sent.taken, pool.free()), (1, 4));
    assert_eq!(all_losses(&tap.queues[0]).transmit_error, 1);
}
