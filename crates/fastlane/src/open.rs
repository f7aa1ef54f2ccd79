//! From a plan to open ports, dealt out to the lanes.

mod devices;
mod dpdk;
mod filter;
mod interface;
mod keeping;
mod lanes;
mod links;
mod local;
mod memif;
mod shared;
mod tap;
mod udp;

use fastlane_core::{KernelPath, LaneConfig, Pool, Port, Queue};
use fastlane_hold::HoldArea;
use fastlane_table::SharedMemory;
use fastlane_table::counters::Counters;

use crate::Error;
use crate::config::plan::{KernelPlan, Plan, PortPlan};
use crate::config::written::Driver;
use crate::describe::PortFacts;

pub(crate) use devices::Devices;
use fastlane_kernel::tap::Carrier;
pub(crate) use interface::examine;
pub(crate) use keeping::{Inherited, Keeping, PortsKept};
pub(crate) use lanes::{Exchanges, connect};
use links::Link;

/// Everything that is open.
pub(crate) struct Opened {
    /// What each lane is made of.
    pub lanes: Vec<LaneConfig>,
    /// What belongs to ports and not to lanes: programs attached to interfaces.
    pub devices: Devices,
    /// What was chosen for each port.
    pub facts: Vec<PortFacts>,
    /// The counters that the lanes write.
    pub counters: Counters,
    /// Of each port the number of its interface in Linux, if there is one.
    pub twins: Vec<Option<u32>>,
    /// What a successor can take over.
    pub keeping: Keeping,
}

/// Opens all ports of `plan`; those on AF_XDP and TAP are taken over if there is something
/// `inherited`.
pub(crate) fn open(plan: &Plan, inherited: Option<Inherited>) -> Result<Opened, Error> {
    let mut opening = Opening::new(plan, inherited)?;
    for port in &plan.ports {
        match &port.driver {
            Driver::AfXdp(xdp) => opening.attach_af_xdp(port, xdp)?,
            Driver::AfPacket(packet) => opening.open_af_packet(port, packet)?,
            Driver::Tap(tap) => opening.open_tap(port, tap)?,
            Driver::Udp(udp) => opening.open_udp(port, udp)?,
            Driver::Pcap(pcap) => opening.open_pcap(port, pcap)?,
            Driver::Dpdk(dpdk) => opening.open_dpdk(port, dpdk)?,
            Driver::Memif(memif) => opening.open_memif(port, memif)?,
            Driver::Memory(memory) => opening.open_memory(port, memory)?,
            Driver::Ring(ring) => opening.open_ring(port, ring)?,
        }
        opening.open_kernel_tap(port)?;
    }
    // The sockets of a lane share its pool, so they are opened together, when all devices are
    // there.
    opening.open_af_xdp_sockets()?;
    opening.finish()
}

/// Ports on their way to being open.
struct Opening<'a> {
    plan: &'a Plan,
    lanes: Vec<LaneOpening>,
    devices: Devices,
    /// How many queues each AF_XDP device has.
    xdp_queues: Vec<u32>,
    facts: Vec<PortFacts>,
    dpdk: Option<dpdk::Dpdk>,
    /// What the TAP that stands for a port shall look like.
    hardware: Vec<Hardware>,
    /// Who knows the link of a port, where Linux does not.
    states: Vec<Option<Box<dyn links::State>>>,
    /// The TAP that stands for a port.
    peers: Vec<Option<Carrier>>,
    /// The interface of a port in Linux.
    twins: Vec<Option<u32>>,
    inherited: Option<Inherited>,
    keeping: Keeping,
}

/// What is known of a device that Linux does not have.
#[derive(Clone, Copy, Default)]
struct Hardware {
    mac: Option<[u8; 6]>,
    mtu: Option<u32>,
}

/// What one lane has so far: its pool, and for each port its queues and the way into Linux.
struct LaneOpening {
    pool: Pool,
    queues: Vec<Vec<Box<dyn Queue>>>,
    kernel: Vec<Option<KernelPath>>,
}

