//! A router between two hosts, and packets whose way is looked at one by one.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use fastlane_testing::Peer;
use fastlane_testing::namespace::Wire;
use serde_json::{Value, json};

use crate::{Application, Host, LEFT_MAC, Lab, Mechanism, RIGHT_MAC, binary, mac};

mod account;

/// Frames that a ring of the router holds: what comes while a shared machine leaves it without a
/// CPU.
const RING: u32 = 8192;

pub use account::Counts;

/// The address of the far host on the wire between the router and it; the router's ends with 1.
pub const FAR: &str = "10.78.0.2";

/// A router and two hosts. On the router `wire0` leads to the near host (10.77.0.2, fd77::2),
/// `wire1` to the far one (10.78.0.2, fd78::2), and so does `wire2` (10.79.0.2), each host's
/// interface having the name of the router's. Both hosts route by the router.
#[derive(Debug)]
pub struct Routed {
    /// The router is its left host, the near one its right host.
    pub lab: Lab,
    /// The host beyond the router.
    pub far: Host,
}

impl Routed {
    /// Makes them; `None`, after a skip, where that is not allowed.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[track_caller]
    #[must_use]
    pub fn new(story: &str) -> Option<Self> {
        Self::with_queues(story, 1)
    }

    /// Makes them, each interface with so many queues; `None`, after a skip, where that is not
    /// allowed.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[track_caller]
    #[must_use]
    pub fn with_queues(story: &str, queues: usize) -> Option<Self> {
        let lab = Lab::new(story, queues)?;
        let far = Host::new(story)?;
        let (path, count) = (far.path(), queues.to_string());
        let end = ["numrxqueues", &count, "numtxqueues", &count];
        for (number, name) in [(78, "wire1"), (79, "wire2")] {
            let words = [&["ip", "link", "add", name][..], &end, &["type", "veth"]].concat();
            let peer = [&["peer", "name", name][..], &end, &["netns", &path]].concat();
            lab.left.run(&[words, peer].concat());
            for (host, last) in [(&lab.left, 1), (&far, 2)] {
                host.run(&["ip", "link", "set", name, "address", &own_mac(number, last)]);
                let four = format!("10.{number}.0.{last}/24");
                host.run(&["ip", "address", "add", &four, "dev", name]);
                let six = format!("fd{number}::{last}/64");
                host.run(&["ip", "address", "add", &six, "dev", name, "nodad"]);
                host.run(&["ip", "link", "set", name, "up"]);
            }
        }
        let this = Self { lab, far };
        this.set("ipv4/ip_forward", "1");
        this.set("ipv6/conf/all/forwarding", "1");
        for name in ["all", "wire0", "wire1", "wire2"] {
            this.set(&format!("ipv4/conf/{name}/rp_filter"), "0");
        }
        this.lab.right.run(&["ip", "route", "add", "default", "via", "10.77.0.1"]);
        this.lab.right.run(&["ip", "-6", "route", "add", "default", "via", "fd77::1"]);
        this.far.run(&["ip", "route", "add", "default", "via", "10.78.0.1"]);
        this.far.run(&["ip", "-6", "route", "add", "default", "via", "fd78::1"]);
        Some(this)
    }

    /// The router's Linux.
    #[must_use]
    pub fn router(&self) -> &Host {
        &self.lab.left
    }

    /// Sets something under `/proc/sys/net` of the router.
    ///
    /// # Panics
    /// When it cannot be set.
    #[track_caller]
    pub fn set(&self, key: &str, value: &str) {
        set(&self.lab.left, key, value);
    }

    /// Nobody speaks IPv6 any more: nothing is on the wires but what the test sends.
    ///
    /// # Panics
    /// As [`set`](Self::set).
    #[track_caller]
    pub fn without_ipv6(&self) {
        for host in [&self.lab.left, &self.lab.right, &self.far] {
            set(host, "ipv6/conf/all/disable_ipv6", "1");
        }
    }

    /// `ip` with these words, on the router.
    #[track_caller]
    pub fn ip(&self, words: &str) {
        let words: Vec<&str> = ["ip"].into_iter().chain(words.split(' ')).collect();
        self.lab.left.run(&words);
    }

