//! The chart: what helm and the API server say about it.

use fastlane_tests::cluster::release::NAMESPACE;
use fastlane_tests::{Cluster, repository};
use serde_json::{Value, json};

use crate::pools;

/// Version of Kubernetes that has everything.
const VERSION: &str = "1.37.0";

/// Writes values into a file of the cluster and returns its path.
fn values(cluster: &Cluster, values: &Value) -> String {
    let file = cluster.file("chart-values.json");
    std::fs::write(&file, values.to_string()).expect("the folder is ours");
    file.display().to_string()
}

fn chart() -> String {
    repository("k8s/chart").display().to_string()
}

/// Returns the objects of the chart with these values on a cluster of this version.
///
/// # Errors
/// The output of helm.
pub(crate) fn rendered(
    cluster: &Cluster,
    settings: &Value,
    version: &str,
) -> Result<String, String> {
    let (values, chart) = (values(cluster, settings), chart());
    let words = ["helm", "template", "fastlane", &chart, "--namespace", NAMESPACE];
    let more = ["--values", &values, "--kube-version", version];
    cluster.attempt(&[&words[..], &more].concat())
}

#[test]
fn the_chart_passes_the_checks_of_helm() {
    let Some(cluster) = Cluster::get() else { return };
    let values = values(&cluster, &json!({"pools": pools(), "memifLinks": 2}));
    let words = ["helm", "lint", &chart(), "--strict", "--values", &values];
    let report = cluster.run(&words);
    assert!(report.contains("0 chart(s) failed"), "{report}");
    let named = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    cluster.apply(&[named]);
}

#[test]
fn mistakes_in_values_are_named() {
    let Some(cluster) = Cluster::get() else { return };
    for (settings, words) in [
        (json!({"pools": {"Wire": {"interfaces": {}, "steer": []}}}), "Wire"),
        (json!({"pools": {"wire": {"interfaces": {"a": {}}}}}), "steer"),
        (json!({"pools": {"wire": {"steer": [{"udp-prot": 1}]}}}), "udp-prot"),
        (json!({"api": "dpdk"}), "api"),
        (json!({"memifLinks": -1}), "memifLinks"),
        (json!({"pool": {}}), "pool"),
        (json!({"autoscaling": {"upf": {"load": 0.5}}}), "replicas"),
        (json!({"monitoring": {"alerts": true}}), "alerts"),
    ] {
        let refused = rendered(&cluster, &settings, VERSION).expect_err("it is refused");
        assert!(refused.contains(words), "{refused}");
    }
}

#[test]
fn the_api_server_accepts_everything_in_the_chart() {
    let Some(cluster) = Cluster::get() else { return };
    let named = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let monitors = ["PodMonitor", "ServiceMonitor", "PrometheusRule"].map(monitor);
    cluster.apply(&[&[named][..], &monitors].concat());
    let names = ["podmonitors", "servicemonitors", "prometheusrules"];
    for name in names {
        let crd = format!("crd/{name}.monitoring.coreos.com");
        cluster.kubectl(&format!("wait --for=condition=Established --timeout=60s {crd}"));
    }
    let monitoring = json!({
        "podMonitor": true, "serviceMonitor": true, "rules": true, "dashboards": true,
        "labels": {"release": "x"},
    });
    let autoscaling = json!({"upf": {
        "target": {"kind": "StatefulSet", "name": "upf"}, "replicas": {"min": 1, "max": 4},
        "load": 0.7, "sessions": 0.8,
    }});
    let mut settings = json!({"pools": pools(), "memifLinks": 2, "monitoring": monitoring});
    settings["autoscaling"] = autoscaling;
    // Without `limits` and without DRA: what older clusters get.
    for (version, classes) in [(VERSION, 2), ("1.34.0", 2), ("1.30.0", 0)] {
        let text = rendered(&cluster, &settings, version).expect("it is rendered");
        assert_eq!(text.matches("kind: DeviceClass").count(), classes, "{text}");
        let limits = text.contains("extendedResourceName: fastlane.dev/wire");
        assert_eq!(limits, version == VERSION, "{text}");
        let file = cluster.file("rendered.yaml");
        std::fs::write(&file, text).expect("the folder is ours");
        let file = file.display().to_string();
        let words = ["kubectl", "apply", "--dry-run=server", "--namespace", NAMESPACE];
        let done = cluster.run(&[&words[..], &["--filename", &file]].concat());
        for object in [
            "daemonset.apps/fastlane",
            "configmap/fastlane-dashboards",
            "horizontalpodautoscaler.autoscaling/upf",
        ] {
            assert!(done.contains(&format!("{object} created (server dry run)")), "{done}");
        }
    }
    for name in names {
        cluster.kubectl(&format!("delete crd {name}.monitoring.coreos.com"));
    }
}

