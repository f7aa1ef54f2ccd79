//! AF_XDP on veth pairs, each test in a network namespace of its own.

mod support;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastlane_af_xdp::{BoundMode, Mode, OpenRequest, Settings, XskQueue, open_lane};
use fastlane_core::{Burst, Congestion, Pool, PortId, Queue, Statistics};
use fastlane_testing::namespace::{ip, veth};
use fastlane_testing::{Peer, all_losses};
use support::{
    count_new, device, echo, frame, in_namespace, number, open, pool, send_all, settings, until,
    wire,
};

const COPIES: [(Mode, BoundMode); 2] =
    [(Mode::NativeCopy, BoundMode::NativeCopy), (Mode::GenericCopy, BoundMode::GenericCopy)];

#[test]
fn the_tail_comes_back() {
    in_namespace("the_tail_comes_back", || {
        veth("ours", "peer", 1);
        let mut peer = wire("peer");
        for (mode, obtained) in COPIES {
            for burst in [1, 32, 64, 256] {
                let mut pool = pool(4096);
                let mut device = device(settings("ours", mode));
                let mut opened = open(&mut pool, &mut device, vec![0]);
                assert_eq!(opened[0].mode, obtained);
                let queue = &mut opened[0].handle;
                let mut burst = Burst::new(burst);
                for count in [1, 32, 33, 64, 65, 128, 256, 512, 1000] {
                    (0..count).for_each(|number| assert!(peer.send(&frame(number, 60))));
                    let mut next = 0;
                    let back = until(
                        || echo(queue, &mut burst, &mut pool),
                        || {
                            while let Some(frame) = peer.receive(Duration::ZERO) {
                                assert_eq!(number(&frame), Some(next), "{mode} {count}");
                                next += 1;
                            }
                            next == count
                        },
                    );
                    assert!(back, "{mode}: {next} of {count} came back");
                }
                queue.close(&mut pool);
                assert_eq!(pool.free(), pool.frames());
            }
        }
    });
}

#[test]
fn a_ring_that_is_a_quarter_full_and_becomes_fuller_is_congested() {
    in_namespace("a_ring_that_is_a_quarter_full_and_becomes_fuller_is_congested", || {
        veth("ours", "peer", 1);
        let mut peer = wire("peer");
        let mut pool = pool(2048);
        let mut device = device(settings("ours", Mode::NativeCopy));
        let queue = &mut open(&mut pool, &mut device, vec![0])[0].handle;
        let room = (2048 - pool.free()) as u32; // frames that are lent for receiving
        let mut burst = Burst::new(32);
        // Frames may take a moment to arrive.
        let mut arrive = |count: u32| {
            (0..count).for_each(|number| assert!(peer.send(&frame(number, 60))));
            std::thread::sleep(Duration::from_millis(200));
        };
        let mut receive = |queue: &mut XskQueue| {
            queue.receive(&mut burst, &mut pool);
            let count = burst.len();
            burst.clear(&mut pool);
            (count, queue.congestion())
        };
        // As after a time without a CPU: full, but it becomes emptier.
        arrive(room - 40);
        for _ in 0..3 {
            assert_eq!(receive(queue), (32, Congestion::Falling));
        }
        arrive(96);
        assert_eq!(receive(queue), (32, Congestion::Rising));
        assert_eq!(receive(queue), (32, Congestion::Falling));
        // A fifth of it is no reason, whatever comes.
        while receive(queue).0 == 32 {}
        arrive(room / 5);
        assert_eq!(receive(queue), (32, Congestion::None));
        arrive(64);
        assert_eq!(receive(queue), (32, Congestion::None));
        queue.close(&mut pool);
        assert_eq!(pool.free(), pool.frames());
    });
}

#[test]
fn frames_in_the_receive_ring_keep_their_lane_from_waiting() {
    in_namespace("frames_in_the_receive_ring_keep_their_lane_from_waiting", || {
        veth("ours", "peer", 1);
        let mut peer = wire("peer");
        let mut pool = pool(2048);
        let mut device = device(settings("ours", Mode::NativeCopy));
        let queue = &mut open(&mut pool, &mut device, vec![0])[0].handle;
        let mut burst = Burst::new(32);
        assert!(!queue.arm());
        (0..40).for_each(|number| assert!(peer.send(&frame(number, 60))));
        let mut received = 0;
        while received < 40 {
            assert!(until(|| 0, || queue.arm()), "{received} of 40 were received");
            queue.receive(&mut burst, &mut pool);
            received += burst.len();
            burst.clear(&mut pool);
        }
        assert!(!queue.arm());
        queue.close(&mut pool);
        assert!(!queue.arm());
    });
}

