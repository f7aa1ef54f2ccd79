//! Tests with many routes and with lost events.

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fastlane_mirror::{FallbackReason, MirrorSettings, RouteLookup};

use crate::oracle::is_same;
use crate::rig::{self, ROUTERS, Rig};

const ROUTES: u32 = 10_000;

fn destination(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x1400_0000 + (number << 8))
}

/// Starts `ip -batch` with one command for each of `count` routes.
fn batch(verb: &str, ways: &str, count: u32) -> std::process::Child {
    let mut lines = String::new();
    for number in 0..count {
        writeln!(lines, "route {verb} {}/24 {ways}", destination(number)).unwrap();
    }
    script(&lines)
}

/// Starts `ip -batch`; failing lines are ignored.
pub(crate) fn script(lines: &str) -> std::process::Child {
    let mut child = Command::new("ip")
        .args(["-force", "-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut input, lines) = (child.stdin.take().unwrap(), lines.to_owned());
    std::thread::spawn(move || std::io::Write::write_all(&mut input, lines.as_bytes()).unwrap());
    child
}

/// Measures the time from when Linux has all routes until lanes see them.
fn follow(
    rig: &mut Rig,
    mut child: std::process::Child,
    is_done: impl Fn(&Rig) -> bool,
) -> Duration {
    let mut since = None;
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        rig.follower.step().unwrap();
        if since.is_none() && child.try_wait().unwrap().is_some_and(|status| status.success()) {
            since = Some(Instant::now());
        }
        if let Some(since) = since
            && is_done(rig)
        {
            return since.elapsed();
        }
        assert!(Instant::now() < end, "{:?}", rig.follower.statistics());
    }
}

fn last(rig: &Rig) -> RouteLookup {
    rig.mirror.route4(&rig.guard, destination(ROUTES - 1), 0)
}

fn all_go_to(rig: &Rig, router: [u8; 6]) {
    for number in 0..ROUTES {
        match rig.mirror.route4(&rig.guard, destination(number), number) {
            RouteLookup::Forward(next) if next.destination == router => {}
            other => panic!("{}: {other:?}", destination(number)),
        }
    }
}

/// Adds, changes and removes ten thousand routes.
#[test]
fn ten_thousand_routes_are_followed() {
    if !rig::namespace("ten_thousand_routes_are_followed") {
        return;
    }
    for count_routes in [false, true] {
        let groups = if count_routes { 20_000 } else { 100 };
        // Room for all events: the machine may let `ip` run for as long as it has something to do.
        let settings = MirrorSettings { receive_buffer: 64 << 20, ..rig::settings() };
        let mut rig = Rig::open(MirrorSettings { count_routes, groups, ..settings });
        for (verb, ways, router) in [
            ("add", "via 10.0.1.2", Some(ROUTERS[0])),
            ("replace", "via 10.0.2.2", Some(ROUTERS[2])),
            ("del", "", None),
        ] {
            let start = Instant::now();
            let child = batch(verb, ways, ROUTES);
            let took = follow(&mut rig, child, |rig| match (last(rig), router) {
                (RouteLookup::Forward(next), Some(router)) => next.destination == router,
                (answer, None) => answer == RouteLookup::Fallback(FallbackReason::NoRoute),
                _ => false,
            });
            let linux = start.elapsed() - took;
            println!("{verb} {ROUTES} (counted: {count_routes}): Linux {linux:?}, then {took:?}");
            if let Some(router) = router {
                all_go_to(&rig, router);
                is_same(&rig, &[254, 255]);
            }
        }
        let statistics = rig.follower.statistics();
        println!("{statistics:?}");
        assert_eq!((statistics.resyncs, statistics.overruns), (1, 0), "{statistics:?}");
        assert!(statistics.occupancy.routes < 100, "{statistics:?}");
    }
}

/// Measures the time to apply ten thousand events that are pending.
#[test]
fn ten_thousand_changes_that_waited_are_taken_in() {
    if !rig::namespace("ten_thousand_changes_that_waited_are_taken_in") {
        return;
    }
    let mut rig = Rig::open(MirrorSettings { receive_buffer: 64 << 20, ..rig::settings() });
    for (verb, ways) in [("add", "via 10.0.1.2"), ("replace", "via 10.0.2.2"), ("del", "")] {
        assert!(batch(verb, ways, ROUTES).wait().unwrap().success());
        let start = Instant::now();
        rig.settle();
        println!("{verb} {ROUTES} that waited: {:?}", start.elapsed());
        if verb == "replace" {
            all_go_to(&rig, ROUTERS[2]);
        }
    }
    assert_eq!(rig.asks("20.0.0.1"), FallbackReason::NoRoute);
    assert_eq!(rig.follower.statistics().overruns, 0);
}

/// Uses a receive buffer of 4 KiB, so that most events are lost.
#[test]
fn after_an_overflow_the_tables_are_those_of_linux() {
    if !rig::namespace("after_an_overflow_the_tables_are_those_of_linux") {
        return;
    }
    let soak = std::env::var_os("FASTLANE_SOAK").is_some();
    let settings = || MirrorSettings { receive_buffer: 4096, ..rig::settings() };
    let mut rig = Rig::open(settings());
    for _ in 0..if soak { 20 } else { 2 } {
        for (verb, ways, count) in [
            ("replace", "via 10.0.1.2", ROUTES / 2),
            ("replace", "via 10.0.2.2", ROUTES / 3),
            ("del", "", ROUTES / 4),
        ] {
            let mut child = batch(verb, ways, count);
            while child.try_wait().unwrap().is_none() {
                rig.follower.step().unwrap();
                std::thread::sleep(Duration::from_millis(3));
            }
            rig.settle();
            is_same(&rig, &[254, 255]);
            answers_are_those_of(&rig, &Rig::open(settings()));
        }
    }
    let statistics = rig.follower.statistics();
    println!("{statistics:?}");
    assert!(statistics.overruns > 0 && statistics.resyncs > 1, "{statistics:?}");
}

/// Checks that two mirrors have equal models and tables.
#[track_caller]
fn answers_are_those_of(rig: &Rig, fresh: &Rig) {
    let changes = fresh.follower.state().differences(rig.follower.state());
    assert!(changes.is_empty(), "{changes:?}");
    let ways = |rig: &Rig, number| match rig.mirror.route4(&rig.guard, destination(number), 0) {
        RouteLookup::Forward(next) => Ok((next.port, next.destination, next.mtu)),
        RouteLookup::Fallback(reason) => Err(reason),
    };
    for number in 0..ROUTES {
        assert_eq!(ways(rig, number), ways(fresh, number), "{}", destination(number));
    }
}
