use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use fastlane_core::Partial;
use fastlane_table::SharedMemory;
use proptest::prelude::*;

use super::*;

const A: PortId = PortId(1);
const B: PortId = PortId(2);

fn pool(frames: usize, frame_size: usize) -> Pool {
    let memory = SharedMemory::create("ring-test", frames * frame_size).unwrap();
    Pool::new(memory, frame_size, 64).unwrap()
}

fn packet(pool: &mut Pool, content: &[u8]) -> Option<Packet> {
    let frame = pool.take()?;
    let mut packet = pool.packet(frame, pool.data_offset(), content.len(), PortId(9)).unwrap();
    packet.bytes_mut().copy_from_slice(content);
    Some(packet)
}

fn send(queue: &mut RingQueue, pool: &mut Pool, content: &[u8]) -> bool {
    let Some(mut packet) = packet(pool, content) else { return false };
    let taken = queue.transmit(std::slice::from_mut(&mut packet), pool).taken == 1;
    pool.release(&mut packet);
    taken
}

fn receive(queue: &mut RingQueue, pool: &mut Pool, at_most: usize) -> Vec<Vec<u8>> {
    let mut burst = Burst::new(at_most);
    queue.receive(&mut burst, pool);
    let received = burst.packets().iter().map(|packet| packet.bytes().to_vec()).collect();
    burst.clear(pool);
    received
}

#[test]
fn packets_are_copied_over_and_their_frames_stay_at_home() {
    let (mut a, mut b) = pair(A, B, 8).unwrap();
    let (mut pool_a, mut pool_b) = (pool(4, 512), pool(4, 2048));
    let mut one = packet(&mut pool_a, &[7; 100]).unwrap();
    let partial = Some(Partial { start: 34, offset: 6 });
    one.set_partial_checksum(partial);
    let sent = a.transmit(std::slice::from_mut(&mut one), &mut pool_a);
    assert_eq!(sent, Sent { taken: 1, packets: 1, bytes: 100 });
    assert!(!a.flush(&mut pool_a), "lent, but there are others");
    assert_eq!(pool_a.free(), 3);
    let mut burst = Burst::new(8);
    b.receive(&mut burst, &mut pool_b);
    let received = &burst.packets()[0];
    assert_eq!((received.bytes(), received.port()), (&[7; 100][..], B));
    assert_eq!(received.partial_checksum(), partial);
    assert!(!a.flush(&mut pool_a), "read");
    assert_eq!((pool_a.free(), pool_b.free()), (4, 3));
    burst.clear(&mut pool_b);
}

#[test]
fn what_does_not_fit_the_other_pool_is_counted_and_the_rest_passes() {
    let (mut a, mut b) = pair(A, B, 8).unwrap();
    let (mut pool_a, mut pool_b) = (pool(8, 2048), pool(2, 512));
    assert!(send(&mut a, &mut pool_a, &[1; 1000]));
    assert!(send(&mut a, &mut pool_a, &[2; 384]));
    assert_eq!(receive(&mut b, &mut pool_b, 8), [[2; 384]]);
    assert_eq!(b.statistics().receive_length, 1);
    assert_eq!(pool_b.free(), 2);
    // Packets wait if no frame is free.
    assert!(send(&mut a, &mut pool_a, &[3; 100]));
    let held = [pool_b.take().unwrap(), pool_b.take().unwrap()];
    assert!(receive(&mut b, &mut pool_b, 8).is_empty());
    assert_eq!(b.statistics().device_no_frames, 1);
    held.into_iter().for_each(|frame| pool_b.give(frame));
    assert_eq!(receive(&mut b, &mut pool_b, 8), [[3; 100]]);
}

#[test]
fn an_empty_packet_is_taken_but_not_sent() {
    let (mut a, _b) = pair(A, B, 8).unwrap();
    let mut pool_a = pool(2, 512);
    let mut empty = packet(&mut pool_a, &[]).unwrap();
    let sent = a.transmit(std::slice::from_mut(&mut empty), &mut pool_a);
    assert_eq!(sent, Sent { taken: 1, packets: 0, bytes: 0 });
    assert_eq!(pool_a.free(), 2);
}

#[test]
fn an_end_that_closes_gives_all_back_and_takes_nothing_more() {
    for first_closes_sender in [true, false] {
        let (mut a, mut b) = pair(A, B, 4).unwrap();
        let (mut pool_a, mut pool_b) = (pool(8, 512), pool(8, 512));
        assert!((0..4).all(|n| send(&mut a, &mut pool_a, &[n; 60])));
        assert_eq!(receive(&mut b, &mut pool_b, 1).len(), 1);
        if first_closes_sender {
            a.close(&mut pool_a);
            assert!(receive(&mut b, &mut pool_b, 8).is_empty(), "revoked");
        } else {
            b.close(&mut pool_b);
            assert!(receive(&mut b, &mut pool_b, 8).is_empty(), "closed");
            assert!(!a.flush(&mut pool_a), "nothing is on its way to an end that is gone");
        }
        assert_eq!(a.statistics().transmit_error, 3);
        assert!(!send(&mut a, &mut pool_a, &[9; 60]));
        assert!(!send(&mut b, &mut pool_b, &[9; 60]));
        a.close(&mut pool_a);
        b.close(&mut pool_b);
        assert_eq!((pool_a.free(), pool_b.free()), (8, 8));
        assert_eq!(a.statistics().transmit_error, 3);
    }
}