/// Runs one turn of a bridge: forwards frames between the two queues. Returns the amount of work
/// done.
fn cross(queues: &mut [XskQueue], burst: &mut Burst, pool: &mut Pool) -> usize {
    let mut work = 0;
    for (from, to) in [(0, 1), (1, 0)] {
        queues[from].receive(burst, pool);
        work += burst.len();
        send_all(&mut queues[to], burst, pool);
        work += usize::from(queues[to].flush(pool));
    }
    work
}

#[test]
fn devices_that_share_a_pool_forward_both_ways() {
    in_namespace("devices_that_share_a_pool_forward_both_ways", || {
        veth("left", "lpeer", 1);
        veth("right", "rpeer", 1);
        let mut peers = [wire("lpeer"), wire("rpeer")];
        let modes = [Mode::NativeCopy, Mode::GenericCopy];
        for (left, right) in modes.into_iter().flat_map(|left| modes.map(|right| (left, right))) {
            for right_wakeup in [true, false] {
                // UMEMs differ in their use of wake-up flags, so without the same use there are
                // two.
                let mut pool = pool(1024);
                let mut left = device(settings("left", left));
                let mut right =
                    device(Settings { need_wakeup: right_wakeup, ..settings("right", right) });
                let requests = &mut [
                    OpenRequest { device: &mut left, port: PortId(0), queues: vec![0] },
                    OpenRequest { device: &mut right, port: PortId(1), queues: vec![0] },
                ];
                let opened = open_lane(&mut pool, requests).expect("both open");
                let mut queues: Vec<_> = opened.into_iter().map(|one| one.handle).collect();
                assert_eq!(pool.free(), 512, "half of the pool is lent for receiving");

                let mut burst = Burst::new(64);
                let mut came = [0, 0];
                for wave in 1..=20 {
                    for number in 0..100 {
                        peers.iter_mut().for_each(|peer| assert!(peer.send(&frame(number, 200))));
                    }
                    let all = until(
                        || cross(&mut queues, &mut burst, &mut pool),
                        || {
                            came[0] += count_new(&mut peers[0]);
                            came[1] += count_new(&mut peers[1]);
                            came == [wave * 100; 2]
                        },
                    );
                    assert!(all, "wave {wave}: {came:?} were forwarded");
                }
                queues.iter_mut().for_each(|queue| while queue.flush(&mut pool) {});
                assert_eq!(pool.free(), 512, "what was sent is back, what was received lent anew");
                queues.iter_mut().for_each(|queue| queue.close(&mut pool));
                assert_eq!(pool.free(), 1024);
            }
        }
    });
}

#[test]
fn lanes_on_threads_share_a_device() {
    const FRAMES: usize = 4000;
    in_namespace("lanes_on_threads_share_a_device", || {
        veth("ours", "peer", 4);
        let mut peer = wire("peer");
        for (mode, _) in COPIES {
            let mut device = device(settings("ours", mode));
            let lanes = [vec![0, 2], vec![1, 3]].map(|queues| {
                let mut pool = pool(1024);
                let queues = open(&mut pool, &mut device, queues);
                (pool, queues)
            });
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let lanes = lanes.map(|(mut pool, mut queues)| {
                    let stop = &stop;
                    scope.spawn(move || {
                        let (mut burst, mut seen) = (Burst::new(32), 0);
                        while !stop.load(Ordering::Relaxed) {
                            for one in &mut queues {
                                seen += echo(&mut one.handle, &mut burst, &mut pool);
                            }
                        }
                        queues.iter_mut().for_each(|one| one.handle.close(&mut pool));
                        (seen, pool.frames() - pool.free())
                    })
                });
                let (mut sent, came) = (0, Cell::new(0));
                let all = until(
                    || {
                        let before = (sent, came.get());
                        if sent < FRAMES && sent < came.get() + 200 {
                            // UDP, so that the device spreads the frames by their ports.
                            assert!(peer.send(&support::datagram(sent as u16)));
                            sent += 1;
                        }
                        came.set(came.get() + count_new(&mut peer));
                        usize::from((sent, came.get()) != before)
                    },
                    || came.get() == FRAMES,
                );
                stop.store(true, Ordering::Relaxed);
                let lanes = lanes.map(|lane| lane.join().expect("the lane ends"));
                let came = came.get();
                assert!(all, "{mode}: {came} of {FRAMES} came back, lanes {lanes:?}");
                assert!(lanes.iter().all(|(seen, _)| *seen > 0), "one lane idle: {lanes:?}");
                assert!(lanes.iter().all(|(_, missing)| *missing == 0), "frames lost: {lanes:?}");
            });
        }
    });
}