/// Returns a definition of a resource of the Prometheus operator that accepts any object.
fn monitor(kind: &str) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.monitoring.coreos.com")},
        "spec": {
            "group": "monitoring.coreos.com", "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": open},
            }],
        },
    })
}

#[test]
fn the_examples_are_accepted_where_pods_are_restricted() {
    let Some(cluster) = Cluster::get() else { return };
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    cluster.apply(&[json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "examples", "labels": labels},
    })]);
    for (name, program) in [
        ("macswap", &["macswap"][..]),
        ("upf", &["upf", "fast"]),
        ("upf-containers", &["upf", "fast"]),
    ] {
        let file = repository(&format!("k8s/examples/{name}.yaml")).display().to_string();
        let words = ["kubectl", "apply", "--namespace=examples", "--filename", &file];
        let output = cluster.command(&[&words[..], &["--dry-run=server"]].concat()).output();
        let output = output.expect("kubectl starts");
        // A pod that would be refused is a warning only: its controller would create it later.
        let warnings = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && warnings.is_empty(), "{warnings}");
        let words = [&words[..], &["--dry-run=client", "--output=json"]].concat();
        let objects: Value = serde_json::from_str(&cluster.run(&words)).expect("JSON");
        if name == "upf" {
            let pod = &objects["items"][1]["spec"]["template"]["spec"];
            let hook = &pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"];
            assert_eq!(hook, &json!(["upf", "drain", "--wait", "300"]));
            // The drain and the end of the processes fit.
            assert!(pod["terminationGracePeriodSeconds"].as_u64() >= Some(300 + 11));
        }
        let data = &objects["items"][0]["data"][format!("{}.json", program[0])];
        let configuration = cluster.file(&format!("{name}.json"));
        std::fs::write(&configuration, data.as_str().expect("a text")).expect("ours");
        let mut check = std::process::Command::new(fastlane_tests::binary(program[0]));
        check.args(&program[1..]).arg("--check").arg(&configuration);
        for variable in ["FASTLANE_WIRE_0", "FASTLANE_UPF_0", "FASTLANE_UPF_1"] {
            check.env(variable, format!("lo{}", &variable[variable.len() - 1..]));
        }
        let output = check.output().expect("it starts");
        // Status 3 is a wrong configuration; the interfaces do not exist here.
        let text = String::from_utf8_lossy(&output.stderr);
        assert_ne!(output.status.code(), Some(3), "{name}: {text}");
        assert_ne!(output.status.code(), Some(2), "{name}: {text}");
    }
    cluster.kubectl("delete namespace examples --wait=false");
}

#[test]
fn the_scaled_object_of_the_examples_fits_the_schema_of_keda() {
    let Some(cluster) = Cluster::get() else { return };
    let path = |name: &str| repository(name).display().to_string();
    let definition = path("tests/kubernetes/keda-scaledobjects.yaml");
    cluster.run(&["kubectl", "apply", "--server-side", "--filename", &definition]);
    cluster.kubectl("wait --for=condition=Established --timeout=60s crd/scaledobjects.keda.sh");
    let check = |file: &str| {
        let words = ["kubectl", "create", "--dry-run=server", "--validate=strict", "--filename"];
        cluster.attempt(&[&words[..], &[file]].concat())
    };
    let example = path("k8s/examples/keda.yaml");
    check(&example).unwrap_or_else(|output| panic!("{output}"));
    // The control: a misspelt key.
    let wrong = cluster.file("keda.yaml");
    let text = std::fs::read_to_string(&example).expect("the example");
    std::fs::write(&wrong, text.replace("maxReplicaCount", "maxReplicas")).expect("ours");
    let refused = check(&wrong.display().to_string()).expect_err("it is refused");
    assert!(refused.contains("maxReplicas"), "{refused}");
    cluster.kubectl("delete crd scaledobjects.keda.sh");
}
