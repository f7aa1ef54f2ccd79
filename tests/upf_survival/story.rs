//! Shared steps of the stories: sessions, traffic during an event, comparison of sums.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fastlane_tests::upf::messages::{RuleVersion, SessionRequest};
use fastlane_tests::upf::{Arrival, Session, Smf, Traffic, Upf, UpfLab, octets};

/// TEID of version 0 at the gNB. Version `n` has this plus `n`.
pub(crate) const FIRST_GNB_TEID: u32 = 0x1000;
/// Packets per second and direction.
pub(crate) const RATE: u32 = 1500;
/// Volume threshold of a URR in octets, reached several times in each part of a story.
pub(crate) const THRESHOLD: u64 = 4000;

/// Returns true if the long form of the tests was requested.
pub(crate) fn is_soak() -> bool {
    std::env::var_os("FASTLANE_SOAK").is_some()
}

/// Returns version `number` of the rules. Each of its values depends on the number.
pub(crate) fn version(number: u32) -> RuleVersion {
    let low = (number % 60) as u8;
    RuleVersion {
        peer: if number.is_multiple_of(2) { [10, 30, 0, 2] } else { [10, 30, 0, 3] }.into(),
        teid: FIRST_GNB_TEID + number,
        tos: (low + 1) << 2,
        qfi: low + 1,
        is_open: !number.is_multiple_of(3),
        is_buffering: false,
    }
}

/// Returns the request for session `number`, with the rules of the same number and an open gate.
pub(crate) fn session_request(number: u32) -> SessionRequest {
    let version = RuleVersion { is_open: true, ..version(number) };
    let is_complex = number.is_multiple_of(2);
    SessionRequest { is_complex, version, ..SessionRequest::open(number, THRESHOLD) }
}

/// Establishes sessions 1 to `count`.
pub(crate) fn establish_sessions(smf: &mut Smf, count: u32) -> Vec<Session> {
    (1..=count).map(|number| smf.establish(&session_request(number))).collect()
}

/// Sends `each` packets in each direction over all sessions and calls `meanwhile` during that. The
/// SMF responds to the UPF meanwhile. Returns the result of the call and the packets received.
pub(crate) fn with_traffic<T>(
    smf: &mut Smf,
    traffic: &mut Traffic,
    sessions: &[Session],
    each: u64,
    meanwhile: impl FnOnce(&mut Smf) -> T,
) -> (T, [Vec<Arrival>; 2]) {
    let over = AtomicBool::new(false);
    let done = thread::scope(|scope| {
        let pace = scope.spawn(|| {
            traffic.send_paced(sessions, each, RATE, || true);
            over.store(true, Ordering::SeqCst);
        });
        for _ in 0..50 {
            smf.poll();
        }
        let done = meanwhile(smf);
        while !over.load(Ordering::SeqCst) {
            smf.poll();
        }
        pace.join().expect("the thread does not panic");
        done
    });
    // Reports about the last packets may be in flight, and a killed process must be back.
    smf.heartbeat();
    (done, traffic.collect())
}

/// Returns the number of packets lost in both directions.
pub(crate) fn lost(offered: [u64; 2], arrivals: &[Vec<Arrival>; 2]) -> u64 {
    offered.iter().sum::<u64>() - arrivals.iter().map(|it| it.len() as u64).sum::<u64>()
}

/// Returns the number of packets dropped since `before`.
pub(crate) fn new_drops(lab: &UpfLab, upf: &Upf, before: &BTreeMap<String, u64>) -> u64 {
    let all = lab.dropped(upf).into_iter();
    let new_drops = all.map(|(name, count)| (before.get(&name).copied().unwrap_or(0), count));
    new_drops.map(|(before, count)| count - before).sum()
}

/// Asserts that the usage reports of each session sum up to the octets of its packets.
#[track_caller]
pub(crate) fn assert_usage_exact(smf: &Smf, sessions: &[Session], arrivals: &[Vec<Arrival>; 2]) {
    for session in sessions {
        let expected = [0, 1].map(|direction| octets(&arrivals[direction], session));
        assert_eq!(smf.usage(session), expected, "session {}: uplink, downlink", session.cp_seid);
    }
}