/// Returns the number of frames that arrived and were lost.
fn lost(losses: Statistics) -> u64 {
    losses.no_frame + losses.receive_length + losses.device_full + losses.device_invalid
}

#[test]
fn what_does_not_fit_is_counted_by_its_reason() {
    in_namespace("what_does_not_fit_is_counted_by_its_reason", || {
        veth("ours", "peer", 1);
        let mut peer = wire("peer");
        for (mode, _) in COPIES {
            let mut pool = pool(64);
            let mut device = device(settings("ours", mode));
            let mut opened = open(&mut pool, &mut device, vec![0]);
            let queue = &mut opened[0].handle;
            let mut burst = Burst::new(64);
            let received = Cell::new(0);
            for round in 1..=3 {
                // More than the pool has frames, while nobody receives.
                (0..500).for_each(|number| assert!(peer.send(&frame(number, 300))));
                let claimed =
                    until(|| 0, || device.counts().expect("counts").claimed == round * 500);
                assert!(claimed, "the program has not seen all");
                let losses = Cell::new(all_losses(queue));
                until(
                    || {
                        let work = echo(queue, &mut burst, &mut pool);
                        received.set(received.get() + count_new(&mut peer) as u64);
                        losses.set(all_losses(queue));
                        work
                    },
                    || received.get() + lost(losses.get()) >= round * 500,
                );
                let (losses, received) = (losses.get(), received.get());
                assert!(losses.no_frame > 0, "{losses:?}");
                assert_eq!(losses.device_no_frames, losses.no_frame);
                assert_eq!(received + lost(losses), round * 500, "{mode}: {losses:?}");
            }
            queue.close(&mut pool);
            assert_eq!(pool.free(), 64);
        }
    });
}

#[test]
fn packets_of_other_memory_are_copied() {
    in_namespace("packets_of_other_memory_are_copied", || {
        veth("ours", "peer", 1);
        let mut peer = wire("peer");
        let (mut pool, mut other) = (pool(64), pool(4));
        let mut device = device(settings("ours", Mode::Auto));
        let mut opened = open(&mut pool, &mut device, vec![0]);
        let queue = &mut opened[0].handle;
        let stranger = other.take().expect("a frame");
        let mut packet = other.packet(stranger, 256, 100, PortId(3)).expect("it fits");
        packet.bytes_mut().copy_from_slice(&frame(77, 100));
        let sent = queue.transmit(std::slice::from_mut(&mut packet), &mut pool);
        assert_eq!((sent.taken, sent.packets, sent.bytes), (1, 1, 100));
        assert!(!packet.has_frame());
        let mut came = None;
        until(
            || usize::from(queue.flush(&mut pool)),
            || {
                came = came.take().or_else(|| peer.receive(Duration::ZERO));
                came.is_some()
            },
        );
        assert_eq!(came, Some(frame(77, 100)));
        // A pool that is not the queue's is left alone.
        let mut burst = Burst::new(4);
        assert!(peer.send(&frame(1, 60)));
        queue.receive(&mut burst, &mut other);
        queue.close(&mut other);
        assert_eq!((burst.len(), other.free()), (0, 3));
        queue.close(&mut pool);
        assert_eq!(pool.free(), 64);
    });
}

