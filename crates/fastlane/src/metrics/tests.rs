use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Instant;

use fastlane_table::counters::{DownReason, LaneCounter, PortCounter};
use fastlane_table::{EntryId, Spec, State};

use super::*;
use crate::describe::{LaneFacts, PortFacts};

fn serve() -> (Metrics, Counters) {
    serve_with(vec![])
}

fn serve_with(more: Vec<Box<dyn prometheus_client::collector::Collector>>) -> (Metrics, Counters) {
    let lane = |cpu| LaneFacts { cpu: Some(cpu), idle: "adaptive".to_owned() };
    let port = |name: &str, interface: Option<&str>| PortFacts {
        name: name.to_owned(),
        driver: "af-xdp".to_owned(),
        mode: "native copy".to_owned(),
        interface: interface.map(str::to_owned),
        queues: 2,
        kernel: None,
        switches: 0,
    };
    let application = Application {
        name: "test".to_owned(),
        version: "1.2.3".to_owned(),
        pid: std::process::id(),
        lanes: vec![lane(2), lane(3)],
        ports: vec![port("a\"b\\", Some("eth0")), port("wire", None)],
    };
    let counters = Counters::create(2, 2).unwrap();
    let address = (Ipv4Addr::LOCALHOST, 0).into();
    (
        Metrics::serve_with(address, Description::new(application), &counters, more).unwrap(),
        counters,
    )
}

fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(address: SocketAddr, target: &str) -> String {
    exchange(address, format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes())
}

/// Returns values by sample name with labels, and checks the form of the page.
fn scrape(address: SocketAddr) -> BTreeMap<String, f64> {
    let answer = get(address, "/metrics");
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", text.len())), "{head}");
    assert!(head.contains("Content-Type: application/openmetrics-text;"), "{head}");
    let mut samples = BTreeMap::new();
    let (mut family, mut helped, mut ended) = (String::new(), String::new(), false);
    for line in text.lines() {
        assert!(!ended, "nothing comes after the end");
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(help.ends_with('.'), "{help}");
            helped = name.to_owned();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            family = kind.split_once(' ').unwrap().0.to_owned();
            assert_eq!(family, helped, "every family has a help text");
        } else if line == "# EOF" {
            ended = true;
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with(&family), "{name} is not of {family}");
            let before = samples.insert(name.to_owned(), value.parse().unwrap());
            assert_eq!(before, None, "{name} comes twice");
        }
    }
    assert!(ended);
    samples
}

#[test]
fn outcomes_of_an_application_are_counted_under_their_names() {
    let memory = Spec::state::<2>("causes", 8, 2).create().unwrap();
    let state = State::<2>::attach(&memory).unwrap();
    for lane in 0..2 {
        let lane = state.lane(lane);
        lane.at(EntryId(3)).add(0, 10);
        lane.at(EntryId(3)).add(1, 600);
    }
    let names = vec![(EntryId(0), "forwarded".to_owned()), (EntryId(3), "linux_x".to_owned())];
    let count = |name: &str, packets, octets| {
        let name = name.to_owned();
        OutcomeCounts { name, packets, octets }
    };
    let source = move || vec![count("linux_x", 1, 100), count("elsewhere", 2, 120)];
    let sources = vec![OutcomeSource(Arc::new(source))];
    let outcomes = OutcomeMetrics { lanes: vec![Outcomes { state, names }], sources };
    let (metrics, _) = serve_with(vec![Box::new(outcomes)]);
    let samples = scrape(metrics.address());
    let sample = |of: &str, name: &str| {
        samples[&format!("fastlane_outcome_{of}_total{{outcome=\"{name}\"}}")]
    };
    // What a source has under the same name is added.
    assert_eq!([sample("packets", "linux_x"), sample("bytes", "linux_x")], [21.0, 1300.0]);
    assert_eq!([sample("packets", "elsewhere"), sample("bytes", "elsewhere")], [2.0, 120.0]);
    assert_eq!(sample("packets", "forwarded"), 0.0);
}

