use super::*;
use crate::plan::Plan;
use crate::settings::Settings;

const RUN: u16 = 77;

fn plan(flows: &str, bytes: u32) -> Plan {
    let text = format!(r#"{{"port": "p", "frame-bytes": {bytes}, "flows": {flows}}}"#);
    let settings: Settings = serde_json::from_str(&text).unwrap();
    Plan::new(&settings).unwrap()
}

fn frame(plan: &Plan, mark: Mark) -> Vec<u8> {
    let template = plan.template(usize::from(mark.flow) % plan.flows(), 0);
    let mut frame = vec![0; plan.length(template)];
    plan.write(template, mark, &mut frame);
    frame
}

fn mark(sequence: u32, sent: u64) -> Mark {
    Mark { run: RUN, flow: 0, sequence, sent, measured: true }
}

fn sink(verify: Verify) -> Sink {
    Sink::new(RUN, 1, 64, verify)
}

#[test]
fn each_arrival_is_counted_once_and_by_its_name() {
    let plan = plan("{}", 60);
    let mut sink = sink(Verify::Frame);
    for number in [0, 1, 3, 2, 2, 200, 5] {
        assert_eq!(sink.judge(&frame(&plan, mark(number, 1)), false, 2), Verdict::Drop);
    }
    let other_run = Mark { run: RUN + 1, ..mark(9, 1) };
    let other_flow = Mark { flow: 1, ..mark(9, 1) };
    for mark in [other_run, other_flow] {
        assert_eq!(sink.judge(&frame(&plan, mark), false, 2), Verdict::Drop);
    }
    for foreign in [&[][..], &[0xff; 60], &frame(&plan, mark(9, 1))[..59]] {
        assert_eq!(sink.judge(foreign, false, 2), Verdict::Kernel);
    }
    assert_eq!((sink.received.packets, sink.received.bytes), (5, 300));
    let expected = Counts {
        duplicated: 1,
        reordered: 1,
        corrupted: 0,
        ancient: 1,
        other_runs: 2,
        foreign: 3,
        clock_skew: 0,
    };
    assert_eq!(sink.counts, expected);
    assert_eq!(sink.expected(), [201]);
    assert_eq!(sink.latency.len(), 5);
}

/// Inverts each byte of a frame in turn and checks the classification.
#[test]
fn damage_is_told_from_a_foreign_frame() {
    let ipv6 = r#"{"source-address": "2001:2::1", "destination-address": "2001:2::2"}"#;
    for (flows, not_udp, uncovered) in [
        // EtherType, version and header length, protocol: no UDP datagram any more.
        ("{}", [12, 13, 14, 23], &[][..]),
        // IPv6 has no checksum: traffic class, flow label and hop limit are not covered.
        (ipv6, [12, 13, 14, 20], &[15, 16, 17, 21]),
    ] {
        let bytes = 128;
        let plan = plan(flows, bytes);
        let mut sink = sink(Verify::Frame);
        for index in 0..bytes as usize {
            let mut frame = frame(&plan, mark(index as u32, 1));
            frame[index] ^= 0xff;
            let before = sink.counts;
            sink.judge(&frame, false, 2);
            let seen = sink.counts;
            let (corrupted, foreign) =
                (seen.corrupted - before.corrupted, seen.foreign - before.foreign);
            let expected = if index < 12 || uncovered.contains(&index) {
                (0, 0) // reflectors change the Ethernet addresses
            } else if not_udp.contains(&index) {
                (0, 1)
            } else {
                (1, 0)
            };
            assert_eq!((corrupted, foreign), expected, "{flows} byte {index}");
        }
        assert_eq!(sink.received.packets, 12 + uncovered.len() as u64);
    }
}

#[test]
fn with_verify_mark_only_the_mark_is_looked_at() {
    let plan = plan("{}", 128);
    let mut sink = sink(Verify::Mark);
    let mut filler = frame(&plan, mark(0, 1));
    filler[100] ^= 1;
    let mut damaged = frame(&plan, mark(1, 1));
    damaged[50] ^= 1;
    sink.judge(&filler, false, 2);
    sink.judge(&damaged, false, 2);
    assert_eq!((sink.received.packets, sink.counts.corrupted), (1, 1));
}

#[test]
fn a_partial_checksum_is_not_looked_at() {
    let plan = plan("{}", 60);
    let mut frame = frame(&plan, mark(0, 1));
    frame[40] ^= 0x55; // the UDP checksum
    let mut sink = sink(Verify::Frame);
    sink.judge(&frame, true, 2);
    assert_eq!((sink.received.packets, sink.counts.corrupted), (1, 0));
}

#[test]
fn known_latencies_come_out_of_the_histogram() {
    let plan = plan("{}", 60);
    let mut sink = sink(Verify::Frame);
    // One frame for each latency from 1 us to 1000 us, then frames that do not count.
    for number in 0..1000 {
        let sent = 5_000_000 + u64::from(number) * 7;
        let arrived = sent + u64::from(number + 1) * 1000;
        sink.judge(&frame(&plan, mark(number, sent)), false, arrived);
    }
    let warm_up = Mark { measured: false, ..mark(1000, 1) };
    sink.judge(&frame(&plan, warm_up), false, 50_000_000_000);
    sink.judge(&frame(&plan, mark(1001, 900)), false, 800);
    assert_eq!(sink.received.packets, 1002);
    assert_eq!((sink.latency.len(), sink.counts.clock_skew), (1000, 1));
    for (quantile, exact) in [(0.5, 500_000), (0.9, 900_000), (0.99, 990_000), (1.0, 1_000_000)] {
        let value = sink.latency.value_at_quantile(quantile);
        assert!(value.abs_diff(exact) * 1000 <= exact, "{quantile}: {value}, not {exact}");
    }
    let mean = sink.latency.mean();
    assert!((mean - 500_500.0).abs() < 500.0, "{mean}");
    // Longer than the histogram records, but shorter than the range of the time in a mark.
    sink.judge(&frame(&plan, mark(1002, 1)), false, LONGEST_LATENCY * 9);
    let max = sink.latency.max();
    assert!(max.abs_diff(LONGEST_LATENCY) * 1000 <= LONGEST_LATENCY, "{max}");
}

#[test]
fn recording_never_grows_the_histogram() {
    let mut histogram = new_histogram();
    let length = histogram.distinct_values();
    for value in [0, 1, 999, LONGEST_LATENCY - 1, LONGEST_LATENCY, u64::MAX] {
        histogram.saturating_record(value);
    }
    assert_eq!(histogram.distinct_values(), length);
    assert!(!histogram.is_auto_resize());
}