#[test]
fn a_link_that_is_down_keeps_nobody_awake() {
    in_namespace("a_link_that_is_down_keeps_nobody_awake", || {
        veth("ours", "peer", 1);
        let mut peer = wire("peer");
        let mut pool = pool(256);
        let mut device = device(settings("ours", Mode::Auto));
        let mut opened = open(&mut pool, &mut device, vec![0]);
        let queue = &mut opened[0].handle;
        ip("link set ours down");
        for number in 0..10 {
            let own = pool.take().expect("a frame");
            let mut packet = pool.packet(own, 256, 80, PortId(0)).expect("it fits");
            packet.bytes_mut().copy_from_slice(&frame(number, 80));
            assert_eq!(queue.transmit(std::slice::from_mut(&mut packet), &mut pool).packets, 1);
            assert!(!queue.flush(&mut pool), "nothing to stay awake for");
        }
        ip("link set ours up");
        std::thread::sleep(Duration::from_millis(2));
        let mut came = 0;
        let all = until(
            || usize::from(queue.flush(&mut pool)),
            || {
                came += count_new(&mut peer);
                came == 10
            },
        );
        assert!(all, "{came} of 10 left after the link came up again");

        ip("link delete ours");
        for _ in 0..3 {
            let own = pool.take().expect("a frame");
            let mut packet = pool.packet(own, 256, 80, PortId(0)).expect("it fits");
            queue.transmit(std::slice::from_mut(&mut packet), &mut pool);
            assert!(!queue.flush(&mut pool), "the interface was deleted");
        }
        assert_eq!(all_losses(queue).transmit_error, 0, "as long as it may come back");
        queue.close(&mut pool);
        assert_eq!(all_losses(queue).transmit_error, 3, "what was taken and never left");
        assert_eq!(pool.free(), 256);
    });
}

#[test]
fn what_the_device_does_not_take_is_counted() {
    in_namespace("what_the_device_does_not_take_is_counted", || {
        veth("ours", "peer", 1);
        let mut device = device(settings("ours", Mode::Auto));
        let mut pool = pool(512);
        let mut opened = open(&mut pool, &mut device, vec![0]);
        let queue = &mut opened[0].handle;
        ip("link set peer down"); // ours stays up, without a carrier
        for number in 0..100 {
            let own = pool.take().expect("a frame");
            let mut packet = pool.packet(own, 256, 80, PortId(0)).expect("it fits");
            packet.bytes_mut().copy_from_slice(&frame(number, 80));
            assert_eq!(queue.transmit(std::slice::from_mut(&mut packet), &mut pool).packets, 1);
        }
        assert!(until(|| 0, || !queue.flush(&mut pool)), "it stays awake for ever");
        assert_eq!(all_losses(queue).transmit_error, 100);
        queue.close(&mut pool);
        assert_eq!(pool.free(), 512);
    });
}

#[test]
fn a_link_that_is_down_leaves_frames_to_the_others() {
    in_namespace("a_link_that_is_down_leaves_frames_to_the_others", || {
        veth("left", "lpeer", 1);
        veth("right", "rpeer", 1);
        let mut peer = wire("lpeer");
        let mut pool = pool(256);
        let mut left = device(settings("left", Mode::Auto));
        let mut right = device(settings("right", Mode::Auto));
        let requests = &mut [
            OpenRequest { device: &mut left, port: PortId(0), queues: vec![0] },
            OpenRequest { device: &mut right, port: PortId(1), queues: vec![0] },
        ];
        let opened = open_lane(&mut pool, requests).expect("both open");
        let mut queues: Vec<_> = opened.into_iter().map(|one| one.handle).collect();
        ip("link set right down");
        let mut burst = Burst::new(32);
        for wave in 0..20 {
            (0..32).for_each(|number| assert!(peer.send(&frame(number, 100))));
            let received = Cell::new(0);
            let all = until(
                || {
                    queues[0].receive(&mut burst, &mut pool);
                    let count = burst.len();
                    received.set(received.get() + count);
                    queues[1].transmit(burst.packets(), &mut pool);
                    queues[1].flush(&mut pool);
                    burst.clear(&mut pool);
                    count
                },
                || received.get() == 32,
            );
            let received = received.get();
            assert!(
                all,
                "wave {wave}: {received} of 32, the others held for the link that is down"
            );
        }
        queues.iter_mut().for_each(|queue| queue.close(&mut pool));
        assert_eq!(pool.free(), 256);
    });
}
