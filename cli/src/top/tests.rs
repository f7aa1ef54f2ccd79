use std::time::Duration;

use fastlane::counters::{Counters, DownReason, LaneCounter, PortCounter};
use fastlane::describe::{Application, LaneFacts, PortFacts};
use fastlane::session::Session;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;

fn application() -> Application {
    let port = |name: &str, driver: &str, mode: &str| PortFacts {
        name: name.to_owned(),
        driver: driver.to_owned(),
        mode: mode.to_owned(),
        interface: None,
        queues: 1,
        kernel: None,
        switches: 0,
    };
    Application {
        name: "macswap".to_owned(),
        version: "0.1.0".to_owned(),
        pid: 4711,
        lanes: vec![LaneFacts { cpu: Some(2), idle: "adaptive".to_owned() }],
        ports: vec![port("tap", "tap", ""), port("wire", "af-xdp", "native copy")],
    }
}

/// Returns two samples, two seconds apart, with traffic in between.
fn samples() -> (Sample, Sample) {
    let (application, counters) = (application(), Counters::create(1, 2).unwrap());
    counters.lane(0).publish(LaneCounter::Turn, 1_000);
    counters.lane(0).publish(LaneCounter::PoolFrames, 4096);
    counters.lane(0).publish(LaneCounter::Cpu, 2);
    counters.port(0, 1).add(PortCounter::ReceivedPackets, 5_000);
    counters.port(0, 1).add(PortCounter::DropNoFrame, 3);
    counters.port(0, 1).add(PortCounter::SentPackets, u64::MAX); // wraps around
    let before = Sample::read(&application, &counters, |_| Some(10.0));

    counters.lane(0).publish(LaneCounter::Turn, 3_000);
    counters.lane(0).add(LaneCounter::BusyTurns, 500);
    counters.lane(0).add(LaneCounter::Sleeps, 3);
    counters.lane(0).publish(LaneCounter::PoolFree, 4000);
    counters.lane(0).publish(LaneCounter::MinorPageFaults, 12);
    counters.lane(0).publish(LaneCounter::MajorPageFaults, 3);
    let port = counters.port(0, 1);
    port.add(PortCounter::ReceivedPackets, 2_469_000);
    port.add(PortCounter::ReceivedBytes, 250_000_000);
    port.add(PortCounter::SentPackets, 1_851_750);
    port.add(PortCounter::SentBytes, 125_000_000);
    port.add(PortCounter::VerdictReflect, 1_851_750);
    port.add(PortCounter::VerdictDrop, 617_250);
    port.add(PortCounter::DropTransmitFull, 84);
    port.add(PortCounter::PassedPackets, 1_000_000);
    counters.lane(0).publish(LaneCounter::BusiestShard, 62);
    counters.shared_port(1).store(PortCounter::SteerClaimed, 2_469_000);
    let mut after = Sample::read(&application, &counters, |_| Some(11.5));
    after.taken = before.taken + Duration::from_secs(2);
    (before, after)
}

fn rates() -> Rates {
    let (before, after) = samples();
    Rates::between(&before, &after)
}

#[test]
fn rates_are_differences_over_time() {
    let rates = rates();
    assert_eq!(
        rates.lanes,
        [rates::LaneRates {
            lane: 0,
            cpu: 2,
            cpu_share: Some(0.75),
            turns: 1000.0,
            busy_share: 0.25,
            sleeps: 1.5,
            pool_free: 4000,
            pool_frames: 4096,
            busiest: 0.062,
            page_faults: [12, 3],
            ended: false,
        }]
    );
    let wire = &rates.ports[1];
    assert_eq!((wire.lane, wire.port), (Some(0), 1));
    assert_eq!((wire.received, wire.received_bits), (1_234_500.0, 1e9));
    assert_eq!((wire.sent, wire.sent_bits), (925_875.0, 0.5e9));
    assert_eq!(wire.verdicts, [("reflect", 0.75), ("drop", 0.25)]);
    assert_eq!(wire.drops, [("transmit_full", 42.0, 84), ("no_frame", 0.0, 3)]);
    assert_eq!(rates.ports[3].steered, [("claimed", 1_234_500.0)]);
    assert_eq!(rates.ports[0].verdicts, []);
}

#[test]
fn looks_at_the_same_instant_make_no_infinite_rates() {
    let (_, after) = samples();
    let rates = Rates::between(&after, &after);
    assert_eq!(rates.ports[1].received, 0.0);
    assert_eq!(rates.lanes[0].busy_share, 0.0);
}

