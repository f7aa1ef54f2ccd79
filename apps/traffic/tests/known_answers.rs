//! The generator and sink on streams with known impairments.

mod support;

use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use fastlane_core::{Idle, PortId, Queue};
use fastlane_local::memory::Memory;
use support::{Impairments, Loop, cable, lane, port, run, run_over};
use traffic::report::Report;
use traffic::run::Run;
use traffic::settings::Settings;

const COUNT: u64 = 10_010;

fn with(more: &str) -> String {
    format!(r#"{{"port": "wire", "count-packets": {COUNT}, "linger-ms": 5{more}}}"#)
}

/// Returns the received, lost, duplicated, reordered and corrupted packets.
fn answers(report: &Report) -> [u64; 5] {
    assert_eq!(report.sent.unwrap().packets, COUNT);
    let received = report.received.as_ref().unwrap();
    assert_eq!((received.ancient_packets, received.foreign_packets), (0, 0));
    assert_eq!((received.other_run_packets, received.clock_skew_packets), (0, 0));
    assert_eq!(received.latency.unwrap().samples, received.direction.packets);
    [
        received.direction.packets,
        received.lost_packets,
        received.duplicated_packets,
        received.reordered_packets,
        received.corrupted_packets,
    ]
}

#[test]
fn over_the_memory_port_nothing_is_lost() {
    for more in [
        "",
        r#", "flows": {"count": 100, "destination-addresses": 10}"#,
        r#", "frame-bytes": "imix", "flows": {"vlan": 9, "count": 5}"#,
        r#", "frame-bytes": [80, 1514], "flows": {"source-address": "2001:2::1",
            "destination-address": "2001:2:0:8000::1"}"#,
    ] {
        let report = run(&with(more), vec![Box::new(Memory::new(PortId(0), 256))]);
        assert_eq!(answers(&report), [COUNT, 0, 0, 0, 0], "{more}");
        let received = report.received.unwrap();
        assert_eq!(received.direction.bytes, report.sent.unwrap().bytes);
        assert_eq!(received.lost_ppm, 0.0);
    }
}

#[test]
fn imix_has_the_bytes_that_it_should() {
    let settings = r#"{"port": "wire", "count-packets": 1200, "linger-ms": 5, "frame-bytes": "imix",
        "flows": {"count": 4}}"#;
    let report = run_over(Impairments::default(), settings);
    let twelve = 7 * 60 + 4 * 590 + 1514;
    assert_eq!(report.sent.unwrap().bytes, 100 * twelve);
    assert_eq!(report.received.unwrap().direction.bytes, 100 * twelve);
}

#[test]
fn harm_is_counted_to_the_packet() {
    let none = Impairments::default();
    for (impairments, expected) in [
        (Impairments { drop: 10, ..none }, [9009, 1001, 0, 0, 0]),
        (Impairments { duplicate: 7, ..none }, [10_010, 0, 1430, 0, 0]),
        (Impairments { swap: true, ..none }, [10_010, 0, 0, 5005, 0]),
        (Impairments { corrupt: (11, 59), ..none }, [9100, 0, 0, 0, 910]),
        (Impairments { corrupt: (11, 30), ..none }, [9100, 0, 0, 0, 910]),
        // Of 1001 lost packets, 91 were to be corrupted and 143 to be duplicated.
        (Impairments { drop: 10, corrupt: (11, 50), ..none }, [8190, 1001, 0, 0, 819]),
        (Impairments { drop: 10, duplicate: 7, ..none }, [9009, 1001, 1287, 0, 0]),
    ] {
        assert_eq!(answers(&run_over(impairments, &with(""))), expected, "{impairments:?}");
    }
}

#[test]
fn harm_is_counted_in_each_of_many_flows() {
    // The two packets of each pair belong to different flows, so no flow is reordered.
    let flows = r#", "flows": {"count": 10}"#;
    let swap = Impairments { swap: true, ..Impairments::default() };
    assert_eq!(answers(&run_over(swap, &with(flows))), [COUNT, 0, 0, 0, 0]);
    // Every tenth packet belongs to the last flow, so that flow loses all packets.
    let drop = Impairments { drop: 10, ..Impairments::default() };
    let report = run_over(drop, &with(flows));
    assert_eq!(answers(&report), [9009, 1001, 0, 0, 0]);
}

#[test]
fn frames_that_are_not_udp_any_more_are_foreign_and_lost() {
    let impairments = Impairments { corrupt: (10, 12), ..Impairments::default() };
    let report = run_over(impairments, &with(""));
    let received = report.received.unwrap();
    assert_eq!(received.direction.packets, 9009);
    assert_eq!((received.lost_packets, received.foreign_packets), (1001, 1001));
}