#[test]
fn metrics_of_an_application_have_their_kinds_and_labels() {
    let metric = |name, kind, label, samples| ApplicationMetric {
        name,
        help: "Something of a test.",
        kind,
        label,
        samples,
    };
    let both = vec![MetricSample::new("full", 3), MetricSample::new("lost", 0)];
    let source = move || {
        vec![
            metric("test_flows", MetricKind::Gauge, None, vec![MetricSample::new("", 7)]),
            metric("test_refusals", MetricKind::Counter, Some("reason"), both.clone()),
            metric("test_absent", MetricKind::Gauge, None, vec![]),
        ]
    };
    let collector = ApplicationMetrics(vec![MetricSource(Arc::new(source))]);
    let (metrics, _) = serve_with(vec![Box::new(collector)]);
    let samples = scrape(metrics.address());
    assert_eq!(samples["test_flows"], 7.0);
    assert_eq!(samples["test_refusals_total{reason=\"full\"}"], 3.0);
    assert_eq!(samples["test_refusals_total{reason=\"lost\"}"], 0.0);
    assert!(!samples.keys().any(|name| name.starts_with("test_absent")));
}

#[test]
fn a_scrape_gives_all_counters_with_their_names() {
    let (metrics, counters) = serve();
    for lane in 0..2 {
        for (index, counter) in LaneCounter::ALL.into_iter().enumerate() {
            counters.lane(lane).publish(counter, (1000 * (lane + 1) + index) as u64);
        }
        for (index, counter) in PortCounter::ALL.into_iter().enumerate() {
            counters.port(lane, 1).store(counter, (100 * (lane + 1) + index) as u64);
        }
    }
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    counters.lane(0).publish(LaneCounter::Thread, thread as u64);
    counters.shared_port(1).store(PortCounter::SteerClaimed, 5000);
    counters.set_down_reason(1, Some(DownReason::Removed));
    let samples = scrape(metrics.address());

    let port = |name: &str, more: &str| {
        samples[&format!(
            "fastlane_{name}_total{{port=\"wire\",driver=\"af-xdp\",mode=\"native copy\"{more}}}"
        )]
    };
    assert_eq!(port("port_received_packets", ",lane=\"1\""), 200.0);
    assert_eq!(port("port_received_bytes", ",lane=\"0\""), 101.0);
    let held = PortCounter::VerdictHold as usize as f64;
    assert_eq!(port("port_verdict_packets", ",lane=\"0\",verdict=\"hold\""), 100.0 + held);
    let full = PortCounter::DropTransmitFull as usize as f64;
    assert_eq!(port("port_dropped_packets", ",lane=\"1\",reason=\"transmit_full\""), 200.0 + full);
    let claimed = 5300.0 + 2.0 * PortCounter::SteerClaimed as usize as f64;
    assert_eq!(port("port_switches", ""), 0.0);
    assert_eq!(port("steer_packets", ",result=\"claimed\""), claimed);
    let up = |reason: &str| {
        let labels = "port=\"wire\",driver=\"af-xdp\",mode=\"native copy\"";
        samples[&format!("fastlane_port_up{{{labels},reason=\"{reason}\"}}")]
    };
    assert_eq!(up("removed"), 0.0);
    assert_eq!(samples["fastlane_lane_turns_total{lane=\"1\"}"], 2000.0);
    assert_eq!(samples["fastlane_lane_pool_free_frames{lane=\"0\"}"], 1006.0);
    assert!(samples["fastlane_lane_cpu_seconds_total{lane=\"0\"}"] > 0.0);
    assert!(!samples.contains_key("fastlane_lane_cpu_seconds_total{lane=\"1\"}"), "no such thread");
    assert_eq!(samples["fastlane_build_info{name=\"test\",version=\"1.2.3\"}"], 1.0);

    // Every counter of a port has a unique value, so each must be on the page exactly once.
    // Those of steering are summed over all lanes; the reason of a port that is down is a label.
    for (index, counter) in PortCounter::ALL.into_iter().enumerate() {
        if !counter.name().starts_with("steer_") && counter != PortCounter::DownReason {
            let value = (200 + index) as f64;
            let found = samples.values().filter(|sample| **sample == value).count();
            assert_eq!(found, 1, "{}", counter.name());
        }
    }
    // The same holds for counters of lanes, except those that are labels or in other units.
    use LaneCounter::{BusiestShard, Cpu, Reserved, SleptNanoseconds, Thread};
    for (index, counter) in LaneCounter::ALL.into_iter().enumerate() {
        if [Thread, Cpu, Reserved, SleptNanoseconds, BusiestShard].contains(&counter) {
            continue;
        }
        let value = (2000 + index) as f64;
        assert_eq!(samples.values().filter(|it| **it == value).count(), 1, "{}", counter.name());
    }
    let ratio = (2000 + BusiestShard as usize) as f64 / 1000.0;
    assert_eq!(samples["fastlane_lane_busiest_shard_ratio{lane=\"1\"}"], ratio);
    let reason = "fastlane_lane_dropped_packets_total{lane=\"1\",reason=\"held_at_end\"}";
    assert_eq!(samples[reason], (2000 + LaneCounter::DropHeldAtEnd as usize) as f64);
}

