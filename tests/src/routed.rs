//! A router between two hosts, and packets that are followed one by one.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use fastlane_testing::Peer;
use fastlane_testing::namespace::Wire;
use serde_json::{Value, json};

use crate::{Application, Host, LEFT_MAC, Lab, Mechanism, RIGHT_MAC, binary, eventually, mac};

mod account;

/// Size of the router's rings in frames: enough for a time without a CPU on a loaded machine.
const RING: u32 = 8192;

pub use account::Counts;

/// Address of the far host on `wire1`. The router's address ends with 1.
pub const FAR: &str = "10.78.0.2";

/// A router and two hosts. On the router `wire0` leads to the near host (10.77.0.2, fd77::2),
/// `wire1` (10.78.0.2, fd78::2) and `wire2` (10.79.0.2) to the far one. Both ends of a link have
/// the same name. Both hosts have a default route to the router.
#[derive(Debug)]
pub struct Routed {
    /// The router is the left host, the near host the right one.
    pub lab: Lab,
    /// The far host, behind the router.
    pub far: Host,
}

impl Routed {
    /// Creates the hosts. Returns `None` after a skip if that is not allowed.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[track_caller]
    #[must_use]
    pub fn new(story: &str) -> Option<Self> {
        Self::with_queues(story, 1)
    }

    /// Creates the hosts with `queues` queues per interface. Returns `None` after a skip if that is
    /// not allowed.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[track_caller]
    #[must_use]
    pub fn with_queues(story: &str, queues: usize) -> Option<Self> {
        let lab = Lab::new(story, queues)?;
        let far = Host::new(story)?;
        let this = Self { lab, far };
        ["wire1", "wire2"].iter().for_each(|name| this.join(name, queues));
        this.set("ipv4/ip_forward", "1");
        this.set("ipv6/conf/all/forwarding", "1");
        for name in ["all", "wire0", "wire1", "wire2"] {
            this.set(&format!("ipv4/conf/{name}/rp_filter"), "0");
        }
        this.lab.right.run(&["ip", "route", "add", "default", "via", "10.77.0.1"]);
        this.lab.right.run(&["ip", "-6", "route", "add", "default", "via", "fd77::1"]);
        ["wire0", "wire1", "wire2"].iter().for_each(|name| this.wait_until_up(name));
        Some(this)
    }

    /// Waits until Linux calls a link of the router up (IFLA_OPERSTATE). The kernel tells so up to
    /// a second after the carrier is there (net/core/link_watch.c), and the mirror follows it.
    #[track_caller]
    fn wait_until_up(&self, name: &str) {
        eventually("the link is up", || {
            self.router().run(&["ip", "link", "show", "dev", name]).contains(" state UP ")
        });
    }

    /// Creates `wire1` or `wire2`, with its addresses and the routes of the far host.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[track_caller]
    pub fn join(&self, name: &str, queues: usize) {
        let number = if name == "wire1" { 78 } else { 79 };
        let (path, count) = (self.far.path(), queues.to_string());
        let end = ["numrxqueues", &count, "numtxqueues", &count];
        let words = [&["ip", "link", "add", name][..], &end, &["type", "veth"]].concat();
        let peer = [&["peer", "name", name][..], &end, &["netns", &path]].concat();
        self.lab.left.run(&[words, peer].concat());
        for (host, last) in [(&self.far, 2), (&self.lab.left, 1)] {
            host.run(&["ip", "link", "set", name, "address", &own_mac(number, last)]);
            let four = format!("10.{number}.0.{last}/24");
            host.run(&["ip", "address", "add", &four, "dev", name]);
            let six = format!("fd{number}::{last}/64");
            host.run(&["ip", "address", "add", &six, "dev", name, "nodad"]);
            // Linux asks for no neighbour while its link-local address is tentative, which takes up
            // to two seconds (`ndisc_solicit` in net/ipv6/ndisc.c, RFC 4862 5.4).
            for scope in ["all", name] {
                set(host, &format!("ipv6/conf/{scope}/accept_dad"), "0");
            }
            host.run(&["ip", "link", "set", name, "up"]);
        }
        if name == "wire1" {
            self.far.run(&["ip", "route", "add", "default", "via", "10.78.0.1"]);
            self.far.run(&["ip", "-6", "route", "add", "default", "via", "fd78::1"]);
        }
    }

    /// Returns the host of the router.
    #[must_use]
    pub fn router(&self) -> &Host {
        &self.lab.left
    }

