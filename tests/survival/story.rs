//! What the stories share: sessions, traffic while something happens, the sums.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::messages::{Version, Wish};
use crate::place::{Place, Upf};
use crate::smf::{Session, Smf};
use crate::traffic::{Arrival, Traffic, octets};

/// The tunnel of version 0 at a base station; the others follow.
pub(crate) const TUNNELS: u32 = 0x1000;
/// Packets in a second and direction.
pub(crate) const RATE: u32 = 1500;
/// Octets after which a URR reports: several times in each part of a story.
pub(crate) const THRESHOLD: u64 = 4000;

pub(crate) fn is_soak() -> bool {
    std::env::var_os("FASTLANE_SOAK").is_some()
}

/// A version of rules: every part of it says which one it is.
pub(crate) fn version(number: u32) -> Version {
    let low = (number % 60) as u8;
    Version {
        peer: if number.is_multiple_of(2) { [10, 30, 0, 2] } else { [10, 30, 0, 3] }.into(),
        teid: TUNNELS + number,
        marking: (low + 1) << 2,
        qfi: low + 1,
        is_open: !number.is_multiple_of(3),
        is_held: false,
    }
}

/// Session `number`: its tunnel at the base station is that of the version of the same number.
pub(crate) fn wish(number: u32) -> Wish {
    let version = Version { is_open: true, ..version(number) };
    let is_complex = number.is_multiple_of(2);
    Wish { cp_seid: number.into(), version, threshold: THRESHOLD, is_complex }
}

pub(crate) fn sessions(smf: &mut Smf, count: u32) -> Vec<Session> {
    (1..=count).map(|number| smf.establish(&wish(number))).collect()
}

/// Traffic of all sessions while the SMF answers what it is asked, and `meanwhile` in the midst of
/// it. Returns that, and what came.
pub(crate) fn under_traffic<T>(
    smf: &mut Smf,
    traffic: &mut Traffic,
    sessions: &[Session],
    each: u64,
    meanwhile: impl FnOnce(&mut Smf) -> T,
) -> (T, [Vec<Arrival>; 2]) {
    let over = AtomicBool::new(false);
    let done = thread::scope(|scope| {
        let pace = scope.spawn(|| {
            traffic.pace(sessions, each, RATE, || true);
            over.store(true, Ordering::SeqCst);
        });
        for _ in 0..50 {
            smf.turn();
        }
        let done = meanwhile(smf);
        while !over.load(Ordering::SeqCst) {
            smf.turn();
        }
        pace.join().expect("it does not panic");
        done
    });
    // Reports of the last packets may be under way; and whoever was killed is back.
    smf.heartbeat();
    (done, traffic.take())
}

/// Both directions together.
pub(crate) fn lost(offered: [u64; 2], arrivals: &[Vec<Arrival>; 2]) -> u64 {
    offered.iter().sum::<u64>() - arrivals.iter().map(|it| it.len() as u64).sum::<u64>()
}

/// What the drop counters have gained.
pub(crate) fn gained(place: &Place, upf: &Upf, before: &BTreeMap<String, u64>) -> u64 {
    let all = place.dropped(upf).into_iter();
    let gained = all.map(|(name, count)| (before.get(&name).copied().unwrap_or(0), count));
    gained.map(|(before, count)| count - before).sum()
}

/// The sums of a session's reports are the octets of its packets.
#[track_caller]
pub(crate) fn exact(smf: &Smf, sessions: &[Session], arrivals: &[Vec<Arrival>; 2]) {
    for session in sessions {
        let expected = [0, 1].map(|way| octets(&arrivals[way], session));
        assert_eq!(smf.usage(session), expected, "session {}: up, down", session.cp_seid);
    }
}
