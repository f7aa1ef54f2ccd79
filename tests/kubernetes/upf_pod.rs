//! A user's pings cross a UPF in a pod: N3 and N6 are interfaces of the node, N4 is the pod's
//! network.

use std::fs::File;

use fastlane_tests::cluster::pod::{Pod, Pods};
use fastlane_tests::cluster::release::Release;
use fastlane_tests::upf::{Session, Traffic};
use fastlane_tests::{Cluster, Host, Process, binary, eventually};
use serde_json::{Value, json};

use crate::RING;

/// Packets after which a story looks whether all have arrived.
const PART: u64 = 50_000;
/// Server in the data network.
const SERVER: &str = "10.9.0.2";

/// Hosts around the node: the access network with the SMF, and the data network.
pub(crate) struct Networks {
    access: Host,
    data: Host,
}

impl Networks {
    /// Joins them with the node: `eth1` is N3, `eth2` is N6, `n4` the way to the pods.
    #[track_caller]
    pub(crate) fn new(cluster: &Cluster) -> Option<Self> {
        let lab = cluster.wire()?;
        let (node, access, data) = (cluster.node(), lab.another()?, lab.another()?);
        for name in ["eth1", "eth2", "eth3", "eth4", "n4"] {
            let _ = node.attempt(&["ip", "link", "delete", name]); // the last story may have failed
        }
        node.connect(&access, "eth1");
        node.connect(&data, "eth2");
        node.connect(&access, "n4");
        node.add_address("n4", "192.0.2.1/24");
        access.add_address("n4", "192.0.2.2/24");
        access.run(&["ip", "route", "add", "10.88.7.0/24", "via", "192.0.2.1"]);
        access.add_address("eth1", "10.30.0.2/24");
        data.add_address("eth2", "10.6.0.2/24");
        data.add_address("lo", &format!("{SERVER}/32"));
        data.run(&["ip", "route", "add", "10.45.0.0/16", "via", "10.6.0.1"]);
        Some(Self { access, data })
    }

    /// Joins them with two more interfaces of the node, for a second UPF.
    #[track_caller]
    pub(crate) fn join_second_upf(&self, cluster: &Cluster) {
        let node = cluster.node();
        node.connect(&self.access, "eth3");
        node.connect(&self.data, "eth4");
        self.access.add_address("n4", "192.0.2.3/24");
    }

    /// Starts an SMF that establishes `sessions` sessions at the UPF of a pod and holds them.
    /// Returns it and its lines about each UE, which a gNB reads.
    #[track_caller]
    pub(crate) fn smf(&self, upf: &str, sessions: usize) -> (Process, Vec<String>) {
        self.smf_at("192.0.2.2", upf, sessions)
    }

    /// Starts an SMF with an address of its own, as [`smf`](Self::smf) does.
    #[track_caller]
    pub(crate) fn smf_at(
        &self,
        address: &str,
        upf: &str,
        sessions: usize,
    ) -> (Process, Vec<String>) {
        let (program, count) = (binary("smf").display().to_string(), sessions.to_string());
        let ends = ["hold", "--local", address, "--upf", upf, "--gnb", "10.30.0.2", "--qfi", "1"];
        let smf = self.access.start(&[&[&*program], &ends[..], &["--sessions", &count]].concat());
        eventually("all sessions are set up", || smf.stdout().lines().count() == sessions);
        let lines = smf.stdout().lines().map(str::to_owned).collect();
        (smf, lines)
    }

    /// Starts the gNB with these tunnels and routes packets for the server to the UEs' device.
    #[track_caller]
    pub(crate) fn gnb(&self, cluster: &Cluster, lines: &[String]) -> Process {
        let path = cluster.file("tunnels");
        std::fs::write(&path, lines.join("\n") + "\n").expect("the folder is ours");
        let mut command = self.access.command(&[]);
        command.arg(binary("gnb")).args(["--listen", "10.30.0.2"]);
        command.stdin(File::open(path).expect("the lines"));
        let gnb = Process::start(command);
        gnb.wait_for("running; ");
        self.access.run(&["ip", "route", "add", SERVER, "dev", "ue0"]);
        gnb
    }

