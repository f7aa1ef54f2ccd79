//! An access network, a UPF and a data network, each a host of its own, and the wires between them.

use std::fs::File;
use std::path::{Path, PathBuf};

use fastlane_tests::{Application, Host, Lab, Process, Vlan, binary, eventually};
use serde_json::{Value, json};

/// The server in the data network.
pub(crate) const SERVER: &str = "10.9.0.2";
/// External addresses of NAT.
pub(crate) const EXTERNAL: &str = "198.51.100.0/30";

/// Link that carries N3 and N6 as VLANs.
const TRUNK: &str = "trunk";
/// Port, interface at its far end, VLAN identifier and address of each VLAN.
const TAGS: [(&str, &str, u16, &str); 2] =
    [("n3", "eth1", 100, "10.3.0.1/24"), ("n6", "eth2", 200, "10.6.0.1/24")];

/// Links of N3 and N6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// A link each.
    Separate,
    /// One link with a VLAN each. Linux of the UPF has a TAP for each VLAN.
    Vlans,
}

/// The hosts, and the relay between the UPF and the links where Linux has no such port.
pub(crate) struct Site {
    /// VLAN interfaces at the far end of the link. They end before their hosts.
    vlans: Vec<Vlan>,
    /// The UPF is its left host, the access network its right one.
    lab: Lab,
    data: Host,
    relay: Option<(Host, Application)>,
    example: &'static str,
    links: Links,
    /// Source addresses of ICMP errors, if any are configured.
    icmp_addresses: Vec<&'static str>,
    /// Number of lanes.
    lanes: usize,
    /// True if N6 has NAT: the data network does not know the users' addresses.
    has_nat: bool,
    /// Size of the receive rings, if it is not the default.
    receive_ring: Option<u32>,
}

impl Site {
    /// Makes the namespaces and wires for an example; `None`, after a skip, where that is not
    /// allowed.
    pub(crate) fn new(example: &'static str) -> Option<Self> {
        Self::on(Links::Separate, example)
    }

    /// Makes the same with these links of N3 and N6.
    pub(crate) fn on(links: Links, example: &'static str) -> Option<Self> {
        let lab = Lab::new("upf-lab", 1)?;
        let data = lab.another()?;
        let mut site = Self {
            vlans: Vec::new(),
            lab,
            data,
            relay: None,
            example,
            links,
            icmp_addresses: Vec::new(),
            lanes: 1,
            has_nat: false,
            receive_ring: None,
        };
        let upf = &site.lab.left;
        upf.connect(&site.lab.right, "n4");
        upf.add_address("n4", "192.0.2.1/24");
        site.lab.right.add_address("n4", "192.0.2.2/24");
        if ["memif", "dpdk"].contains(&example) {
            let host = site.lab.another()?;
            site.vlans = site.wires(&host);
            let relay = site.start_relay(&host);
            site.relay = Some((host, relay));
        } else {
            site.vlans = site.wires(upf);
        }
        site.lab.right.add_address("eth1", "10.3.0.2/24");
        site.data.add_address("eth2", "10.6.0.2/24");
        site.data.add_address("lo", &format!("{SERVER}/32"));
        // The users are behind the UPF; with a TAP for N6 the UPF's Linux is a router before it.
        let gateway = if example == "socket" { "10.16.0.1" } else { "10.6.0.1" };
        if example == "socket" {
            upf.add_address("eth2", "10.16.0.1/24");
            site.data.add_address("eth2", "10.16.0.2/24");
        }
        site.data.run(&["ip", "route", "add", "10.45.0.0/16", "via", gateway]);
        let has_links = links == Links::Separate;
        if has_links && ["af-xdp", "af-packet", "socket"].contains(&example) {
            upf.add_address("eth1", "10.3.0.1/24");
        }
        if has_links && ["af-xdp", "af-packet"].contains(&example) {
            upf.add_address("eth2", "10.6.0.1/24");
        }
        Some(site)
    }

    /// Adds the links from a host to the access network and to the data network. Returns the VLANs
    /// on them.
    fn wires(&self, host: &Host) -> Vec<Vlan> {
        let access = &self.lab.right;
        if self.links == Links::Separate {
            host.connect(access, "eth1");
            host.connect(&self.data, "eth2");
            return Vec::new();
        }
        host.connect(access, TRUNK);
        access.run(&["ethtool", "-K", TRUNK, "txvlan", "off"]); // AF_XDP sees tags in frames only
        let add = |(_, interface, id, _): (&str, &str, u16, &str)| {
            let far = if interface == "eth1" { access } else { &self.data };
            let vlan = Vlan::add(access, TRUNK, id, interface, far);
            far.run(&["ip", "link", "set", interface, "addrgenmode", "none", "up"]);
            vlan
        };
        TAGS.into_iter().map(add).collect()
    }

