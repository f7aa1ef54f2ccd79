//! Dashboards, alerts and recorded numbers of the chart, with a real Prometheus that scrapes a UPF
//! under traffic.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use fastlane_pfcp::Cause;
use fastlane_tests::upf::messages::SessionRequest;
use fastlane_tests::upf::{Driver, Session, Smf, Traffic, UpfLab};
use fastlane_tests::{Cluster, Host, PATIENCE, Process, repository};
use serde_json::{Value, json};

use crate::chart::rendered;

/// Returns the folder of Prometheus's programs. Returns `None` after a skip if it is missing.
pub(crate) fn prometheus() -> Option<PathBuf> {
    let mut command = Command::new(repository("lab/prometheus"));
    let output = command.arg("--present").stderr(Stdio::null()).output();
    let folder = output.ok().filter(|output| output.status.success());
    if folder.is_none() {
        let reason = "its programs are missing; run `make k8s`";
        fastlane_testing::skip("kubernetes/prometheus", reason);
    }
    folder.map(|it| PathBuf::from(String::from_utf8_lossy(&it.stdout).trim()))
}

/// Returns the groups of rules in the chart, as a file of Prometheus has them.
pub(crate) fn rules(cluster: &Cluster) -> String {
    let settings = json!({"pools": {}, "monitoring": {"rules": true}});
    let text = rendered(cluster, &settings, "1.37.0").expect("it is rendered");
    let (_, rest) = text.split_once("kind: PrometheusRule").expect("the rules");
    let (_, groups) = rest.split_once("\nspec:\n").expect("their groups");
    let lines = groups.lines().take_while(|line| *line != "---");
    lines.map(|line| format!("{}\n", line.strip_prefix("  ").unwrap_or(line))).collect()
}

/// Returns the names in an expression that are metrics of ours.
fn names(expression: &str) -> BTreeSet<&str> {
    let words = expression.split(|it: char| !it.is_ascii_alphanumeric() && it != '_' && it != ':');
    let is_ours = |word: &&str| {
        let name = word.strip_prefix("pod:").unwrap_or(word);
        // `fastlane_dev_...` are resources, in metrics of kube-state-metrics.
        let is_resource = name.starts_with("fastlane_dev_");
        (name.starts_with("fastlane_") || name.starts_with("upf_")) && !is_resource
    };
    words.filter(is_ours).collect()
}

/// Returns the queries of a dashboard with everything selected.
fn queries(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().into_iter().flatten();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries = targets.filter_map(|target| target["expr"].as_str());
    let meant = |query: &str| {
        let query = query.replace("$namespace", ".*").replace("$pod", ".*");
        query.replace("$__rate_interval", "10s")
    };
    queries.map(meant).collect()
}

/// Number of sessions that an SMF may have.
const SESSIONS: u32 = 5;

/// A Prometheus that scrapes the UPF of a host each second.
struct Prometheus<'a> {
    host: &'a Host,
    process: Process,
}

impl<'a> Prometheus<'a> {
    /// Starts it with these rules.
    #[track_caller]
    fn start(programs: &std::path::Path, lab: &'a UpfLab, rules: &str) -> Self {
        let labels = json!({"namespace": "core", "pod": "upf-0"});
        let target = |address: &str| json!({"targets": [address], "labels": labels});
        let targets = json!([target("127.0.0.1:8805"), target("127.0.0.1:9464")]);
        let file = lab.hosts.file("rules.yml");
        std::fs::write(&file, rules).expect("the folder is ours");
        let mut check = Command::new(programs.join("promtool"));
        let check = check.args(["check", "rules"]).arg(&file).output().expect("promtool starts");
        let text = String::from_utf8_lossy(&[check.stdout, check.stderr].concat()).into_owned();
        assert!(check.status.success() && text.contains("SUCCESS"), "{text}");
        let configuration = lab.hosts.file("prometheus.yml");
        // JSON is YAML.
        let text = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [file],
            "scrape_configs": [{"job_name": "pods", "static_configs": targets}],
        });
        std::fs::write(&configuration, text.to_string()).expect("the folder is ours");
        let host = &lab.hosts.left;
        let mut command = host.command(&[]);
        command.arg(programs.join("prometheus"));
        command.arg(format!("--config.file={}", configuration.display()));
        command.arg(format!("--storage.tsdb.path={}", lab.hosts.file("tsdb").display()));
        command.arg("--web.listen-address=127.0.0.1:9090");
        let process = Process::start(command);
        process.wait_for("Server is ready to receive web requests");
        Self { host, process }
    }

    /// Returns the number of series that an expression has now.
    ///
    /// # Panics
    /// When it is no expression.
    #[track_caller]
    fn series(&self, expression: &str) -> usize {
        let query = format!("query={expression}");
        let words = ["curl", "--silent", "--get", "--data-urlencode", &query];
        let url = ["http://127.0.0.1:9090/api/v1/query"];
        let text = self.host.run(&[&words[..], &url].concat());
        let reply: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(reply["status"], "success", "{expression}: {reply}");
        reply["data"]["result"].as_array().map_or(0, Vec::len)
    }
}

