//! Overload: full queues and an exhausted pool.

use std::time::Duration;

use fastlane_table::counters::PortCounter;

use super::bench::{Bench, Entry};
use super::labeller;
use crate::{Rig, Spec};

/// Counters of accepted frames that do not reach the peer.
const DROPS: [PortCounter; 4] = [
    PortCounter::DropTransmitFull,
    PortCounter::DropTransmitError,
    PortCounter::DropNoFrame,
    PortCounter::DropDeviceFull,
];

fn dropped<R: Rig>(bench: &Bench<R>) -> usize {
    DROPS.into_iter().map(|counter| bench.count(counter)).sum::<u64>() as usize
}

/// Sends up to `count` frames at full rate without receiving, with a turn per 16 frames if `turns`.
/// Asserts that each frame has then arrived or was counted, as far as the port can know. Returns
/// the number of frames that the port has taken.
#[track_caller]
fn flood<R: Rig>(bench: &mut Bench<R>, count: usize, turns: bool) -> usize {
    let (mut taken, before) = (0, dropped(bench));
    for (at, number) in bench.begin(count).enumerate() {
        taken += usize::from(bench.send(Entry::Peer, number, 200));
        if turns && at % 16 == 15 {
            bench.turn();
        }
    }
    if R::LOSSLESS {
        let all = bench.until(|bench| bench.at_peer.distinct() + dropped(bench) - before == taken);
        let counted = DROPS.map(|counter| (counter, bench.count(counter)));
        let received = bench.at_peer.distinct();
        assert!(all, "{taken} frames sent, {received} received; counters: {counted:?}");
    }
    bench.settle(Duration::from_millis(100));
    assert_eq!((bench.at_peer.duplicates(), bench.at_peer.damaged), (0, 0));
    let reflected = bench.count(PortCounter::VerdictReflect);
    let left = bench.count(PortCounter::SentPackets) + bench.count(PortCounter::DropTransmitFull);
    assert_eq!(left, reflected, "each reflected packet was sent or counted");
    taken
}

/// Checks a peer that sends and does not read: lost frames are counted, and the port recovers.
pub fn peer_that_does_not_read<R: Rig>() {
    let Some(mut bench) = Bench::<R>::open(Spec::default(), labeller::reflect) else { return };
    let taken = flood(&mut bench, 8 * R::BURST, true);
    assert!(taken >= R::BURST, "the peer could send only {taken} frames");
    bench.exchange(Entry::Peer, R::BURST, 64);
    bench.at_peer.assert_complete("after the peer reads again");
    bench.close();
}

/// Checks that a lane recovers after its small pool was exhausted.
pub fn few_frames_run_dry_and_recover<R: Rig>() {
    let spec = Spec { frames: 64, ..Spec::default() };
    let Some(mut bench) = Bench::<R>::open(spec, labeller::reflect) else { return };
    for _ in 0..3 {
        flood(&mut bench, R::BURST, false);
        flood(&mut bench, 2 * R::BURST, true);
    }
    bench.window = 16;
    bench.exchange(Entry::Peer, 1000, 64);
    bench.at_peer.assert_complete("16 frames in flight");
    bench.close();
}
