//! Latency of tails: no frame waits for another one.

use std::time::Duration;

use fastlane_table::counters::PortCounter;

use super::bench::{Bench, Entry};
use super::labeller;
use crate::{Rig, Spec};

/// Numbers of frames around powers of two and bursts.
const TAILS: [usize; 9] = [1, 31, 32, 33, 64, 65, 128, 256, 512];

fn no_tail_is_stranded<R: Rig>(burst: usize) {
    let spec = Spec { burst, ..Spec::default() };
    let Some(mut bench) = Bench::<R>::open(spec, labeller::reflect) else { return };
    for frames in TAILS {
        bench.exchange(Entry::Peer, frames, 64);
        bench.at_peer.assert_complete(&format!("{frames} frames, then silence"));
    }
    bench.close();
}

/// Checks that N frames followed by silence all return, at bursts of 32.
pub fn no_tail_is_stranded_at_burst_32<R: Rig>() {
    no_tail_is_stranded::<R>(32);
}

/// Checks that N frames followed by silence all return, at bursts of 256.
pub fn no_tail_is_stranded_at_burst_256<R: Rig>() {
    no_tail_is_stranded::<R>(256);
}

/// Checks that N frames followed by silence all pass between two ports, in both directions.
pub fn no_tail_is_stranded_from_another_port<R: Rig>() {
    let Some(mut bench) = Bench::<R>::open(Spec::default(), labeller::to_port) else { return };
    for frames in TAILS {
        bench.exchange(Entry::SecondPort, frames, 64);
        bench.at_peer.assert_complete(&format!("{frames} frames from another port"));
    }
    bench.close();
    drop(bench);
    let Some(mut bench) = Bench::<R>::open(Spec::default(), labeller::to_second_port) else {
        return;
    };
    for frames in TAILS {
        bench.exchange(Entry::Peer, frames, 64);
        bench.at_second_port.assert_complete(&format!("{frames} frames to another port"));
    }
    bench.close();
}

/// Checks bursts from one frame to the maximum in flight.
pub fn bursts_of_every_size<R: Rig>() {
    let spec = Spec { burst: 64, ..Spec::default() };
    let Some(mut bench) = Bench::<R>::open(spec, labeller::reflect) else { return };
    for frames in (1..=R::BURST).step_by(1 + R::BURST / 100) {
        bench.exchange(Entry::Peer, frames, 60 + frames % 60);
        bench.at_peer.assert_complete(&format!("a burst of {frames}"));
    }
    bench.close();
}

/// Checks that a lane sends a single frame within eight turns after it has received it.
pub fn one_frame_waits_for_no_other<R: Rig>() {
    const TURNS: usize = 8;
    let Some(mut bench) = Bench::<R>::open(Spec::default(), labeller::reflect) else { return };
    for round in 0..200 {
        let number = bench.begin(1).start;
        assert!(bench.send(Entry::Peer, number, 64), "the peer can send a single frame");
        let before = bench.processed();
        assert!(bench.until(|bench| bench.processed() > before), "frame {round} does not arrive");
        for _ in 1..TURNS {
            bench.turn();
        }
        bench.collect(Duration::ZERO);
        if bench.at_peer.distinct() == 0 {
            bench.collect(R::PATIENCE); // without another turn
        }
        bench.at_peer.assert_complete(&format!("frame {round}, {TURNS} turns after it arrived"));
    }
    assert_eq!(bench.count(PortCounter::VerdictReflect), 200);
    bench.close();
}
