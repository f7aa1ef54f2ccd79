//! A router with nftables rules between two hosts, the slow path of its flows, and connections
//! through it.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use fastlane::flow_tier::{Adoption, KernelTier};
use fastlane::mirror::conntrack::{
    Connection, ConntrackChange, ConntrackListener, ConntrackWriter, Groups,
};
use fastlane::mirror::flows::FlowTier;
use fastlane_tests::routed::{FAR, Routed, counters, drop_count};
use fastlane_tests::{Application, Mechanism, PATIENCE, Pins, Process, binary, eventually};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Rules of a firewall: who is inside may begin connections, and what is established is marked.
pub(crate) const RULES: &str = "
table inet firewall {
  chain forward {
    type filter hook forward priority 0; policy drop;
    ct state invalid counter drop
    ct state established,related ct mark set ct mark | 0x1 accept
    iifname \"wire0\" accept
    ct status dnat accept
  }
}";

/// Masquerade of IPv4 behind the address of `wire1`.
pub(crate) const MASQUERADE: &str = "
table ip nat {
  chain postrouting {
    type nat hook postrouting priority srcnat;
    oifname \"wire1\" masquerade
  }
}";

/// Size of the router's rings in frames: enough for a time without a CPU on a loaded machine.
pub(crate) const RING: u32 = 4096;

/// Tier of all ports of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// Lanes with a queue of each port.
    Lanes,
    /// The XDP program in the kernel.
    Kernel,
    /// The program at the ingress. Hosts leave checksums and the division of what is long to the
    /// wire, as they usually do.
    Ingress,
    /// The XDP program on `wire0`, lanes on the other links.
    Mixed,
    /// The XDP program, and lanes for what it does not forward.
    Both,
    /// Both on `wire0`, lanes on the other links.
    BothAndLanes,
}

impl Tier {
    /// Returns true if all ports are of the kernel tier alone.
    pub(crate) fn is_kernel(self) -> bool {
        matches!(self, Self::Kernel | Self::Ingress)
    }
}

