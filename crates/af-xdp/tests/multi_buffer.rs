//! Frames that are larger than a page: packets that take several descriptors (XDP_USE_SG).

#![allow(unsafe_code, reason = "a socket option without a safe form")]

mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastlane_af_xdp::{Device, Mode, OpenRequest, OpenedQueue, longest_frame, open_lane};
use fastlane_core::{Burst, Pool, PortId, Queue, Statistics};
use fastlane_steer::Rules;
use fastlane_table::SharedMemory;
use fastlane_testing::namespace::{Wire, ip, set_link, socket, veth, wait_until_up};
use fastlane_testing::{Peer, all_losses};
use support::handover::Handover;
use support::{echo, frame, in_namespace, number, send_all, settings, until, wire};

const MODES: [Mode; 2] = [Mode::NativeCopy, Mode::GenericCopy];
const MTU: usize = 15_000;
/// Number of frames of a pool; half of them are lent for receiving.
const FRAMES: usize = 512;

/// Returns a numbered frame whose other octets differ from one another and from other frames.
fn patterned(count: u32, length: usize) -> Vec<u8> {
    let mut frame = frame(count, length);
    let octets =
        (0..).map(|position: u32| (position.wrapping_mul(31) ^ count.wrapping_mul(7)) as u8);
    frame[18..].iter_mut().zip(octets).for_each(|(octet, value)| *octet = value);
    frame
}

/// Returns lengths around the ends of chunks, for pool frames of `size` octets.
fn lengths(size: usize) -> Vec<usize> {
    let ends = (1..=size / 4096).map(|chunks| chunks * 4096 - 256);
    let mut all: Vec<usize> = ends.flat_map(|end| [end - 1, end, end + 1]).collect();
    all.extend([60, 1514, MTU + 14]);
    all.retain(|length| *length <= longest_frame(size).min(MTU + 14));
    all
}

fn pool(size: usize) -> Pool {
    let memory = SharedMemory::create("multi-buffer", FRAMES * size).expect("memory");
    Pool::new(memory, size, 192).expect("a pool")
}

fn open(mode: Mode, pool: &mut Pool) -> (Device, Vec<OpenedQueue>) {
    let longest = longest_frame(pool.frame_size());
    let mut device = Device::open(settings("ours", mode), &Rules::default(), longest);
    let device_ref = device.as_mut().expect("a device");
    let requests = &mut [OpenRequest { device: device_ref, port: PortId(0), queues: vec![0] }];
    let opened = open_lane(pool, requests).expect("a queue, on Linux 6.6 or newer");
    (device.expect("a device"), opened)
}

/// Creates a veth pair for long frames and returns its far end.
fn long_wire() -> Wire {
    veth("ours", "peer", 1);
    ["ours", "peer"].iter().for_each(|end| ip(&format!("link set {end} mtu {MTU}")));
    wire("peer")
}

/// Receives the frames that have come back.
fn collect(peer: &mut Wire, back: &mut BTreeMap<u32, Vec<u8>>) {
    while let Some(frame) = peer.receive(Duration::ZERO) {
        if let Some(number) = number(&frame) {
            assert!(back.insert(number, frame).is_none(), "frame {number} came back twice");
        }
    }
}

/// Returns true once all frames that were sent are free, and those for receiving are lent.
fn all_sent_are_back(queue: &mut dyn Queue, pool: &mut Pool) -> bool {
    let start = Instant::now();
    while pool.free() != FRAMES / 2 {
        if start.elapsed() > Duration::from_secs(10) {
            return false;
        }
        queue.flush(pool);
    }
    true
}

#[test]
fn long_frames_come_back_unchanged() {
    in_namespace("long_frames_come_back_unchanged", || {
        let mut peer = long_wire();
        for (mode, size) in MODES.into_iter().flat_map(|mode| [(mode, 8192), (mode, 16384)]) {
            let mut pool = pool(size);
            let (_device, mut opened) = open(mode, &mut pool);
            let queue = &mut opened[0].handle;
            let mut burst = Burst::new(32);
            let (mut sent, mut back) = (vec![], BTreeMap::new());
            for round in 0..10 {
                for length in lengths(size) {
                    let frame = patterned(sent.len() as u32, length);
                    assert!(peer.send(&frame), "{length} octets");
                    sent.push(frame);
                }
                let turn = || echo(queue, &mut burst, &mut pool);
                let all = until(turn, || {
                    collect(&mut peer, &mut back);
                    back.len() == sent.len()
                });
                assert!(all, "{mode} {size} round {round}: {} of {}", back.len(), sent.len());
            }
            for (number, (frame, back)) in sent.iter().zip(back.values()).enumerate() {
                assert!(frame == back, "{mode} {size}: frame {number}, {} octets", frame.len());
            }
            assert!(all_sent_are_back(queue, &mut pool), "{} frames are free", pool.free());
            assert_eq!(all_losses(queue), Statistics::default());
            queue.close(&mut pool);
            assert_eq!(pool.free(), pool.frames(), "{mode} {size}");
        }
    });
}

/// Queues long frames for transmission while the link is down. Returns what is sent once it is up.
fn queue_while_down(opened: &mut [OpenedQueue], pool: &mut Pool, count: u32) -> Vec<Vec<u8>> {
    set_link("ours", false);
    let (mut burst, mut queued) = (Burst::new(32), vec![]);
    for number in 0..count {
        let frame = patterned(number, MTU);
        let mut packet = pool.alloc_packet(frame.len(), PortId(0)).expect("a frame is free");
        packet.bytes_mut().copy_from_slice(&frame);
        burst.push(packet).expect("the burst has room");
        queued.push(frame);
    }
    send_all(&mut opened[0].handle, &mut burst, pool);
    queued
}