    /// Starts a relay between the links and a memif server for each.
    fn start_relay(&self, host: &Host) -> Application {
        let wire =
            |name: &str| json!({"driver": {"af-packet": {"interface": name}}, "kernel": "none"});
        let server = |name: &str| {
            let memif = json!({"socket": self.socket(name), "role": "server"});
            json!({"driver": {"memif": memif}})
        };
        let ports = match self.links {
            Links::Separate => json!({
                "n3": wire("eth1"), "n3-far": server("n3"),
                "n6": wire("eth2"), "n6-far": server("n6"),
            }),
            Links::Vlans => json!({ "trunk": wire(TRUNK), "trunk-far": server(TRUNK) }),
        };
        Application::start(&self.lab, host, &binary("relay"), json!({ "ports": ports }))
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.lab.file(&format!("{name}.memif"))
    }

    /// Returns the example configuration, adapted to this machine.
    pub(crate) fn configuration(&self) -> Value {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../apps/upf/config");
        let path = folder.join(format!("{}.json", self.example));
        let text = std::fs::read_to_string(path).expect("the example");
        let mut example: Value = serde_json::from_str(&text).expect("JSON");
        example["app"]["n4"]["release-s"] = json!(0);
        example["app"]["sessions"] = json!(1000); // many stories run at a time
        if self.lanes > 1 {
            example["lanes"] = json!({ "cpus": (0..self.lanes).collect::<Vec<_>>() });
        }
        if !self.icmp_addresses.is_empty() {
            example["app"]["interfaces"]["n6"]["icmp-addresses"] = json!(self.icmp_addresses);
        }
        if self.has_nat {
            let log = self.file("nat.log");
            example["app"]["interfaces"]["n6"]["nat"] = json!({
                "addresses": [EXTERNAL], "log": log,
            });
            example["ports"]["n6"]["steer"] = json!([
                { "destination": EXTERNAL, "fragments": true },
            ]);
        }
        if self.example == "dpdk" {
            example["dpdk"] = json!({ "huge-pages": "none" });
            example["lanes"]["frames"] = json!(16_384);
        }
        if let Some(frames) = self.receive_ring {
            example["lanes"]["frames"] = json!(4 * frames);
        }
        match self.links {
            Links::Separate => {
                for (number, name) in ["n3", "n6"].into_iter().enumerate() {
                    self.adapt_driver(&mut example["ports"][name]["driver"], name, number);
                }
            }
            Links::Vlans => self.tag(&mut example["ports"]),
        }
        example
    }

    /// Adapts the driver of the example to a link.
    fn adapt_driver(&self, driver: &mut Value, link: &str, number: usize) {
        let socket = self.socket(link);
        match self.example {
            "memif" => driver["memif"]["socket"] = json!(socket),
            "dpdk" => {
                let vdev = format!("net_memif{number},role=client,socket-abstract=no");
                let vdev = format!("{vdev},socket={}", socket.display());
                *driver = json!({ "dpdk": { "vdev": vdev } });
            }
            name if link == TRUNK => driver[name]["interface"] = json!(link),
            _ => {}
        }
        if let Some(frames) = self.receive_ring {
            driver[self.example]["receive-ring"] = json!(frames);
        }
    }

    /// Makes the ports of N3 and N6 VLANs of one port, with the driver that they had.
    fn tag(&self, ports: &mut Value) {
        let mut wire = json!({ "driver": ports["n3"]["driver"], "steer": [{ "udp-port": 9 }] });
        self.adapt_driver(&mut wire["driver"], TRUNK, 0);
        if self.relay.is_some() {
            wire["kernel"] = json!({ "tap": { "name": TRUNK } });
        }
        for (name, _, id, address) in TAGS {
            let port = &mut ports[name];
            port["driver"] = json!({ "vlan": { "port": "wire", "id": id } });
            port["kernel"] = json!({ "tap": { "name": name, "addresses": [address] } });
        }
        ports["wire"] = wire;
    }

    /// Starts the UPF by `wrapper` and configures its Linux as the README says.
    pub(crate) fn start(&self, wrapper: &[&str]) -> Application {
        let (lab, upf, program) = (&self.lab, &self.lab.left, binary("upf"));
        let started = Application::start_behind(lab, upf, wrapper, &program, self.configuration());
        self.wait_until_ready();
        match self.example {
            "tap" => {
                for (wire, tap) in [("eth1", "n3wire"), ("eth2", "n6wire")] {
                    let bridge = format!("{tap}br");
                    upf.run(&["ip", "link", "add", &bridge, "type", "bridge"]);
                    for member in [wire, tap] {
                        upf.run(&["ip", "link", "set", member, "master", &bridge]);
                    }
                    for member in [wire, tap, &bridge] {
                        upf.run(&["ip", "link", "set", member, "up"]);
                    }
                }
            }
            "socket" => {
                upf.run(&["ip", "link", "set", "n6", "arp", "off"]);
                upf.run(&["ip", "route", "add", "10.45.0.0/16", "dev", "n6"]);
                upf.run(&["sysctl", "-qw", "net.ipv4.ip_forward=1"]);
                upf.run(&["ip", "route", "add", SERVER, "via", "10.16.0.2"]);
                return started;
            }
            _ => {}
        }
        upf.run(&["ip", "route", "add", SERVER, "via", "10.6.0.2"]);
        started
    }

