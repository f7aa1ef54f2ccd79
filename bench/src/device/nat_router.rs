//! A router with NAT between a generator of frames and a sink, in a network namespace of its own:
//! Linux, or the kernel tier of flows. Its work is done by one thread of the kernel, whose CPU time
//! is counted.
//!
//! ```text
//! generator ─► gen ═ device ─► NAPI thread: the router ─► out ═ sink ─► NAPI thread: drops
//! ```
//!
//! The three take turns on one CPU: the generator, with real-time priority, fills the queue of the
//! device, then sleeps until the router has polled it and the sink has dropped what left. So nobody
//! wakes another one for each packet.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use aya::maps::{Array, MapData};
use aya::programs::{TestRunAttrs, TestRunOptions, Xdp};
use aya::{Ebpf, TestRun, include_bytes_aligned};
use fastlane::flow_tier::{KernelTier, TierPort, XdpMode};
use fastlane::mirror::flows::{
    FlowKey, FlowRecord, FlowStatistics, FlowStatus, FlowTier, PinsPath, TierFlow,
};
use fastlane::table::EntryId;
use fastlane_kernel::Interface;

use crate::Result;
use crate::rivals::ffi;
use crate::slices::{Contender, Slice};

/// Frames that are queued at once. The queue of a veth has room for 256.
const BATCH: u32 = 128;
/// Frames that the generator makes before it sends them.
const BULK: u32 = 64;
/// CPU of the generator, the router and the sink.
pub const CPU: usize = 1;
/// Time in which a batch must have been dropped by the sink.
const PATIENCE: Duration = Duration::from_secs(5);

const FORWARDED: &str = "
table ip filter {
    chain forward {
        type filter hook forward priority 0
        ct state established,related accept
    }
}
";
const TRANSLATED: &str = "
table ip nat {
    chain postrouting {
        type nat hook postrouting priority srcnat
        oifname \"out\" masquerade
    }
}
";

/// Work of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Linux forwards.
    Forwarding,
    /// Linux forwards what its connection tracking knows.
    Tracking,
    /// Linux does so behind its own address.
    Masquerade,
    /// The kernel tier forwards behind its own address.
    KernelTier,
}

impl Work {
    /// Returns the name for reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Forwarding => "Linux, forwarding",
            Self::Tracking => "Linux, + conntrack",
            Self::Masquerade => "Linux, + masquerade",
            Self::KernelTier => "kernel tier with NAT",
        }
    }

    fn rules(self) -> String {
        match self {
            Self::Forwarding | Self::KernelTier => String::new(),
            Self::Tracking => FORWARDED.to_owned(),
            Self::Masquerade => FORWARDED.to_owned() + TRANSLATED,
        }
    }
}

/// Generator of the frames of all flows in turn.
struct Generator {
    program: Ebpf,
    flows: u32,
    interface: u32,
    frame: Vec<u8>,
}

/// A router between a generator and a sink.
pub struct NatRouter {
    namespace: OwnedFd,
    generator: Generator,
    /// Table of the interfaces' counters, of its namespace.
    counters: File,
    device: String,
    sink: String,
    /// Process id of the thread that is the router.
    thread: String,
    /// It forwards as long as this is open.
    _tier: Option<KernelTier>,
}

impl NatRouter {
    /// Creates a router for a number of flows, all of which have passed it once. The calling thread
    /// is in its network namespace afterwards.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses something: it takes root.
    pub fn new(work: Work, flows: u32) -> Result<Self> {
        ffi::unshare_network()?;
        let namespace: OwnedFd = File::open("/proc/thread-self/ns/net")?.into();
        let number = std::process::id() % 10_000;
        let (device, sink) =
            (format!("d{number}{}", work as u8), format!("s{number}{}", work as u8));
        for (near, far, net) in [(&*device, "gen", 10), ("out", &*sink, 20)] {
            run(&format!("ip link add {near} address 02:00:00:00:00:01 type veth peer {far}"))?;
            for end in [near, far] {
                run(&format!("ip link set {end} addrgenmode none up"))?;
                // Then the end has a NAPI thread, and takes redirected frames.
                run(&format!("ethtool -K {end} gro on tso off"))?;
            }
            run(&format!("ip address add {net}.255.0.1/8 dev {near}"))?;
            // The sink has another Ethernet address: it drops what it receives.
            let to = "lladdr 02:00:00:00:00:09";
            run(&format!("ip neigh add {net}.255.0.2 {to} dev {near} nud permanent"))?;
            run(&format!("ip route add {net}.0.0.0/9 via {net}.255.0.2"))?;
        }
        for (key, value) in [
            ("ipv4/ip_forward", "1"),
            ("ipv4/conf/all/rp_filter", "0"),
            ("netfilter/nf_conntrack_udp_timeout", "3600"),
        ] {
            fs::write(format!("/proc/sys/net/{key}"), value)?;
        }
        let rules = work.rules();
        if !rules.is_empty() {
            succeed(Command::new("nft").arg(rules), "nft")?;
        }
        let tier = (work == Work::KernelTier).then(|| tier(&device, flows)).transpose()?;
        for name in [&device, &sink] {
            // The mounted file system shows another namespace.
            let script =
                format!("mount -t sysfs s /sys && echo 1 > /sys/class/net/{name}/threaded");
            succeed(Command::new("unshare").args(["-m", "sh", "-c", &script]), "threaded NAPI")?;
        }
        let [thread, idle] = [napi(&device)?, napi(&sink)?];
        run(&format!("taskset -pc {CPU} {thread}"))?;
        run(&format!("taskset -pc {CPU} {idle}"))?;
        run(&format!("chrt -i -p 0 {idle}"))?;
        let counters = File::open("/proc/thread-self/net/dev")?;
        let generator = Generator::new(flows, Interface::query("gen")?.index)?;
        let mut router = Self { namespace, generator, counters, device, sink, thread, _tier: tier };
        router.set_length(64)?;
        for _ in 0..flows.div_ceil(BATCH) {
            router.batch()?;
        }
        Ok(router)
    }

