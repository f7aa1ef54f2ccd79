//! Opening and closing of ports, loss of link and peer.

use std::time::Duration;

use fastlane_table::counters::PortCounter;

use super::bench::{Bench, Entry, not_applicable};
use super::labeller;
use crate::{Rig, Spec};

/// Checks up to four queues over two lanes: each frame returns once, and both lanes work.
pub fn queues_over_two_lanes<R: Rig>() {
    const FRAMES: usize = 4000;
    let queues = R::QUEUES.min(4) / 2 * 2;
    if queues < 2 {
        return not_applicable("queues_over_two_lanes", "second queue");
    }
    let spec = Spec { lanes: 2, queues, ..Spec::default() };
    let Some(mut bench) = Bench::<R>::open(spec, labeller::reflect) else { return };
    bench.exchange(Entry::Peer, FRAMES, 100);
    bench.settle(Duration::from_millis(50));
    bench.at_peer.assert_each(1, "frames over all queues");
    let seen = bench.processed_by_lane();
    assert_eq!(seen.iter().sum::<usize>(), FRAMES, "{seen:?}");
    assert!(seen.iter().all(|seen| *seen > 0), "a lane has processed nothing: {seen:?}");
    bench.close();
}

/// Checks that a closed port reopens immediately, with frames in flight.
pub fn close_and_reopen_at_once<R: Rig>() {
    if !R::REOPENS {
        return not_applicable("close_and_reopen_at_once", "driver that closes all it opened");
    }
    let Some(mut bench) = Bench::<R>::open(Spec::default(), labeller::reflect) else { return };
    for round in 0..5 {
        bench.exchange(Entry::Peer, 100, 64);
        bench.at_peer.assert_complete(&format!("reopened {round} times"));
        for number in bench.begin(20) {
            bench.send(Entry::Peer, number, 64); // may be lost or late
        }
        if round % 2 == 0 {
            bench.turn();
        }
        bench.close();
        bench.open_lanes();
    }
    bench.close();
}

/// Checks that a running lane forwards again after the link was down.
pub fn link_down_and_up<R: Rig>() {
    if !R::HAS_LINK {
        return not_applicable("link_down_and_up", "link");
    }
    let Some(mut bench) = Bench::<R>::open(Spec::default(), labeller::to_port) else { return };
    for round in 0..3 {
        bench.exchange(Entry::Peer, 100, 64);
        bench.at_peer.assert_complete(&format!("the link was down {round} times"));
        bench.rig.set_link(false);
        for number in bench.begin(200) {
            bench.send(if number % 2 == 0 { Entry::Peer } else { Entry::SecondPort }, number, 64);
            bench.turn();
        }
        bench.rig.set_link(true);
        let patience = std::mem::replace(&mut bench.patience, Duration::from_millis(100));
        let tries = patience.as_millis() / bench.patience.as_millis();
        let recovers = (0..tries).any(|_| {
            bench.exchange(Entry::Peer, 1, 64);
            bench.at_peer.distinct() == 1
        });
        assert!(recovers, "nothing passes after the link came up again");
        bench.patience = patience;
    }
    bench.close();
}

/// Removes the peer under a running lane. The lane must go on, count packets that it cannot send
/// and get all frames back.
pub fn peer_goes_away<R: Rig>() {
    if !R::HAS_REMOVABLE_PEER {
        return not_applicable("peer_goes_away", "peer that can be removed");
    }
    let Some(mut bench) = Bench::<R>::open(Spec::default(), labeller::to_port) else { return };
    bench.exchange(Entry::Peer, 64, 64);
    bench.at_peer.assert_complete("before the peer is removed");
    for number in bench.begin(64) {
        bench.send(Entry::Peer, number, 64);
    }
    bench.rig.remove_peer();
    let before = bench.count(PortCounter::SentPackets);
    for number in bench.begin(2000) {
        bench.send(Entry::SecondPort, number, 64);
        bench.turn();
    }
    bench.close();
    let handed_over = bench.count(PortCounter::SentPackets) - before;
    assert_eq!(bench.count(PortCounter::DropTransmitError), handed_over, "sent without a peer");
    assert!(handed_over + bench.count(PortCounter::DropTransmitFull) >= 2000);
}
