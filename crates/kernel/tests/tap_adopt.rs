//! Tests of TAP devices that outlive their process.

mod support;

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use fastlane_core::{Burst, PortId, Queue};
use fastlane_kernel::tap::{self, Tap, TapSettings};
use fastlane_testing::all_losses;
use support::{Namespace, interface, pool, run, udp};

fn settings(name: &str, queues: usize) -> TapSettings {
    TapSettings {
        name: Some(name.to_owned()),
        mac: Some(support::DEVICE_MAC),
        mtu: Some(4000),
        queues,
        addresses: vec![(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 24)],
        ..TapSettings::default()
    }
}

/// Returns the descriptors of a device whose process has ended.
fn kept(tap: Tap) -> Vec<OwnedFd> {
    let queues = tap.queues.iter();
    queues.map(|queue| queue.kept().expect("open").try_clone_to_owned().unwrap()).collect()
}

#[test]
fn a_device_is_taken_over_as_it_is_now() {
    let Some(_namespace) = Namespace::new() else { return };
    let made = tap::open(settings("tap0", 2)).unwrap();
    let (index, kept) = (made.index, kept(made));
    run("ip link set tap0 down");
    run("ip link set tap0 name tap9");
    run("ip link set tap9 up");
    run("ip neighbour replace 192.0.2.2 lladdr 02:00:00:00:00:02 dev tap9");
    let socket = udp("192.0.2.1:0");
    socket.connect("192.0.2.2:7").unwrap();
    let mut tap = tap::adopt(kept).unwrap();
    let is = interface("tap9");
    assert_eq!((tap.name.as_str(), tap.index, tap.queues.len()), ("tap9", index, 2));
    assert_eq!((is.mac, is.mtu, is.index), (support::DEVICE_MAC, 4000, index));

    (0..10).for_each(|number| assert_eq!(socket.send(&[number; 100]).unwrap(), 100));
    let (mut pool, mut burst) = (pool(64), Burst::new(32));
    let (mut numbers, end) = (Vec::new(), Instant::now() + Duration::from_secs(1));
    while numbers.len() < 10 && Instant::now() < end {
        for queue in &mut tap.queues {
            queue.receive(&mut burst, &mut pool);
            for packet in burst.packets() {
                if packet.len() == 142 && packet.bytes()[23] == 17 {
                    let partial = packet.partial_checksum().expect("left to the device");
                    assert_eq!((partial.start, partial.offset), (34, 6));
                    numbers.push(packet.bytes()[42]);
                }
            }
            burst.clear(&mut pool);
        }
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..10).collect::<Vec<_>>());

    // And the other way.
    let mut packet = pool.alloc_packet(142, PortId(0)).unwrap();
    let mut frame = [0; 142];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    frame[14..34].copy_from_slice(&[
        0x45, 0, 0, 128, 0, 0, 0, 0, 64, 17, 0xf6, 0x69, 192, 0, 2, 2, 192, 0, 2, 1,
    ]);
    let port = socket.local_addr().unwrap().port();
    frame[34..42].copy_from_slice(&[0, 7, (port >> 8) as u8, port as u8, 0, 108, 0, 0]);
    packet.bytes_mut().copy_from_slice(&frame);
    let sent = tap.queues[1].transmit(std::slice::from_mut(&mut packet), &mut pool);
    assert_eq!(sent.packets, 1);
    assert_eq!(socket.recv(&mut [0; 200]).unwrap(), 100);
    tap.queues[0].carrier().unwrap().set(false).unwrap();
    assert!(!support::output("ip link show tap9").contains("LOWER_UP"));

    tap.queues.iter_mut().for_each(|queue| queue.close(&mut pool));
    assert!(tap.queues[0].kept().is_none());
    assert_eq!(pool.free(), pool.frames());
    let is_gone = || fastlane_kernel::Interface::query("tap9").is_err();
    assert!(support::soon(is_gone), "the interface is still there");
}

#[test]
fn what_waits_is_received_by_the_successor() {
    let Some(_namespace) = Namespace::new() else { return };
    let made = tap::open(settings("tap0", 1)).unwrap();
    let kept = kept(made);
    run("ip neighbour add 192.0.2.2 lladdr 02:00:00:00:00:02 dev tap0");
    let socket = udp("192.0.2.1:0");
    socket.connect("192.0.2.2:7").unwrap();
    (0..10).for_each(|number| assert_eq!(socket.send(&[number; 100]).unwrap(), 100));
    let mut tap = tap::adopt(kept).unwrap();
    let (mut pool, mut burst) = (pool(64), Burst::new(64));
    tap.queues[0].receive(&mut burst, &mut pool);
    let numbers = burst.packets().iter().filter(|packet| packet.len() == 142);
    let numbers: Vec<u8> = numbers.map(|packet| packet.bytes()[42]).collect();
    assert_eq!(numbers, (0..10).collect::<Vec<_>>());
    burst.clear(&mut pool);
    assert_eq!(all_losses(&tap.queues[0]).device_full, 0);
}

#[test]
fn descriptors_of_something_else_are_refused() {
    let Some(_namespace) = Namespace::new() else { return };
    let refusal = |files| tap::adopt(files).unwrap_err().to_string();
    let remedy = "close what was kept and make the device anew";
    assert_eq!(refusal(vec![]), format!("no queues of a TAP device: none is kept; {remedy}"));
    let null: OwnedFd = File::open("/dev/null").unwrap().into();
    let message = refusal(vec![null]);
    assert!(message.contains("it is no queue of one"), "{message}");
    let unattached: OwnedFd =
        File::options().read(true).write(true).open("/dev/net/tun").unwrap().into();
    let message = refusal(vec![unattached]);
    assert!(message.contains("it is no queue of one"), "{message}");
    let mut two = kept(tap::open(settings("tap0", 1)).unwrap());
    two.append(&mut kept(
        tap::open(TapSettings { addresses: vec![], ..settings("tap1", 1) }).unwrap(),
    ));
    let message = refusal(two);
    assert_eq!(message, format!("a queue of tap0: it belongs to tap1; {remedy}"));
}