    /// Sets the length of frames, with the frame check sequence that Linux does not show.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses it.
    pub fn set_length(&mut self, length: usize) -> Result<()> {
        self.generator.set_length(length - 4)
    }

    /// Sends a batch and waits until it was dropped by the sink. Returns its number of packets.
    fn batch(&mut self) -> Result<u64> {
        let end = Instant::now() + PATIENCE;
        let wanted = [self.polled(false)?, self.polled(true)?].map(|it| it + u64::from(BATCH));
        self.generator.send()?;
        while self.polled(false)? < wanted[0] || self.polled(true)? < wanted[1] {
            if Instant::now() > end {
                return Err(format!("{}: packets are missing", self.device).into());
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        Ok(u64::from(BATCH))
    }

    /// Returns the number of packets that the device, or the sink, has polled.
    fn polled(&mut self, of_sink: bool) -> Result<u64> {
        let mut text = String::new();
        self.counters.rewind()?;
        self.counters.read_to_string(&mut text)?;
        let name = if of_sink { &self.sink } else { &self.device };
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix(&**name));
        let count = line.and_then(|line| line.trim_start_matches(':').split_whitespace().nth(1));
        Ok(count.ok_or("the device is not in /proc/net/dev")?.parse()?)
    }

    /// Returns the CPU time of the router in nanoseconds.
    fn cpu(&self) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.thread))?;
        Ok(text.split(' ').next().unwrap_or_default().parse()?)
    }
}

impl Contender for NatRouter {
    fn run(&mut self, length: Duration) -> Result<Slice> {
        rustix::thread::move_into_link_name_space(self.namespace.as_fd(), None)?;
        let (cpu, end, mut packets) = (self.cpu()?, Instant::now() + length, 0);
        while Instant::now() < end {
            packets += self.batch()?;
        }
        Ok(Slice { cpu: self.cpu()? - cpu, packets })
    }
}

impl Generator {
    fn new(flows: u32, interface: u32) -> Result<Self> {
        let object = include_bytes_aligned!("../../bpf/generator.bpf.o");
        let mut program = Ebpf::load(object)?;
        let generate: &mut Xdp = program.program_mut("generate").ok_or("no program")?.try_into()?;
        generate.load()?;
        Ok(Self { program, flows, interface, frame: Vec::new() })
    }

    fn set_length(&mut self, length: usize) -> Result<()> {
        self.frame = vec![0; length];
        let map = self.program.map_mut("settings").ok_or("no settings")?;
        let mut settings: Array<&mut MapData, [u32; 4]> = Array::try_from(map)?;
        settings.set(0, [self.flows, 0, self.interface, length as u32 - 14], 0)?;
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        let program = self.program.program_mut("generate").ok_or("no program")?;
        let program: &mut Xdp = program.try_into()?;
        let mut options = TestRunOptions::new();
        options.data_in = Some(&self.frame);
        options.repeat = BATCH;
        options.attrs = TestRunAttrs::new().xdp_live_frames(BULK);
        program.test_run(options)?;
        Ok(())
    }
}

/// Loads the tier with flows whose source is translated to the router's address.
fn tier(device: &str, flows: u32) -> Result<KernelTier> {
    let mut tier = KernelTier::load(flows as usize)?;
    for interface in [device, "out"] {
        tier.attach(&TierPort {
            interface: interface.to_owned(),
            index: Interface::query(interface)?.index,
            mac: [2, 0, 0, 0, 0, 1],
            zone: 0,
            mode: Some(XdpMode::Native),
            forwards_back: false,
            has_traffic_control: false,
        })?;
    }
    let address = |net: u8, flow: u32| {
        let mut octets = [0; 16];
        octets[..4].copy_from_slice(&(u32::from(net) << 24 | flow).to_be_bytes());
        octets
    };
    for flow in 0..flows {
        let (source, destination) = (address(10, flow), address(20, flow));
        let ports = [4000, 53];
        let key = FlowKey { source, destination, ports, zone: 0, protocol: 17, version: 4 };
        // The sink does not look at checksums, so the differences are any.
        let record = FlowRecord {
            source: address(20, 0xff_0001),
            destination,
            ports: [5000, 53],
            differences: [1, 2],
            id: flow,
            is_reply: 0,
        };
        tier.insert(&TierFlow { key, record, entry: EntryId(flow) })?;
    }
    tier.publish(&FlowStatus {
        heartbeat: u64::MAX / 2, // the slow path never dies
        grace: 0,
        is_active: 1,
        mark: 1,
        mask: 1,
        one_way: 1,
        statistics: FlowStatistics::default(),
        pins: PinsPath::default(),
    })?;
    Ok(tier)
}

/// Returns the process id of the NAPI thread of an interface.
fn napi(interface: &str) -> Result<String> {
    let wanted = format!("napi/{interface}-");
    let processes = fs::read_dir("/proc")?.flatten();
    let mut names = processes.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_it = |id: &String| {
        let name = fs::read_to_string(format!("/proc/{id}/comm"));
        name.is_ok_and(|name| name.starts_with(&wanted))
    };
    Ok(names.find(is_it).ok_or_else(|| format!("{interface} has no NAPI thread"))?)
}

/// Runs a command line.
fn run(line: &str) -> Result<()> {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap_or_default());
    succeed(command.args(words), line)
}

fn succeed(command: &mut Command, what: &str) -> Result<()> {
    let output = command.output().map_err(|error| format!("{what}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{what}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}
