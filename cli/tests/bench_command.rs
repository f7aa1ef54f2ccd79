//! `fastlane bench` on real devices: checks the published results, not the speed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fastlane_testing::skip;
use fastlane_tests::binary;
use serde_json::{Value, json};

fn bench(folder: &Path, arguments: &[&str]) -> Output {
    // The command searches these programs in its own folder.
    let programs = ["macswap", "traffic", "fastlane"].map(binary);
    let mut command = Command::new(&programs[2]);
    command.arg("bench").args(arguments).arg("--output").arg(folder.join("results"));
    command.current_dir(folder).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a benchmark that must succeed. Returns its results and their folder.
fn results(folder: &Path, arguments: &[&str]) -> (Value, PathBuf) {
    let output = bench(folder, arguments);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let place = said.lines().last().and_then(|line| line.strip_prefix("wrote "));
    let place = folder.join(place.unwrap_or_else(|| panic!("{said}")));
    let report = std::fs::read_to_string(place.join("report.md")).unwrap();
    assert_eq!(report, text(&output.stdout));
    let json = std::fs::read_to_string(place.join("results.json")).unwrap();
    (serde_json::from_str(&json).unwrap(), place)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Returns the number of packets whose latency was measured. A trial in which none was has no
/// latencies.
fn timed(trial: &Value) -> f64 {
    let latency = &trial["latency"];
    if latency.is_null() { 0.0 } else { number(&latency["samples"]) }
}

/// Checks that the sent frames are the sum of received and lost frames.
fn check_trial(trial: &Value) {
    let [sent, received, lost] =
        ["sent-packets", "received-packets", "lost-packets"].map(|key| number(&trial[key]));
    assert!(sent > 0.0 && sent == received + lost, "{trial}");
    let samples = timed(trial);
    assert!(samples <= received, "{trial}");
    let latency = &trial["latency"];
    let keys = ["minimum", "p50", "p90", "p99", "p99-9", "maximum"];
    let values = keys.map(|key| &latency[format!("{key}-ns")]);
    if samples == 0.0 {
        // On a loaded machine a short trial may have no packet that is timed.
        return assert!(values.iter().all(|value| value.is_null()), "{latency}");
    }
    let values = values.map(number);
    assert!(values.is_sorted() && values[0] > 0.0, "{latency}");
}

fn check_size(size: &Value) {
    let throughput = &size["throughput"];
    let [median, low, high] =
        ["median", "low", "high"].map(|key| number(&throughput["packets-per-second"][key]));
    assert!(0.0 < low && low <= median && median <= high, "{throughput}");
    assert!(number(&throughput["bits-per-second"]) > median * 64.0 * 8.0 * 0.99);
    for search in throughput["searches"].as_array().unwrap() {
        assert_eq!(search["found"]["lost-packets"], 0, "{search}");
        check_trial(&search["found"]);
        let limits = ["device", "link", "generator", "highest"];
        assert!(limits.contains(&search["limited-by"].as_str().unwrap()));
    }
    let loads = size["loads"].as_array().unwrap();
    let percents: Vec<f64> = loads.iter().map(|load| number(&load["load-percent"])).collect();
    assert_eq!(percents, [10.0, 50.0, 90.0]);
    for load in loads {
        check_trial(&load["trial"]);
        assert!(number(&load["device-ns-per-packet"]) > 0.0);
        let wanted = number(&load["trial"]["wanted-packets-per-second"]);
        assert!((wanted - median * number(&load["load-percent"]) / 100.0).abs() <= 1.0, "{load}");
    }
    assert!(loads.iter().any(|load| timed(&load["trial"]) > 0.0), "no packet was timed: {size}");
    let bursts = size["back-to-back"]["longest-packets"].as_array().unwrap();
    assert!(bursts.iter().all(|burst| (0.0..=16_384.0).contains(&number(burst))), "{bursts:?}");
}

#[test]
fn macswap_is_measured_and_compared_on_veth() {
    let allowed = Command::new("unshare").args(["--net", "true"]).status();
    if !allowed.is_ok_and(|status| status.success()) {
        return skip("bench-veth", "no network namespace: it takes CAP_SYS_ADMIN");
    }
    let folder = tempfile::tempdir().unwrap();
    let (results, place) =
        results(folder.path(), &["--on", "af-packet", "--against", "af-packet", "--quick"]);
    assert_eq!(results["quick"], true);
    let sizes = results["sizes"].as_array().unwrap();
    assert_eq!(sizes.len(), 2);
    sizes.iter().for_each(check_size);
    let comparisons = results["comparisons"].as_array().unwrap();
    assert_eq!(comparisons.len(), 2);
    for (comparison, control) in comparisons.iter().zip([true, false]) {
        assert_eq!(comparison["control"], control);
        for key in ["device-ns-per-packet", "rival-ns-per-packet"] {
            let values = comparison[key].as_array().unwrap();
            assert!(values.len() == 5 && values.iter().all(|value| number(value) > 0.0));
        }
        let ratio = ["low", "value", "high"].map(|key| number(&comparison["ratio"][key]));
        assert!(ratio.is_sorted() && ratio[0] > 0.0, "{ratio:?}");
    }
    for plot in ["throughput.svg", "latency.svg", "cpu.svg", "comparison.svg"] {
        assert!(std::fs::read_to_string(place.join(plot)).unwrap().ends_with("</svg>\n"));
    }
}

/// Measures a described device over memif, which needs no privilege.
#[test]
fn a_described_device_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let port = |role| {
        let socket = at("memif.sock");
        json!({ "wire": { "driver": { "memif": { "socket": socket, "role": role } } } })
    };
    let device = json!({ "session": at("macswap.sock"), "ports": port("server") });
    std::fs::write(at("macswap.json"), device.to_string()).unwrap();
    let generator = json!({ "ports": port("client"), "app": { "port": "wire" } });
    let command = [binary("macswap"), at("macswap.json")];
    let description = json!({
        "title": "a test",
        "device": { "command": command },
        "generator": { "configuration": generator },
        "frame-sizes": [128],
        "tests": ["throughput"],
        "throughput": { "highest-packets-per-second": 2000, "trial-ms": 100, "repeats": 2 },
    });
    std::fs::write(at("bench.json"), description.to_string()).unwrap();
    let (results, _) = results(folder.path(), &["bench.json"]);
    let throughput = &results["sizes"][0]["throughput"];
    assert_eq!(throughput["searches"].as_array().unwrap().len(), 2);
    let rate = number(&throughput["packets-per-second"]["high"]);
    assert!(rate > 0.0 && rate < 2100.0, "{rate}");
    assert_eq!(results["sizes"][0]["loads"], json!([]));
    assert_eq!(results["description"]["title"], "a test");
}

#[test]
fn what_keeps_a_benchmark_from_starting_is_said_with_the_programs_own_words() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = |description: Value| {
        std::fs::write(folder.path().join("bench.json"), description.to_string()).unwrap();
        let output = bench(folder.path(), &["bench.json"]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(text(&output.stdout), "");
        assert!(!folder.path().join("results").exists(), "nothing was found");
        text(&output.stderr)
    };
    let memory = json!({ "wire": { "driver": { "memory": {} } } });
    let generator = json!({ "configuration": { "ports": memory, "app": { "port": "wire" } } });
    let ended = ["sh", "-c", "echo no such interface >&2; exit 4"];
    let error = refusal(json!({ "device": { "command": ended }, "generator": generator.clone() }));
    assert!(error.contains("the device (sh): has ended"), "{error}");
    assert!(error.contains("no such interface"), "{error}");
    let device = json!({ "command": ["sleep", "100"] });
    let wrong = json!({ "configuration": { "ports": memory, "app": { "port": "wire" },
                                           "lane": {} } });
    let error = refusal(json!({ "device": device, "generator": wrong }));
    assert!(error.contains("did you mean `lanes`?"), "{error}");
    let error = refusal(json!({ "device": device, "generator": generator, "frame-size": [] }));
    assert!(error.starts_with("fastlane: bench.json:1:"), "{error}");
    assert!(error.contains("unknown field `frame-size`"), "{error}");
}