    /// Writes a key under `/proc/sys/net` of the router.
    ///
    /// # Panics
    /// When it cannot be set.
    #[track_caller]
    pub fn set(&self, key: &str, value: &str) {
        set(&self.lab.left, key, value);
    }

    /// Disables IPv6 on all hosts, so that the links carry only packets of the test.
    ///
    /// # Panics
    /// When the key cannot be written.
    #[track_caller]
    pub fn without_ipv6(&self) {
        for host in [&self.lab.left, &self.lab.right, &self.far] {
            set(host, "ipv6/conf/all/disable_ipv6", "1");
        }
    }

    /// Runs `ip` with these words on the router.
    #[track_caller]
    pub fn ip(&self, words: &str) {
        let words: Vec<&str> = ["ip"].into_iter().chain(words.split(' ')).collect();
        self.lab.left.run(&words);
    }

    /// Adds four next hops to the router, as permanent neighbours: on each link to the far host
    /// those with the last octets 11 and 12 (IPv6: `::11` and `::12`) and the MAC addresses of
    /// [`hop_mac`].
    pub fn add_hops(&self) {
        for (first, number) in [(0, 78), (2, 79)] {
            for hop in [first, first + 1] {
                let wire = if number == 78 { "wire1" } else { "wire2" };
                let text = hop_mac(hop);
                for address in [hop_address(hop), hop_address6(hop)] {
                    let words = format!("neigh replace {address} lladdr {text} dev {wire}");
                    self.ip(&format!("{words} nud permanent"));
                }
            }
        }
    }

    /// Starts the program `router` with a mechanism on all links.
    #[track_caller]
    #[must_use]
    pub fn start(&self, mechanism: Mechanism, changes: &[(&str, Value)]) -> Application {
        self.start_with(Lanes::One, mechanism, changes)
    }

    /// Starts the program `router` with several lanes. The interfaces need a queue per receiving
    /// lane.
    #[track_caller]
    #[must_use]
    pub fn start_with(
        &self,
        lanes: Lanes,
        mechanism: Mechanism,
        changes: &[(&str, Value)],
    ) -> Application {
        let port = |wire: &str| {
            let mut driver = mechanism.on(wire);
            if let Some(packet) = driver.get_mut("af-packet") {
                packet["ring"] = json!(RING);
            }
            if let Some(xdp) = driver.get_mut("af-xdp") {
                xdp["receive-ring"] = json!(RING);
            }
            let rules = json!([{"ethertype": "ipv4"}, {"ethertype": "ipv6"}]);
            let mut port = json!({"driver": driver, "steer": rules});
            if let Some(by) = lanes.by() {
                port["lane-by"] = json!(by);
            }
            port
        };
        let mut configuration = json!({
            "lanes": lanes.written(),
            "ports": {"wire0": port("wire0"), "wire1": port("wire1"), "wire2": port("wire2")},
            "mirror": {"routes": 16_384, "count-routes": true},
            "tables": {"causes": {"capacity": 64}, "routes": {"capacity": 32_800},
                       "acl": {"capacity": 1024}},
            "app": {"acl": true},
        });
        for (key, value) in changes {
            configuration[key] = value.clone();
        }
        Application::start(&self.lab, &self.lab.left, &binary("router"), configuration)
    }
}

/// Lanes of the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// One lane.
    One,
    /// Two lanes with a queue each. The hash of the device selects the lane.
    ByDevice,
    /// Two lanes with a queue each. The flow of a packet selects the lane.
    ByFlow,
    /// Lane 1 has the ports, lane 0 the application.
    MasterWorker,
}

impl Lanes {
    /// Returns the number of queues that each interface needs.
    #[must_use]
    pub fn queues(self) -> usize {
        if matches!(self, Self::ByDevice | Self::ByFlow) { 2 } else { 1 }
    }

    fn by(self) -> Option<&'static str> {
        match self {
            Self::One | Self::MasterWorker => None,
            Self::ByDevice => Some("rss"),
            Self::ByFlow => Some("flow"),
        }
    }

    fn written(self) -> Value {
        // AF_XDP lends half of them to its three rings.
        let frames = 6 * RING;
        match self {
            Self::One => json!({"frames": frames}),
            Self::ByDevice | Self::ByFlow => json!({"frames": frames, "cpus": [0, 1]}),
            Self::MasterWorker => json!({"frames": frames, "cpus": [0, 1],
                "model": {"master-worker": {"io": [1]}}}),
        }
    }
}

