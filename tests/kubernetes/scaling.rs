//! Autoscalers of the chart, by a real Prometheus and the custom metrics API.

use std::time::{Duration, Instant};

use fastlane_tests::cluster::pod::{NAMESPACE, Pod, Pods};
use fastlane_tests::cluster::release::Release;
use fastlane_tests::{Cluster, PATIENCE, Process, eventually, repository};
use serde_json::{Value, json};

use crate::monitoring::{prometheus, rules};
use crate::upf_pod::{self, Networks, metric};

/// Longest time from a number to the pods that it asks for.
const LIMIT: Duration = Duration::from_secs(15);
/// Sessions that a UPF of the story can have.
const SESSIONS: u64 = 20;
/// Load of a lane above which another UPF is wanted: an idle one has a hundredth of it, and one
/// that gets all the packets that a generator can send has more also on a busy machine.
const LOAD: f64 = 0.05;

/// Prometheus and the custom metrics API of a cluster. Dropping it removes them.
struct Metrics<'a> {
    cluster: &'a Cluster,
    _processes: [Process; 2],
}

impl<'a> Metrics<'a> {
    /// Starts both. Prometheus scrapes what the chart's PodMonitor names, each second. Returns
    /// `None` after a skip if its programs are missing.
    #[track_caller]
    fn start(cluster: &'a Cluster) -> Option<Self> {
        let program = prometheus()?.join("prometheus").display().to_string();
        let file = |name: &str| cluster.file(name).display().to_string();
        let (configuration, recorded) = (file("prometheus.yml"), file("rules.yml"));
        std::fs::write(&recorded, rules(cluster)).expect("the folder is ours");
        let server = "10.99.0.1:6443";
        let targets = json!({
            "url": format!("https://{server}/targets"), "refresh_interval": "1s",
            "tls_config": {"insecure_skip_verify": true},
        });
        let text = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [recorded],
            "scrape_configs": [{"job_name": "pods", "http_sd_configs": [targets]}],
        });
        std::fs::write(&configuration, text.to_string()).expect("the folder is ours");
        let configuration = format!("--config.file={configuration}");
        let data = format!("--storage.tsdb.path={}", file("tsdb"));
        let listen = "--web.listen-address=127.0.0.1:9090";
        let prometheus = Self::process(cluster, &[&program, &configuration, &data, listen]);
        prometheus.wait_for("Server is ready to receive web requests");
        let script = repository("tests/kubernetes/custom_metrics.py").display().to_string();
        let adapter = repository("k8s/examples/prometheus-adapter.yaml").display().to_string();
        let words = [&script, server, "http://127.0.0.1:9090", &adapter, &file("")];
        let adapter = Self::process(cluster, &words);
        adapter.wait_for("serving");
        let metrics = Self { cluster, _processes: [prometheus, adapter] };
        metrics.register();
        Some(metrics)
    }

    /// Starts a program of the node that ends with this process.
    fn process(cluster: &Cluster, words: &[&str]) -> Process {
        Process::start(cluster.command(&[&["setpriv", "--pdeathsig", "KILL"], words].concat()))
    }

    /// Has the API server ask the custom metrics API, which is outside of the cluster's pods.
    #[track_caller]
    fn register(&self) {
        let named = json!({"name": "custom-metrics", "namespace": "default"});
        let slice = json!({
            "name": "custom-metrics", "namespace": "default",
            "labels": {"kubernetes.io/service-name": "custom-metrics"},
        });
        let ready = json!({"addresses": ["10.99.0.1"], "conditions": {"ready": true}});
        self.cluster.apply(&[
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": named,
                "spec": {"ports": [{"port": 443, "targetPort": 6443}]},
            }),
            json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": slice,
                "addressType": "IPv4", "endpoints": [ready],
                "ports": [{"name": "", "port": 6443, "protocol": "TCP"}],
            }),
            json!({
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                "metadata": {"name": "v1beta2.custom.metrics.k8s.io"},
                "spec": {
                    "group": "custom.metrics.k8s.io", "version": "v1beta2",
                    "groupPriorityMinimum": 100, "versionPriority": 100,
                    "insecureSkipTLSVerify": true,
                    "service": {"name": "custom-metrics", "namespace": "default"},
                },
            }),
        ]);
        let wait = "wait --for=condition=Available --timeout=60s apiservice";
        self.cluster.kubectl(&format!("{wait}/v1beta2.custom.metrics.k8s.io"));
    }

    /// Returns the value of the only series that an expression has now, `None` if it has none.
    #[track_caller]
    fn value(&self, expression: &str) -> Option<f64> {
        let query = format!("query={expression}");
        let words = ["curl", "--silent", "--get", "--data-urlencode", &query];
        let url = ["http://127.0.0.1:9090/api/v1/query"];
        let text = self.cluster.run(&[&words[..], &url].concat());
        let reply: Value = serde_json::from_str(&text).expect("JSON");
        reply["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    }
}

impl Drop for Metrics<'_> {
    fn drop(&mut self) {
        for object in ["apiservice/v1beta2.custom.metrics.k8s.io", "service/custom-metrics"] {
            let words = ["kubectl", "delete", "--namespace=default", object, "--ignore-not-found"];
            let _ = self.cluster.attempt(&words);
        }
    }
}

