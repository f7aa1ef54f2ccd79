//! Context of opening: everything known about the ports while they are opened one after another.

use fastlane_core::{KernelPath, LaneConfig, LogicalPorts, Pool, Port, Queue};
use fastlane_hold::HoldArea;
use fastlane_kernel::Interface;
use fastlane_kernel::tap::Carrier;
use fastlane_local::vlan::Vlans;
use fastlane_steer::Rules;
use fastlane_table::counters::Counters;

use super::devices::Devices;
use super::dpdk_environment::Dpdk;
use super::link_state::{Link, LinkState};
use super::port_handover::{InheritedPorts, PortHandover};
use crate::Error;
use crate::config::plan::{KernelPlan, Plan, PortPlan};
use crate::describe::PortFacts;
use crate::lane_memory::{self, LaneMemory};

/// Result of opening all ports.
pub(crate) struct OpenPorts {
    /// Configuration of each lane.
    pub(crate) lanes: Vec<LaneConfig>,
    /// State of ports outside the lanes: steering programs, links, rules.
    pub(crate) devices: Devices,
    /// Description of each port.
    pub(crate) facts: Vec<PortFacts>,
    /// Counters that the lanes write.
    pub(crate) counters: Counters,
    /// Index of each port's interface in Linux, if it has one.
    pub(crate) linux_interfaces: Vec<Option<u32>>,
    /// Interfaces that ports share with Linux, by the number of the port.
    pub(crate) shared_interfaces: Vec<(usize, Interface)>,
    /// Descriptors that a successor can take over.
    pub(crate) handover: PortHandover,
}

/// Ports that are being opened.
pub(super) struct OpenContext<'a> {
    pub(super) plan: &'a Plan,
    pub(super) lanes: Vec<LanePorts>,
    pub(super) devices: Devices,
    /// Number of queues of each AF_XDP device, in the order of `devices.af_xdp`.
    pub(super) xdp_queues: Vec<u32>,
    pub(super) facts: Vec<PortFacts>,
    /// DPDK's environment, once the first port needs it.
    pub(super) dpdk: Option<Dpdk>,
    /// Address and MTU of each device that Linux does not have, for its kernel peer.
    pub(super) hardware: Vec<Hardware>,
    /// Sources of the link state of devices that Linux does not have.
    pub(super) states: Vec<Option<Box<dyn LinkState>>>,
    /// Carrier control of each port's kernel peer.
    pub(super) peers: Vec<Option<Carrier>>,
    /// Index of each port's interface in Linux.
    pub(super) linux_interfaces: Vec<Option<u32>>,
    /// Interfaces that ports share with Linux.
    pub(super) shared_interfaces: Vec<(usize, Interface)>,
    pub(super) inherited: Option<InheritedPorts>,
    pub(super) handover: PortHandover,
}

/// Address and MTU of a device that Linux does not have.
#[derive(Clone, Copy, Default)]
pub(super) struct Hardware {
    pub(super) mac: Option<[u8; 6]>,
    pub(super) mtu: Option<u32>,
}

/// Ports of one lane: its memory, and for each port its queues and its path into Linux.
pub(super) struct LanePorts {
    pub(super) pool: Pool,
    pub(super) hold: HoldArea,
    pub(super) queues: Vec<Vec<Box<dyn Queue>>>,
    pub(super) kernel: Vec<Option<KernelPath>>,
}

impl<'a> OpenContext<'a> {
    pub(super) fn new(plan: &'a Plan, inherited: Option<InheritedPorts>) -> Result<Self, Error> {
        let ports = plan.ports.len();
        let lane = |LaneMemory { pool, hold }| {
            let queues = (0..ports).map(|_| Vec::new()).collect();
            LanePorts { pool, hold, queues, kernel: (0..ports).map(|_| None).collect() }
        };
        let memories = lane_memory::create(plan, inherited.is_some())?;
        Ok(Self {
            plan,
            lanes: memories.into_iter().map(lane).collect(),
            devices: Devices::default(),
            xdp_queues: Vec::new(),
            facts: plan.ports.iter().map(facts).collect(),
            dpdk: None,
            hardware: vec![Hardware::default(); plan.ports.len()],
            states: plan.ports.iter().map(|_| None).collect(),
            peers: plan.ports.iter().map(|_| None).collect(),
            linux_interfaces: vec![None; plan.ports.len()],
            shared_interfaces: Vec::new(),
            inherited,
            handover: PortHandover::default(),
        })
    }

    /// Adds a queue of a port to a lane.
    pub(super) fn add(&mut self, lane: usize, port: &PortPlan, queue: Box<dyn Queue>) {
        let number = usize::from(port.id.0);
        self.lanes[lane].queues[number].push(queue);
        self.facts[number].queues += 1;
    }

    /// Returns true if a lane has a queue by which packets of a port leave.
    pub(super) fn has_queue(&self, lane: usize, port: &PortPlan) -> bool {
        let number = usize::from(self.plan.carrier_of(port).0);
        !self.lanes[lane].queues[number].is_empty()
    }

