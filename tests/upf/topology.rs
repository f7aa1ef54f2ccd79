//! Topology of the UPF under test: namespaces of UPF, control plane, access network and data
//! networks, the links between them, and the configuration.

use std::path::Path;

use fastlane_tests::{Application, Host, Lab, Mechanism, Process, binary, eventually};
use serde_json::{Value, json};

use crate::group::Group;

/// N1. It is short like the heartbeat interval, so that associations end soon.
const N1: u32 = 3;
const HEARTBEAT_S: u64 = 2;

/// Interval of echo requests to GTP-U peers in seconds, where paths are probed.
const PROBE_S: u64 = 1;
/// Packets of a burst, where users' packets come in bursts.
const BURST: usize = 8;

/// Differences of a network from the usual one, which has both families on N3, IPv4 on N4, one
/// lane, no probing of paths, and packets of users one at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Variant {
    pub(crate) n3_is_ipv4: bool,
    pub(crate) n4_is_ipv6: bool,
    pub(crate) has_two_lanes: bool,
    pub(crate) probes_paths: bool,
    pub(crate) has_bursts: bool,
}

impl Variant {
    /// All differences at once.
    pub(crate) const ALL: Self = Self {
        n3_is_ipv4: true,
        n4_is_ipv6: true,
        has_two_lanes: true,
        probes_paths: true,
        has_bursts: true,
    };

    /// Returns the variants with one difference each.
    pub(crate) fn each() -> [Self; 5] {
        let usual = Self::default();
        [
            Self { n3_is_ipv4: true, ..usual },
            Self { n4_is_ipv6: true, ..usual },
            Self { has_two_lanes: true, ..usual },
            Self { probes_paths: true, ..usual },
            Self { has_bursts: true, ..usual },
        ]
    }

    /// Returns an address on N4: its last part in the network of the family.
    fn n4(self, host: u32) -> String {
        if self.n4_is_ipv6 { format!("fd40::{host}") } else { format!("10.40.0.{host}") }
    }

    /// Returns the UPF's addresses of an interface.
    fn own(self, interface: &Interface) -> &'static [&'static str] {
        let count = if self.n3_is_ipv4 && interface.name == "n3" { 1 } else { 2 };
        interface.own.get(..count).unwrap_or_default()
    }

    fn lanes(self) -> u32 {
        if self.has_two_lanes { 2 } else { 1 }
    }
}

/// Mechanism of the UPF's ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum PortMechanism {
    AfXdp,
    AfPacket,
    Memif,
    Dpdk,
}

/// A port of the UPF: its name, the UPF's addresses, those of the next hop and the networks behind
/// it.
struct Interface {
    name: &'static str,
    own: &'static [&'static str; 2],
    hop: [&'static str; 2],
    beyond: &'static [&'static str],
    table: &'static str,
    steer: &'static [&'static str],
}

const INTERFACES: [Interface; 4] = [
    Interface {
        name: "ims",
        own: &["10.61.0.1/24", "fd61::1/64"],
        hop: ["10.61.0.2", "fd61::2"],
        beyond: &["10.60.1.0/24", "fd60:1::/64"],
        table: "100",
        steer: &["10.46.0.0/16", "10.47.0.0/16", "fd46::/16", "fd47::/16"],
    },
    Interface {
        name: "n3",
        own: &["10.30.0.1/24", "fd30::1/64"],
        hop: ["10.30.0.2", "fd30::2"],
        beyond: &["10.30.1.0/24", "fd30:1::/64"],
        table: "main",
        steer: &[],
    },
    Interface {
        name: "n6",
        own: &["10.60.0.1/24", "fd60::1/64"],
        hop: ["10.60.0.2", "fd60::2"],
        beyond: &["10.60.1.0/24", "10.60.2.0/24", "fd60:1::/64", "fd60:2::/64"],
        table: "main",
        steer: &[
            "10.45.0.0/16",
            "10.47.0.0/16",
            "10.99.0.0/16",
            "fd45::/16",
            "fd47::/16",
            "fd99::/16",
        ],
    },
    Interface {
        name: "n9",
        own: &["10.90.0.1/24", "fd90::1/64"],
        hop: ["10.90.0.2", "fd90::2"],
        beyond: &["10.90.1.0/24", "fd90:1::/64"],
        table: "main",
        steer: &[],
    },
];

