use fastlane_table::counters::{LaneCounter, PortCounter};

use super::*;
use crate::{HoldKey, Turn, Verdict};

mod model;
mod rig;
use rig::{SIZES, Sizes, Two, rig};

const FORWARD: Verdict = Verdict::Forward(PortId(1));

fn key(number: u32) -> HoldKey {
    HoldKey::new(number).unwrap()
}

/// An application that holds everything under the packet's first byte until `open`, asked once a
/// turn, says which key to resume.
fn gate(
    mut open: impl FnMut(&mut Turn) -> Option<u8>,
) -> Two<impl FnMut(&mut [Packet], &mut Turn), impl FnMut(&mut Turn)> {
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
    Two(process, turn)
}

#[test]
fn without_limits_nothing_is_held() {
    let mut hold = Hold::new(HoldLimits::default(), 2048);
    assert_eq!((hold.request(1), hold.discard(1), hold.count(1)), (0, 0, 0));
    assert_eq!((hold.len(), hold.drop_all(), hold.has_requests()), (0, 0, false));
    let mut rig = rig(gate(|_| None), Sizes { packets: 0, ..SIZES });
    (0..5).for_each(|number| rig.arrive(0, &[1, number]));
    rig.lane.turn();
    assert_eq!(rig.count(PortCounter::DropHold), 5);
    rig.close();
}

#[test]
fn held_packets_come_back_in_order_ahead_of_later_ones() {
    let app = gate(|turn| (turn.number() == 3).then_some(1));
    let mut rig = rig(app, SIZES);
    let (one, two) = ([1, 0], [2, 0]);
    for number in 0..12 {
        rig.arrive(0, &[one[0], number]);
        rig.arrive(0, &[two[0], number]);
    }
    (0..3).for_each(|_| assert!(rig.lane.turn() > 0));
    assert_eq!(rig.lane_count(LaneCounter::HeldPackets), 12, "those of the other key");
    assert_eq!(rig.lane_count(LaneCounter::ResumedPackets), 12);
    rig.arrive(0, &[1, 12]);
    rig.lane.turn();
    assert_eq!(rig.sent(), (0..13).map(|number| vec![1, number]).collect::<Vec<_>>());
    assert_eq!(rig.count(PortCounter::VerdictHold), 24);
    rig.close();
    assert_eq!(rig.lane_count(LaneCounter::DropHeldAtEnd), 12);
}

/// The packet that opens the key is in the same burst as others of that key.
#[test]
fn what_is_resumed_leaves_before_the_burst_in_hand() {
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
    let mut rig = rig(Two(process, |_: &mut Turn| ()), Sizes { burst: 3, ..SIZES });
    (0..9).for_each(|number| rig.arrive(0, &[1, number]));
    (0..3).for_each(|_| assert!(rig.lane.turn() > 0));
    assert_eq!(rig.sent(), (0..9).map(|number| vec![1, number]).collect::<Vec<_>>());
    rig.close();
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
                packet.prepend(64).unwrap().fill(9); // all head room there is
                packet.set_partial_checksum(partial);
                packet.set_from_kernel();
                packet.set_claimed();
                packet.set_verdict(Verdict::Hold(key(HoldKey::MOST)));
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
        turn.resume(key(HoldKey::MOST));
    };
    let mut rig = rig(Two(process, turn), SIZES);
    rig.arrive(0, &[7; 384]);
    rig.lane.turn();
    assert_eq!(rig.count(PortCounter::VerdictDrop), 1);
    assert_eq!(rig.lane_count(LaneCounter::ResumedPackets), 1);
    rig.close();
}

#[test]
fn what_nobody_can_complete_is_not_held() {
    let process = |packets: &mut [Packet], _: &mut Turn| {
        for packet in packets {
            packet.set_partial_checksum(Some(Partial { start: 2, offset: 6 }));
            assert!(packet.trim_front(10));
            packet.set_verdict(Verdict::Hold(key(1)));
        }
    };
    let mut rig = rig(Two(process, |_: &mut Turn| ()), SIZES);
    rig.arrive(0, &[0; 60]);
    rig.lane.turn();
    assert_eq!(rig.count(PortCounter::DropHold), 1);
    rig.close();
}

#[test]
fn both_limits_hold_and_room_comes_back() {
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
    let mut rig = rig(app, sizes);
    for number in 0..6 {
        (1..4).for_each(|key| rig.arrive(0, &[key, number]));
    }
    (0..3).for_each(|_| assert!(rig.lane.turn() > 0));
    // Three of keys 1 and 2, and two of key 3, for which there is no room in all.
    assert_eq!(rig.count(PortCounter::DropHold), 10);
    (0..4).for_each(|number| rig.arrive(0, &[2, number]));
    rig.lane.turn();
    assert_eq!(rig.count(PortCounter::DropHold), 11);
    assert_eq!(rig.lane_count(LaneCounter::DiscardedPackets), 3);
    rig.close();
}

#[test]
fn packets_leave_by_the_queue_that_they_would_have_left_by() {
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
    let mut rig = rig(Two(process, turn), SIZES);
    (0..3).for_each(|number| rig.arrive(0, &[0, number]));
    (0..2).for_each(|number| rig.arrive(1, &[1, number]));
    rig.lane.turn();
    rig.lane.turn();
    assert_eq!(*seen.borrow(), [3, 2, 3, 2], "a burst is of one queue");
    let sent: Vec<_> = rig.sent.lock().unwrap().iter().map(|(queue, _)| *queue).collect();
    assert_eq!(sent, [0, 0, 0, 1, 1]);
    rig.close();
}

#[test]
fn without_a_frame_the_lane_sends_everything_and_then_gives_up() {
    // Four frames for ten packets: with frames that come back after some flushes all are shown,
    // with frames that never do those beyond the fourth are lost.
    for (delay, resumed) in [(5, 10), (1000, 4)] {
        let app = gate(|turn| (turn.number() == 20).then_some(1));
        let mut rig = rig(app, Sizes { frames: 4, delay, ..SIZES });
        for number in 0..10 {
            rig.arrive(0, &[1, number]);
            rig.lane.turn();
        }
        assert_eq!(rig.lane_count(LaneCounter::HeldPackets), 10);
        for _ in 10..21 {
            rig.lane.turn();
        }
        assert_eq!(rig.lane_count(LaneCounter::ResumedPackets), resumed);
        assert_eq!(rig.lane_count(LaneCounter::DropResumeNoFrame), 10 - resumed);
        assert_eq!(
            rig.sent(),
            (0..resumed as u8).map(|number| vec![1, number]).collect::<Vec<_>>()
        );
        rig.close();
    }
}

/// Holds everything it is shown, and resumes it each time.
#[test]
fn who_holds_what_it_resumes_does_not_stop_the_lane() {
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
    let mut rig = rig(Two(process, turn), SIZES);
    for number in 0..30 {
        rig.arrive(0, &[number % 3, number]);
    }
    (0..10).for_each(|_| assert!(rig.lane.turn() > 0));
    assert_eq!(rig.lane_count(LaneCounter::HeldPackets), 30);
    assert!(rig.lane_count(LaneCounter::ResumedPackets) > 100);
    rig.close();
}

#[test]
fn packets_of_ones_own_can_be_held() {
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
    let mut rig = rig(Two(process, turn), SIZES);
    (0..3).for_each(|number| rig.arrive(0, &[1, number]));
    (0..2).for_each(|_| assert!(rig.lane.turn() > 0));
    assert_eq!(rig.sent().len(), 6);
    assert_eq!(rig.lane.close(), 0);
}