#[track_caller]
fn set(host: &Host, key: &str, value: &str) {
    let write = || std::fs::write(format!("/proc/sys/net/{key}"), value);
    host.enter(write).unwrap_or_else(|error| panic!("{key}: {error}"));
}

/// Returns the MAC address of a host on the link with this number.
fn own_mac(number: u32, last: u32) -> String {
    format!("02:00:00:00:{number}:0{last}")
}

/// Returns the MAC address of a next hop: 0 and 1 are on `wire1` (10.78.0.11 and 12), 2 and 3 on
/// `wire2` (10.79.0.11 and 12).
#[must_use]
pub fn hop_mac(hop: usize) -> String {
    format!("02:00:00:00:aa:{hop:02x}")
}

/// Returns the IPv4 address of a next hop.
#[must_use]
pub fn hop_address(hop: usize) -> String {
    format!("10.{}.0.{}", 78 + hop / 2, 11 + hop % 2)
}

/// Returns the IPv6 address of a next hop.
#[must_use]
pub fn hop_address6(hop: usize) -> String {
    format!("fd{}::{}", 78 + hop / 2, 11 + hop % 2)
}

/// Returns packets and octets of each counter of a running router.
///
/// # Panics
/// When it fails.
#[track_caller]
#[must_use]
pub fn counters(application: &Application, more: &[&str]) -> BTreeMap<String, [u64; 2]> {
    let mut command = Command::new(binary("router"));
    let output = command.arg("counters").arg(application.session()).args(more).output();
    let output = output.expect("router can be started");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse().expect("a number");
        (words[0].to_owned(), [number(1), number(2)])
    };
    stdout.lines().map(line).collect()
}

/// Returns the number of packets with a drop reason.
#[track_caller]
#[must_use]
pub fn drop_count(application: &Application, name: &str) -> u64 {
    counters(application, &[]).get(name).map_or(0, |[packets, _]| *packets)
}

/// Runs `router acl COMMAND` on a running router and returns its output.
///
/// # Panics
/// When it refuses.
#[track_caller]
pub fn acl(application: &Application, command: &str, rest: &[&str]) -> String {
    let mut program = Command::new(binary("router"));
    program.args(["acl", command]).arg(application.session()).args(rest);
    let output = program.output().expect("router can be started");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "router acl {command} {rest:?}: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A packet that the test sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Sequence number.
    pub number: u32,
    /// Time of transmission since the start of the test.
    pub at: Duration,
    /// Destination address.
    pub to: IpAddr,
    /// Destination UDP port.
    pub port: u16,
}

/// Magic number behind the UDP header.
const MARK: &[u8] = b"RTST";
/// Length from the UDP header on, in octets.
const PAYLOAD: u8 = 26;

impl Probe {
    /// Builds the frame from the near host to the router.
    ///
    /// # Panics
    /// When the addresses are of two families.
    #[must_use]
    pub fn frame(&self, from: IpAddr) -> Vec<u8> {
        let mut frame = [mac(LEFT_MAC), mac(RIGHT_MAC)].concat();
        match (from, self.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let mut ip = vec![0x45, 0, 0, 20 + PAYLOAD, 0, 0, 0, 0, 64, 17, 0, 0];
                ip.extend([from.octets(), to.octets()].concat());
                let sum = fastlane::wire::checksum::checksum(&ip);
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                frame.extend([8, 0]);
                frame.extend(ip);
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, PAYLOAD, 17, 64]);
                frame.extend([from.octets(), to.octets()].concat());
            }
            both => panic!("{both:?}: of two families"),
        }
        frame.extend(4000_u16.to_be_bytes());
        frame.extend(self.port.to_be_bytes());
        frame.extend([0, PAYLOAD, 0, 0]); // without a checksum: routers ignore it
        frame.extend(MARK);
        frame.extend(self.number.to_be_bytes());
        frame.extend((self.at.as_nanos() as u64).to_be_bytes());
        frame.extend([0; 2]);
        frame
    }

    /// Parses a frame that has passed the router. Returns `None` if the test has not sent it.
    #[must_use]
    pub fn read(frame: &[u8]) -> Option<Self> {
        let (to, udp): (IpAddr, usize) = match frame.get(12..14)? {
            [8, 0] => (<[u8; 4]>::try_from(frame.get(30..34)?).ok()?.into(), 34),
            [0x86, 0xdd] => (<[u8; 16]>::try_from(frame.get(38..54)?).ok()?.into(), 54),
            _ => return None,
        };
        let mark = frame.get(udp + 8..udp + 24)?;
        if &mark[..4] != MARK {
            return None;
        }
        Some(Self {
            number: u32::from_be_bytes(mark[4..8].try_into().ok()?),
            at: Duration::from_nanos(u64::from_be_bytes(mark[8..16].try_into().ok()?)),
            to,
            port: u16::from_be_bytes(frame[udp + 2..udp + 4].try_into().ok()?),
        })
    }
}

