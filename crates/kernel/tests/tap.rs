//! TAP devices, with a real Linux behind them.

mod support;

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use fastlane_core::{Burst, Packet, Pool, Queue};
use fastlane_kernel::tap::{self, Tap, TapQueue, TapSettings};
use fastlane_kernel::{Error, Interface};
use support::{Namespace, interface, pool, run, udp};

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

/// The next UDP packet that Linux sends.
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

/// Sends a UDP packet back where it came from.
fn swap(frame: &mut [u8]) {
    for (index, distance, count) in [(0, 6, 6), (26, 4, 4), (34, 2, 2)] {
        for index in index..index + count {
            frame.swap(index, index + distance);
        }
    }
}

#[test]
fn linux_talks_to_itself_with_partial_checksums() {
    let _namespace = Namespace::new();
    let mut tap = open();
    let mut pool = pool(64);
    let queue = &mut tap.queues[0];
    let socket: UdpSocket = udp("192.0.2.1:0");
    socket.connect("192.0.2.2:7").unwrap();
    for length in [1, 18, 1472] {
        let payload = vec![length as u8; length];
        socket.send(&payload).unwrap();
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
    assert!(matches!(Interface::query("tap0"), Err(Error::NoInterface { .. })));
}
