use fastlane_table::counters::{LaneCounter, PortCounter};

use fastlane_core::{Turn, Verdict};

use super::*;

mod bench;
mod model;
use bench::{AppOf, SIZES, Sizes, bench};

const FORWARD: Verdict = Verdict::Forward(PortId(1));

fn key(number: u32) -> HoldKey {
    HoldKey::new(number).unwrap()
}

/// Creates an application that holds each packet under its first byte. `open` runs once a turn and
/// returns the key to resume.
fn gate(
    mut open: impl FnMut(&mut Turn) -> Option<u8>,
) -> AppOf<impl FnMut(&mut [Packet], &mut Turn), impl FnMut(&mut Turn)> {
    let opened = std::rc::Rc::new(std::cell::RefCell::new([false; 256]));
    let is_open = std::rc::Rc::clone(&opened);
    let process = move |packets: &mut [Packet], _: &mut Turn| {
        for packet in packets {
            let first = packet.bytes()[0];
            let is_open = is_open.borrow()[usize::from(first)];
            packet.set_verdict(if is_open { FORWARD } else { Verdict::Hold(key(first.into())) });
        }
    };
    let turn = move |turn: &mut Turn| {
        if let Some(first) = open(turn) {
            opened.borrow_mut()[usize::from(first)] = true;
            turn.resume(key(first.into()));
        }
    };
    AppOf(process, turn)
}

/// Returns the minor page faults of this thread (proc(5), `stat`).
fn minor_faults() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let (_, fields) = text.rsplit_once(')').unwrap();
    fields.split_ascii_whitespace().nth(7).unwrap().parse().unwrap()
}

#[test]
fn holding_takes_no_page_fault() {
    const PACKETS: usize = 4096;
    let sizes = Sizes { packets: PACKETS, per_key: PACKETS, ..SIZES };
    let mut bench = bench(gate(|_| None), sizes);
    (0..PACKETS).for_each(|_| bench.arrive(0, &[1, 2, 3]));
    // The first turns run code for the first time.
    for _ in 0..8 {
        bench.lane.turn();
    }
    minor_faults();
    let before = minor_faults();
    for _ in 0..PACKETS {
        bench.lane.turn();
    }
    assert_eq!(minor_faults() - before, 0);
    assert_eq!(bench.lane_count(LaneCounter::HeldPackets), PACKETS as u64);
    bench.close();
}

#[test]
fn without_limits_nothing_is_held() {
    let mut hold = HoldArea::new(HoldLimits::default(), 2048);
    let one = key(1);
    assert_eq!((hold.request(one), hold.discard(one), hold.count(one)), (0, 0, 0));
    assert_eq!((hold.packets(), hold.discard_all(), hold.has_requests()), (0, 0, false));
    let mut bench = bench(gate(|_| None), Sizes { packets: 0, ..SIZES });
    (0..5).for_each(|number| bench.arrive(0, &[1, number]));
    bench.lane.turn();
    assert_eq!(bench.count(PortCounter::DropHold), 5);
    bench.close();
}

#[test]
fn held_packets_come_back_in_order_ahead_of_later_ones() {
    let app = gate(|turn| (turn.number() == 3).then_some(1));
    let mut bench = bench(app, SIZES);
    let (one, two) = ([1, 0], [2, 0]);
    for number in 0..12 {
        bench.arrive(0, &[one[0], number]);
        bench.arrive(0, &[two[0], number]);
    }
    (0..3).for_each(|_| assert!(bench.lane.turn() > 0));
    assert_eq!(bench.lane_count(LaneCounter::HeldPackets), 12, "those of the other key");
    assert_eq!(bench.lane_count(LaneCounter::ResumedPackets), 12);
    bench.arrive(0, &[1, 12]);
    bench.lane.turn();
    assert_eq!(bench.sent(), (0..13).map(|number| vec![1, number]).collect::<Vec<_>>());
    assert_eq!(bench.count(PortCounter::VerdictHold), 24);
    bench.close();
    assert_eq!(bench.lane_count(LaneCounter::DropHeldAtEnd), 12);
}