    /// Creates the counters and the configuration of each lane.
    pub(super) fn finish(self) -> Result<OpenPorts, Error> {
        let Self {
            plan,
            lanes,
            mut devices,
            facts,
            dpdk,
            states,
            peers,
            linux_interfaces,
            shared_interfaces,
            handover,
            ..
        } = self;
        devices.dpdk = dpdk;
        for ((port, state), peers) in plan.ports.iter().zip(states).zip(followers(plan, peers)) {
            if let Some(state) = state {
                devices.links.push(Link::new(port, state, peers));
            }
        }
        let counters = Counters::create(lanes.len(), plan.ports.len()).map_err(|error| {
            let reason = format!("counters: no memory ({error}); configure fewer lanes or ports");
            Error::Service { what: "counters", reason }
        })?;
        for (port, facts) in plan.ports.iter().zip(&facts) {
            report(port, facts, plan.ring.is_some());
            if plan.is_steered_by_lanes(port) && !port.rules.is_empty() {
                devices.add_lane_rules(usize::from(port.id.0), &port.rules);
            }
        }
        for lane in &lanes {
            for (port, (queues, kernel)) in lane.queues.iter().zip(&lane.kernel).enumerate() {
                let queues = queues.iter().chain(kernel.iter().map(|path| &path.queue));
                let readers = queues.filter_map(|queue| queue.loss_reader());
                readers.for_each(|reader| devices.add_losses(port, reader));
            }
        }
        let vlans = plan.vlan_ports();
        devices.vlans = vlans.iter().map(|vlan| (vlan.port, vlan.carrier)).collect();
        let logical_ports = || -> Option<Box<dyn LogicalPorts>> {
            (!vlans.is_empty()).then(|| Box::new(Vlans::new(&vlans)) as _)
        };
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
                hold: Some(Box::new(opening.hold)),
                logical_ports: logical_ports(),
                ..LaneConfig::new(opening.pool, ports.collect(), counters.lane(lane))
            }
        });
        Ok(OpenPorts {
            lanes: lanes.collect(),
            devices,
            facts,
            counters,
            linux_interfaces,
            shared_interfaces,
            handover,
        })
    }

    /// Records the interface of a port that Linux keeps, and the rules that steer it.
    pub(super) fn shares(&mut self, port: &PortPlan, interface: Interface, rules: Rules) {
        let number = usize::from(port.id.0);
        self.facts[number].interface = Some(interface.name.clone());
        if self.devices.interfaces.agent().is_none() {
            self.linux_interfaces[number] = Some(interface.index);
        }
        self.shared_interfaces.push((number, interface));
        self.devices.shared_rules.push((number, rules));
    }
}

/// Returns the carriers that follow the link of each port: those of its kernel peer and of the
/// kernel peers of its VLANs.
fn followers(plan: &Plan, peers: Vec<Option<Carrier>>) -> Vec<Vec<Carrier>> {
    let mut followers: Vec<Vec<Carrier>> = plan.ports.iter().map(|_| Vec::new()).collect();
    for (port, peer) in plan.ports.iter().zip(peers) {
        followers[usize::from(plan.carrier_of(port).0)].extend(peer);
    }
    followers
}

/// Returns the description of a port that is not open yet.
fn facts(port: &PortPlan) -> PortFacts {
    PortFacts {
        name: port.name.clone(),
        driver: port.driver.name().to_owned(),
        mode: String::new(),
        interface: None,
        queues: 0,
        kernel: None,
        switches: 0,
    }
}

/// Logs the driver, mode, queues and path into Linux of a port.
fn report(port: &PortPlan, facts: &PortFacts, lanes_pass_packets: bool) {
    let interface = facts.interface.as_deref().map(|name| format!(" on {name}"));
    let mode = if facts.mode.is_empty() { String::new() } else { format!(", {}", facts.mode) };
    let kernel = match (&facts.kernel, &port.kernel) {
        (Some(kernel), _) => kernel.clone(),
        (None, KernelPlan::None) => "packets labelled Kernel are dropped".to_owned(),
        (None, _) => "no path into Linux".to_owned(),
    };
    tracing::info!(
        "port `{}`: {}{}{mode}, {} queue{}; {kernel}",
        port.name,
        facts.driver,
        interface.unwrap_or_default(),
        facts.queues,
        if facts.queues == 1 { "" } else { "s" },
    );
    // Lanes that pass packets to each other need no queue each.
    if !lanes_pass_packets {
        warn_of_missing_queues(port, facts.queues, port.lanes.len());
    }
}

/// Warns if a port has fewer than the `needed` queues: its other lanes cannot send through it.
pub(crate) fn warn_of_missing_queues(port: &PortPlan, queues: usize, needed: usize) {
    // A VLAN has no queues.
    if port.vlan.is_some() || queues >= needed {
        return;
    }
    let others: Vec<String> = port.lanes.iter().skip(queues).map(usize::to_string).collect();
    tracing::warn!(
        "port `{}` has {queues} queue{} and {} lanes: packets that lane {} sends through it are \
         dropped (`drop_no_port`); give it {needed} queues or fewer lanes",
        port.name,
        if queues == 1 { "" } else { "s" },
        port.lanes.len(),
        others.join(", "),
    );
}
