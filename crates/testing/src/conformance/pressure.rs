//! More than fits.

use std::time::Duration;

use fastlane_table::counters::PortCounter;

use super::bench::{Bench, Entry};
use super::labeller;
use crate::{Rig, Spec};

/// How a frame that the lane or the port took can end otherwise than at the peer.
const DROPS: [PortCounter; 4] = [
    PortCounter::DropTransmitFull,
    PortCounter::DropTransmitError,
    PortCounter::DropNoFrame,
    PortCounter::DropDeviceFull,
];

fn dropped<R: Rig>(bench: &Bench<R>) -> usize {
    DROPS.into_iter().map(|counter| bench.count(counter)).sum::<u64>() as usize
}

/// Puts frames in as fast as it goes, turning every 16 if so wanted, without looking at what comes
/// out meanwhile; then what was put in has come out or was counted, as far as the port can know.
/// Returns how many were put in.
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
        let came = bench.at_peer.distinct();
        assert!(all, "{taken} frames put in, {came} came out; counted in all: {counted:?}");
    }
    bench.settle(Duration::from_millis(100));
    assert_eq!((bench.at_peer.duplicates(), bench.at_peer.damaged), (0, 0));
    let reflected = bench.count(PortCounter::VerdictReflect);
    let left = bench.count(PortCounter::SentPackets) + bench.count(PortCounter::DropTransmitFull);
    assert_eq!(left, reflected, "each reflected packet was sent or counted");
    taken
}

/// The peer sends and does not read: what does not fit is counted, and all is well afterwards.
pub fn peer_that_does_not_read<R: Rig>() {
    let Some(mut bench) = Bench::<R>::open(Spec::default(), labeller::reflect) else { return };
    let taken = flood(&mut bench, 8 * R::BURST, true);
    assert!(taken >= R::BURST, "the peer could send only {taken} frames");
    bench.exchange(Entry::Peer, R::BURST, 64);
    bench.at_peer.assert_complete("after the peer reads again");
    bench.close();
}

/// A pool of few frames runs dry and recovers.
pub fn few_frames_run_dry_and_recover<R: Rig>() {
    let spec = Spec { frames: 64, ..Spec::default() };
    let Some(mut bench) = Bench::<R>::open(spec, labeller::reflect) else { return };
    for _ in 0..3 {
        flood(&mut bench, R::BURST, false);
        flood(&mut bench, 2 * R::BURST, true);
    }
    bench.window = 16;
    bench.exchange(Entry::Peer, 1000, 64);
    bench.at_peer.assert_complete("a few at a time");
    bench.close();
}
