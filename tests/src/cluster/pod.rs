//! Pods of the stories: without any privilege, in a namespace that admits no other ones.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Cluster, IMAGE, POD_USER};
use crate::{Process, Totals, eventually};

/// Namespace of the pods, which enforces the Pod Security Standard `restricted`.
pub const NAMESPACE: &str = "stories";
/// Script of the container: tells its privileges, then becomes macswap.
const SCRIPT: &str = "grep -E '^(Uid|Cap[A-Za-z]*|NoNewPrivs|Seccomp):' /proc/self/status; \
                      exec macswap /etc/macswap/macswap.json";

/// Pods of a story. Dropping it deletes them.
#[derive(Debug)]
pub struct Pods<'a> {
    cluster: &'a Cluster,
}

impl<'a> Pods<'a> {
    /// Creates the namespace, with the configuration of macswap.
    ///
    /// # Panics
    /// When the API server refuses.
    #[track_caller]
    pub fn new(cluster: &'a Cluster, configuration: &Value) -> Self {
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
    pub fn macswap(name: &str) -> Value {
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

    /// Returns a pod with the UPF that asks for two devices of the pool `upf`. Its node ID and its
    /// address on N4 are the pod's.
    pub fn upf(name: &str) -> Value {
        let mut pod = Self::macswap(name);
        let container = &mut pod["spec"]["containers"][0];
        container["name"] = json!("upf");
        let limits = container["resources"]["limits"].as_object_mut().expect("limits");
        limits.remove("fastlane.dev/wire");
        limits.insert("fastlane.dev/upf".to_owned(), json!(2));
        container["command"] = json!(Self::upf_command("$(POD_IP)"));
        let address = json!({"fieldRef": {"fieldPath": "status.podIP"}});
        container["env"] = json!([{"name": "POD_IP", "valueFrom": address}]);
        pod
    }

    /// Returns the command of the UPF in a pod with this address.
    #[must_use]
    pub fn upf_command(address: &str) -> [String; 6] {
        [
            "upf".to_owned(),
            "/etc/macswap/macswap.json".to_owned(),
            "--set".to_owned(),
            format!("app.node-id={address}"),
            "--set".to_owned(),
            format!("app.n4.addresses=[\"{address}\"]"),
        ]
    }

    /// Creates a pod and waits until macswap runs in it.
    ///
    /// # Panics
    /// When it does not, with its log and its events.
    #[track_caller]
    pub fn run(&self, pod: &Value) -> Pod<'a> {
        let created = self.create(pod);
        created.wait_until_running(0);
        created
    }

    /// Creates a pod.
    ///
    /// # Panics
    /// When the API server refuses.
    #[track_caller]
    pub fn create(&self, pod: &Value) -> Pod<'a> {
        self.cluster.apply(std::slice::from_ref(pod));
        let name = pod["metadata"]["name"].as_str().expect("a name").to_owned();
        Pod { cluster: self.cluster, name }
    }

    /// Returns a pod that a controller creates.
    pub fn existing(&self, name: &str) -> Pod<'a> {
        Pod { cluster: self.cluster, name: name.to_owned() }
    }

    /// Prints what Kubernetes and the containers tell of all pods, for messages.
    fn describe(&self) {
        let run = |words: &[&str]| {
            let words = [&["kubectl", "--namespace", NAMESPACE], words].concat();
            self.cluster.attempt(&words).unwrap_or_else(|output| output)
        };
        eprintln!("{}", run(&["describe", "pods"]));
        for pod in run(&["get", "pods", "--output=name"]).lines() {
            eprintln!("{}", run(&["logs", pod, "--all-containers", "--prefix", "--tail=40"]));
        }
    }

    fn delete_all(&self) {
        let words = ["kubectl", "delete", "namespace", NAMESPACE, "--ignore-not-found"];
        let _ = self.cluster.attempt(&[&words[..], &["--timeout=60s"]].concat());
    }
}

impl Drop for Pods<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.describe();
        }
        self.delete_all();
    }
}

/// A pod.
#[derive(Debug)]
pub struct Pod<'a> {
    cluster: &'a Cluster,
    name: String,
}