#[test]
fn an_end_that_is_dropped_is_gone_too() {
    let (mut a, b) = pair(A, B, 4).unwrap();
    let mut pool_a = pool(8, 512);
    assert!(send(&mut a, &mut pool_a, &[1; 60]));
    drop(b);
    assert!(!send(&mut a, &mut pool_a, &[1; 60]));
    assert!(!a.flush(&mut pool_a));
    assert_eq!((pool_a.free(), a.statistics().transmit_error), (8, 1));
}

// Numbered packets are sent as fast as the ring takes them, and the echoes return in order.
#[test]
fn nothing_is_lost_or_reordered_between_two_threads() {
    let soak = std::env::var_os("FASTLANE_SOAK").is_some();
    let frames: u64 = if soak { 10_000_000 } else { 1_000_000 };
    let (mut a, mut b) = pair(A, B, 256).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut pool, mut burst) = (pool(512, 512), Burst::new(32));
            while !done.load(Ordering::Acquire) {
                b.receive(&mut burst, &mut pool);
                let mut taken = 0;
                while taken < burst.len() && !done.load(Ordering::Acquire) {
                    taken += b.transmit(&mut burst.packets()[taken..], &mut pool).taken;
                }
                if burst.is_empty() {
                    std::thread::yield_now();
                }
                burst.clear(&mut pool);
                b.flush(&mut pool);
            }
            b.close(&mut pool);
            assert_eq!(pool.free(), pool.frames());
        });
        // Set also if an assertion fails, so that the other thread ends.
        struct Set<'a>(&'a AtomicBool);
        impl Drop for Set<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        let set = Set(&done);
        let (mut pool, mut burst) = (pool(512, 512), Burst::new(32));
        let (mut sent, mut came) = (0_u64, 0_u64);
        while came < frames {
            let before = (sent, came);
            while sent < frames && sent - came < 400 {
                let mut content = [sent as u8; 60];
                content[..8].copy_from_slice(&sent.to_le_bytes());
                if !send(&mut a, &mut pool, &content) {
                    break;
                }
                sent += 1;
            }
            a.flush(&mut pool);
            a.receive(&mut burst, &mut pool);
            for packet in burst.packets() {
                let (number, rest) = packet.bytes().split_at(8);
                assert_eq!(number, came.to_le_bytes(), "the next in order");
                assert!(rest.iter().all(|byte| *byte == came as u8), "whole");
                came += 1;
            }
            burst.clear(&mut pool);
            if before == (sent, came) {
                std::thread::yield_now();
            }
        }
        drop(set);
        a.close(&mut pool);
        assert_eq!((sent, pool.free()), (frames, pool.frames()));
    });
}

// The sender closes while the other end may be reading, and overwrites its frames at once.
#[test]
fn frames_are_not_read_after_they_were_taken_back() {
    for round in 0..500_u32 {
        let (mut a, mut b) = pair(A, B, 64).unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut pool = pool(64, 2048);
                for _ in 0..200 {
                    for content in receive(&mut b, &mut pool, 16) {
                        assert_eq!(content, [1; 1000], "read after it was taken back");
                    }
                }
                b.close(&mut pool);
                assert_eq!(pool.free(), 64);
            });
            let mut pool = pool(64, 2048);
            for turn in 0..u64::from(round % 20) * 4 {
                send(&mut a, &mut pool, &[1; 1000]);
                if turn % 8 == 7 {
                    a.flush(&mut pool);
                }
            }
            a.close(&mut pool);
            assert_eq!(pool.free(), 64);
            let mut scribbled: Vec<_> =
                (0..64).filter_map(|_| packet(&mut pool, &[2; 1000])).collect();
            reader.join().unwrap();
            scribbled.iter_mut().for_each(|packet| pool.release(packet));
        });
    }
}

proptest! {
    // Any sequence of calls behaves as a queue of the same capacity.
    #[test]
    fn a_ring_is_a_queue(
        capacity in 1_usize..9,
        steps in prop::collection::vec((0..3, 1_usize..6), 1..80),
    ) {
        let (mut a, mut b) = pair(A, B, capacity).unwrap();
        let (mut pool_a, mut pool_b) = (pool(32, 512), pool(4, 512));
        let (mut model, mut next) = (VecDeque::new(), 0_u8);
        for (kind, count) in steps {
            match kind {
                0 => for _ in 0..count {
                    let taken = send(&mut a, &mut pool_a, &[next; 20]);
                    prop_assert_eq!(taken, model.len() < capacity);
                    if taken {
                        model.push_back([next; 20].to_vec());
                        next = next.wrapping_add(1);
                    }
                },
                1 => {
                    let count = count.min(4).min(model.len());
                    let expected: Vec<_> = model.drain(..count).collect();
                    prop_assert_eq!(receive(&mut b, &mut pool_b, count.max(1)), expected);
                }
                // At most eight of 32 frames are lent, so the lane does not wait for them.
                _ => prop_assert!(!a.flush(&mut pool_a)),
            }
        }
        a.close(&mut pool_a);
        b.close(&mut pool_b);
        prop_assert_eq!((pool_a.free(), pool_b.free()), (32, 4));
    }
}
