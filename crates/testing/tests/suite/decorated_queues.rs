//! Tests of the decorators.

use fastlane_core::{Burst, Pool, Queue};
use fastlane_testing::decorators::{Direction, Fault, Faults, Record, Trace};
use fastlane_testing::{Addresses, Peer, Spec, Tag};

use crate::pipe::Pipe;

fn frame(sequence: u32) -> Vec<u8> {
    Tag { test: 1, sequence }.frame(Addresses::default(), 100)
}

/// Receives one burst and transmits it.
fn echo(queue: &mut dyn Queue, pool: &mut Pool) {
    let mut burst = Burst::new(32);
    queue.receive(&mut burst, pool);
    let sent = queue.transmit(burst.packets(), pool);
    assert_eq!(sent.taken, sent.packets);
    burst.clear(pool);
    queue.flush(pool);
}

#[test]
fn trace_and_record_keep_packets_in_order() {
    let (mut pipe, mut pool) = (Pipe::default(), Spec::default().pool());
    let trace = Trace::new(pipe.queue());
    let events = trace.notes();
    let mut record = Record::new(Box::new(trace));
    let frames = record.notes();
    (0..3).for_each(|sequence| assert!(pipe.send(&frame(sequence))));
    echo(&mut record, &mut pool);
    let events = events.lock().unwrap();
    let directions: Vec<_> = events.iter().map(|event| event.direction).collect();
    assert_eq!(directions, [[Direction::Received; 3], [Direction::Sent; 3]].concat());
    let expected = "port 0 Received 02:00:00:00:00:02 > 02:00:00:00:00:01 0x0800 100 bytes";
    assert_eq!(events[0].to_string(), expected);
    let recorded = frames.lock().unwrap().iter().map(|r| r.frame.clone()).collect::<Vec<_>>();
    let once: Vec<_> = (0..3).map(frame).collect();
    assert_eq!(recorded, [once.clone(), once].concat());
}

/// Sends `count` frames through faults; returns the frames that have left and the fault counts.
fn pass_faults(seed: u64, received: Faults, sent: Faults, count: u32) -> (Vec<Vec<u8>>, [u64; 5]) {
    let (mut pipe, mut pool) = (Pipe::default(), Spec::default().pool());
    let mut fault = Fault::new(pipe.queue(), seed, received, sent);
    let accounts = fault.accounts();
    let mut output = Vec::new();
    for sequence in 0..count + 100 {
        if sequence < count {
            assert!(pipe.send(&frame(sequence)));
        }
        echo(&mut fault, &mut pool);
        output.extend(std::iter::from_fn(|| Peer::receive(&mut pipe, std::time::Duration::ZERO)));
    }
    fault.close(&mut pool);
    assert_eq!(pool.free(), pool.frames());
    let of = |direction: usize| *accounts[direction].lock().unwrap();
    let (a, b) = (of(0), of(1));
    let sums = [
        a.dropped + b.dropped,
        a.duplicated + b.duplicated,
        a.reordered + b.reordered,
        a.corrupted + b.corrupted,
        a.stalled + b.stalled,
    ];
    (output, sums)
}

#[test]
fn faults_are_accounted_for_and_repeat_with_their_seed() {
    let all = Faults { drop: 0.1, duplicate: 0.1, reorder: 0.1, corrupt: 0.1, stall: 0.0 };
    let none = Faults::default();
    for (received, sent) in [(all, none), (none, all)] {
        let (output, [dropped, duplicated, reordered, corrupted, _]) =
            pass_faults(7, received, sent, 2000);
        assert_eq!(output.len() as u64, 2000 - dropped + duplicated);
        let sequence = |frame: &Vec<u8>| Tag::find(frame).map(|(tag, _)| tag.sequence);
        let damaged = output.iter().filter(|output| {
            sequence(output).is_none_or(|number| number >= 2000 || **output != frame(number))
        });
        assert_eq!(damaged.count() as u64, corrupted);
        for count in [dropped, duplicated, reordered, corrupted] {
            assert!((100..300).contains(&count), "about 200 of 2000: {count}");
        }
        assert_eq!(pass_faults(7, received, sent, 2000).0, output, "the same seed");
        assert_ne!(pass_faults(8, received, sent, 2000).0, output, "another seed");
    }
}

#[test]
fn a_stall_loses_nothing_that_is_received() {
    let stall = Faults { stall: 0.05, ..Faults::default() };
    let (output, [dropped, .., stalled]) = pass_faults(3, stall, Faults::default(), 500);
    let all: Vec<_> = (0..500).map(frame).collect();
    assert_eq!((output, dropped), (all, 0));
    assert!(stalled > 50, "{stalled}");
}
