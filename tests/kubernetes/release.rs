//! The agent, as the chart installs it.

use fastlane_tests::{Cluster, IMAGE, eventually, repository};
use serde_json::{Value, json};

/// Namespace of the agent.
pub(crate) const NAMESPACE: &str = "fastlane-system";

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
        let values = cluster.file("values.json");
        let image = json!({"repository": repository_name, "tag": tag, "pullPolicy": "Never"});
        let text = json!({
            "image": image, "pools": pools, "api": api, "memifLinks": 2,
        });
        std::fs::write(&values, text.to_string()).expect("the folder is ours");
        let release = Self { cluster };
        release.uninstall();
        let (chart, values) = (repository("k8s/chart"), values.display().to_string());
        let chart = chart.display().to_string();
        let words = ["helm", "install", "fastlane", &chart, "--namespace", NAMESPACE];
        let more = ["--create-namespace", "--values", &values, "--wait", "--timeout=60s"];
        cluster.run(&[&words[..], &more].concat());
        release
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
        self.cluster.kill("fastlane agent /etc/fastlane/agent.json");
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
