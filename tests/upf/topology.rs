//! Where the UPF runs: its network namespace, those of the control plane, the access network and
//! the data networks, the wires between them, and its configuration.

use std::path::Path;

use fastlane_tests::{Application, Host, Lab, Mechanism, Process, binary, eventually};
use serde_json::{Value, json};

use crate::group::Group;

/// N1, and the seconds between heartbeats: short, so that what must come to an end does.
const N1: u32 = 3;
const HEARTBEAT_S: u64 = 2;

/// What carries the UPF's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Carrier {
    AfXdp,
    AfPacket,
    Memif,
    Dpdk,
}

/// A wire of the UPF: its name, the UPF's addresses, those of the next hop at its other end, and
/// the networks beyond.
struct Place {
    name: &'static str,
    own: [&'static str; 2],
    hop: [&'static str; 2],
    beyond: &'static [&'static str],
    table: &'static str,
    steer: &'static [&'static str],
}

const PLACES: [Place; 4] = [
    Place {
        name: "ims",
        own: ["10.61.0.1/24", "fd61::1/64"],
        hop: ["10.61.0.2", "fd61::2"],
        beyond: &["10.60.1.0/24", "fd60:1::/64"],
        table: "100",
        steer: &["10.46.0.0/16", "10.47.0.0/16", "fd46::/16", "fd47::/16"],
    },
    Place {
        name: "n3",
        own: ["10.30.0.1/24", "fd30::1/64"],
        hop: ["10.30.0.2", "fd30::2"],
        beyond: &["10.30.1.0/24", "fd30:1::/64"],
        table: "main",
        steer: &[],
    },
    Place {
        name: "n6",
        own: ["10.60.0.1/24", "fd60::1/64"],
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
    Place {
        name: "n9",
        own: ["10.90.0.1/24", "fd90::1/64"],
        hop: ["10.90.0.2", "fd90::2"],
        beyond: &["10.90.1.0/24", "fd90:1::/64"],
        table: "main",
        steer: &[],
    },
];

impl Carrier {
    /// Whether its ports are wires of Linux.
    fn is_linuxs(self) -> bool {
        matches!(self, Self::AfXdp | Self::AfPacket)
    }

    /// The UPF's port.
    fn port(self, lab: &Lab, place: &Place) -> Value {
        let socket = lab.file(&format!("{}.memif", place.name));
        let driver = match self {
            Self::AfXdp => Mechanism::XdpNative.on(place.name),
            Self::AfPacket => Mechanism::Packet.on(place.name),
            Self::Memif => json!({"memif": {"socket": socket, "role": "client"}}),
            Self::Dpdk => {
                let number = PLACES.iter().position(|it| it.name == place.name).unwrap_or(0);
                let vdev = format!("net_memif{number},role=client,socket-abstract=no");
                json!({"dpdk": {"vdev": format!("{vdev},socket={}", socket.display())}})
            }
        };
        let steer = match place.steer {
            [] => json!([{"udp-port": 2152}]),
            prefixes => prefixes.iter().map(|it| json!({"destination": it})).collect(),
        };
        let mut port = json!({"driver": driver, "steer": steer});
        if !self.is_linuxs() {
            port["kernel"] = json!({"tap": {"name": place.name, "addresses": place.own}});
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
    carrier: Carrier,
}

impl Setup {
    /// Makes the namespaces and wires; `None`, after a skip, where that is not allowed.
    pub(crate) fn new(carrier: Carrier) -> Option<Self> {
        let lab = Lab::new("upf", 1)?;
        let [control, data] = [lab.another()?, lab.another()?];
        join(&lab.left, &control, "n4");
        addresses(&lab.left, "n4", &["10.40.0.1/24"]);
        let peers: Vec<String> = (2..10).map(|it| format!("10.40.0.{it}/24")).collect();
        let peers: Vec<&str> = peers.iter().map(String::as_str).collect();
        addresses(&control, "n4", &peers);
        for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            lab.left.run(&["sysctl", "-qw", &format!("{key}=1")]);
        }
        let mut this = Self { lab, control, data, relay: None, carrier };
        if carrier.is_linuxs() {
            for place in &PLACES {
                join(&this.lab.left, this.far(place), place.name);
                addresses(&this.lab.left, place.name, &place.own);
            }
        } else {
            let host = this.lab.another()?;
            PLACES.iter().for_each(|place| join(&host, this.far(place), place.name));
            let relay = this.start_relay(&host);
            this.relay = Some((host, relay));
        }
        for place in &PLACES {
            let hop = [format!("{}/24", place.hop[0]), format!("{}/64", place.hop[1])];
            addresses(this.far(place), place.name, &[&hop[0], &hop[1]]);
        }
        Some(this)
    }

    /// Who is at the other end of a wire.
    fn far(&self, place: &Place) -> &Host {
        if place.name.starts_with("n3") || place.name == "n9" {
            &self.lab.right
        } else {
            &self.data
        }
    }

    /// All wires on one side, a memif server for each on the other.
    fn start_relay(&self, host: &Host) -> Application {
        let mut ports = json!({});
        for place in &PLACES {
            let socket = self.lab.file(&format!("{}.memif", place.name));
            let memif = json!({"memif": {"socket": socket, "role": "server"}});
            let wire = json!({"af-packet": {"interface": place.name}});
            ports[place.name] = json!({"driver": wire, "kernel": "none"});
            ports[format!("{}-far", place.name)] = json!({"driver": memif});
        }
        Application::start(&self.lab, host, &binary("relay"), json!({"ports": ports}))
    }

    /// Starts the UPF for a group, and waits until it runs and knows its next hops.
    pub(crate) fn start(&self, group: Group) -> Application {
        let program = binary("upf");
        let upf =
            Application::start(&self.lab, &self.lab.left, &program, self.configuration(group));
        for place in &PLACES {
            self.know_next_hops(place);
        }
        upf
    }

    fn know_next_hops(&self, place: &Place) {
        let upf = &self.lab.left;
        let show = ["ip", "link", "show", "dev", place.name];
        eventually("the UPF's interface is up", || {
            String::from_utf8_lossy(&upf.attempt(&show).stdout).contains("LOWER_UP")
        });
        // A memif has room for more than the wires behind the relay.
        upf.run(&["ip", "link", "set", "dev", place.name, "mtu", "1500"]);
        let far = mac(self.far(place), place.name);
        for hop in place.hop {
            let words = ["ip", "neigh", "replace", hop, "lladdr", &far, "dev", place.name];
            upf.run(&[&words[..], &["nud", "permanent"]].concat());
        }
        for network in place.beyond {
            let hop = place.hop[usize::from(network.contains(':'))];
            let words = ["ip", "route", "replace", network, "via", hop, "dev", place.name];
            upf.run(&[&words[..], &["table", place.table]].concat());
        }
    }

    fn configuration(&self, group: Group) -> Value {
        let ports = PLACES.iter().map(|it| (it.name.to_owned(), self.carrier.port(&self.lab, it)));
        let ports: serde_json::Map<String, Value> = ports.collect();
        let tunnel = |name: &str, instance: &str, place: &Place| {
            let own = place.own.map(|it| it.split('/').next().unwrap_or(it));
            json!({"port": name, "role": name, "network-instance": instance, "addresses": own})
        };
        let mut app = json!({
            "node-id": "10.40.0.1",
            "n4": {
                "addresses": ["10.40.0.1"], "t1-ms": group.t1_ms(), "n1": N1,
                "heartbeat-s": HEARTBEAT_S,
            },
            "interfaces": {
                "n3": tunnel("n3", "access", &PLACES[1]), "n9": tunnel("n9", "n9", &PLACES[3]),
                "n6": {"port": "n6", "role": "n6", "network-instance": "internet"},
                "ims": {"port": "ims", "role": "n6", "network-instance": "ims", "route-table": 100},
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
        if group == Group::Node {
            app["n4"]["peers"] = json!(["10.40.0.9"]);
        }
        if group == Group::Limits {
            app["teid"] = json!("smf");
            app["n4"]["establishments-per-s"] = json!(group.establishments_per_s());
        }
        let lanes = json!({"frames": 16_384}); // DPDK's four devices want so many
        json!({"ports": ports, "app": app, "lanes": lanes, "dpdk": {"huge-pages": "none"}})
    }

    /// Writes what the cases must know, and starts the program that runs them.
    pub(crate) fn judge(&self, python: &Path, group: Group, only: &[u32], pid: u32) -> Process {
        let wire = |place: &Place| {
            let far = self.far(place);
            json!({"namespace": far.path(), "interface": place.name, "mac": mac(far, place.name),
                "upf-mac": mac(&self.lab.left, place.name)})
        };
        let wires = PLACES.iter().map(|it| (it.name.to_owned(), wire(it)));
        let soak = is_soak();
        let facts = json!({
            "wires": wires.collect::<serde_json::Map<_, _>>(), "smf-namespace": self.control.path(),
            "upf-namespace": self.lab.left.path(), "n4": "10.40.0.1", "n3": "10.30.0.1",
            "n3-v6": "fd30::1", "pid": pid, "t1-ms": group.t1_ms(), "n1": N1,
            "heartbeat-s": HEARTBEAT_S,
            "sessions": group.sessions(), "establishments-per-s": group.establishments_per_s(),
            "errors-per-s": 100, "echoes-per-s": 1000, "filters": 16, "quiet-s": group.quiet_s(),
            "grace": if self.carrier.is_linuxs() { 0.05 } else { 0.15 }, "soak": soak,
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

/// Whether the long form is asked for.
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

/// The hardware address of an interface.
fn mac(host: &Host, name: &str) -> String {
    let text = host.run(&["ip", "-j", "link", "show", "dev", name]);
    let links: Value = serde_json::from_str(&text).expect("JSON from ip");
    links[0]["address"].as_str().expect("a hardware address").to_owned()
}
