//! Under a flood every frame is accounted for: forwarded, answered, dropped with a drop reason, or
//! refused because a ring is full.

use std::time::Duration;

use fastlane_bench::device::veth_pair::{Veth, in_namespace};
use fastlane_bench::loops::user_plane::{RouteMirror, Sessions, Shape};
use fastlane_bench::scenarios::upf_flood::flood::{
    Flooded, Junk, Load, Passed, answers, check_junk,
};
use fastlane_testing::skip;

const TURN: Duration = Duration::from_millis(50);
/// Maximum number of turns until the lane has had the CPU in one. Linux takes it from a real-time
/// thread for 50 ms in each second, and other programs may have it.
const ATTEMPTS: usize = 50;

fn with_sessions(
    body: impl FnOnce(&RouteMirror, &mut Sessions) -> fastlane_bench::Result<()> + Send,
) {
    let result = in_namespace(|| {
        let veth = Veth::new(0, 60, false)?;
        let ways = RouteMirror::new(&veth)?;
        let mut sessions = Sessions::new(100, Shape::Simple)?;
        sessions.answer(answers());
        body(&ways, &mut sessions)
    });
    match result {
        Ok(()) => {}
        Err(error) if error.to_string().starts_with("no network namespace") => {
            skip("bench-flood", &error.to_string());
        }
        Err(error) => panic!("{error}"),
    }
}

/// Floods a lane until it has had the CPU in a turn.
fn flood(
    lane: &mut Flooded,
    load: Load,
    length: Duration,
    has_run: impl Fn(&Passed) -> bool,
) -> fastlane_bench::Result<Passed> {
    let mut passed = lane.flood(load, length)?;
    for _ in 1..ATTEMPTS {
        if has_run(&passed) {
            break;
        }
        passed = lane.flood(load, length)?;
    }
    Ok(passed)
}

#[test]
fn what_is_sent_comes_or_is_counted() {
    with_sessions(|ways, sessions| {
        // A turn fails if its accounts do not add up or if responses exceed the configured rates.
        let mut user_plane = Flooded::user_plane(ways, sessions, 10)?;
        let (mut rate, mut full) = user_plane.capacity(TURN)?;
        for _ in 1..ATTEMPTS {
            if rate > 0.0 {
                break;
            }
            (rate, full) = user_plane.capacity(TURN)?;
        }
        assert!(rate > 0.0 && full.account.good > 0, "{full:?}");
        assert_eq!(full.account.dropped, 0, "{:?}", full.account);

        let slow = Load { good: 2_000.0, junk: 40_000.0 };
        let passed = flood(&mut user_plane, slow, 4 * TURN, |passed| passed.account.good > 0)?;
        let passed = passed.account;
        assert!(passed.good > 0 && passed.junk > 10 * passed.good, "{passed:?}");
        assert!(passed.echoes > 0 && passed.errors > 0, "{passed:?}");
        assert_eq!(passed.dropped, 0, "{passed:?}");

        // This load exceeds the rate of any lane: UE packets are lost before the lane, none in it.
        let all = Load { good: 30e6, junk: 60e6 };
        let passed = flood(&mut user_plane, all, TURN, |passed| !passed.times.is_empty())?;
        let (account, came) = (passed.account, passed.times.len() as u64);
        assert!(account.refused > 0 && account.junk_refused > 0, "{account:?}");
        assert_eq!(account.dropped, 0, "{account:?}");
        assert!(came > 0 && came <= account.good - account.lost(), "{came} of {account:?}");
        user_plane.end()?;

        let mut macswap = Flooded::macswap(sessions, 14)?;
        let account = flood(&mut macswap, slow, TURN, |passed| passed.account.good > 0)?.account;
        assert!(account.good > 0 && account.echoes + account.errors == 0, "{account:?}");
        macswap.end()
    });
}

#[test]
fn junk_becomes_what_it_is_measured_as() {
    with_sessions(|ways, sessions| {
        for junk in Junk::ALL {
            // Fails if the packets have another outcome or if responses exceed the rates.
            check_junk(ways, sessions, junk, 20_000)?;
        }
        Ok(())
    });
}