/// A UPF's peers, which keep it busy.
struct Peers {
    smf: Smf,
    traffic: Traffic,
    sessions: Vec<Session>,
}

impl Peers {
    /// Establishes some sessions, the last one of which drops downlink packets.
    #[track_caller]
    fn new(lab: &UpfLab) -> Self {
        let mut smf = lab.smf();
        smf.associate();
        let session = |number| {
            let mut request = SessionRequest::open(number, 4000);
            request.version.is_open = number < SESSIONS;
            request
        };
        let sessions = (1..=SESSIONS).map(|number| smf.establish(&session(number))).collect();
        Self { smf, traffic: lab.traffic(), sessions }
    }

    /// Sends packets of all sessions in both directions. The SMF asks for a session more than it
    /// may have, and responds to reports.
    fn send(&mut self) {
        let cause = self.smf.try_establish(&SessionRequest::open(SESSIONS + 1, 4000));
        assert_eq!(cause, Cause::NO_RESOURCES_AVAILABLE);
        for session in &self.sessions {
            (0..20).for_each(|_| self.traffic.send_uplink(session));
            (0..20).for_each(|_| self.traffic.send_downlink(session));
        }
        self.smf.poll();
    }
}

#[test]
fn every_query_of_dashboards_and_alerts_has_data() {
    let Some(cluster) = Cluster::get() else { return };
    let Some(programs) = prometheus() else { return };
    let Some(lab) = UpfLab::new("monitoring", Driver::AfXdp) else { return };
    let rules = rules(&cluster);
    let mut configuration = lab.configuration(64, &[]);
    configuration["metrics"] = json!({});
    configuration["app"]["n4"]["limits"] = json!([{"smf": "10.40.0.2", "sessions": SESSIONS}]);
    let upf = lab.start_supervised(configuration);
    let mut peers = Peers::new(&lab);
    let mut expressions = vec![];
    for name in ["fastlane", "upf"] {
        let file = repository(&format!("k8s/chart/dashboards/{name}.json"));
        let text = std::fs::read(file).expect("the dashboard");
        let queries = queries(&serde_json::from_slice(&text).expect("JSON"));
        assert!(queries.len() >= 15, "{queries:?}");
        expressions.extend(queries);
    }
    // An alert has data only in case of trouble, but what it watches is there all the time.
    let watched = names(&rules);
    assert!(watched.len() >= 10, "{watched:?}");
    expressions.extend(watched.into_iter().map(str::to_owned));
    let prometheus = Prometheus::start(&programs, &lab, &rules);
    let end = Instant::now() + PATIENCE;
    while !expressions.is_empty() {
        assert!(Instant::now() < end, "no data: {expressions:#?}\n{}", prometheus.process.stderr());
        peers.send();
        expressions.retain(|expression| prometheus.series(expression) == 0);
    }
    // The control: a name that no program has.
    assert_eq!(prometheus.series("fastlane_port_received_packets"), 0);
    assert_eq!(prometheus.series("fastlane_port_up == 0"), 0);
    assert_eq!(prometheus.series("fastlane_port_up == 1"), 3);
    // Trouble is seen.
    lab.hosts.left.run(&["ip", "link", "set", "n6", "down"]);
    fastlane_tests::eventually("the port that is down is found", || {
        prometheus.series("fastlane_port_up{port=\"n6\",reason=\"link-down\"} == 0") == 1
    });
    prometheus.process.kill();
    upf.stop();
}