#[test]
fn a_successor_sends_and_receives_the_long_frames_in_the_rings() {
    in_namespace("a_successor_sends_and_receives_the_long_frames_in_the_rings", || {
        for (mode, size) in MODES.map(|mode| (mode, 16384)) {
            let mut peer = long_wire();
            let mut pool = pool(size);
            let (device, mut opened) = open(mode, &mut pool);
            let arrived: Vec<_> = (100..110).map(|number| patterned(number, MTU)).collect();
            assert!(arrived.iter().all(|frame| peer.send(frame)));
            let claimed = || device.counts().expect("the counts").claimed;
            assert!(until(|| 0, || claimed() >= 10), "{mode}: {} arrived", claimed());
            let queued = queue_while_down(&mut opened, &mut pool, 8);
            let kept = Handover::after(pool, device, opened);

            let adopted = kept.adopt_with(settings("ours", mode), kept.memory(), size);
            let (_device, mut pool, mut opened) = adopted.expect("the queue is adopted");
            set_link("ours", true);
            wait_until_up("ours");
            let queue = &mut opened[0].handle;
            let (mut burst, mut back) = (Burst::new(32), BTreeMap::new());
            let all = until(
                || echo(queue, &mut burst, &mut pool),
                || {
                    collect(&mut peer, &mut back);
                    back.len() == 18
                },
            );
            assert!(all, "{mode}: {:?} came back", back.keys());
            assert!(back.values().eq(queued.iter().chain(&arrived)), "{mode}: other octets");
            assert!(all_sent_are_back(queue, &mut pool), "{mode}: {} frames are free", pool.free());
            assert_eq!(all_losses(queue), Statistics::default(), "{mode}");
            queue.close(&mut pool);
            assert_eq!(pool.free(), pool.frames());
            drop((opened, pool, kept));
            ip("link delete ours");
        }
    });
}

#[test]
fn a_long_frame_that_is_not_sent_counts_once() {
    in_namespace("a_long_frame_that_is_not_sent_counts_once", || {
        let _peer = long_wire();
        for mode in MODES {
            let mut pool = pool(16384);
            let (_device, mut opened) = open(mode, &mut pool);
            queue_while_down(&mut opened, &mut pool, 9);
            opened[0].handle.close(&mut pool);
            assert_eq!(all_losses(&opened[0].handle).transmit_error, 9, "{mode}");
            assert_eq!(pool.free(), pool.frames());
            set_link("ours", true);
        }
    });
}

/// A sender on the same machine leaves it to the device to divide a long datagram (UDP_SEGMENT of
/// udp(7)). In generic mode the frame is seen whole, and only Linux can divide it.
#[test]
fn merged_segments_stay_in_linux_also_if_a_frame_could_hold_them() {
    in_namespace("merged_segments_stay_in_linux_also_if_a_frame_could_hold_them", || {
        let addresses = veth("ours", "peer", 1);
        let socket = socket("peer", addresses);
        let mut pool = pool(16384);
        let (mut device, mut opened) = open(Mode::GenericCopy, &mut pool);
        let mut burst = Burst::new(32);
        let mut received = |queue: &mut dyn Queue| {
            queue.receive(&mut burst, &mut pool);
            let lengths: Vec<_> = burst.packets().iter().map(|packet| packet.len()).collect();
            burst.clear(&mut pool);
            lengths
        };
        for mtu in [1500, 9000, 1500] {
            ip(&format!("link set ours mtu {mtu}"));
            device.set_mtu(mtu).expect("the kernel takes the length");
            let before = device.counts().expect("the counts");
            set_segment(&socket, 1000);
            socket.send(&[7; 12_000]).expect("a datagram of twelve segments");
            set_segment(&socket, 0);
            socket.send(&[7; 1000]).expect("a datagram");
            let (mut lengths, start) = (vec![], Instant::now());
            while !lengths.contains(&1042) {
                lengths.extend(received(&mut opened[0].handle));
                assert!(start.elapsed() < Duration::from_secs(10), "{lengths:?}");
            }
            assert!(lengths.iter().all(|length| *length <= mtu as usize + 22), "{lengths:?}");
            let too_long = device.counts().expect("the counts").too_long - before.too_long;
            assert_eq!(too_long, 1, "MTU {mtu}");
        }
    });
}

#[test]
fn a_successor_leaves_merged_segments_to_linux_with_new_rules_too() {
    in_namespace("a_successor_leaves_merged_segments_to_linux_with_new_rules_too", || {
        let addresses = veth("ours", "peer", 1);
        let socket = socket("peer", addresses);
        let mut pool = pool(16384);
        let (device, opened) = open(Mode::GenericCopy, &mut pool);
        let kept = Handover::after(pool, device, opened);
        let adopted = kept.adopt_with(settings("ours", Mode::GenericCopy), kept.memory(), 16384);
        let (mut device, mut pool, mut opened) = adopted.expect("the queue is adopted");
        device.replace_rules(&Rules::default()).expect("the kernel takes the rules");
        set_segment(&socket, 1000);
        socket.send(&[7; 12_000]).expect("a datagram of twelve segments");
        let too_long = || device.counts().expect("the counts").too_long;
        assert!(until(|| 0, || too_long() == 1), "{} were too long", too_long());
        opened[0].handle.close(&mut pool);
    });
}

fn set_segment(socket: &std::net::UdpSocket, octets: i32) {
    use std::os::fd::AsRawFd;
    // SAFETY: the pointer and the length describe `octets`, which outlives the call.
    let result = unsafe {
        let value = (&raw const octets).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, value, 4)
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