#[test]
fn the_counters_are_read_when_they_are_asked_for() {
    let (metrics, counters) = serve();
    let name = "fastlane_port_sent_packets_total{port=\"a\\\"b\\\\\",driver=\"af-xdp\",\
                mode=\"native copy\",lane=\"0\"}";
    assert_eq!(scrape(metrics.address())[name], 0.0);
    counters.port(0, 0).add(PortCounter::SentPackets, u64::from(u32::MAX));
    assert_eq!(scrape(metrics.address())[name], f64::from(u32::MAX));
}

#[test]
fn other_requests_are_refused() {
    let (metrics, _counters) = serve();
    for (request, expected) in [
        ("GET / HTTP/1.1\r\n\r\n", "404 "),
        ("GET /metrics/ HTTP/1.1\r\n\r\n", "404 "),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405 "),
        ("GET /metrics\r\n\r\n", "400 "),
        ("GET /metrics SPDY/3\r\n\r\n", "400 "),
        ("\r\n\r\n", "400 "),
        (&"x".repeat(9000), "431 "),
        ("GET /metrics?name=x HTTP/1.0\r\n\r\n", "200 "),
    ] {
        let answer = exchange(metrics.address(), request.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{request}: {answer}");
    }
    assert_eq!(exchange(metrics.address(), b"GET \xff\xfe HTTP/1.1\r\n\r\n")[9..12], *"400");
}

#[test]
fn a_slow_client_is_given_up_and_the_next_one_served() {
    let (metrics, _counters) = serve();
    let mut slow = TcpStream::connect(metrics.address()).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    slow.write_all(b"GET /met").unwrap();
    assert!(!scrape(metrics.address()).is_empty());
    assert_eq!(slow.read(&mut [0]).unwrap_or_default(), 0, "closed without an answer");
}

#[test]
fn it_ends_when_it_is_dropped_whoever_is_waiting() {
    let (metrics, _counters) = serve();
    let address = metrics.address();
    let mut slow = TcpStream::connect(address).unwrap();
    slow.write_all(b"GET").unwrap();
    let error = Metrics::serve(address, &empty(), &Counters::create(0, 0).unwrap()).unwrap_err();
    assert!(error.to_string().starts_with(&format!("metrics {address}: cannot listen")), "{error}");
    let start = Instant::now();
    drop(metrics);
    assert!(start.elapsed() < Duration::from_secs(20));
    assert_eq!(slow.read(&mut [0]).unwrap_or_default(), 0, "nobody holds the connection any more");
}

fn empty() -> Application {
    let (name, version) = ("none".to_owned(), "0".to_owned());
    Application { name, version, pid: 1, lanes: vec![], ports: vec![] }
}
