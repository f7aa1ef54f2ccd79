use std::path::Path;

use serde_json::json;

use super::description::FrameSize;
use super::results::{
    BackToBackResult, ComparisonResult, LoadResult, Results, SizeResult, ThroughputResult,
};
use super::search::{Search, Step};
use super::trial::{Limit, Outcome, Percentiles};
use super::{Description, markdown, plots, publish};
use crate::machine::Machine;
use crate::statistics::{Estimate, Spread, Verdict};

/// Small description: one device, a rival, two sizes.
const DESCRIPTION: &str = r#"{
    "title": "a <device>",
    "device": { "command": ["./device", "left.json"] },
    "generator": { "configuration": { "ports": {}, "app": { "port": "wire" } } },
    "rival": { "device": { "command": ["testpmd"] }, "generator": { "configuration": {} } },
    "frame-sizes": [64, "imix"],
    "comparison": { "pairs": 3, "bound": 1.05 }
}"#;

fn outcome(rate: f64, lost: u64) -> Outcome {
    let sent = (rate * 2.0) as u64;
    Outcome {
        wanted_packets_per_second: rate as u64,
        offered_packets_per_second: rate,
        received_packets_per_second: rate,
        sent_packets: sent,
        received_packets: sent - lost,
        lost_packets: lost,
        device_cpu_ns: sent * 250,
        elapsed_ns: 2_000_000_000,
        latency: Some(Percentiles {
            samples: sent,
            minimum_ns: 1500,
            mean_ns: 4000.5,
            p50_ns: 3000,
            p90_ns: 9000,
            p99_ns: 20_000,
            p99_9_ns: 45_678,
            maximum_ns: 1_234_567,
        }),
        ..Outcome::default()
    }
}

fn size(frame_size: FrameSize, rate: Option<f64>, limited_by: Limit) -> SizeResult {
    let step = Step {
        wanted_packets_per_second: 0,
        offered_packets_per_second: 2e6,
        lost_packets: 77,
        failed_by: Some(Limit::Device),
    };
    let found = rate.map(|rate| outcome(rate, 0));
    let load = |(load_percent, rate): (f64, f64)| {
        let trial = outcome(rate * load_percent / 100.0, u64::from(load_percent > 80.0));
        LoadResult {
            load_percent,
            device_ns_per_packet: trial.device_ns_per_packet(),
            device_cores: trial.device_cores(),
            trial,
        }
    };
    SizeResult {
        frame_size,
        throughput: Some(ThroughputResult {
            packets_per_second: rate.map(|rate| Spread {
                median: rate,
                low: rate * 0.9,
                high: rate * 1.05,
            }),
            bits_per_second: rate.map(|rate| rate * 64.0 * 8.0),
            limited_by,
            searches: vec![Search { found, limited_by, trials: vec![step] }],
        }),
        loads: rate
            .map(|rate| [10.0, 50.0, 90.0].map(|load_percent| load((load_percent, rate))))
            .into_iter()
            .flatten()
            .collect(),
        back_to_back: rate.map(|_| BackToBackResult {
            average_packets: 2047.5,
            packets_per_second: 1.5e6,
            reached_longest: limited_by == Limit::Generator,
            longest_packets: vec![2000, 2095],
        }),
    }
}