const TABLES: [&[&str]; 5] = [
    &[
        "lane  cpu  cpu used  turns/s  busy  sleeps/s  pool free  faults minor/major",
        "   0    2      75 %   1.00 k  25 %      1.50  4000/4096                12/3",
    ],
    &[
        "lane  port  driver  mode           rx/s  rx Gb/s   tx/s  tx Gb/s  verdicts",
        "0     tap   tap                       0    0.000      0    0.000",
        "0     wire  af-xdp  native copy  1.23 M    1.000  926 k    0.500  reflect 75 %, drop 25 %",
    ],
    &[
        "lane    rx/s  passed on/s  shown/s  busiest of 256 shards",
        "   0  1.23 M        500 k   1.23 M                  6.2 %",
    ],
    &[
        "lane  port  lost because of  lost/s  lost since start",
        "0     wire  transmit_full        42                84",
        "0     wire  no_frame              0                 3",
    ],
    &[
        "lane  port  steering  frames/s", //
        "      wire  claimed     1.23 M",
    ],
];

#[test]
fn lines_are_aligned() {
    let text = plain(&table::page(&application(), &rates()));
    let expected = [&["macswap 0.1.0, process 4711, 2.0 s"], &*TABLES.concat()].concat();
    assert_eq!(text, format!("{}\n\n", expected.join("\n")));
}

#[test]
fn a_port_that_is_down_is_shown_with_the_reason() {
    let (application, counters) = (application(), Counters::create(1, 2).unwrap());
    counters.set_down_reason(1, Some(DownReason::Removed));
    let sample = Sample::read(&application, &counters, |_| None);
    let text = plain(&table::page(&application, &Rates::between(&sample, &sample)));
    assert!(text.contains("port  down because of\nwire  removed\n"), "{text}");
}

#[test]
fn the_screen_shows_the_same() {
    let mut terminal = Terminal::new(TestBackend::new(100, 20)).unwrap();
    let rates = rates();
    terminal.draw(|frame| live::draw(frame, &table::page(&application(), &rates))).unwrap();
    let text = terminal.backend().to_string();
    // The backend's lines are in quotation marks and padded.
    let shown: Vec<&str> = text.lines().map(|line| line.trim_matches('"').trim_end()).collect();
    let mut expected = vec!["macswap 0.1.0, process 4711, 2.0 s"];
    for table in TABLES {
        expected.push("");
        expected.extend(table);
    }
    expected.extend(["", "q: quit"]);
    assert_eq!(shown, expected);
}

#[test]
fn nothing_lost_is_not_mentioned() {
    let (application, counters) = (application(), Counters::create(1, 2).unwrap());
    let sample = Sample::read(&application, &counters, |_| None);
    let text = plain(&table::page(&application, &Rates::between(&sample, &sample)));
    assert!(!text.contains("lost") && !text.contains("steering"), "{text}");
}

#[test]
fn a_small_screen_is_no_reason_to_panic() {
    for (width, height) in [(1, 1), (10, 3), (40, 5)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let page = table::page(&application(), &rates());
        terminal.draw(|frame| live::draw(frame, &page)).unwrap();
    }
}

#[test]
fn it_attaches_and_notices_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("macswap.sock");
    let counters = Counters::create(1, 2).unwrap();
    let session = Session::open(&path, &application(), &counters).unwrap();
    counters.port(0, 1).add(PortCounter::ReceivedPackets, 77);
    let client = session::connect(&path).unwrap();
    let interval = Duration::from_millis(100);

    let mut json = vec![];
    assert!(totals(&client, interval, true, &mut json).is_ok());
    let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(value["application"]["name"], "macswap");
    assert_eq!(value["ports"][1]["port"], "wire");
    assert_eq!(value["ports"][1]["lane"], 0);
    assert_eq!(value["ports"][1]["counters"]["received_packets"], 77);
    assert_eq!(value["ports"][3]["lane"], serde_json::Value::Null);
    assert_eq!(value["lanes"][0]["counters"]["turn"], 0);

    let mut text = vec![];
    assert!(tables(&client, interval, true, &mut text).is_ok());
    assert!(String::from_utf8(text).unwrap().contains("af-xdp"));

    drop(session);
    let start = Instant::now();
    assert!(!pause(&client, Duration::from_secs(600)), "the end ends the wait");
    assert!(start.elapsed() < Duration::from_secs(60));
    assert!(tables(&client, interval, false, &mut vec![]).is_ok(), "and the tables");
}

#[test]
fn names_and_paths_are_told_apart() {
    assert_eq!(path_of("macswap"), Path::new("/run/fastlane/macswap.sock"));
    assert_eq!(path_of("./macswap.sock"), Path::new("./macswap.sock"));
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(running(&directory.path().join("x.sock")), None);
    for name in ["b.sock", "a.sock", "other"] {
        std::fs::write(directory.path().join(name), "").unwrap();
    }
    let hint = running(&directory.path().join("x.sock"));
    assert_eq!(hint.as_deref(), Some("; sessions there: a, b"));
}