impl Pod<'_> {
    /// Returns the pod as the API server has it.
    pub fn object(&self) -> Value {
        self.cluster.object(&format!("pod {} --namespace={NAMESPACE}", self.name))
    }

    /// Returns the command that prints the log of the container.
    pub fn logs(&self) -> Vec<&str> {
        vec!["kubectl", "logs", "--namespace", NAMESPACE, &self.name]
    }

    /// Returns the log of the container.
    pub fn log(&self) -> String {
        self.cluster.attempt(&self.logs()).unwrap_or_else(|output| output)
    }

    /// Returns the log of one of several containers.
    pub fn log_of(&self, container: &str) -> String {
        let words = [self.logs(), vec!["--container", container]].concat();
        self.cluster.attempt(&words).unwrap_or_else(|output| output)
    }

    /// Follows the log of the container until its end.
    #[track_caller]
    pub fn follow(&self) -> Process {
        Process::start(self.cluster.command(&[self.logs(), vec!["--follow"]].concat()))
    }

    /// Waits until macswap runs in the container that was started again `restarts` times.
    ///
    /// # Panics
    /// When it does not, with its log and its events.
    #[track_caller]
    pub fn wait_until_running(&self, restarts: u64) {
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
    pub fn try_exec(&self, words: &[&str]) -> Result<String, String> {
        let exec = ["kubectl", "exec", "--namespace", NAMESPACE, &self.name, "--"];
        self.cluster.attempt(&[&exec, words].concat())
    }

    /// Runs a program in the container, which must succeed. Returns its standard output.
    ///
    /// # Panics
    /// When it fails, with its output.
    #[track_caller]
    pub fn exec(&self, words: &[&str]) -> String {
        self.try_exec(words).unwrap_or_else(|output| panic!("{words:?}: {output}"))
    }

    /// Returns the command that prints the counters of macswap.
    pub fn top(&self) -> Vec<&str> {
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
    pub fn totals(&self) -> Totals {
        self.totals_of("macswap")
    }

    /// Returns the counters of an application.
    ///
    /// # Panics
    /// When `fastlane top` fails in the container.
    #[track_caller]
    pub fn totals_of(&self, application: &str) -> Totals {
        let text = self.cluster.run(&self.top_of(application));
        Totals(serde_json::from_str(&text).expect("JSON from fastlane top"))
    }

    /// Returns the number of times that the only container was started again.
    pub fn restarts(&self) -> u64 {
        let count = &self.object()["status"]["containerStatuses"][0]["restartCount"];
        count.as_u64().unwrap_or(0)
    }

    /// Returns the status of one of several containers; null if it has none.
    fn status_of(&self, container: &str) -> Value {
        let status = self.object()["status"].take();
        let kinds = ["containerStatuses", "initContainerStatuses"];
        let mut statuses = kinds.iter().filter_map(|kind| status[kind].as_array()).flatten();
        statuses.find(|status| status["name"] == container).cloned().unwrap_or_default()
    }

    /// Returns the number of times that one of several containers was started again.
    pub fn restarts_of(&self, container: &str) -> u64 {
        self.status_of(container)["restartCount"].as_u64().unwrap_or(0)
    }

    /// Returns true if one of several containers runs from this image.
    pub fn runs(&self, container: &str, image: &str) -> bool {
        let status = self.status_of(container);
        status["image"] == image && status["state"]["running"].is_object()
    }

    /// Asserts that the container has told that it has no privilege at all.
    ///
    /// # Panics
    /// When it has one.
    #[track_caller]
    pub fn assert_unprivileged(&self) {
        assert_no_privilege(&self.log());
    }

    /// Asserts that none of `names`, programs that run in the container, has a privilege.
    ///
    /// # Panics
    /// When one has, or does not run.
    #[track_caller]
    pub fn assert_unprivileged_programs(&self, names: &[&str]) {
        let status = self.exec(&["sh", "-c", "cat /proc/[0-9]*/status"]);
        let processes: Vec<&str> = status.split("Name:\t").collect();
        for name in names {
            let of = processes.iter().filter(|status| status.lines().next() == Some(name));
            let of: Vec<&&str> = of.collect();
            assert!(!of.is_empty(), "no {name} in {processes:?}");
            of.into_iter().for_each(|status| assert_no_privilege(status));
        }
    }

    /// Deletes the pod and waits until it has ended.
    ///
    /// # Panics
    /// When it does not end.
    #[track_caller]
    pub fn delete(self) {
        let words = ["kubectl", "delete", "pod", "--namespace", NAMESPACE, &self.name];
        self.cluster.run(&[&words[..], &["--timeout=60s"]].concat());
    }
}

/// Asserts that a process with this status (proc_pid_status(5)) has no privilege.
#[track_caller]
fn assert_no_privilege(status: &str) {
    for capabilities in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert!(status.contains(&format!("{capabilities}:\t0000000000000000\n")), "{status}");
    }
    assert!(status.contains("NoNewPrivs:\t1\n") && status.contains("Seccomp:\t2\n"), "{status}");
    assert!(!status.contains("Uid:\t0"), "{status}");
}