/// Returns a StatefulSet of UPFs, of which each pod has two interfaces.
fn upfs() -> Value {
    let mut pod = Pods::upf("upf");
    pod["spec"]["terminationGracePeriodSeconds"] = json!(90);
    let ports = json!([
        {"name": "metrics", "containerPort": 8805},
        {"name": "lane-metrics", "containerPort": 9464},
    ]);
    pod["spec"]["containers"][0]["ports"] = ports;
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "upf", "namespace": NAMESPACE},
        "spec": {
            "replicas": 1, "serviceName": "upf", "selector": {"matchLabels": {"app": "upf"}},
            "template": {
                "metadata": {"labels": {"app": "upf", "fastlane.dev/metrics": "true"}},
                "spec": pod["spec"],
            },
        },
    })
}

/// Returns the number of pods that the autoscaler wants.
fn wanted(cluster: &Cluster) -> u64 {
    let set = cluster.object(&format!("statefulset upf --namespace={NAMESPACE}"));
    set["spec"]["replicas"].as_u64().unwrap_or(0)
}

/// Waits until the autoscaler wants this many pods. Returns the time that it took.
///
/// # Panics
/// When it takes too long, with the state of the autoscaler.
#[track_caller]
fn wait_until_wanted(cluster: &Cluster, pods: u64, limit: Duration) -> Duration {
    let start = Instant::now();
    while wanted(cluster) != pods {
        if start.elapsed() > limit {
            let words = format!("describe hpa upf --namespace={NAMESPACE}");
            panic!("{pods} pods are not wanted:\n{}", cluster.kubectl(&words));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    start.elapsed()
}

/// A UPF, for which the autoscaler of the chart adds a second one. Dropping it removes everything.
struct Story<'a> {
    cluster: &'a Cluster,
    metrics: Metrics<'a>,
    pods: Pods<'a>,
    _release: Release<'a>,
    networks: Networks,
}

impl<'a> Story<'a> {
    /// Starts the UPF `upf-0`, with an autoscaler that follows `number` up to `target`. Returns the
    /// address of the UPF too, or `None` after a skip.
    #[track_caller]
    fn start(cluster: &'a Cluster, number: &str, target: f64) -> Option<(Self, String)> {
        let networks = Networks::new(cluster)?;
        networks.join_second_upf(cluster);
        let mut pools = upf_pod::pools();
        for name in ["eth3", "eth4"] {
            pools["upf"]["interfaces"][name] = json!({});
        }
        let release = Release::install(cluster, "auto", &pools);
        release.wait_for("the devices of node `node1` are published");
        let mut configuration = upf_pod::configuration(&networks);
        configuration["metrics"] = json!({"listen": "0.0.0.0:9464"});
        configuration["app"]["sessions"] = json!(SESSIONS);
        configuration["app"]["api"] = json!("0.0.0.0:8805");
        configuration["app"]["n4"]["release-s"] = json!(60);
        let pods = Pods::new(cluster, &configuration);
        let metrics = Metrics::start(cluster)?;
        cluster.apply(&[upfs()]);
        let mut scaled = json!({
            "namespace": NAMESPACE, "target": {"kind": "StatefulSet", "name": "upf"},
            "replicas": {"min": 1, "max": 2}, "calmSeconds": 5,
        });
        scaled[number] = json!(target);
        release.scale(&json!({"upf": scaled}));
        let address = upf_pod::wait_until_ready(&pods.existing("upf-0"));
        eventually("the autoscaler has the number", || {
            let hpa = cluster.object(&format!("hpa upf --namespace={NAMESPACE}"));
            !hpa["status"]["currentMetrics"][0]["pods"]["current"]["averageValue"].is_null()
        });
        assert_eq!(wanted(cluster), 1);
        Some((Self { cluster, metrics, pods, _release: release, networks }, address))
    }

    /// Returns the load of the busiest lane of a pod, 0 if it is not known yet.
    #[track_caller]
    fn load(&self, pod: &str) -> f64 {
        self.metrics.value(&format!("pod:fastlane_lane_load:ratio{{pod=\"{pod}\"}}")).unwrap_or(0.0)
    }

    /// Waits until the load of a pod is above the target of its autoscaler.
    ///
    /// # Panics
    /// When it never is, with the load and the counters of the pod.
    #[track_caller]
    fn wait_until_busy(&self, pod: &str) {
        let start = Instant::now();
        while self.load(pod) <= LOAD {
            if start.elapsed() > 2 * PATIENCE {
                let counters = self.pods.existing(pod).totals_of("upf");
                panic!("load {} of {LOAD}:\n{}", self.load(pod), counters.0);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits until one pod is wanted only, and the second one is drained: its sessions stay as long
    /// as their SMF lets them. Returns the time until it is wanted.
    #[track_caller]
    fn scale_in(&self, second: &Pod<'_>, smf: Process, sessions: f64) -> Duration {
        let log = second.follow();
        let took = wait_until_wanted(self.cluster, 1, 3 * PATIENCE);
        eventually("it is drained", || metric(second, "upf_draining") == Some(1.0));
        for _ in 0..20 {
            assert_eq!(metric(second, "upf_sessions"), Some(sessions), "a session is lost");
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(smf.stop().status.success());
        eventually("its pod has ended", || second.object().is_null());
        let log = log.wait().stdout;
        assert!(log.contains("ending without associations"), "{log}");
        assert_eq!(self.pods.existing("upf-0").restarts(), 0);
        took
    }
}

#[test]
fn a_upf_is_scaled_by_its_sessions_and_a_drain_loses_none() {
    let Some(cluster) = Cluster::get() else { return };
    let Some((story, address)) = Story::start(&cluster, "sessions", 0.5) else { return };
    let (smf, _) = story.networks.smf_at("192.0.2.2", &address, 15);
    let took = wait_until_wanted(&cluster, 2, LIMIT);
    eprintln!("15 of {SESSIONS} sessions: a second pod is wanted after {took:.1?}");
    let second = story.pods.existing("upf-1");
    let address = upf_pod::wait_until_ready(&second);
    let (other, _) = story.networks.smf_at("192.0.2.3", &address, 5);
    // The first SMF has no more sessions, so the second pod is drained.
    assert!(smf.stop().status.success());
    let took = story.scale_in(&second, other, 5.0);
    eprintln!("5 of {} sessions: one pod is wanted after {took:.1?}", 2 * SESSIONS);
}

#[test]
fn a_upf_is_scaled_by_the_load_of_its_lanes_and_a_drain_loses_no_session() {
    let Some(cluster) = Cluster::get() else { return };
    let Some((story, address)) = Story::start(&cluster, "load", LOAD) else { return };
    let (smf, lines) = story.networks.smf_at("192.0.2.2", &address, 3);
    let user = lines[0].split(' ').nth(1).expect("an address of a UE");
    assert!(story.load("upf-0") < LOAD, "it is idle");
    let traffic = story.networks.downlink(&cluster, &story.pods.existing("upf-0"), user);
    story.wait_until_busy("upf-0");
    let took = wait_until_wanted(&cluster, 2, LIMIT);
    let load = story.load("upf-0");
    eprintln!("load {load:.2} above {LOAD}: a second pod is wanted after {took:.1?}");
    let second = story.pods.existing("upf-1");
    let addresses = [address, upf_pod::wait_until_ready(&second)];
    eventually("its load is known", || metric(&second, "upf_sessions") == Some(0.0));
    // An SMF that balances by load gives new sessions to the second one.
    let loads = ["upf-0", "upf-1"].map(|pod| story.load(pod));
    let chosen = usize::from(loads[1] < loads[0]);
    let (other, _) = story.networks.smf_at("192.0.2.3", &addresses[chosen], 5);
    assert_eq!(metric(&second, "upf_sessions"), Some(5.0), "loads {loads:?}");
    // Nothing of the first one's was moved or lost.
    assert_eq!(metric(&story.pods.existing("upf-0"), "upf_sessions"), Some(3.0));
    let sent = traffic.stop();
    assert!(sent.status.success(), "{}", sent.stderr);
    let took = story.scale_in(&second, other, 5.0);
    eprintln!("without traffic one pod is wanted after {took:.1?}");
    assert_eq!(metric(&story.pods.existing("upf-0"), "upf_sessions"), Some(3.0));
    assert!(smf.stop().status.success());
}
