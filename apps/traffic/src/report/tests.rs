use super::*;

fn settings(text: &str) -> Settings {
    serde_json::from_str(text).unwrap()
}

fn tally(packets: u64, step: u64) -> Tally {
    let mut tally = Tally::default();
    (0..packets).for_each(|n| tally.add(125, 1000 + n * step));
    tally
}

fn lane(sent: u64, received: u64, counts: Counts, expected: &[u64]) -> LaneResult {
    let mut latency = new_histogram();
    (0..received).for_each(|n| latency.saturating_record(1000 + n % 100));
    LaneResult {
        sent: tally(sent, 1_000_000),
        skipped: 0,
        too_long: 0,
        given_up: 0,
        received: tally(received, 1_000_000),
        counts,
        expected: expected.to_vec(),
        latency,
    }
}

#[test]
fn a_round_trip_adds_up() {
    let counts = Counts { corrupted: 3, duplicated: 2, reordered: 4, ..Counts::default() };
    let lanes = [lane(1001, 900, counts, &[1001, 0]), lane(999, 1000, counts, &[0, 999])];
    let settings = settings(r#"{"port": "p", "flows": {"count": 2}}"#);
    let report = Report::new(&settings, 5, true, &lanes);
    let sent = report.sent.unwrap();
    assert_eq!((sent.packets, sent.bytes), (2000, 250_000));
    assert_eq!(sent.packets_per_second, 1998.0, "1000 and 998 in the second after the first");
    let received = report.received.as_ref().unwrap();
    assert_eq!(received.direction.packets, 1900);
    assert_eq!((received.corrupted_packets, received.duplicated_packets), (6, 4));
    assert_eq!((received.lost_packets, received.lost_ppm), (94, 47_000.0));
    assert_eq!((received.reordered_packets, received.split_flows), (8, 0));
    let latency = received.latency.unwrap();
    assert_eq!((latency.samples, latency.minimum_ns, latency.maximum_ns), (1900, 1000, 1099));
}

#[test]
fn a_receiver_finds_the_gaps() {
    let lanes =
        [lane(0, 90, Counts::default(), &[50, 50]), lane(0, 5, Counts::default(), &[0, 55])];
    let settings = settings(r#"{"port": "p", "mode": "receive", "run": 1, "flows": {"count": 2}}"#);
    let report = Report::new(&settings, 1, true, &lanes);
    assert!(report.sent.is_none());
    let received = report.received.unwrap();
    assert_eq!((received.lost_packets, received.split_flows), (10, 1));
}

#[test]
fn a_sender_reports_no_loss() {
    let lanes = [lane(10, 0, Counts::default(), &[0])];
    let report = Report::new(&settings(r#"{"port": "p", "mode": "send"}"#), 1, true, &lanes);
    assert!(report.received.is_none() && report.sent.unwrap().packets == 10);
}

#[test]
fn the_table_reads_well() {
    let counts = Counts { foreign: 3, ..Counts::default() };
    let settings = settings(r#"{"port": "p", "rate-packets-per-second": 1000}"#);
    let report = Report::new(&settings, 5, true, &[lane(1001, 1000, counts, &[1001])]);
    let expected = "\
traffic: round trip, run 5, flows 1, lanes 1
  sent                  1001            1000 packets/s  0.001 Gb/s
  wanted                                1000 packets/s
  received              1000            1000 packets/s  0.001 Gb/s
  lost                     1  999.001 ppm
  duplicated               0
  reordered                0
  corrupted                0
  foreign                  3  left to Linux
  latency us    min 1.000  p50 1.049  p90 1.089  p99 1.098  p99.9 1.099  max 1.099
  samples               1000  mean 1.050 us
";
    assert_eq!(report.to_string(), expected);
}

#[test]
fn the_json_has_units_in_its_keys() {
    let settings = settings(r#"{"port": "p"}"#);
    let report = Report::new(&settings, 5, true, &[lane(10, 10, Counts::default(), &[10])]);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["mode"], "round-trip");
    assert_eq!(json["received"]["packets"], 10);
    assert_eq!(json["received"]["lost-ppm"], 0.0);
    assert_eq!(json["received"]["latency"]["p99-9-ns"], 1009);
}