impl<'a> Opening<'a> {
    fn new(plan: &'a Plan, inherited: Option<Inherited>) -> Result<Self, Error> {
        let lane = |number: usize| {
            let refuse = |reason: String| Error::Lane { lane: number, reason };
            let bytes = plan.frames * plan.frame_size;
            let memory = SharedMemory::create("fastlane-pool", bytes).map_err(|error| {
                refuse(format!(
                    "no memory for a pool of {} MiB ({error}); make `lanes.frames` smaller",
                    bytes >> 20
                ))
            })?;
            let pool = Pool::new(memory, plan.frame_size, plan.headroom)
                .map_err(|error| refuse(format!("the lane's frame pool: {error}")))?;
            let ports = plan.ports.len();
            let queues = (0..ports).map(|_| Vec::new()).collect();
            Ok(LaneOpening { pool, queues, kernel: (0..ports).map(|_| None).collect() })
        };
        Ok(Self {
            plan,
            lanes: (0..plan.lanes.len()).map(lane).collect::<Result<_, Error>>()?,
            devices: Devices::default(),
            xdp_queues: Vec::new(),
            facts: plan.ports.iter().map(facts).collect(),
            dpdk: None,
            hardware: vec![Hardware::default(); plan.ports.len()],
            states: plan.ports.iter().map(|_| None).collect(),
            peers: plan.ports.iter().map(|_| None).collect(),
            twins: vec![None; plan.ports.len()],
            inherited,
            keeping: Keeping::default(),
        })
    }

    /// Gives a queue of a port to a lane.
    fn add(&mut self, lane: usize, port: &PortPlan, queue: Box<dyn Queue>) {
        let number = usize::from(port.id.0);
        self.lanes[lane].queues[number].push(queue);
        self.facts[number].queues += 1;
    }

    fn finish(self) -> Result<Opened, Error> {
        let Self { plan, lanes, mut devices, facts, states, peers, twins, keeping, .. } = self;
        for ((port, state), peer) in plan.ports.iter().zip(states).zip(peers) {
            if let Some(state) = state {
                devices.links.push(Link::new(&port.name, state, peer));
            }
        }
        let counters = Counters::create(lanes.len(), plan.ports.len()).map_err(|error| {
            let reason = format!("counters: no memory ({error}); name fewer lanes or ports");
            Error::Service { what: "counters", reason }
        })?;
        for (port, facts) in plan.ports.iter().zip(&facts) {
            report(port, facts, plan.ring.is_some());
            if is_followed(port) {
                devices.add_software(usize::from(port.id.0), &port.rules);
            }
        }
        let lanes = lanes.into_iter().enumerate().map(|(lane, opening)| {
            let ports = opening.queues.into_iter().zip(opening.kernel).enumerate();
            let ports = ports.map(|(port, (queues, kernel))| Port {
                queues,
                kernel,
                filter: devices.filter(port),
                counters: counters.port(lane, port),
            });
            LaneConfig {
                burst: plan.burst,
                kernel_budget: plan.kernel_budget,
                idle: plan.idle,
                hold: Some(Box::new(HoldArea::new(plan.hold, plan.frame_size))),
                ..LaneConfig::new(opening.pool, ports.collect(), counters.lane(lane))
            }
        });
        Ok(Opened { lanes: lanes.collect(), devices, facts, counters, twins, keeping })
    }
}

/// Whether the lanes follow the rules of a port themselves: where neither Linux nor eBPF does.
fn is_followed(port: &PortPlan) -> bool {
    !port.driver.is_shared() && !port.rules.is_empty()
}

/// What is known of a port before it is open.
fn facts(port: &PortPlan) -> PortFacts {
    PortFacts {
        name: port.name.clone(),
        driver: port.driver.word().to_owned(),
        mode: String::new(),
        interface: None,
        queues: 0,
        kernel: None,
    }
}

/// Says what was chosen.
fn report(port: &PortPlan, facts: &PortFacts, lanes_help: bool) {
    let interface = facts.interface.as_deref().map(|name| format!(" on {name}"));
    let mode = if facts.mode.is_empty() { String::new() } else { format!(", {}", facts.mode) };
    let kernel = match (&facts.kernel, &port.kernel) {
        (Some(kernel), _) => kernel.clone(),
        (None, KernelPlan::None) => "packets labelled Kernel are dropped".to_owned(),
        (None, _) => "no way into Linux".to_owned(),
    };
    tracing::info!(
        "port `{}`: {}{}{mode}, {} queue{}; {kernel}",
        port.name,
        facts.driver,
        interface.unwrap_or_default(),
        facts.queues,
        if facts.queues == 1 { "" } else { "s" },
    );
    let covered = port.lanes.len().min(facts.queues.max(1));
    if covered < port.lanes.len() && !lanes_help {
        tracing::warn!(
            "port `{}` has fewer queues than lanes: lanes beyond the first {covered} cannot \
             send through it",
            port.name
        );
    }
}