#[test]
fn resumed_packets_leave_before_the_current_burst() {
    let mut opened = false;
    let process = move |packets: &mut [Packet], turn: &mut Turn| {
        for packet in packets {
            if packet.bytes()[1] == 6 {
                opened = true;
                assert_eq!((turn.held(key(1)), turn.resume(key(1))), (6, 6));
                assert_eq!((turn.held(key(2)), turn.resume(key(2))), (0, 0));
            }
            packet.set_verdict(if opened { FORWARD } else { Verdict::Hold(key(1)) });
        }
    };
    let mut bench = bench(AppOf(process, |_: &mut Turn| ()), Sizes { burst: 3, ..SIZES });
    (0..9).for_each(|number| bench.arrive(0, &[1, number]));
    (0..3).for_each(|_| assert!(bench.lane.turn() > 0));
    assert_eq!(bench.sent(), (0..9).map(|number| vec![1, number]).collect::<Vec<_>>());
    bench.close();
}

#[test]
fn a_packet_is_shown_as_it_was_received_and_as_the_application_left_it() {
    let mut shown = 0;
    let partial = Some(Partial { start: 20, offset: 6 });
    let process = move |packets: &mut [Packet], _: &mut Turn| {
        for packet in packets {
            assert_eq!((packet.verdict(), packet.port()), (Verdict::Kernel.into(), PortId(0)));
            shown += 1;
            if shown == 1 {
                packet.prepend(64).unwrap().fill(9); // the whole headroom
                packet.set_partial_checksum(partial);
                packet.set_arrival_flags(u16::MAX);
                packet.set_verdict(Verdict::Hold(key(HoldKey::MAX)));
                continue;
            }
            assert!(packet.is_from_kernel() && packet.is_claimed());
            assert_eq!(packet.partial_checksum(), partial);
            assert_eq!(packet.bytes(), [[9; 64].as_slice(), &[7; 384]].concat());
            packet.set_partial_checksum(None);
            packet.set_verdict(Verdict::Drop);
        }
    };
    let turn = |turn: &mut Turn| {
        turn.resume(key(HoldKey::MAX));
    };
    let mut bench = bench(AppOf(process, turn), SIZES);
    bench.arrive(0, &[7; 384]);
    bench.lane.turn();
    assert_eq!(bench.count(PortCounter::VerdictDrop), 1);
    assert_eq!(bench.lane_count(LaneCounter::ResumedPackets), 1);
    bench.close();
}

#[test]
fn a_packet_that_has_lost_its_checksum_is_not_held() {
    let process = |packets: &mut [Packet], _: &mut Turn| {
        for packet in packets {
            packet.set_partial_checksum(Some(Partial { start: 2, offset: 6 }));
            assert!(packet.trim_front(10));
            packet.set_verdict(Verdict::Hold(key(1)));
        }
    };
    let mut bench = bench(AppOf(process, |_: &mut Turn| ()), SIZES);
    bench.arrive(0, &[0; 60]);
    bench.lane.turn();
    assert_eq!(bench.count(PortCounter::DropHold), 1);
    bench.close();
}

#[test]
fn both_limits_apply_and_discarded_packets_make_room() {
    let sizes = Sizes { packets: 8, per_key: 3, ..SIZES };
    let mut turns = 0;
    let app = gate(move |turn| {
        turns += 1;
        match turns {
            3 => assert_eq!(turn.discard(key(2)), 3),
            4 => assert_eq!((turn.held(key(2)), turn.held(key(3))), (3, 2)),
            _ => {}
        }
        None
    });
    let mut bench = bench(app, sizes);
    for number in 0..6 {
        (1..4).for_each(|key| bench.arrive(0, &[key, number]));
    }
    (0..3).for_each(|_| assert!(bench.lane.turn() > 0));
    // Three of keys 1 and 2, and two of key 3, for which there is no room in all.
    assert_eq!(bench.count(PortCounter::DropHold), 10);
    (0..4).for_each(|number| bench.arrive(0, &[2, number]));
    bench.lane.turn();
    assert_eq!(bench.count(PortCounter::DropHold), 11);
    assert_eq!(bench.lane_count(LaneCounter::DiscardedPackets), 3);
    bench.close();
}

