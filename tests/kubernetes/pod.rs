//! Pods of the stories: without any privilege, in a namespace that admits no other ones.

use std::time::{Duration, Instant};

use fastlane_tests::{Cluster, IMAGE, POD_USER, Process, Totals, eventually};
use serde_json::{Value, json};

/// Namespace of the pods, which enforces the Pod Security Standard `restricted`.
pub(crate) const NAMESPACE: &str = "stories";
/// Script of the container: tells its privileges, then becomes macswap.
const SCRIPT: &str = "grep -E '^(Uid|Cap[A-Za-z]*|NoNewPrivs|Seccomp):' /proc/self/status; \
                      exec macswap /etc/macswap/macswap.json";

/// Pods of a story. Dropping it deletes them.
#[derive(Debug)]
pub(crate) struct Pods<'a> {
    cluster: &'a Cluster,
}

impl<'a> Pods<'a> {
    /// Creates the namespace, with the configuration of macswap.
    ///
    /// # Panics
    /// When the API server refuses.
    #[track_caller]
    pub(crate) fn new(cluster: &'a Cluster, configuration: &Value) -> Self {
        let pods = Self { cluster };
        pods.delete_all();
        let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        cluster.apply(&[
            json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": NAMESPACE, "labels": labels},
            }),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "macswap", "namespace": NAMESPACE},
                "data": {"macswap.json": configuration.to_string()},
            }),
        ]);
        eventually("the service account", || {
            !cluster.object(&format!("serviceaccount default --namespace={NAMESPACE}")).is_null()
        });
        pods
    }

    /// Returns a pod with macswap that asks for one device of the pool `wire`.
    pub(crate) fn macswap(name: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 5,
                "securityContext": {
                    "runAsNonRoot": true, "runAsUser": POD_USER, "runAsGroup": POD_USER,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [{
                    "name": "macswap", "image": IMAGE, "imagePullPolicy": "Never",
                    "command": ["sh", "-c", SCRIPT],
                    "resources": {
                        "limits": {"fastlane.dev/wire": 1, "memory": "256Mi", "cpu": "1"},
                        "requests": {"cpu": "100m"},
                    },
                    "securityContext": {
                        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [
                        {"name": "configuration", "mountPath": "/etc/macswap", "readOnly": true},
                        {"name": "session", "mountPath": "/run/fastlane"},
                    ],
                }],
                "volumes": [
                    {"name": "configuration", "configMap": {"name": "macswap"}},
                    {"name": "session", "emptyDir": {"medium": "Memory"}},
                ],
            },
        })
    }

    /// Creates a pod and waits until macswap runs in it.
    ///
    /// # Panics
    /// When it does not, with its log and its events.
    #[track_caller]
    pub(crate) fn run(&self, pod: &Value) -> Pod<'a> {
        let created = self.create(pod);
        created.wait_until_running(0);
        created
    }

    /// Creates a pod.
    ///
    /// # Panics
    /// When the API server refuses.
    #[track_caller]
    pub(crate) fn create(&self, pod: &Value) -> Pod<'a> {
        self.cluster.apply(std::slice::from_ref(pod));
        let name = pod["metadata"]["name"].as_str().expect("a name").to_owned();
        Pod { cluster: self.cluster, name }
    }

    /// Returns a pod that a controller creates.
    pub(crate) fn existing(&self, name: &str) -> Pod<'a> {
        Pod { cluster: self.cluster, name: name.to_owned() }
    }

    fn delete_all(&self) {
        let words = ["kubectl", "delete", "namespace", NAMESPACE, "--ignore-not-found"];
        let _ = self.cluster.attempt(&[&words[..], &["--timeout=60s"]].concat());
    }
}

impl Drop for Pods<'_> {
    fn drop(&mut self) {
        self.delete_all();
    }
}

/// A pod.
#[derive(Debug)]
pub(crate) struct Pod<'a> {
    cluster: &'a Cluster,
    name: String,
}