    /// Waits until both processes of the UPF run.
    pub(crate) fn wait_until_ready(&self) {
        eventually("both processes run", || {
            let words = ["curl", "--silent", "--fail", "http://127.0.0.1:8805/healthz"];
            self.lab.left.attempt(&words).status.success()
        });
    }

    /// Starts an SMF that establishes `sessions` sessions and holds them, with more options of
    /// `smf`.
    pub(crate) fn smf(&self, sessions: usize, more: &[&str]) -> Process {
        let (program, sessions) = (binary("smf"), sessions.to_string());
        let program = program.to_str().expect("a path in ASCII");
        let ends = ["--local", "192.0.2.2", "--upf", "192.0.2.1", "--gnb", "10.3.0.2"];
        let words = [&[program, "hold"], &ends[..], &["--sessions", &sessions], more].concat();
        self.lab.right.start(&words)
    }

    /// Sets the source addresses of ICMP errors about packets of N6.
    pub(crate) fn set_icmp_addresses(&mut self, addresses: &[&'static str]) {
        self.icmp_addresses = addresses.to_vec();
    }

    /// Sets the number of lanes, each on a CPU of its own.
    pub(crate) fn set_lanes(&mut self, lanes: usize) {
        self.lanes = lanes;
    }

    /// Sets the size of the receive rings in frames: they hold packets while no fast path runs.
    pub(crate) fn set_receive_ring(&mut self, frames: u32) {
        self.receive_ring = Some(frames);
    }

    /// Configures NAT on N6. The data network has a route to its external addresses, and none to
    /// the users.
    pub(crate) fn set_nat(&mut self) {
        self.has_nat = true;
        self.data.run(&["ip", "route", "del", "10.45.0.0/16"]);
        self.data.run(&["ip", "route", "add", EXTERNAL, "via", "10.6.0.1"]);
    }

    /// Starts the gNB with these tunnels and routes the host's packets to the device of the UEs.
    pub(crate) fn gnb(&self, lines: &[String]) -> Process {
        self.gnb_with(lines, &[])
    }

    /// Starts the gNB as [`gnb`](Self::gnb) does, with more of its options.
    pub(crate) fn gnb_with(&self, lines: &[String], more: &[&str]) -> Process {
        let path = self.lab.file("tunnels");
        std::fs::write(&path, lines.join("\n") + "\n").expect("the lines are written");
        let program = binary("gnb");
        let mut command = self.lab.right.command(&[]);
        command.arg(program).args(["--listen", "10.3.0.2"]).args(more);
        command.stdin(File::open(path).expect("the lines"));
        let gnb = Process::start(command);
        gnb.wait_for("running; ");
        self.lab.right.run(&["ip", "route", "add", SERVER, "dev", "ue0"]);
        gnb
    }

    /// Returns the hosts of UPF and UEs, with the files of this site.
    pub(crate) const fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Returns the name of the example.
    pub(crate) const fn example(&self) -> &'static str {
        self.example
    }

    /// Returns the host of the UPF.
    pub(crate) fn upf(&self) -> &Host {
        &self.lab.left
    }

    /// Returns the host of the UEs.
    pub(crate) fn access(&self) -> &Host {
        &self.lab.right
    }

    /// Returns the host of the server.
    pub(crate) fn network(&self) -> &Host {
        &self.data
    }

    /// Returns the path of a file of this site.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.lab.file(name)
    }

    /// Returns the response of the UPF's API.
    pub(crate) fn ask(&self, path: &str) -> String {
        let url = format!("http://127.0.0.1:8805{path}");
        self.lab.left.run(&["curl", "--silent", "--show-error", "--fail", &url])
    }

    /// Returns the output of `upf trace`.
    pub(crate) fn trace(&self, words: &[&str]) -> String {
        let program = binary("upf");
        let program = program.to_str().expect("a path in ASCII");
        self.lab.left.run(&[&[program, "trace"], words].concat())
    }

    /// Stops the relay. The UPF must have ended.
    pub(crate) fn end(self) {
        if let Some((_, relay)) = self.relay {
            relay.stop();
        }
    }
}