fn results() -> Results {
    let compared = |control, ratio: Estimate, bound: Option<f64>| ComparisonResult {
        control,
        frame_size: FrameSize::Bytes(64),
        device: "./device left.json".to_owned(),
        rival: if control { "./device left.json" } else { "testpmd" }.to_owned(),
        device_ns_per_packet: vec![51.0, 52.0, 54.0],
        rival_ns_per_packet: vec![50.0, 50.0, 50.0],
        ratio,
        bound,
        verdict: bound.map(|bound| ratio.verdict(bound, 1.0)),
    };
    let comparison = compared(false, Estimate { value: 1.04, low: 1.02, high: 1.08 }, Some(1.05));
    assert_eq!(comparison.verdict, Some(Verdict::NotResolved));
    Results {
        fastlane: "1.2.3".to_owned(),
        began: "2026-11-20T12:00:00Z".to_owned(),
        ended: "2026-11-20T12:34:56Z".to_owned(),
        machine: Machine {
            processor: "Processor".to_owned(),
            processors: 2,
            linux: "6.12.1".to_owned(),
        },
        load_average: [2.25, 2.5],
        quick: false,
        description: Description::read(DESCRIPTION).expect("it is right"),
        idle_cores: Some(0.002),
        sizes: vec![
            size(FrameSize::Bytes(64), Some(1e6), Limit::Device),
            size(FrameSize::Bytes(1518), Some(5e5), Limit::Generator),
            size(FrameSize::Bytes(9018), None, Limit::Link),
        ],
        comparisons: vec![
            compared(true, Estimate { value: 1.0, low: 0.99, high: 1.02 }, None),
            comparison,
        ],
    }
}

/// Compares `text` with the file `name` in `golden`. To update the files after an intended change,
/// run with `FASTLANE_WRITE_GOLDEN=1` and check the difference in git.
fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/benchmark/golden").join(name);
    if std::env::var_os("FASTLANE_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, text).expect("the golden file can be written");
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let line = golden.lines().zip(text.lines()).position(|(golden, text)| golden != text);
    assert!(golden == text, "{name} differs at line {:?}:\n{text}", line.map(|line| line + 1));
}

/// Checks that tags are closed in the right order and attributes are quoted.
fn check_markup(name: &str, text: &str) {
    let mut open = Vec::new();
    for tag in text.split('<').skip(1) {
        let (tag, words) = tag.split_once('>').unwrap_or_else(|| panic!("{name}: <{tag}"));
        assert!(!words.contains('>'), "{name}: {words}");
        assert!(tag.matches('"').count().is_multiple_of(2), "{name}: <{tag}>");
        let element = |tag: &str| tag.split([' ', '/']).next().unwrap_or("").to_owned();
        match tag.strip_prefix('/') {
            Some(closed) => assert_eq!(open.pop(), Some(element(closed)), "{name}"),
            None if tag.ends_with('/') => {}
            None => open.push(element(tag)),
        }
    }
    assert!(open.is_empty() && text.starts_with("<svg "), "{name}: {open:?}");
}

#[test]
fn a_result_is_published_as_it_always_was() {
    let results = results();
    let plots = plots::plots(&results);
    check("report.md", &markdown::report(&results, &plots));
    check("results.json", &(serde_json::to_string_pretty(&results).unwrap() + "\n"));
    let names: Vec<_> = plots.iter().map(|plot| plot.file).collect();
    assert_eq!(names, ["throughput.svg", "latency.svg", "cpu.svg", "comparison.svg"]);
    for plot in plots {
        check_markup(plot.file, &plot.svg);
        check(plot.file, &plot.svg);
    }
}

#[test]
fn nothing_is_published_over_an_earlier_result() {
    let folder = tempfile::tempdir().unwrap();
    let results = results();
    let (report, place) = publish(&results, folder.path()).unwrap();
    assert_eq!(std::fs::read_to_string(place.join("report.md")).unwrap(), report);
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 6);
    let error = publish(&results, folder.path()).unwrap_err().to_string();
    assert!(error.contains("2026-11-20T120000Z") && error.contains("--output"), "{error}");
}

#[test]
fn tests_that_were_not_made_are_not_in_the_report() {
    let results = Results { sizes: Vec::new(), comparisons: Vec::new(), ..results() };
    let plots = plots::plots(&results);
    let report = markdown::report(&results, &plots);
    assert!(plots.is_empty() && !report.contains("##") && report.contains("# a <device>"));
}