impl PortMechanism {
    /// Returns true if the ports are interfaces of Linux.
    fn is_shared_with_linux(self) -> bool {
        matches!(self, Self::AfXdp | Self::AfPacket)
    }

    /// Returns the configuration of a port.
    fn port(self, lab: &Lab, interface: &Interface, variant: Variant) -> Value {
        let socket = lab.file(&format!("{}.memif", interface.name));
        let driver = match self {
            Self::AfXdp => Mechanism::XdpNative.on(interface.name),
            Self::AfPacket => Mechanism::Packet.on(interface.name),
            Self::Memif => json!({"memif": {"socket": socket, "role": "client"}}),
            Self::Dpdk => {
                let number =
                    INTERFACES.iter().position(|it| it.name == interface.name).unwrap_or(0);
                let vdev = format!("net_memif{number},role=client,socket-abstract=no");
                json!({"dpdk": {"vdev": format!("{vdev},socket={}", socket.display())}})
            }
        };
        let steer = match interface.steer {
            [] => json!([{"udp-port": 2152, "fragments": true}]),
            prefixes => {
                prefixes.iter().map(|it| json!({"destination": it, "fragments": true})).collect()
            }
        };
        let mut port = json!({"driver": driver, "steer": steer});
        if !self.is_shared_with_linux() {
            let own = variant.own(interface);
            port["kernel"] = json!({"tap": {"name": interface.name, "addresses": own}});
        }
        if variant.has_two_lanes {
            port["lanes"] = json!([0]); // it receives and transmits for the other one
        }
        port
    }
}

/// Everything that a group of cases needs, running.
pub(crate) struct Setup {
    /// The UPF is its left host, the access network its right one.
    pub(crate) lab: Lab,
    control: Host,
    data: Host,
    relay: Option<(Host, Application)>,
    mechanism: PortMechanism,
    variant: Variant,
}