#[test]
fn resumed_packets_leave_by_the_queue_of_their_arrival() {
    let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let shown = std::rc::Rc::clone(&seen);
    let process = move |packets: &mut [Packet], turn: &mut Turn| {
        let resumed = turn.number() > 1;
        shown.borrow_mut().push(packets.len());
        for packet in packets {
            packet.set_verdict(if resumed { FORWARD } else { Verdict::Hold(key(1)) });
        }
    };
    let turn = |turn: &mut Turn| {
        if turn.number() == 2 {
            turn.resume(key(1));
        }
    };
    let mut bench = bench(AppOf(process, turn), SIZES);
    (0..3).for_each(|number| bench.arrive(0, &[0, number]));
    (0..2).for_each(|number| bench.arrive(1, &[1, number]));
    bench.lane.turn();
    bench.lane.turn();
    assert_eq!(*seen.borrow(), [3, 2, 3, 2], "a burst is of one queue");
    let sent: Vec<_> = bench.sent.lock().unwrap().iter().map(|(queue, _)| *queue).collect();
    assert_eq!(sent, [0, 0, 0, 1, 1]);
    bench.close();
}

#[test]
fn without_a_free_frame_the_lane_flushes_and_then_drops() {
    // Four frames for ten packets. Frames that return after some flushes are enough for all; frames
    // that never return are enough for four.
    for (delay, resumed) in [(5, 10), (1000, 4)] {
        let app = gate(|turn| (turn.number() == 20).then_some(1));
        let mut bench = bench(app, Sizes { frames: 4, delay, ..SIZES });
        for number in 0..10 {
            bench.arrive(0, &[1, number]);
            bench.lane.turn();
        }
        assert_eq!(bench.lane_count(LaneCounter::HeldPackets), 10);
        for _ in 10..21 {
            bench.lane.turn();
        }
        assert_eq!(bench.lane_count(LaneCounter::ResumedPackets), resumed);
        assert_eq!(bench.lane_count(LaneCounter::DropResumeNoFrame), 10 - resumed);
        assert_eq!(
            bench.sent(),
            (0..resumed as u8).map(|number| vec![1, number]).collect::<Vec<_>>()
        );
        bench.close();
    }
}

#[test]
fn an_application_that_holds_what_it_resumes_does_not_stop_the_lane() {
    let process = |packets: &mut [Packet], turn: &mut Turn| {
        for packet in packets {
            let key = key(packet.bytes()[0].into());
            packet.set_verdict(Verdict::Hold(key));
            turn.resume(key);
        }
    };
    let turn = |turn: &mut Turn| {
        for number in 0..3 {
            turn.resume(key(number));
        }
    };
    let mut bench = bench(AppOf(process, turn), SIZES);
    for number in 0..30 {
        bench.arrive(0, &[number % 3, number]);
    }
    (0..10).for_each(|_| assert!(bench.lane.turn() > 0));
    assert_eq!(bench.lane_count(LaneCounter::HeldPackets), 30);
    assert!(bench.lane_count(LaneCounter::ResumedPackets) > 100);
    bench.close();
}

#[test]
fn packets_of_the_application_can_be_held() {
    let process = |packets: &mut [Packet], turn: &mut Turn| {
        for packet in packets.iter_mut() {
            if turn.number() == 1 {
                let copy = turn.copy(packet).unwrap();
                copy.set_verdict(Verdict::Hold(key(5)));
            }
            packet.set_verdict(FORWARD);
        }
    };
    let turn = |turn: &mut Turn| {
        assert_eq!(turn.held(key(5)), if turn.number() == 2 { 3 } else { 0 });
        turn.resume(key(5));
    };
    let mut bench = bench(AppOf(process, turn), SIZES);
    (0..3).for_each(|number| bench.arrive(0, &[1, number]));
    (0..2).for_each(|_| assert!(bench.lane.turn() > 0));
    assert_eq!(bench.sent().len(), 6);
    assert_eq!(bench.lane.close(), 0);
}
