use fastlane_table::SharedMemory;
use proptest::prelude::*;

use super::*;
use crate::Pool;

fn packet(length: usize) -> (Pool, Packet) {
    let memory = SharedMemory::create("packet-test", 2048).unwrap();
    let mut pool = Pool::new(memory, 2048, 192).unwrap();
    let frame = pool.take().unwrap();
    let packet = pool.packet(frame, pool.data_offset(), length, PortId(3)).unwrap();
    (pool, packet)
}

#[test]
fn a_header_needs_its_bytes() {
    let (_pool, mut packet) = packet(14);
    assert!(packet.header::<fastlane_wire::Ethernet>().is_some());
    assert!(packet.header_at::<fastlane_wire::Ethernet>(1).is_none());
    assert!(packet.header_at::<fastlane_wire::Ethernet>(usize::MAX).is_none());
    assert!(packet.truncate(13));
    assert!(packet.header::<fastlane_wire::Ethernet>().is_none());
}

#[test]
fn a_partial_checksum_moves_with_the_headers() {
    let (_pool, mut packet) = packet(60);
    let partial = Partial { start: 34, offset: 6 };
    packet.set_partial_checksum(Some(partial));
    let _ = packet.prepend(36).unwrap();
    assert_eq!(packet.partial_checksum(), Some(Partial { start: 70, offset: 6 }));
    assert!(packet.trim_front(50));
    assert_eq!(packet.partial_checksum(), Some(Partial { start: 20, offset: 6 }));
    assert!(packet.trim_front(21));
    assert_eq!(packet.partial_checksum(), None, "its start was trimmed away");
    assert!(!packet.complete_checksum(), "such a packet is not to be sent");
}

#[test]
fn what_is_left_of_a_taken_packet_is_empty() {
    let (mut pool, mut packet) = packet(60);
    packet.set_partial_checksum(Some(Partial { start: 34, offset: 6 }));
    pool.give(packet.take_frame().unwrap());
    assert!(packet.take_frame().is_none() && !packet.has_frame());
    assert_eq!((packet.len(), packet.headroom(), packet.tailroom()), (0, 0, 0));
    assert!(packet.prepend(1).is_none() && packet.append(1).is_none() && !packet.trim_front(1));
    assert_eq!(packet.partial_checksum(), None);
}

#[test]
fn a_frame_whose_window_has_moved_is_of_its_region_and_returns_to_its_pool() {
    let (mut pool, mut packet) = packet(60);
    assert!(packet.truncate(50) && packet.token & MOVED != 0);
    let region = pool.region();
    assert!(region.has(packet.token) && packet.region() == region);
    let other = pool.register_region(1).unwrap();
    assert!(!other.has(packet.token) && !other.has(NO_FRAME) && !region.has(NO_FRAME));
    pool.release(&mut packet);
    assert_eq!(pool.missing(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Prepend(usize),
    Append(usize),
    TrimFront(usize),
    Truncate(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![0..400usize, Just(usize::MAX), Just(65536)];
    (0..4, size).prop_map(|(kind, size)| match kind {
        0 => Step::Prepend(size),
        1 => Step::Append(size),
        2 => Step::TrimFront(size),
        _ => Step::Truncate(size),
    })
}

proptest! {
    #[test]
    fn the_window_stays_inside(steps in proptest::collection::vec(step(), 0..40)) {
        let (pool, mut packet) = packet(100);
        let (token, region) = (packet.token(), packet.region());
        for step in steps {
            let before = packet.len();
            let window = |it: &Packet| (it.data, it.length, it.headroom, it.tailroom);
            let window_before = window(&packet);
            packet.token &= !MOVED;
            match step {
                Step::Prepend(n) => {
                    let new = packet.prepend(n).map(|bytes| bytes.len());
                    prop_assert_eq!(packet.len(), before + new.unwrap_or(0));
                }
                Step::Append(n) => {
                    let new = packet.append(n).map(|bytes| bytes.len());
                    prop_assert_eq!(packet.len(), before + new.unwrap_or(0));
                }
                Step::TrimFront(n) => {
                    let done = packet.trim_front(n);
                    prop_assert_eq!(packet.len(), if done { before - n } else { before });
                }
                Step::Truncate(n) => {
                    let done = packet.truncate(n);
                    prop_assert_eq!(packet.len(), if done { n } else { before });
                }
            }
            let is_same = window(&packet) == window_before;
            prop_assert!(is_same || packet.token & MOVED != 0, "a change that is not marked");
            prop_assert_eq!((packet.token(), packet.region()), (token, region));
            let total = METADATA_LENGTH + packet.headroom() + packet.len() + packet.tailroom();
            prop_assert_eq!(total, 2048);
            let start = pool.offset_of(&packet);
            if packet.headroom() + METADATA_LENGTH < 2048 {
                prop_assert_eq!(start, Some((METADATA_LENGTH + packet.headroom()) as u64));
            }
            packet.bytes_mut().fill(0xaa);
        }
    }
}