/// Makes a test of each story for each tier: `lanes::story`, `kernel::story`, `ingress::story`.
macro_rules! for_each_tier {
    ($($story:ident),* $(,)?) => {
        mod lanes {
            $(#[test] fn $story() { super::$story(crate::firewall::Tier::Lanes); })*
        }
        mod kernel {
            $(#[test] fn $story() { super::$story(crate::firewall::Tier::Kernel); })*
        }
        mod ingress {
            $(#[test] fn $story() { super::$story(crate::firewall::Tier::Ingress); })*
        }
    };
}
pub(crate) use for_each_tier;

/// Mark of a connection that Linux tracks.
pub(crate) struct ConnectionMark {
    connection: Connection,
    writer: ConntrackWriter,
}

impl ConnectionMark {
    /// Sets bits of it.
    #[track_caller]
    pub(crate) fn set(&mut self, bits: u32, mask: u32) {
        let mark = Some((bits, mask));
        let change = ConntrackChange { mark, ..ConntrackChange::of(&self.connection) };
        assert_eq!(self.writer.apply([change]).expect("Linux takes it"), 0);
    }
}

/// A running firewall.
pub(crate) struct Firewall {
    pub(crate) routed: Routed,
    pub(crate) router: Application,
    configuration: PathBuf,
    pub(crate) offload: Option<Process>,
    tier: Tier,
    /// BPF file system of the kernel tier. It is dropped last.
    pins: Option<Pins>,
}

/// Tier, mechanism, number of lanes and frames of the rings of a router.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) tier: Tier,
    pub(crate) mechanism: Mechanism,
    pub(crate) lanes: usize,
    pub(crate) ring: u32,
}

/// Settings of flows in which a change of the rules leaves the marks.
pub(crate) fn without_rejudging() -> Value {
    json!({ "capacity": 1024, "rejudge": false })
}

impl Firewall {
    /// Starts a router with rules and its slow path. Returns `None` after a skip.
    #[track_caller]
    pub(crate) fn new(tier: Tier, story: &str, rules: &[&str]) -> Option<Self> {
        Self::with(tier, story, rules, json!({ "capacity": 1024 }))
    }

    /// Starts a router with settings of its flows.
    #[track_caller]
    pub(crate) fn with(tier: Tier, story: &str, rules: &[&str], flows: Value) -> Option<Self> {
        let mut firewall = Self::without_offload(tier, story, rules, flows)?;
        firewall.start_offload();
        Some(firewall)
    }

    /// Starts a router without its slow path.
    #[track_caller]
    pub(crate) fn without_offload(
        tier: Tier,
        story: &str,
        rules: &[&str],
        flows: Value,
    ) -> Option<Self> {
        let setup = Setup { tier, mechanism: Mechanism::XdpNative, lanes: 1, ring: RING };
        Self::on(setup, story, rules, flows)
    }

    /// Starts a router without its slow path on a mechanism, with a number of lanes.
    #[track_caller]
    pub(crate) fn on(setup: Setup, story: &str, rules: &[&str], mut flows: Value) -> Option<Self> {
        let Setup { tier, mechanism, lanes, ring } = setup;
        let routed = Routed::with_queues(story, lanes)?;
        let pins = match tier {
            Tier::Lanes => None,
            Tier::Kernel | Tier::Ingress | Tier::Mixed | Tier::Both | Tier::BothAndLanes => {
                let pins = Pins::mount(&routed.lab)?;
                flows["pins"] = json!(pins.directory());
                Some(pins)
            }
        };
        // On a wire each packet is one of the link's size, and its checksum is complete. The end of
        // a veth pair takes redirected frames only with GRO.
        let [gso, gro, tx] = match tier {
            Tier::Lanes => ["off", "off", "on"],
            Tier::Ingress => ["on", "off", "on"],
            _ => ["off", "on", "off"],
        };
        for (host, wire) in
            [(&routed.lab.right, "wire0"), (&routed.far, "wire1"), (&routed.far, "wire2")]
        {
            let offloads = ["tso", gso, "gso", gso, "gro", gro, "tx", tx];
            host.run(&[&["ethtool", "-K", wire][..], &offloads].concat());
        }
        let port = |wire: &str| {
            let steer = json!([{"ethertype": "ipv4"}, {"ethertype": "ipv6"}]);
            let mut driver = mechanism.on(wire);
            match driver.get_mut("af-xdp") {
                Some(xdp) => {
                    xdp["receive-ring"] = json!(ring);
                    if tier == Tier::Ingress {
                        xdp["mode"] = json!("auto");
                    }
                }
                None => driver["af-packet"]["ring"] = json!(ring),
            }
            let tier = match tier {
                Tier::Lanes => "lanes",
                Tier::Kernel | Tier::Ingress => "kernel",
                Tier::Both => "both",
                Tier::Mixed | Tier::BothAndLanes if wire != "wire0" => "lanes",
                Tier::Mixed => "kernel",
                Tier::BothAndLanes => "both",
            };
            json!({"driver": driver, "steer": steer, "lane-by": "rss", "tier": tier})
        };
        let mut configuration = json!({
            "lanes": {"frames": 6 * ring},
            "ports": {"wire0": port("wire0"), "wire1": port("wire1"), "wire2": port("wire2")},
            "mirror": {},
            "metrics": {},
            "app": { "flows": flows },
        });
        if lanes > 1 {
            configuration["lanes"]["cpus"] = (0..lanes).collect();
        }
        let (path, session) = Application::configure(&routed.lab, configuration);
        let mut command = routed.router().command(&[]);
        command.arg(binary("router")).arg(&path);
        let router = Application::run(command, session);
        let firewall = Self { routed, router, configuration: path, offload: None, tier, pins };
        rules.iter().for_each(|rules| firewall.nft(rules));
        Some(firewall)
    }

    /// Starts the slow path and waits until it runs.
    #[track_caller]
    pub(crate) fn start_offload(&mut self) {
        let process = self.offload_with(&[]);
        process.wait_for("router offload: running");
        self.offload = Some(process);
    }

    /// Starts `router offload` with further words.
    pub(crate) fn offload_with(&self, words: &[&str]) -> Process {
        let mut command = self.routed.router().command(&[]);
        command.arg(binary("router")).arg("offload").arg(&self.configuration).args(words);
        Process::start(command)
    }

    /// Starts a second router with a changed setting, which must refuse. Returns its exit status
    /// and standard error.
    #[track_caller]
    pub(crate) fn start_another(&self, setting: &str) -> (Option<i32>, String) {
        let mut command = self.routed.router().command(&[]);
        command.arg(binary("router")).arg(&self.configuration);
        let session = self.routed.lab.file("another.sock");
        command.args(["--set", &format!("session={}", json!(session)), "--set", setting]);
        let ended = Process::start(command).wait();
        (ended.status.code(), ended.stderr)
    }

    /// Creates a BPF table, removes it and returns its number. The kernel counts tables.
    #[track_caller]
    pub(crate) fn next_table(&self) -> u64 {
        let pins = self.pins.as_ref().expect("it has a kernel tier").directory();
        let path = pins.parent().expect("a BPF file system").join("table");
        let pin = path.to_str().expect("a path of ours");
        let kind = "type array key 4 value 4 entries 1 name table";
        let words = ["map", "create", pin].into_iter().chain(kind.split(' '));
        let run = |words: &mut dyn Iterator<Item = &str>| {
            let output = Command::new("bpftool").args(words).output().expect("bpftool runs");
            assert!(output.status.success(), "{output:?}");
            output.stdout
        };
        run(&mut words.into_iter());
        let shown = run(&mut ["-j", "map", "show", "pinned", pin].into_iter());
        std::fs::remove_file(&path).expect("it was pinned");
        let shown: Value = serde_json::from_slice(&shown).expect("JSON of bpftool");
        shown["id"].as_u64().expect("a number")
    }

    /// Removes all flows from the table of the kernel tier, behind the back of its slow path.
    #[track_caller]
    pub(crate) fn clear_kernel_table(&self) {
        let pins = self.pins.as_ref().expect("it has a kernel tier").directory();
        let capacity = 2 * 1024; // both directions
        let (mut tier, adoption) = KernelTier::open(capacity, &pins).expect("its pins");
        assert_eq!(adoption, Adoption::Adopted);
        for flow in tier.flows().expect("its flows") {
            tier.remove(&flow.key).expect("it is there");
        }
    }

    /// Kills the slow path.
    #[track_caller]
    pub(crate) fn kill_offload(&mut self) {
        self.offload.take().expect("it runs").kill();
    }

    /// Kills the router and starts it again. What `fastlane keep` holds is taken over.
    #[track_caller]
    pub(crate) fn replace_router(&mut self) {
        let session = self.router.session().to_owned();
        let name = session.to_string_lossy().into_owned();
        self.router.process.signal(Signal::KILL);
        eventually("the router has ended", || fastlane::slow::attach(&name).is_err());
        let mut command = self.routed.router().command(&[]);
        command.arg(binary("router")).arg(&self.configuration);
        self.router = Application::run(command, session);
    }

    /// Adds rules.
    #[track_caller]
    pub(crate) fn nft(&self, rules: &str) {
        let file = self.routed.lab.file("rules.nft");
        std::fs::write(&file, rules).expect("the rules are writable");
        let file = file.to_string_lossy();
        self.routed.router().run(&["nft", "-f", &file]);
    }

    /// Runs `conntrack` with these words. Returns its output, and nothing if no entry was affected.
    #[track_caller]
    pub(crate) fn conntrack(&self, words: &str) -> String {
        let words: Vec<&str> = ["conntrack"].into_iter().chain(words.split(' ')).collect();
        String::from_utf8_lossy(&self.routed.router().attempt(&words).stdout).into_owned()
    }

    /// Returns the mark of the connection to a port.
    #[track_caller]
    pub(crate) fn mark_of(&self, port: u16) -> ConnectionMark {
        self.routed.router().enter(|| {
            let groups = Groups { new: false, rules: false };
            let mut listener = ConntrackListener::open(groups, 4096).expect("a socket");
            let mut all = Vec::new();
            assert!(listener.dump(0, 0, |it| all.push(it)).expect("a dump"));
            let found = all.into_iter().find(|it| it.original.ports[1] == port);
            ConnectionMark {
                connection: found.expect("Linux has it"),
                writer: ConntrackWriter::open().expect("a socket"),
            }
        })
    }

    /// Returns the lines of `router flows` with further words.
    #[track_caller]
    pub(crate) fn flows(&self, words: &[&str]) -> Vec<String> {
        let mut command = Command::new(binary("router"));
        let output = command.arg("flows").arg(self.router.session()).args(words).output();
        let output = output.expect("router can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }

    /// Returns the counters of the slow path.
    #[track_caller]
    pub(crate) fn statistics(&self) -> BTreeMap<String, u64> {
        let pair = |line: String| {
            let (name, count) = line.split_once(' ').expect("a name and a number");
            (name.to_owned(), count.parse().expect("a number"))
        };
        self.flows(&["--statistics"]).into_iter().map(pair).collect()
    }

    /// Returns the output of `router explain`.
    #[track_caller]
    pub(crate) fn explain(&self, words: &str) -> String {
        let session = self.router.session().to_string_lossy().into_owned();
        let program = binary("router").to_string_lossy().into_owned();
        let words = [&program, "explain", &session].into_iter().chain(words.split(' '));
        self.routed.router().run(&words.collect::<Vec<_>>())
    }

    /// Waits until the flow with a port is in the table.
    #[track_caller]
    pub(crate) fn wait_until_fast(&self, port: u16) {
        let port = port.to_string();
        eventually("the flow is in the table", || !self.flows(&["--port", &port]).is_empty());
    }

    /// Waits until no flow with a port is in the table.
    #[track_caller]
    pub(crate) fn wait_until_slow(&self, port: u16) {
        let port = port.to_string();
        eventually("the flow leaves the table", || self.flows(&["--port", &port]).is_empty());
    }

    /// Returns the word by which the tools name the tier.
    pub(crate) fn tier_name(&self) -> &'static str {
        if self.tier.is_kernel() || self.tier == Tier::Both { "kernel" } else { "lanes" }
    }

    /// Returns the number of packets with an outcome, which is that of lanes. Linux does not tell
    /// the kernel tier why it does not forward a packet that has no route or is for itself.
    #[track_caller]
    pub(crate) fn count(&self, outcome: &str) -> u64 {
        let outcome = match (self.tier, outcome) {
            (tier, "linux_local" | "linux_no_route") if tier.is_kernel() => "linux_not_forwarded",
            (_, outcome) => outcome,
        };
        drop_count(&self.router, outcome)
    }

    /// Repeats an exchange until the tier forwards at least `least` packets of it. A neighbour may
    /// be unknown for a while: all hosts of the machine share Linux's table of them.
    #[track_caller]
    pub(crate) fn until_forwarded(&self, least: u64, mut exchange: impl FnMut()) {
        let end = Instant::now() + PATIENCE;
        loop {
            let before = self.count("forwarded");
            exchange();
            if self.count("forwarded") >= before + least {
                return;
            }
            let counted = counters(&self.router, &[]);
            assert!(Instant::now() < end, "the tier does not forward: {counted:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Establishes a TCP connection from the near host to a port of the far one.
    #[track_caller]
    pub(crate) fn connect(&self, port: u16) -> Connected {
        self.connect_to(&self.listen(port), SocketAddr::new(FAR.parse().expect("an address"), port))
    }

    /// Listens on a port of the far host.
    #[track_caller]
    pub(crate) fn listen(&self, port: u16) -> TcpListener {
        self.routed.far.enter(|| TcpListener::bind(("::", port)).expect("a free port"))
    }

    /// Establishes a TCP connection from the near host to an address that leads to a listener.
    #[track_caller]
    pub(crate) fn connect_to(&self, listener: &TcpListener, to: SocketAddr) -> Connected {
        let near = self.routed.lab.right.enter(|| TcpStream::connect_timeout(&to, PATIENCE));
        let near = near.unwrap_or_else(|error| panic!("{to}: {error}"));
        let (far, from) = listener.accept().expect("a connection");
        for stream in [&near, &far] {
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
            stream.set_nodelay(true).expect("an option");
        }
        Connected { near, far, from }
    }

    /// Opens UDP sockets of both hosts, that of the far one on a port of its address on `wire1`.
    #[track_caller]
    pub(crate) fn datagrams(&self, port: u16) -> Datagrams {
        self.datagrams_at(SocketAddr::new(FAR.parse().expect("an address"), port))
    }

    /// Opens UDP sockets of both hosts, that of the far one at an address of it.
    #[track_caller]
    pub(crate) fn datagrams_at(&self, to: SocketAddr) -> Datagrams {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let far = self.routed.far.enter(|| UdpSocket::bind(to).expect("a free port"));
        let near = self.routed.lab.right.enter(|| UdpSocket::bind(any).expect("a socket"));
        let datagrams = Datagrams { near, far, to };
        datagrams.set_timeout(SHORT);
        datagrams
    }
}

/// A TCP connection through the router.
pub(crate) struct Connected {
    pub(crate) near: TcpStream,
    pub(crate) far: TcpStream,
    /// Address of the near host as the far one sees it.
    pub(crate) from: SocketAddr,
}

impl Connected {
    /// Sends bytes in both directions, and checks them.
    #[track_caller]
    pub(crate) fn exchange(&mut self, length: usize) {
        transfer(&mut self.near, &mut self.far, length);
        transfer(&mut self.far, &mut self.near, length);
    }
}

/// Sends bytes from one end to the other, and checks them.
#[track_caller]
pub(crate) fn transfer(from: &mut TcpStream, to: &mut TcpStream, length: usize) {
    const BLOCK: usize = 1 << 16;
    let byte = |at: usize| (at % 251) as u8;
    let block: Vec<u8> = (0..BLOCK + 251).map(byte).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sent = 0;
            while sent < length {
                let count = BLOCK.min(length - sent);
                let start = sent % 251;
                from.write_all(&block[start..start + count]).expect("the connection lives");
                sent += count;
            }
        });
        let (mut buffer, mut received) = (vec![0; BLOCK], 0);
        while received < length {
            let room = BLOCK.min(length - received);
            let count = match to.read(&mut buffer[..room]) {
                // A socket with a timeout is interrupted when the process is frozen.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                count => count.expect("the connection lives"),
            };
            assert!(count > 0, "the connection ended after {received} bytes");
            let start = received % 251;
            assert!(buffer[..count] == block[start..start + count], "bytes changed");
            received += count;
        }
    });
}

/// Time after which a datagram that may be lost is.
const SHORT: Duration = Duration::from_secs(1);

/// UDP sockets of both hosts.
pub(crate) struct Datagrams {
    pub(crate) near: UdpSocket,
    pub(crate) far: UdpSocket,
    pub(crate) to: SocketAddr,
}

impl Datagrams {
    /// Sends a datagram to the far host. Returns its source there, or `None` if it does not arrive
    /// within a second.
    pub(crate) fn send(&self) -> Option<SocketAddr> {
        self.near.send_to(b"there", self.to).expect("a route");
        let (length, from) = self.far.recv_from(&mut [0; 64]).ok()?;
        assert_eq!(length, 5);
        Some(from)
    }

    /// Sends a datagram to the far host and one back. Returns its source there, or `None` if one of
    /// them does not arrive within a second.
    pub(crate) fn exchange(&self) -> Option<SocketAddr> {
        let from = self.send()?;
        self.far.send_to(b"back", from).expect("a route");
        let (length, back) = self.near.recv_from(&mut [0; 64]).ok()?;
        assert_eq!((length, back), (4, self.to));
        Some(from)
    }

    /// Sends a datagram to the far host and one back. Returns its source there.
    ///
    /// # Panics
    /// When one of them is lost.
    #[track_caller]
    pub(crate) fn source(&self) -> SocketAddr {
        self.set_timeout(PATIENCE);
        let from = self.exchange().expect("none is lost");
        self.set_timeout(SHORT);
        from
    }

    /// Asserts that a datagram reaches the far host.
    #[track_caller]
    pub(crate) fn assert_sent(&self) {
        self.set_timeout(PATIENCE);
        let from = self.send();
        self.set_timeout(SHORT);
        from.expect("it is not lost");
    }

    /// Asserts that a datagram reaches the far host, and one comes back.
    #[track_caller]
    pub(crate) fn assert_exchange(&self) {
        let _ = self.source();
    }

    fn set_timeout(&self, timeout: Duration) {
        for socket in [&self.near, &self.far] {
            socket.set_read_timeout(Some(timeout)).expect("a timeout");
        }
    }
}

/// Returns an address without the mapping of IPv4 into IPv6.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