    /// Gives the far host other addresses, as if they were more hosts: on each of the two wires the
    /// last octets 11 and 12 (IPv6: `::11` and `::12`), with the Ethernet addresses of [`hop_mac`].
    pub fn add_hops(&self) {
        for (place, number) in [(0, 78), (2, 79)] {
            for hop in [place, place + 1] {
                let wire = if number == 78 { "wire1" } else { "wire2" };
                let text = hop_mac(hop);
                for address in [hop_address(hop), hop_address6(hop)] {
                    let words = format!("neigh replace {address} lladdr {text} dev {wire}");
                    self.ip(&format!("{words} nud permanent"));
                }
            }
        }
    }

    /// Starts the program `router` with a mechanism on all wires.
    #[track_caller]
    #[must_use]
    pub fn start(&self, mechanism: Mechanism, changes: &[(&str, Value)]) -> Application {
        self.start_with(Lanes::One, mechanism, changes)
    }

    /// The same in several lanes. The interfaces must have a queue for each that receives.
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

/// Who does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// One lane.
    One,
    /// Two, each with a queue of its own: the device's hash says which.
    ByDevice,
    /// Two, each with a queue of its own; which one gets a packet depends on its flow.
    ByFlow,
    /// Lane 1 has the ports, lane 0 the router.
    MasterWorker,
}

impl Lanes {
    /// How many queues each interface needs.
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

/// The Ethernet address of a host's own interface on the wire with this number.
fn own_mac(number: u32, last: u32) -> String {
    format!("02:00:00:00:{number}:0{last}")
}

/// The Ethernet address of a next hop: 0 and 1 are on `wire1` (10.78.0.11 and 12), 2 and 3 on
/// `wire2` (10.79.0.11 and 12).
#[must_use]
pub fn hop_mac(hop: usize) -> String {
    format!("02:00:00:00:aa:{hop:02x}")
}

/// The address of a next hop.
#[must_use]
pub fn hop_address(hop: usize) -> String {
    format!("10.{}.0.{}", 78 + hop / 2, 11 + hop % 2)
}

/// The IPv6 address of a next hop.
#[must_use]
pub fn hop_address6(hop: usize) -> String {
    format!("fd{}::{}", 78 + hop / 2, 11 + hop % 2)
}

/// What the program says of a running router: of each name packets and octets.
///
/// # Panics
/// When it fails.
#[track_caller]
#[must_use]
pub fn counters(application: &Application, more: &[&str]) -> BTreeMap<String, [u64; 2]> {
    let mut command = Command::new(binary("router"));
    let output = command.arg("counters").arg(application.session()).args(more).output();
    let output = output.expect("router can be started");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse().expect("a number");
        (words[0].to_owned(), [number(1), number(2)])
    };
    said.lines().map(line).collect()
}

/// How many packets fell under a cause.
#[track_caller]
#[must_use]
pub fn cause(application: &Application, name: &str) -> u64 {
    counters(application, &[]).get(name).map_or(0, |[packets, _]| *packets)
}