    /// Starts to send packets from the data network to a UE of a pod, as many as possible.
    #[track_caller]
    pub(crate) fn downlink(&self, cluster: &Cluster, upf: &Pod<'_>, user: &str) -> Process {
        let interface = upf.exec(&["sh", "-c", "echo $FASTLANE_UPF_1"]);
        let interface = interface.trim();
        let configuration = json!({
            "name": "downlink",
            "session": cluster.file("downlink.sock"),
            "ports": {"n6": {"driver": {"af-packet": {"interface": interface}}}},
            "app": {
                "mode": "send", "port": "n6",
                "flows": {
                    "count": 16,
                    "source-mac": self.data.mac(interface),
                    "destination-mac": cluster.node().mac(interface),
                    "source-address": SERVER,
                    "destination-address": user,
                },
            },
        });
        let path = cluster.file("downlink.json");
        std::fs::write(&path, configuration.to_string()).expect("the folder is ours");
        let program = binary("traffic").display().to_string();
        self.data.start(&[&program, &path.display().to_string()])
    }

    /// Opens the interfaces of the gNB and the data network towards the UPF in a pod.
    #[track_caller]
    fn traffic(&self, cluster: &Cluster, upf: &Pod<'_>) -> Traffic {
        let names = ["FASTLANE_UPF_0", "FASTLANE_UPF_1"].map(|variable| {
            upf.exec(&["sh", "-c", &format!("echo ${variable}")]).trim().to_owned()
        });
        let macs = names.each_ref().map(|name| cluster.node().mac(name));
        let hosts = [(&self.access, &*names[0]), (&self.data, &*names[1])];
        Traffic::new(hosts, [&macs[0], &macs[1]])
    }

    /// Sends one ping to the server from a UE. Returns true if it has a response.
    pub(crate) fn ping(&self, user: &str) -> bool {
        self.access.ping(&["-I", user, SERVER])
    }

    /// Sends pings to the server from a UE and asserts that each has a response.
    #[track_caller]
    pub(crate) fn assert_pings(&self, user: &str, count: u32) {
        self.access.assert_pings(count, &["-I", user, SERVER]);
    }

    /// Pings the server from a UE with this interval in seconds. Returns the number of replies.
    pub(crate) fn ping_each(&self, user: &str, count: u32, interval: &str) -> u32 {
        let count = count.to_string();
        let words = ["ping", "-q", "-c", &count, "-i", interval, "-W", "5", "-I", user, SERVER];
        let output = String::from_utf8_lossy(&self.access.attempt(&words).stdout).into_owned();
        let words = output.split(" received").next().and_then(|it| it.rsplit(' ').next());
        words.and_then(|number| number.parse().ok()).unwrap_or(0)
    }
}

/// Returns the pools: both interfaces, with TAP devices as N3 and N6 in the pod's Linux.
pub(crate) fn pools() -> Value {
    json!({"upf": {
        "interfaces": {"eth1": {}, "eth2": {}},
        "steer": [
            {"udp-port": 2152, "fragments": true},
            {"destination": "10.45.0.0/16", "fragments": true},
            {"ethertype": "arp"},
        ],
        "taps": {"n3": {"addresses": ["10.30.0.1/24"]}, "n6": {"addresses": ["10.6.0.1/24"]}},
    }})
}

/// Returns the configuration of the UPF. Its N4 address is on the command line. The pod cannot set
/// a route to the data network.
pub(crate) fn configuration(networks: &Networks) -> Value {
    let port = |variable: &str, tap: &str, address: &str, rule: Value| {
        json!({
            "driver": {"af-xdp": {"interface": variable, "mode": "native-copy"}},
            // ARP is the pod's, not the node's.
            "steer": [rule, {"ethertype": "arp"}],
            "kernel": {"tap": {"name": tap, "addresses": [address]}},
        })
    };
    let n3 = json!({"udp-port": 2152, "fragments": true});
    let n6 = json!({"destination": "10.45.0.0/16", "fragments": true});
    json!({
        "ports": {
            "n3": port("env:FASTLANE_UPF_0", "n3", "10.30.0.1/24", n3),
            "n6": port("env:FASTLANE_UPF_1", "n6", "10.6.0.1/24", n6),
        },
        "app": {
            "node-id": "192.0.2.9",
            "n4": {"addresses": ["192.0.2.9"], "release-s": 5},
            "interfaces": {
                "n3": {"port": "n3", "role": "n3", "addresses": ["10.30.0.1"]},
                "n6": {"port": "n6", "role": "n6", "network-instances": ["internet"],
                       "next-hop": networks.data.mac("eth2")},
            },
            "pools": [{"network-instance": "internet", "prefix": "10.45.0.0/16"}],
            "sessions": 1000,
        },
    })
}

