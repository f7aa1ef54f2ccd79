//! Accounting of frames, and all verdicts mixed.

use std::time::Duration;

use fastlane_core::{RawVerdict, Statistics, Verdict};
use fastlane_table::counters::PortCounter;

use super::bench::{Bench, Entry};
use super::labeller::{self, NO_QUEUE, SECOND_PORT};
use crate::{LaneRig, Rig, Spec, memory_only};

/// Time in which a duplicate would arrive.
const QUIET: Duration = Duration::from_millis(50);

/// Checks that 20,000 frames return once each and in order, and that the counters agree.
pub fn every_frame_is_accounted_for<R: Rig>() {
    let Some(mut bench) = Bench::<R>::open(Spec::default(), labeller::reflect) else { return };
    for (frames, length) in [(10_000, 60), (5_000, 200), (5_000, R::LONGEST.min(1400))] {
        bench.exchange(Entry::Peer, frames, length);
        bench.settle(QUIET);
        bench.at_peer.assert_complete(&format!("{frames} frames of {length} bytes"));
    }
    assert_eq!(bench.processed(), 20_000, "frames at the application");
    assert_eq!(bench.count(PortCounter::VerdictReflect), 20_000);
    assert_eq!(bench.count(PortCounter::SentPackets), 20_000);
    assert!(bench.count(PortCounter::SentBytes) >= 10_000 * 60 + 5_000 * 200);
    bench.close();
}

/// Checks that `Queue::statistics` makes no system call: lanes call it while packets arrive.
pub fn statistics_are_read_from_memory<R: Rig>() {
    let spec = Spec::default();
    let Some(mut rig) = R::open(&spec) else { return };
    for LaneRig { mut pool, mut queues, kernel } in rig.lanes(&spec) {
        queues.extend(kernel.map(|path| path.queue));
        let read = memory_only(move || {
            let mut losses = Statistics::default();
            queues.iter().for_each(|queue| losses += queue.statistics());
            (queues, losses)
        });
        let (queues, losses) = read.expect("statistics make no system call");
        assert_eq!(losses, Statistics::default());
        queues.into_iter().for_each(|mut queue| queue.close(&mut pool));
    }
}

fn mixed(sequence: u32) -> RawVerdict {
    match sequence % 7 {
        0 => Verdict::Reflect.into(),
        1 => Verdict::Drop.into(),
        2 => Verdict::Forward(SECOND_PORT).into(),
        3 => Verdict::Kernel.into(), // the port has no path into Linux
        4 => RawVerdict(0x7700_0001),
        5 => Verdict::Forward(NO_QUEUE).into(),
        _ => Verdict::Forward(Spec::PORT).into(),
    }
}

/// Checks an application that permutes the slice and mixes all verdicts, invalid ones included.
pub fn mixed_verdicts_each_go_their_way<R: Rig>() {
    const FRAMES: usize = 7 * 400;
    for burst in [32, 256] {
        let spec = Spec { burst, ..Spec::default() };
        let Some(mut bench) = Bench::<R>::open(spec, mixed) else { return };
        bench.applications(|application| application.shuffles = true);
        let first = bench.next();
        bench.exchange(Entry::Peer, FRAMES, 100);
        bench.settle(QUIET);
        assert_eq!(bench.processed(), FRAMES, "frames at the application");
        let numbers = |kinds: &'static [u32]| -> Vec<u32> {
            (first..first + FRAMES as u32).filter(|number| kinds.contains(&(number % 7))).collect()
        };
        assert_eq!(bench.at_peer.numbers_received(1), numbers(&[0, 6]), "frames back to the peer");
        assert_eq!(
            bench.at_second_port.numbers_received(1),
            numbers(&[2]),
            "frames to another port"
        );
        let duplicates = bench.at_peer.duplicates() + bench.at_second_port.duplicates();
        assert_eq!((duplicates, bench.at_peer.damaged, bench.at_second_port.damaged), (0, 0, 0));
        let each = FRAMES as u64 / 7;
        assert_eq!(bench.count(PortCounter::DropNoKernelPeer), each);
        assert_eq!(bench.count(PortCounter::DropBadVerdict), each);
        assert_eq!(bench.count(PortCounter::DropNoPort), each);
        assert_eq!(bench.count(PortCounter::SentPackets), 2 * each);
        bench.close();
    }
}