/// A packet that came out of the router.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The packet as it was sent.
    pub probe: Probe,
    /// Destination MAC address.
    pub mac: [u8; 6],
    /// Time to live or hop limit.
    pub time_to_live: u8,
    /// The checksum of the IPv4 header is valid. Always true for IPv6.
    pub has_valid_checksum: bool,
}

/// Raw sockets on the far host.
#[derive(Debug)]
pub struct Receivers(Vec<Wire>);

impl Receivers {
    /// Opens `wire1` and `wire2` of the far host.
    ///
    /// # Panics
    /// When that is not allowed.
    #[must_use]
    pub fn open(far: &Host) -> Self {
        let open = |name: &str| Wire::open(name).expect("a raw socket");
        Self(far.enter(|| vec![open("wire1"), open("wire2")]))
    }

    /// Returns the packets received so far.
    pub fn poll(&mut self) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        for wire in &mut self.0 {
            while let Some(frame) = wire.receive(Duration::ZERO) {
                let Some(probe) = Probe::read(&frame) else { continue };
                let mac = frame[..6].try_into().expect("six octets");
                let (time_to_live, has_valid_checksum) = match probe.to {
                    IpAddr::V4(_) => {
                        (frame[22], fastlane::wire::checksum::checksum(&frame[14..34]) == 0)
                    }
                    IpAddr::V6(_) => (frame[21], true),
                };
                arrivals.push(Arrival { probe, mac, time_to_live, has_valid_checksum });
            }
        }
        arrivals
    }

    /// Receives `count` packets, or until none has arrived for 5 s. A loaded machine may be late.
    pub fn receive(&mut self, count: usize) -> Vec<Arrival> {
        self.receive_until_quiet(count, Duration::from_secs(5))
    }

    /// Receives until no packet has arrived for 1 s.
    pub fn receive_all(&mut self) -> Vec<Arrival> {
        self.receive_until_quiet(usize::MAX, Duration::from_secs(1))
    }

    /// Receives `count` packets, or until none has arrived for `quiet`.
    pub fn receive_until_quiet(&mut self, count: usize, quiet: Duration) -> Vec<Arrival> {
        let (mut arrivals, mut last) = (self.poll(), Instant::now());
        while arrivals.len() < count && last.elapsed() < quiet {
            std::thread::sleep(Duration::from_millis(1));
            let more = self.poll();
            if !more.is_empty() {
                last = Instant::now();
            }
            arrivals.extend(more);
        }
        arrivals
    }
}

/// Sender on the near host.
#[derive(Debug)]
pub struct Sender {
    wire: Wire,
    from: IpAddr,
    start: Instant,
    number: u32,
    refused: u64,
}

impl Sender {
    /// Opens `wire0` of the near host, to send from an address.
    ///
    /// # Panics
    /// When that is not allowed.
    #[must_use]
    pub fn new(near: &Host, from: impl Into<IpAddr>, start: Instant) -> Self {
        let wire = near.enter(|| Wire::open("wire0")).expect("a raw socket");
        Self { wire, from: from.into(), start, number: 0, refused: 0 }
    }

    /// Sends one packet.
    pub fn send(&mut self, to: IpAddr, port: u16) -> Probe {
        let probe = Probe { number: self.number, at: self.start.elapsed(), to, port };
        self.number += 1;
        self.refused += u64::from(!self.wire.send(&probe.frame(self.from)));
        probe
    }

    /// Returns the number of packets that Linux has accepted.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        u64::from(self.number) - self.refused
    }

    /// Sends packets at up to 20,000 per second.
    pub fn send_all(&mut self, to: impl IntoIterator<Item = (IpAddr, u16)>) {
        for (number, (to, port)) in to.into_iter().enumerate() {
            self.send(to, port);
            if number % 20 == 19 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// Writes a file of commands and returns its path.
#[must_use]
pub fn batch(lab: &Lab, name: &str, lines: &[String]) -> PathBuf {
    let path = lab.file(name);
    std::fs::write(&path, lines.join("\n") + "\n").expect("the file is writable");
    path
}
