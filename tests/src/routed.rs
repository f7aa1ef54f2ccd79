//! A router between two hosts, and packets whose way is looked at one by one.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use fastlane_testing::Peer;
use fastlane_testing::namespace::Wire;
use serde_json::{Value, json};

use crate::{Application, Host, LEFT_MAC, Lab, Mechanism, RIGHT_MAC, binary, mac};

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
        let lab = Lab::new(story, 1)?;
        let far = Host::new(story)?;
        let path = far.path();
        for (number, name) in [(78, "wire1"), (79, "wire2")] {
            let words = ["ip", "link", "add", name, "type", "veth", "peer", "name", name];
            lab.left.run(&[&words[..], &["netns", &path]].concat());
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
        let write = || std::fs::write(format!("/proc/sys/net/{key}"), value);
        self.lab.left.enter(write).unwrap_or_else(|error| panic!("{key}: {error}"));
    }

    /// `ip` with these words, on the router.
    #[track_caller]
    pub fn ip(&self, words: &str) {
        let words: Vec<&str> = ["ip"].into_iter().chain(words.split(' ')).collect();
        self.lab.left.run(&words);
    }

    /// Gives the far host other addresses, as if they were more hosts: on each of the two wires the
    /// last octets 11 and 12, with the Ethernet addresses of [`hop_mac`].
    pub fn add_hops(&self) {
        for (place, number) in [(0, 78), (2, 79)] {
            for hop in [place, place + 1] {
                let address = format!("10.{number}.0.{}", 11 + hop - place);
                let wire = if number == 78 { "wire1" } else { "wire2" };
                let text = hop_mac(hop);
                self.ip(&format!("neigh replace {address} lladdr {text} dev {wire} nud permanent"));
            }
        }
    }

    /// Starts the program `router` with a mechanism on all wires.
    #[track_caller]
    #[must_use]
    pub fn start(&self, mechanism: Mechanism, changes: &[(&str, Value)]) -> Application {
        let port = |wire: &str| {
            let mut driver = mechanism.on(wire);
            if let Some(packet) = driver.get_mut("af-packet") {
                packet["ring"] = json!(8192);
            }
            json!({"driver": driver, "steer": [{"ethertype": "ipv4"}, {"ethertype": "ipv6"}]})
        };
        let mut configuration = json!({
            "lanes": {"frames": 16_384},
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
    pub to: Ipv4Addr,
    /// The UDP port that it goes to.
    pub port: u16,
}

/// Behind an Ethernet, an IPv4 and a UDP header.
const MARK: &[u8] = b"RTST";

impl Shot {
    /// The frame, from the near host's wire to the router.
    #[must_use]
    pub fn frame(&self, from: Ipv4Addr) -> Vec<u8> {
        let mut ip = vec![0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0];
        ip.extend(from.octets());
        ip.extend(self.to.octets());
        let sum = fastlane::wire::checksum::checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let mut frame = [mac(LEFT_MAC), mac(RIGHT_MAC)].concat();
        frame.extend([8, 0]);
        frame.extend(ip);
        frame.extend(4000_u16.to_be_bytes());
        frame.extend(self.port.to_be_bytes());
        frame.extend([0, 26, 0, 0]); // without a checksum
        frame.extend(MARK);
        frame.extend(self.number.to_be_bytes());
        frame.extend((self.at.as_nanos() as u64).to_be_bytes());
        frame.extend([0; 2]);
        frame
    }

    /// The packet in a frame that has passed the router, if it is one of the test.
    #[must_use]
    pub fn read(frame: &[u8]) -> Option<Self> {
        let mark = frame.get(42..58)?;
        if frame[12..14] != [8, 0] || &mark[..4] != MARK {
            return None;
        }
        let to: [u8; 4] = frame[30..34].try_into().ok()?;
        Some(Self {
            number: u32::from_be_bytes(mark[4..8].try_into().ok()?),
            at: Duration::from_nanos(u64::from_be_bytes(mark[8..16].try_into().ok()?)),
            to: to.into(),
            port: u16::from_be_bytes(frame[36..38].try_into().ok()?),
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
    /// Whether the checksum of its IPv4 header is right.
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
                let sum = fastlane::wire::checksum::checksum(&frame[14..34]);
                hits.push(Hit { shot, mac, time_to_live: frame[22], is_sound: sum == 0 });
            }
        }
        hits
    }

    /// What comes until there is this much, or nothing has come for a second.
    pub fn gather(&mut self, count: usize) -> Vec<Hit> {
        let (mut hits, mut last) = (self.take(), Instant::now());
        while hits.len() < count && last.elapsed() < Duration::from_secs(1) {
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
    from: Ipv4Addr,
    start: Instant,
    number: u32,
}

impl Gun {
    /// Sends from an address by the near host's wire.
    ///
    /// # Panics
    /// When that is not allowed.
    #[must_use]
    pub fn new(near: &Host, from: [u8; 4], start: Instant) -> Self {
        let wire = near.enter(|| Wire::open("wire0")).expect("a raw socket");
        Self { wire, from: from.into(), start, number: 0 }
    }

    /// Sends one packet.
    pub fn shoot(&mut self, to: Ipv4Addr, port: u16) -> Shot {
        let shot = Shot { number: self.number, at: self.start.elapsed(), to, port };
        self.number += 1;
        self.wire.send(&shot.frame(self.from));
        shot
    }

    /// Sends many, not faster than 20,000 in a second.
    pub fn volley(&mut self, to: impl IntoIterator<Item = (Ipv4Addr, u16)>) {
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