impl Setup {
    /// Makes the namespaces and wires; `None`, after a skip, where that is not allowed.
    pub(crate) fn new(mechanism: PortMechanism, variant: Variant) -> Option<Self> {
        let lab = Lab::new("upf", 1)?;
        let [control, data] = [lab.another()?, lab.another()?];
        join(&lab.left, &control, "n4");
        let length = if variant.n4_is_ipv6 { 64 } else { 24 };
        for host in 1..10 {
            let side = if host == 1 { &lab.left } else { &control };
            addresses(side, "n4", &[&format!("{}/{length}", variant.n4(host))]);
        }
        for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            lab.left.run(&["sysctl", "-qw", &format!("{key}=1")]);
        }
        let mut this = Self { lab, control, data, relay: None, mechanism, variant };
        if mechanism.is_shared_with_linux() {
            for interface in &INTERFACES {
                join(&this.lab.left, this.far(interface), interface.name);
                addresses(&this.lab.left, interface.name, variant.own(interface));
            }
        } else {
            let host = this.lab.another()?;
            INTERFACES
                .iter()
                .for_each(|interface| join(&host, this.far(interface), interface.name));
            let relay = this.start_relay(&host);
            this.relay = Some((host, relay));
        }
        for interface in &INTERFACES {
            let hop = [format!("{}/24", interface.hop[0]), format!("{}/64", interface.hop[1])];
            addresses(this.far(interface), interface.name, &[&hop[0], &hop[1]]);
        }
        Some(this)
    }

    /// Returns the host at the other end of a link.
    fn far(&self, interface: &Interface) -> &Host {
        if interface.name.starts_with("n3") || interface.name == "n9" {
            &self.lab.right
        } else {
            &self.data
        }
    }

    /// Starts a relay between all links and a memif server for each.
    fn start_relay(&self, host: &Host) -> Application {
        let mut ports = json!({});
        for interface in &INTERFACES {
            let socket = self.lab.file(&format!("{}.memif", interface.name));
            let memif = json!({"memif": {"socket": socket, "role": "server"}});
            let wire = json!({"af-packet": {"interface": interface.name}});
            ports[interface.name] = json!({"driver": wire, "kernel": "none"});
            ports[format!("{}-far", interface.name)] = json!({"driver": memif});
        }
        Application::start(&self.lab, host, &binary("relay"), json!({"ports": ports}))
    }

    /// Starts the UPF for a group, and waits until it runs and knows its next hops.
    pub(crate) fn start(&self, group: Group) -> Application {
        let program = binary("upf");
        let upf =
            Application::start(&self.lab, &self.lab.left, &program, self.configuration(group));
        for interface in &INTERFACES {
            self.know_next_hops(interface);
        }
        upf
    }

    fn know_next_hops(&self, interface: &Interface) {
        let upf = &self.lab.left;
        let show = ["ip", "link", "show", "dev", interface.name];
        eventually("the UPF's interface is up", || {
            String::from_utf8_lossy(&upf.attempt(&show).stdout).contains("LOWER_UP")
        });
        // A memif has room for more than the wires behind the relay.
        upf.run(&["ip", "link", "set", "dev", interface.name, "mtu", "1500"]);
        let far = self.far(interface).mac(interface.name);
        for hop in interface.hop {
            let words = ["ip", "neigh", "replace", hop, "lladdr", &far, "dev", interface.name];
            upf.run(&[&words[..], &["nud", "permanent"]].concat());
        }
        let has_v6 = self.variant.own(interface).len() == 2;
        for network in interface.beyond.iter().filter(|it| has_v6 || !it.contains(':')) {
            let hop = interface.hop[usize::from(network.contains(':'))];
            let words = ["ip", "route", "replace", network, "via", hop, "dev", interface.name];
            upf.run(&[&words[..], &["table", interface.table]].concat());
        }
    }

    fn configuration(&self, group: Group) -> Value {
        let variant = self.variant;
        let ports = INTERFACES
            .iter()
            .map(|it| (it.name.to_owned(), self.mechanism.port(&self.lab, it, variant)));
        let ports: serde_json::Map<String, Value> = ports.collect();
        let tunnel = |name: &str, instance: &str, interface: &Interface| {
            let own = variant.own(interface).iter().map(|it| it.split('/').next().unwrap_or(it));
            let own: Vec<&str> = own.collect();
            json!({"port": name, "role": name, "network-instances": [instance], "addresses": own})
        };
        let mut app = json!({
            "node-id": variant.n4(1),
            "n4": {
                "addresses": [variant.n4(1)], "t1-ms": group.t1_ms(), "n1": N1,
                "heartbeat-s": HEARTBEAT_S, "release-s": 0,
            },
            "interfaces": {
                "n3": tunnel("n3", "access", &INTERFACES[1]),
                "n9": tunnel("n9", "n9", &INTERFACES[3]),
                "n6": {"port": "n6", "role": "n6", "network-instances": ["internet"]},
                "ims": {"port": "ims", "role": "n6", "network-instances": ["ims"],
                        "route-table": 100},
            },
            "pools": [
                {"network-instance": "internet", "prefix": "10.45.0.0/16"},
                {"network-instance": "internet", "prefix": "10.47.0.0/16", "allocate": false},
                {"network-instance": "internet", "prefix": "fd47::/32", "allocate": false},
                {"network-instance": "ims", "prefix": "10.46.0.0/29"},
                {"network-instance": "ims", "prefix": "fd46::/56"},
                {"network-instance": "ims", "prefix": "10.47.0.0/16", "allocate": false},
            ],
            "sessions": group.sessions(),
            "gtp": {
                "errors-per-s": 100, "echoes-per-s": 1000, "quiet-s": group.quiet_s(), "probe-s": 0,
            },
        });
        if variant.probes_paths {
            app["gtp"]["probe-s"] = json!(PROBE_S);
            (app["gtp"]["t3-ms"], app["gtp"]["n3"]) = (json!(500), json!(2));
        }
        // Mutants of an address that is not allowed would take all its associations.
        if matches!(group, Group::Node | Group::Soak) {
            app["n4"]["allow"] = json!(["10.40.0.0/24", "fd40::/64"]);
        }
        if group == Group::Node {
            app["n4"]["peers"] = json!([variant.n4(9)]);
        }
        if group == Group::Limits {
            app["teid"] = json!("smf");
            app["n4"]["establishments-per-s"] = json!(group.establishments_per_s());
        }
        let mut lanes = json!({"frames": 16_384}); // DPDK's four devices want so many
        if variant.has_two_lanes {
            lanes["cpus"] = json!([0, 1]);
        }
        json!({"ports": ports, "app": app, "lanes": lanes, "dpdk": {"huge-pages": "none"}})
    }

    /// Writes what the cases must know, and starts the program that runs them.
    pub(crate) fn judge(&self, python: &Path, group: Group, only: &[u32], pid: u32) -> Process {
        let wire = |interface: &Interface| {
            let far = self.far(interface);
            json!({"namespace": far.path(), "interface": interface.name,
                   "mac": far.mac(interface.name),
                "upf-mac": self.lab.left.mac(interface.name)})
        };
        let wires = INTERFACES.iter().map(|it| (it.name.to_owned(), wire(it)));
        let (soak, variant) = (is_soak(), self.variant);
        let facts = json!({
            "wires": wires.collect::<serde_json::Map<_, _>>(), "smf-namespace": self.control.path(),
            "upf-namespace": self.lab.left.path(), "n4": variant.n4(1), "n3": "10.30.0.1",
            "n3-v6": (!variant.n3_is_ipv4).then_some("fd30::1"), "pid": pid,
            "t1-ms": group.t1_ms(), "n1": N1, "heartbeat-s": HEARTBEAT_S,
            "sessions": group.sessions(), "establishments-per-s": group.establishments_per_s(),
            "errors-per-s": 100, "echoes-per-s": 1000, "filters": 16, "quiet-s": group.quiet_s(),
            "held-packets": 64, "held-packets-per-lane": 1024, "lanes": variant.lanes(),
            "probe-s": if variant.probes_paths { PROBE_S } else { 0 },
            "burst": if variant.has_bursts { BURST } else { 1 },
            "grace": if self.mechanism.is_shared_with_linux() { 0.05 } else { 0.15 }, "soak": soak,
            "mutants": if soak { 200_000 } else { 20_000 },
        });
        let path = self.lab.file("lab.json");
        std::fs::write(&path, facts.to_string()).expect("the lab's file is written");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("upf/run.py");
        let mut command = std::process::Command::new(python);
        command.arg(script).arg(path).arg(group.name());
        command.args(only.iter().map(u32::to_string));
        Process::start(command)
    }

    /// Ends what carries, after the UPF.
    pub(crate) fn end(self) {
        if let Some((_, relay)) = self.relay {
            relay.stop();
        }
    }
}

/// Returns true if the long form of the tests was requested.
pub(crate) fn is_soak() -> bool {
    std::env::var_os("FASTLANE_SOAK").is_some()
}

fn join(near: &Host, far: &Host, name: &str) {
    let path = far.path();
    let words = ["ip", "link", "add", name, "type", "veth", "peer", "name", name, "netns", &path];
    near.run(&words);
    for host in [near, far] {
        host.run(&["ip", "link", "set", name, "addrgenmode", "none", "up"]);
        host.run(&["sysctl", "-qw", &format!("net.ipv4.conf.{name}.rp_filter=0")]);
    }
}

fn addresses(host: &Host, name: &str, addresses: &[&str]) {
    for address in addresses {
        let words = ["ip", "address", "add", address, "dev", name];
        let more: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
        host.run(&[&words[..], more].concat());
    }
}