#[test]
fn one_way_is_counted_at_the_other_port() {
    let settings = with(r#", "mode": "one-way", "sink-port": "other""#);
    let report = run(&settings, cable([0, 1]).into());
    assert_eq!(answers(&report), [COUNT, 0, 0, 0, 0]);
}

#[test]
fn a_rate_is_kept() {
    let settings = with(r#", "rate-packets-per-second": 40000"#);
    let start = Instant::now();
    let report = run_over(Impairments::default(), &settings);
    assert_eq!(answers(&report), [COUNT, 0, 0, 0, 0]);
    // 10,010 packets take 250.2 ms. A stall only makes it longer.
    assert!(start.elapsed() >= Duration::from_millis(250));
}

#[test]
fn a_duration_ends_a_run() {
    let settings = r#"{"port": "wire", "duration-ms": 200, "linger-ms": 5,
        "rate-packets-per-second": 100, "warm-up-percent": 50}"#;
    let start = Instant::now();
    let report = run_over(Impairments::default(), settings);
    assert!(start.elapsed() >= Duration::from_millis(205));
    let received = report.received.unwrap();
    let sent = report.sent.unwrap().packets;
    assert!((1..=20).contains(&sent) && received.direction.packets == sent, "{sent}");
    // Packets sent before 100 ms do not count. At least the first is one; a stall may skip others.
    let samples = received.latency.map_or(0, |latency| latency.samples);
    assert!(samples < sent, "{samples} of {sent}");
}

#[test]
fn the_warm_up_is_a_share_of_the_count() {
    let report = run_over(Impairments::default(), &with(r#", "warm-up-percent": 30"#));
    let received = report.received.unwrap();
    assert_eq!(received.direction.packets, COUNT);
    assert_eq!(received.latency.unwrap().samples, 7007);
}

#[test]
fn ping_pong_has_one_packet_on_its_way() {
    let report = run_over(Impairments::default(), &with(r#", "outstanding-packets": 1"#));
    assert_eq!(answers(&report), [COUNT, 0, 0, 0, 0]);
    assert_eq!(report.given_up_packets, 0);
}

#[test]
fn a_closed_loop_survives_losses() {
    let settings = r#"{"port": "wire", "count-packets": 100, "outstanding-packets": 1,
        "answer-timeout-ms": 2, "linger-ms": 5}"#;
    let report = run_over(Impairments { drop: 10, ..Impairments::default() }, settings);
    let received = report.received.unwrap();
    assert_eq!((received.direction.packets, received.lost_packets), (90, 10));
    // The last packet is lost too, but no sender waits for it.
    assert!(report.given_up_packets >= 9);
}

#[test]
fn frames_too_long_for_the_pool_are_not_sent_and_named() {
    let settings = r#"{"port": "wire", "count-packets": 100, "frame-bytes": [60, 4000],
        "linger-ms": 1}"#;
    let report = run_over(Impairments::default(), settings);
    assert_eq!((report.sent.unwrap().packets, report.too_long_packets), (50, 50));
    assert_eq!(report.received.unwrap().lost_packets, 0);
}

#[test]
fn what_another_process_sent_is_received_by_its_run() {
    let [there, back] = cable([0, 0]);
    let send =
        r#"{"port": "wire", "mode": "send", "run": 9, "count-packets": 200, "linger-ms": 0}"#;
    let receive = r#"{"port": "wire", "mode": "receive", "run": 9, "count-packets": 200,
        "duration-ms": 10000, "linger-ms": 5}"#;
    let sender = run(send, vec![there]);
    assert_eq!(sender.sent.unwrap().packets, 200);
    let receiver = run(receive, vec![back]);
    let received = receiver.received.unwrap();
    assert_eq!((received.direction.packets, received.lost_packets), (200, 0));
}

/// Checks that the shares of lanes add up. Each lane loops back its own frames.
#[test]
fn several_lanes_share_a_run() {
    for more in ["", r#", "outstanding-packets": 7"#, r#", "rate-packets-per-second": 1000000"#] {
        let settings = with(&format!(r#", "flows": {{"count": 8}}{more}"#));
        let settings: Settings = serde_json::from_str(&settings).unwrap();
        let mut run = Run::default();
        let apps: Vec<_> =
            (0..3).map(|n| run.lane(settings.clone(), n, 3, port).unwrap()).collect();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for app in apps {
                let stop = &stop;
                scope.spawn(move || {
                    let queue: Box<dyn Queue> =
                        Box::new(Loop::new(PortId(0), Impairments::default()));
                    assert_eq!(lane(app, vec![queue], Idle::Adaptive).run(stop), 0);
                });
            }
        });
        let (report, _) = run.report().unwrap();
        assert!(report.complete);
        assert_eq!(answers(&report), [COUNT, 0, 0, 0, 0], "{more}");
        assert_eq!((report.lanes, report.received.unwrap().split_flows), (3, 0));
    }
}

#[test]
fn a_port_that_there_is_not_is_refused() {
    let settings = |text: &str| serde_json::from_str::<Settings>(text).unwrap();
    let refusal = |text| Run::default().lane(settings(text), 0, 1, port).unwrap_err().to_string();
    assert_eq!(
        refusal(r#"{"port": "wires"}"#),
        "app.port: there is no port `wires`; name one of `ports`"
    );
    assert_eq!(
        refusal(r#"{"port": "wire", "mode": "one-way", "sink-port": "x"}"#),
        "app.sink-port: there is no port `x`; name one of `ports`"
    );
}
