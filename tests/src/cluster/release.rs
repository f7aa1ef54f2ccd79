//! The agent, as the chart installs it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Cluster, IMAGE};
use crate::{eventually, repository};

/// Namespace of the agent.
pub const NAMESPACE: &str = "fastlane-system";

/// Command line of the agent.
const AGENT: &str = "fastlane agent /etc/fastlane/agent.json";

/// Agent that the chart has installed. Dropping it removes the release.
#[derive(Debug)]
pub struct Release<'a> {
    cluster: &'a Cluster,
}

impl<'a> Release<'a> {
    /// Installs the chart with these pools and waits until the agent runs.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn install(cluster: &'a Cluster, api: &str, pools: &Value) -> Self {
        let (repository_name, tag) = IMAGE.rsplit_once(':').expect("a tag");
        let image = json!({"repository": repository_name, "tag": tag, "pullPolicy": "Never"});
        let release = Self { cluster };
        release.uninstall();
        if api == "dra" {
            release.wait_until_no_plugin_serves();
        }
        let values = json!({"image": image, "pools": pools, "api": api, "memifLinks": 2});
        release.helm("install", &["--create-namespace"], &values);
        release
    }

    /// Waits until the node offers no device of a device plugin. Kubelet tells the scheduler some
    /// 10 s after the plugin's end; pods that are scheduled until then are rejected.
    #[track_caller]
    fn wait_until_no_plugin_serves(&self) {
        let words = ["kubectl", "get", "nodes", "--output=jsonpath={.items[*].status.allocatable}"];
        eventually("the node offers no device of a plugin", || {
            let offers: Value = serde_json::from_str(&self.cluster.run(&words)).expect("JSON");
            let mut offers = offers.as_object().expect("resources").iter();
            offers.all(|(name, count)| !name.starts_with("fastlane.dev/") || count == "0")
        });
    }

    /// Adds autoscalers to the release.
    #[track_caller]
    pub fn scale(&self, autoscaling: &Value) {
        self.helm("upgrade", &["--reuse-values"], &json!({"autoscaling": autoscaling}));
    }

    #[track_caller]
    fn helm(&self, verb: &str, options: &[&str], values: &Value) {
        let file = self.cluster.file("values.json");
        std::fs::write(&file, values.to_string()).expect("the folder is ours");
        let (chart, file) = (repository("k8s/chart"), file.display().to_string());
        let chart = chart.display().to_string();
        let words = ["helm", verb, "fastlane", &chart, "--namespace", NAMESPACE];
        let more = ["--values", &file, "--wait", "--timeout=60s"];
        self.cluster.run(&[&words[..], options, &more].concat());
    }

    /// Runs `helm test`. Returns its output.
    ///
    /// # Errors
    /// The output of a test that fails.
    pub fn test(&self, timeout: &str) -> Result<String, String> {
        let words = ["helm", "test", "fastlane", "--namespace", NAMESPACE, "--timeout", timeout];
        self.cluster.attempt(&words)
    }

    /// Returns what the agent costs in a while.
    ///
    /// # Panics
    /// When it does not run.
    #[track_caller]
    pub fn cost(&self, time: Duration) -> Cost {
        let pattern = format!("^[^ ]*{AGENT}$");
        let process = self.cluster.run(&["pgrep", "--full", &pattern]);
        let read = |files: &str| {
            let script = format!("cat /proc/{}/{files}", process.trim());
            self.cluster.run(&["sh", "-c", &script])
        };
        // Time of its control group in nanoseconds, with that of threads that have ended: ticks of
        // 10 ms are too coarse.
        let groups = read("cgroup");
        let used = || cpu_time(&groups).expect("a control group");
        let waits = || numbers(&read("task/*/status"), "voluntary_ctxt_switches:").sum::<u64>();
        let (before, start) = ((used(), waits()), Instant::now());
        std::thread::sleep(time);
        let (spent, elapsed) = (used().saturating_sub(before.0), start.elapsed());
        let cpu = spent as f64 / elapsed.as_nanos() as f64;
        let memory_kib = numbers(&read("status"), "RssAnon:").next().expect("the kernel tells it");
        Cost { cpu, wakeups: waits().saturating_sub(before.1), memory_kib }
    }

    /// Returns the log of the agent that runs.
    pub fn log(&self) -> String {
        let words = ["kubectl", "logs", "--namespace", NAMESPACE, "daemonset/fastlane"];
        self.cluster.attempt(&words).unwrap_or_else(|output| output)
    }

    /// Waits until the log of the agent has these words.
    ///
    /// # Panics
    /// When it never has, with the log.
    #[track_caller]
    pub fn wait_for(&self, words: &str) {
        eventually(words, || self.log().contains(words));
    }

    /// Kills the agent.
    ///
    /// # Panics
    /// When it does not run.
    #[track_caller]
    pub fn kill(&self) {
        self.cluster.kill(AGENT);
    }

    fn uninstall(&self) {
        let words = ["helm", "uninstall", "fastlane", "--namespace", NAMESPACE];
        let _ = self.cluster.attempt(&[&words[..], &["--ignore-not-found", "--wait"]].concat());
    }
}

/// Returns the CPU time of a process in nanoseconds, by its control groups (cgroups(7)).
fn cpu_time(groups: &str) -> Option<u64> {
    let group = |name: &str| {
        let mut groups = groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        groups.find(|(names, _)| names.split(',').any(|it| it == name)).map(|(_, path)| path)
    };
    let read = |path: String| std::fs::read_to_string(path).ok();
    let second = |path: &str| {
        let text = read(format!("/sys/fs/cgroup{path}/cpu.stat"))?;
        let time = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        Some(1000 * time.parse::<u64>().ok()?)
    };
    match group("cpuacct") {
        Some(path) => {
            read(format!("/sys/fs/cgroup/cpuacct{path}/cpuacct.usage"))?.trim().parse().ok()
        }
        None => second(group("")?),
    }
}

/// Returns the numbers of the lines of `/proc/PID/status` that begin with these words.
fn numbers<'a>(text: &'a str, words: &'a str) -> impl Iterator<Item = u64> {
    let lines = text.lines().filter_map(move |line| line.strip_prefix(words));
    lines.filter_map(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
}

/// Cost of the agent in a while.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Share of a CPU.
    pub cpu: f64,
    /// Number of times that a thread went to sleep.
    pub wakeups: u64,
    /// Memory besides the program, in KiB.
    pub memory_kib: u64,
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of the agent:\n{}", self.log());
            eprintln!("log of kubelet:\n{}", self.cluster.log("kubelet"));
        }
        self.uninstall();
    }
}