#[test]
fn a_description_is_as_strict_as_a_configuration() {
    let device = r#""device": {"command": ["x"]}"#;
    let generator = r#""generator": {"configuration": {}}"#;
    let mut wrong = Vec::new();
    for (text, expected) in [
        (String::new(), ":1:0: EOF while parsing a value"),
        (format!("{{{device}}}"), ":1:30: missing field `generator`"),
        (
            format!("{{{device}, {generator},\n \"frame-size\": [64]}}"),
            ":2:13: frame-size: unknown field `frame-size`, expected one of `$schema`, `title`, \
             `device`, `generator`, `rival`, `frame-sizes`, `tests`, `throughput`, `latency`, \
             `back-to-back`, `comparison`",
        ),
        (
            format!("{{{device}, {generator}, \"frame-sizes\": [64, \"jumbo\"]}}"),
            ":1:95: frame-sizes[1]: not a number of bytes or \"imix\"",
        ),
        (
            format!("{{{device}, {generator}, \"throughput\": {{\"trial-ms\": \"1s\"}}}}"),
            ":1:98: throughput.trial-ms: invalid type: string \"1s\", expected u64",
        ),
        (
            format!("{{{device}, {generator}, \"tests\": [\"jitter\"]}}"),
            ":1:85: tests[0]: unknown variant `jitter`, expected one of `throughput`, `latency`, \
             `back-to-back`, `comparison`",
        ),
        (
            format!("{{{device}, {generator}, \"frame-sizes\": [60]}}"),
            ": frame-sizes: has 60; allowed is 64 to 16004, or \"imix\"",
        ),
        (
            format!("{{{device}, {generator}, \"throughput\": {{\"attempts\": 0}}}}"),
            ": throughput.attempts: is 0; write 1 or more",
        ),
        (
            format!("{{\"device\": {{\"command\": []}}, {generator}}}"),
            ": device.command: is empty; write a program",
        ),
        (
            format!("{{{device}, {generator}, \"latency\": {{\"loads-percent\": [110]}}}}"),
            ": latency.loads-percent: allowed is above 0, to 100",
        ),
        (
            format!(
                "{{{device}, \"generator\": {{\"configuration\": \
                 {{\"app\": {{\"count-packets\": 5}}}}}}}}"
            ),
            ": generator.configuration.app.count-packets: each trial sets it; remove it",
        ),
        (format!("{{{device}, {generator}}} {{}}"), ":1:68: trailing characters"),
    ] {
        let error = Description::read(&text).unwrap_err();
        if error != expected {
            wrong.push(format!("{text}\n  {error}\n  {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_not_said_has_a_default_and_quick_is_less_of_it() {
    let text = r#"{"device": {"command": ["x"]}, "generator": {"configuration": {}}}"#;
    let mut description = Description::read(text).unwrap();
    assert_eq!(description.frame_sizes.len(), 8);
    assert_eq!(description.throughput.acceptable_loss_ppm, 0.0);
    assert_eq!(description.comparison.pairs, 31);
    assert!(!description.makes(super::Test::Comparison), "there is no rival");
    description.make_quick();
    assert_eq!(description.frame_sizes, [64, 1518].map(FrameSize::Bytes));
    assert_eq!((description.throughput.trial_ms, description.throughput.repeats), (100, 1));
    description.check().unwrap();
}

#[test]
fn the_schema_names_what_a_description_may_hold() {
    let schema: serde_json::Value = serde_json::from_str(&super::description::schema()).unwrap();
    let properties = schema["properties"].as_object().unwrap();
    let written = serde_json::to_value(Description::read(DESCRIPTION).unwrap()).unwrap();
    for key in written.as_object().unwrap().keys() {
        assert!(properties[key]["description"].is_string() || properties[key].is_object());
    }
    assert_eq!(schema["additionalProperties"], json!(false));
}

#[test]
fn the_example_in_the_readme_is_right() {
    let readme = include_str!("README.md");
    let example = readme.split("```json\n").nth(1).and_then(|rest| rest.split("```").next());
    Description::read(example.unwrap()).unwrap();
}