impl Pod<'_> {
    /// Returns the pod as the API server has it.
    pub(crate) fn object(&self) -> Value {
        self.cluster.object(&format!("pod {} --namespace={NAMESPACE}", self.name))
    }

    /// Returns the command that prints the log of the container.
    pub(crate) fn logs(&self) -> Vec<&str> {
        vec!["kubectl", "logs", "--namespace", NAMESPACE, &self.name]
    }

    /// Returns the log of the container.
    pub(crate) fn log(&self) -> String {
        self.cluster.attempt(&self.logs()).unwrap_or_else(|output| output)
    }

    /// Returns the log of one of several containers.
    pub(crate) fn log_of(&self, container: &str) -> String {
        let words = [self.logs(), vec!["--container", container]].concat();
        self.cluster.attempt(&words).unwrap_or_else(|output| output)
    }

    /// Follows the log of the container until its end.
    #[track_caller]
    pub(crate) fn follow(&self) -> Process {
        Process::start(self.cluster.command(&[self.logs(), vec!["--follow"]].concat()))
    }

    /// Waits until macswap runs in the container that was started again `restarts` times.
    ///
    /// # Panics
    /// When it does not, with its log and its events.
    #[track_caller]
    pub(crate) fn wait_until_running(&self, restarts: u64) {
        let is_running = || {
            let status = self.object();
            status["status"]["containerStatuses"][0]["restartCount"] == restarts
                && self.log().contains("running; ")
        };
        let end = Instant::now() + Duration::from_secs(60);
        while !is_running() {
            assert!(Instant::now() < end, "{} does not run:\n{}", self.name, self.describe());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn describe(&self) -> String {
        let words = ["kubectl", "describe", "pod", "--namespace", NAMESPACE, &self.name];
        let described = self.cluster.attempt(&words).unwrap_or_else(|output| output);
        format!("{described}\n{}", self.log())
    }

    /// Runs a program in the container. Returns its standard output.
    ///
    /// # Errors
    /// The output of a program that fails.
    pub(crate) fn try_exec(&self, words: &[&str]) -> Result<String, String> {
        let exec = ["kubectl", "exec", "--namespace", NAMESPACE, &self.name, "--"];
        self.cluster.attempt(&[&exec, words].concat())
    }

    /// Runs a program in the container, which must succeed. Returns its standard output.
    ///
    /// # Panics
    /// When it fails, with its output.
    #[track_caller]
    pub(crate) fn exec(&self, words: &[&str]) -> String {
        self.try_exec(words).unwrap_or_else(|output| panic!("{words:?}: {output}"))
    }

    /// Returns the command that prints the counters of macswap.
    pub(crate) fn top(&self) -> Vec<&str> {
        self.top_of("macswap")
    }

    fn top_of<'b>(&'b self, application: &'b str) -> Vec<&'b str> {
        let exec = ["kubectl", "exec", "--namespace", NAMESPACE, &self.name, "--"];
        [&exec[..], &["fastlane", "top", application, "--once", "--json"]].concat()
    }

    /// Returns the counters of macswap.
    ///
    /// # Panics
    /// When `fastlane top` fails in the container.
    #[track_caller]
    pub(crate) fn totals(&self) -> Totals {
        self.totals_of("macswap")
    }

    /// Returns the counters of an application.
    ///
    /// # Panics
    /// When `fastlane top` fails in the container.
    #[track_caller]
    pub(crate) fn totals_of(&self, application: &str) -> Totals {
        let text = self.cluster.run(&self.top_of(application));
        Totals(serde_json::from_str(&text).expect("JSON from fastlane top"))
    }

    /// Returns the number of times that the only container was started again.
    pub(crate) fn restarts(&self) -> u64 {
        let count = &self.object()["status"]["containerStatuses"][0]["restartCount"];
        count.as_u64().unwrap_or(0)
    }

    /// Returns the number of times that one of several containers was started again.
    pub(crate) fn restarts_of(&self, container: &str) -> u64 {
        let status = self.object()["status"]["containerStatuses"].take();
        let mut statuses = status.as_array().into_iter().flatten();
        let status = statuses.find(|status| status["name"] == container);
        status.and_then(|status| status["restartCount"].as_u64()).unwrap_or(0)
    }

    /// Asserts that the container has told that it has no privilege at all.
    ///
    /// # Panics
    /// When it has one.
    #[track_caller]
    pub(crate) fn assert_unprivileged(&self) {
        let log = self.log();
        for capabilities in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert!(log.contains(&format!("{capabilities}:\t0000000000000000\n")), "{log}");
        }
        assert!(log.contains("NoNewPrivs:\t1\n") && log.contains("Seccomp:\t2\n"), "{log}");
        assert!(!log.contains("Uid:\t0"), "{log}");
    }

    /// Deletes the pod and waits until it has ended.
    ///
    /// # Panics
    /// When it does not end.
    #[track_caller]
    pub(crate) fn delete(self) {
        let words = ["kubectl", "delete", "pod", "--namespace", NAMESPACE, &self.name];
        self.cluster.run(&[&words[..], &["--timeout=60s"]].concat());
    }
}