/// Says something to the list of a running router; what it answers.
///
/// # Panics
/// When it refuses.
#[track_caller]
pub fn acl(application: &Application, command: &str, rest: &[&str]) -> String {
    let mut program = Command::new(binary("router"));
    program.args(["acl", command]).arg(application.session()).args(rest);
    let output = program.output().expect("router can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "router acl {command} {rest:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A packet of the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shot {
    /// Which.
    pub number: u32,
    /// When it was sent, since the clock's start.
    pub at: Duration,
    /// Where it goes.
    pub to: IpAddr,
    /// The UDP port that it goes to.
    pub port: u16,
}

/// Behind the UDP header.
const MARK: &[u8] = b"RTST";
/// Octets from the UDP header on.
const PAYLOAD: u8 = 26;

impl Shot {
    /// The frame, from the near host's wire to the router.
    ///
    /// # Panics
    /// When it comes from an address of the other family.
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
        frame.extend([0, PAYLOAD, 0, 0]); // without a checksum, which no router looks at
        frame.extend(MARK);
        frame.extend(self.number.to_be_bytes());
        frame.extend((self.at.as_nanos() as u64).to_be_bytes());
        frame.extend([0; 2]);
        frame
    }

    /// The packet in a frame that has passed the router, if it is one of the test.
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
pub struct Hit {
    /// Which packet.
    pub shot: Shot,
    /// The Ethernet address that it was sent to.
    pub mac: [u8; 6],
    /// Its time to live.
    pub time_to_live: u8,
    /// Whether its IPv4 header, if it has one, has a right checksum.
    pub is_sound: bool,
}

/// The ends of the far host's wires.
#[derive(Debug)]
pub struct Sinks(Vec<Wire>);

impl Sinks {
    /// Listens on both wires.
    ///
    /// # Panics
    /// When that is not allowed.
    #[must_use]
    pub fn open(far: &Host) -> Self {
        let open = |name: &str| Wire::open(name).expect("a raw socket");
        Self(far.enter(|| vec![open("wire1"), open("wire2")]))
    }

    /// What has come so far.
    pub fn take(&mut self) -> Vec<Hit> {
        let mut hits = Vec::new();
        for wire in &mut self.0 {
            while let Some(frame) = wire.receive(Duration::ZERO) {
                let Some(shot) = Shot::read(&frame) else { continue };
                let mac = frame[..6].try_into().expect("six octets");
                let (time_to_live, is_sound) = match shot.to {
                    IpAddr::V4(_) => {
                        (frame[22], fastlane::wire::checksum::checksum(&frame[14..34]) == 0)
                    }
                    IpAddr::V6(_) => (frame[21], true),
                };
                hits.push(Hit { shot, mac, time_to_live, is_sound });
            }
        }
        hits
    }

    /// What comes until there is this much, or nothing has come for five seconds: on a machine with
    /// other work the rest may be late.
    pub fn gather(&mut self, count: usize) -> Vec<Hit> {
        self.gather_while(count, Duration::from_secs(5))
    }

    /// What comes until nothing has come for a second.
    pub fn gather_all(&mut self) -> Vec<Hit> {
        self.gather_while(usize::MAX, Duration::from_secs(1))
    }

    /// What comes until there is this much, or nothing has come for so long.
    pub fn gather_while(&mut self, count: usize, quiet: Duration) -> Vec<Hit> {
        let (mut hits, mut last) = (self.take(), Instant::now());
        while hits.len() < count && last.elapsed() < quiet {
            std::thread::sleep(Duration::from_millis(1));
            let more = self.take();
            if !more.is_empty() {
                last = Instant::now();
            }
            hits.extend(more);
        }
        hits
    }
}

/// The near host's end, from which packets are sent.
#[derive(Debug)]
pub struct Gun {
    wire: Wire,
    from: IpAddr,
    start: Instant,
    number: u32,
    refused: u64,
}

impl Gun {
    /// Sends from an address by the near host's wire.
    ///
    /// # Panics
    /// When that is not allowed.
    #[must_use]
    pub fn new(near: &Host, from: impl Into<IpAddr>, start: Instant) -> Self {
        let wire = near.enter(|| Wire::open("wire0")).expect("a raw socket");
        Self { wire, from: from.into(), start, number: 0, refused: 0 }
    }

    /// Sends one packet.
    pub fn shoot(&mut self, to: IpAddr, port: u16) -> Shot {
        let shot = Shot { number: self.number, at: self.start.elapsed(), to, port };
        self.number += 1;
        self.refused += u64::from(!self.wire.send(&shot.frame(self.from)));
        shot
    }

    /// How many packets Linux has taken, to be sent.
    #[must_use]
    pub fn taken(&self) -> u64 {
        u64::from(self.number) - self.refused
    }

    /// Sends many, not faster than 20,000 in a second.
    pub fn volley(&mut self, to: impl IntoIterator<Item = (IpAddr, u16)>) {
        for (place, (to, port)) in to.into_iter().enumerate() {
            self.shoot(to, port);
            if place % 20 == 19 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// A path for a file of commands.
#[must_use]
pub fn batch(lab: &Lab, name: &str, lines: &[String]) -> PathBuf {
    let path = lab.file(name);
    std::fs::write(&path, lines.join("\n") + "\n").expect("the file is written");
    path
}