/// Waits until both processes of the UPF run, and returns its address on N4.
#[track_caller]
pub(crate) fn wait_until_ready(pod: &Pod<'_>) -> String {
    eventually("both processes run", || {
        pod.try_exec(&["wget", "-q", "-O-", "http://127.0.0.1:8805/healthz"]).is_ok()
    });
    pod.object()["status"]["podIP"].as_str().expect("an address").to_owned()
}

/// Returns a metric without labels of the UPF in a pod, `None` if it does not respond.
pub(crate) fn metric(pod: &Pod<'_>, name: &str) -> Option<f64> {
    let page = pod.try_exec(&["wget", "-q", "-O-", "http://127.0.0.1:8805/metrics"]).ok()?;
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn pings_of_a_user_cross_a_upf_in_a_pod() {
    let Some(cluster) = Cluster::get() else { return };
    let Some(networks) = Networks::new(&cluster) else { return };
    let release = Release::install(&cluster, "auto", &pools());
    release.wait_for("the devices of node `node1` are published");
    let pods = Pods::new(&cluster, &configuration(&networks));
    let pod = pods.run(&Pods::upf("upf"));
    let address = wait_until_ready(&pod);
    let (smf, lines) = networks.smf(&address, 3);
    let gnb = networks.gnb(&cluster, &lines);
    let user = lines[0].split(' ').nth(1).expect("an address of a UE");
    // The first packets have Linux find the neighbours out.
    let metrics = || pod.exec(&["wget", "-q", "-O-", "http://127.0.0.1:8805/metrics"]);
    let answers = (0..30).any(|_| networks.ping(user));
    assert!(answers, "{}", metrics());
    networks.assert_pings(user, 100);
    // Neither agent nor control plane is on the way.
    release.kill();
    networks.assert_pings(user, 100);
    cluster.kill("upf slow /etc/macswap/macswap.json .*");
    networks.assert_pings(user, 100);
    eventually("its successor has all sessions", || metric(&pod, "upf_sessions") == Some(3.0));
    let ended = smf.stop();
    assert!(ended.status.success(), "{}", ended.stderr);
    let ended = gnb.stop();
    assert!(ended.status.success(), "{}", ended.stderr);
    pod.delete();
}

/// Returns the packets of a story in each direction, and their rate: many more in a soak run.
fn user_load() -> (u64, u32) {
    match std::env::var_os("FASTLANE_SOAK") {
        Some(_) => (5_000_000, 20_000),
        None => (PART, 5_000),
    }
}

#[test]
fn no_packet_of_users_is_lost_in_a_pod() {
    let Some(cluster) = Cluster::get() else { return };
    let Some(networks) = Networks::new(&cluster) else { return };
    let release = Release::install(&cluster, "auto", &pools());
    release.wait_for("the devices of node `node1` are published");
    let mut configuration = configuration(&networks);
    for port in ["n3", "n6"] {
        configuration["ports"][port]["driver"]["af-xdp"]["receive-ring"] = json!(RING);
    }
    configuration["lanes"] = json!({"frames": 4 * RING});
    let pods = Pods::new(&cluster, &configuration);
    let mut pod = Pods::upf("upf");
    pod["spec"]["containers"][0]["resources"]["limits"]["memory"] = json!("512Mi");
    let pod = pods.run(&pod);
    let address = wait_until_ready(&pod);
    pod.assert_unprivileged_programs(&["upf"]);
    let (smf, lines) = networks.smf(&address, 100);
    let held = lines.iter().zip(1..).map(|(line, number)| Session::held(number, line));
    let sessions: Vec<Session> = held.collect::<Option<_>>().expect("lines of the SMF");
    let mut traffic = networks.traffic(&cluster, &pod);
    // The first packets have Linux find the neighbours out.
    eventually("packets reach the gNB", || {
        traffic.send_downlink(&sessions[0]);
        !traffic.collect()[1].is_empty()
    });
    let before = pod.totals_of("upf");
    let (each, rate) = user_load();
    let mut received = [0; 2];
    for _ in 0..each / PART {
        traffic.send_paced(&sessions, PART, rate, || true);
        let arrivals = traffic.collect();
        received = [0, 1].map(|way| received[way] + arrivals[way].len() as u64);
        if arrivals.iter().any(|it| it.len() as u64 != PART) {
            break;
        }
    }
    eprintln!("{received:?} of {each} packets each way at {rate}/s");
    let after = pod.totals_of("upf");
    assert_eq!(received, [each; 2], "{after:?}");
    for port in ["n3", "n6"] {
        assert_eq!(after.drops(port), before.drops(port), "{port}");
    }
    assert!(smf.stop().status.success());
    pod.delete();
}
