//! Packets created by the application.

use super::bench::{Bench, Entry};
use super::labeller;
use crate::{Rig, Spec};

/// Checks that new packets leave once each and in order, without received packets.
pub fn new_packets_leave_in_order<R: Rig>() {
    const FRAMES: usize = 2000;
    let Some(mut bench) = Bench::<R>::open(Spec::default(), labeller::reflect) else { return };
    for frames in [1, 31, 33, FRAMES] {
        let first = bench.next();
        bench.applications(|application| application.creates = first..first + frames as u32);
        bench.exchange(Entry::Internal, frames, 0);
        bench.at_peer.assert_complete(&format!("{frames} new packets"));
    }
    bench.close();
}

/// Checks that each frame returns twice: itself and its copy.
pub fn copies_leave_beside_the_original<R: Rig>() {
    const FRAMES: usize = 1000;
    let Some(mut bench) = Bench::<R>::open(Spec::default(), labeller::reflect) else { return };
    bench.applications(|application| application.copies = true);
    bench.window = R::BURST / 2;
    bench.exchange(Entry::Peer, FRAMES, 300);
    bench.until(|bench| bench.at_peer.duplicates() == FRAMES);
    bench.at_peer.assert_each(2, "itself and its copy");
    bench.close();
}
