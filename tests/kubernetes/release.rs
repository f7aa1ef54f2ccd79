//! The agent, as the chart installs it.

use std::time::{Duration, Instant};

use fastlane_tests::{Cluster, IMAGE, eventually, repository};
use serde_json::{Value, json};

/// Namespace of the agent.
pub(crate) const NAMESPACE: &str = "fastlane-system";

/// Command line of the agent.
const AGENT: &str = "fastlane agent /etc/fastlane/agent.json";

/// Agent that the chart has installed. Dropping it removes the release.
#[derive(Debug)]
pub(crate) struct Release<'a> {
    cluster: &'a Cluster,
}

impl<'a> Release<'a> {
    /// Installs the chart with these pools and waits until the agent runs.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub(crate) fn install(cluster: &'a Cluster, api: &str, pools: &Value) -> Self {
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
    pub(crate) fn scale(&self, autoscaling: &Value) {
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
    pub(crate) fn test(&self, timeout: &str) -> Result<String, String> {
        let words = ["helm", "test", "fastlane", "--namespace", NAMESPACE, "--timeout", timeout];
        self.cluster.attempt(&words)
    }

    /// Returns the share of a CPU that the agent uses for a while, and its memory besides its
    /// program in KiB.
    ///
    /// # Panics
    /// When it does not run.
    #[track_caller]
    pub(crate) fn cost(&self, time: Duration) -> (f64, u64) {
        let pattern = format!("^[^ ]*{AGENT}$");
        let process = self.cluster.run(&["pgrep", "--full", &pattern]);
        let read =
            |file: &str| self.cluster.run(&["cat", &format!("/proc/{}/{file}", process.trim())]);
        // Time in the kernel's scheduler, in nanoseconds: ticks of 10 ms are too coarse.
        let used = || {
            let script = format!("cat /proc/{}/task/*/schedstat", process.trim());
            let text = self.cluster.run(&["sh", "-c", &script]);
            let times = text.lines().filter_map(|line| line.split(' ').next()?.parse::<u64>().ok());
            times.sum::<u64>()
        };
        let (before, start) = (used(), Instant::now());
        std::thread::sleep(time);
        let share = used().saturating_sub(before) as f64 / start.elapsed().as_nanos() as f64;
        let status = read("status");
        let memory = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let memory = memory.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok());
        (share, memory.expect("the kernel tells it"))
    }

    /// Returns the log of the agent that runs.
    pub(crate) fn log(&self) -> String {
        let words = ["kubectl", "logs", "--namespace", NAMESPACE, "daemonset/fastlane"];
        self.cluster.attempt(&words).unwrap_or_else(|output| output)
    }

    /// Waits until the log of the agent has these words.
    ///
    /// # Panics
    /// When it never has, with the log.
    #[track_caller]
    pub(crate) fn wait_for(&self, words: &str) {
        eventually(words, || self.log().contains(words));
    }

    /// Kills the agent.
    ///
    /// # Panics
    /// When it does not run.
    #[track_caller]
    pub(crate) fn kill(&self) {
        self.cluster.kill(AGENT);
    }

    fn uninstall(&self) {
        let words = ["helm", "uninstall", "fastlane", "--namespace", NAMESPACE];
        let _ = self.cluster.attempt(&[&words[..], &["--ignore-not-found", "--wait"]].concat());
    }
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
