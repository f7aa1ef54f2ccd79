//! The resolved configuration: checked, with every default filled in.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use fastlane_core as core;
use fastlane_core::PortId;
use fastlane_steer::Rules;
use fastlane_wire::MacAddress;

use super::checks::{refuse, twice, within};
use super::kernel_ports::{self, KernelPort};
use super::lane_roles::{LaneBy, LaneRoles};
use super::raw::{self, Configuration, Driver};
use super::rules::address_and_length;
use super::{AppDefaults, environment};
use crate::Error;
use crate::session_path;

mod capacities;
mod driver_change;
mod load_policies;
mod port_relations;
mod vlans;

pub(crate) use capacities::MAX_TABLES;
pub(crate) use driver_change::{CLOSED_DRIVERS, unmatched_rules};

/// Maximum number of ports: each lane has an entry for every port number.
const MAX_PORTS: usize = 256;

/// Default time within which a port must be reopened, in seconds.
const REOPEN_WITHIN: u64 = 60;

/// Smallest frame size that AF_XDP allows (kernel: Documentation/networking/af_xdp.rst).
const MIN_AF_XDP_FRAME: usize = 2048;

/// Resolved configuration of an application.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub name: String,
    pub lanes: Vec<LanePlan>,
    /// Roles of the lanes.
    pub lane_roles: LaneRoles,
    /// Capacity of the rings between lanes in packets; `None` if packets stay in their lanes.
    pub ring: Option<usize>,
    pub idle: core::Idle,
    pub burst: usize,
    pub frames: usize,
    pub frame_size: usize,
    pub headroom: usize,
    pub kernel_budget: usize,
    /// True if the memory of the lanes is locked.
    pub lock_memory: bool,
    pub hold: fastlane_hold::HoldLimits,
    pub ports: Vec<PortPlan>,
    /// Ports of the kernel tier, which no lane has.
    pub kernel_ports: Vec<KernelPort>,
    pub session: PathBuf,
    pub metrics: Option<SocketAddr>,
    pub dpdk: raw::DpdkEnvironment,
    pub app: Option<serde_json::Value>,
    /// Maximum number of entries of each table.
    pub tables: BTreeMap<String, usize>,
    /// Size of each message ring in KiB; `None` without messages.
    pub messages: Option<usize>,
    /// Settings of the mirror; `None` without one.
    pub mirror: Option<raw::Mirror>,
    /// The raw configuration, with every default filled in.
    pub raw: Configuration,
    /// Source of the configuration.
    pub source: Source,
}

/// Source of a configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source {
    /// Path of the file.
    pub path: PathBuf,
    /// Overrides of the command line.
    pub overrides: Vec<String>,
    /// Name of the program.
    pub program: String,
    /// Defaults that the program derives from the settings.
    pub app_defaults: AppDefaults,
    /// True if the program writes the flows of a kernel tier.
    pub offloads_flows: bool,
}

/// Resolved settings of a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LanePlan {
    /// CPU that the lane is pinned to.
    pub cpu: Option<usize>,
}

/// Resolved settings of a port.
#[derive(Clone, Debug)]
pub(crate) struct PortPlan {
    pub id: PortId,
    pub name: String,
    pub driver: Driver,
    /// Policy that switches the port to another driver under load.
    pub switch: Option<raw::SwitchPolicy>,
    pub rules: Rules,
    pub kernel: KernelPlan,
    /// Port that carries this one, and its identifier there, if it is a VLAN.
    pub vlan: Option<VlanPlan>,
    /// Lanes that have the port.
    pub lanes: Vec<usize>,
    /// Selection of the lane for received packets.
    pub lane_by: LaneBy,
    /// Time within which the port must be reopened after its interface or device was removed;
    /// `None` if the application ends at once.
    pub reopen_within: Option<Duration>,
}

/// Resolved settings of a VLAN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VlanPlan {
    /// Port that carries it.
    pub carrier: PortId,
    /// Identifier in its tags.
    pub id: u16,
}

/// Path of packets into Linux.
#[derive(Clone, Debug)]
pub(crate) enum KernelPlan {
    None,
    /// Path of the port that carries this VLAN, with the tag.
    OfCarrier,
    /// Re-entry into the interface. Of an interface in another network namespace, a TAP device with
    /// its name, address and MTU takes its place.
    ReEnter {
        /// True if the configuration says nothing: then the path is optional where the agent may
        /// refuse it.
        is_default: bool,
    },
    Tap(TapPlan),
}

/// Resolved settings of a TAP device.
#[derive(Clone, Debug)]
pub(crate) struct TapPlan {
    pub name: Option<String>,
    pub mac: Option<MacAddress>,
    pub mtu: Option<u32>,
    pub addresses: Vec<(IpAddr, u8)>,
}

impl Driver {
    /// Returns the name of the driver, as in the configuration.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::AfXdp(_) => "af-xdp",
            Self::AfPacket(_) => "af-packet",
            Self::Tap(_) => "tap",
            Self::Udp(_) => "udp",
            Self::Pcap(_) => "pcap",
            Self::Dpdk(_) => "dpdk",
            Self::Memif(_) => "memif",
            Self::Memory(_) => "memory",
            Self::Ring(_) => "ring",
            Self::Vlan(_) => "vlan",
        }
    }

    /// Returns true if Linux keeps the interface.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::AfXdp(_) | Self::AfPacket(_))
    }
}

impl Plan {
    /// Resolves a raw configuration. `program` is the default name.
    ///
    /// # Errors
    /// The first value that is not allowed.
    pub(crate) fn new(raw: Configuration, program: &str) -> Result<Self, Error> {
        let all = raw.clone();
        let Configuration { name, lanes, ports, session, metrics, dpdk, app, .. } = raw;
        let (tables, messages) = (capacities::tables(&all)?, capacities::messages(&all)?);
        let name = name.unwrap_or_else(|| program.to_owned());
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) || name.starts_with('.') {
            let what = format!(
                "`{name}` is not allowed; write 1 to 64 letters, digits, `-`, `_`, `.`, and no `.` \
                 first"
            );
            return Err(refuse("name", what));
        }
        if ports.is_empty() || ports.len() > MAX_PORTS {
            let what = format!("there are {}; write 1 to {MAX_PORTS}", ports.len());
            return Err(refuse("ports", what));
        }
        let (lane_plans, frame_size) = (lane_plans(&lanes)?, frame_size(&lanes)?);
        let lane_roles = LaneRoles::new(&lanes.model, lane_plans.len())?;
        let (kernel_ports, ports) = kernel_ports::split(ports)?;
        let names: Vec<String> = ports.keys().cloned().collect();
        let ports = ports.into_iter().enumerate().map(|(number, (name, port))| {
            port_plan(PortId(number as u16), name, port, lane_plans.len(), &lane_roles)
        });
        let mut ports: Vec<PortPlan> = ports.collect::<Result<_, _>>()?;
        vlans::resolve(&mut ports, lanes.headroom)?;
        let has_af_xdp = ports.iter().any(|port| matches!(port.driver, Driver::AfXdp(_)));
        if has_af_xdp && frame_size < MIN_AF_XDP_FRAME {
            let what = format!(
                "{frame_size} is not allowed with af-xdp; write a power of two from \
                 {MIN_AF_XDP_FRAME} to 65536"
            );
            return Err(refuse("lanes.frame-size", what));
        }
        port_relations::check_rings(&ports, &names)?;
        port_relations::check_interfaces(&ports)?;
        let plan = Self {
            session: session.unwrap_or_else(|| session_path::path(&name)),
            name,
            ring: ring(&lanes, &lane_roles, &ports)?,
            lanes: lane_plans,
            lane_roles,
            idle: lanes.idle.into(),
            burst: within("lanes.burst", lanes.burst, 1, 1024)?,
            frames: within("lanes.frames", lanes.frames, 64, 1 << 22)?,
            frame_size,
            headroom: lanes.headroom,
            kernel_budget: within("lanes.kernel-budget", lanes.kernel_budget, 1, 1024)?,
            lock_memory: lanes.lock_memory,
            hold: capacities::hold(lanes.hold)?,
            ports,
            kernel_ports,
            metrics: metrics.map(|metrics| metrics.listen),
            dpdk: dpdk.unwrap_or_default(),
            app,
            tables,
            messages,
            mirror: capacities::mirror(&all)?,
            raw: all,
            source: Source { program: program.to_owned(), ..Source::default() },
        };
        load_policies::check(&plan)?;
        Ok(plan)
    }

    /// Returns the lane of queue number `queue` of a port. Queues are assigned to lanes in turn.
    pub(crate) fn lane_of(port: &PortPlan, queue: usize) -> usize {
        port.lanes[queue % port.lanes.len()]
    }
}

fn lane_plans(lanes: &raw::Lanes) -> Result<Vec<LanePlan>, Error> {
    let Some(cpus) = &lanes.cpus else { return Ok(vec![LanePlan { cpu: None }]) };
    if cpus.is_empty() || cpus.len() > 256 {
        let what = format!("there are {}; write 1 to 256 CPU numbers", cpus.len());
        return Err(refuse("lanes.cpus", what));
    }
    if let Some(cpu) = twice(cpus) {
        return Err(refuse("lanes.cpus", format!("CPU {cpu} is named twice")));
    }
    Ok(cpus.iter().map(|cpu| LanePlan { cpu: Some(*cpu) }).collect())
}

fn frame_size(lanes: &raw::Lanes) -> Result<usize, Error> {
    let size = lanes.frame_size;
    if !size.is_power_of_two() || !(1024..=65536).contains(&size) {
        let what = format!("{size} is not allowed; write a power of two from 1024 to 65536");
        return Err(refuse("lanes.frame-size", what));
    }
    let most = size / 2;
    within("lanes.headroom", lanes.headroom, 0, most)?;
    Ok(size)
}

fn port_plan(
    id: PortId,
    name: String,
    port: raw::Port,
    lanes: usize,
    roles: &LaneRoles,
) -> Result<PortPlan, Error> {
    let at = |key: &str| format!("ports.{name}.{key}");
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    if name.is_empty() || name.len() > 32 || !name.chars().all(plain) {
        let what = format!("`{name}` is not a port name; write 1 to 32 letters, digits, `-`, `_`");
        return Err(refuse("ports", what));
    }
    let rules = super::rules::resolve_of_port(&port.steer);
    let rules = rules.map_err(|what| refuse(at("steer"), what))?;
    let shared = port.driver.is_shared();
    let reopen_within = reopen_within(&port, at)?;
    let kernel = match port.kernel {
        None if shared => KernelPlan::ReEnter { is_default: true },
        None if matches!(port.driver, Driver::Vlan(_)) => KernelPlan::OfCarrier,
        Some(raw::Kernel::ReEnter) if shared => KernelPlan::ReEnter { is_default: false },
        None | Some(raw::Kernel::None) => KernelPlan::None,
        Some(raw::Kernel::ReEnter) => {
            let what = "Linux has no interface of this port to re-enter; write `none` or a `tap`";
            let of_vlan = "a VLAN re-enters by the port that carries it; remove it";
            let is_vlan = matches!(port.driver, Driver::Vlan(_));
            return Err(refuse(at("kernel"), if is_vlan { of_vlan } else { what }));
        }
        // Of a shared port only if the interface is in another network namespace, see `preflight`.
        Some(raw::Kernel::Tap(tap)) => KernelPlan::Tap(tap_plan(&at("kernel.tap"), tap)?),
    };
    if port.lanes.is_some() && matches!(port.driver, Driver::Vlan(_)) {
        let what = "a VLAN has the lanes of the port that carries it; remove it, or write it there";
        return Err(refuse(at("lanes"), what));
    }
    let chosen = roles.lanes_of(&at("lanes"), port.lanes, lanes)?;
    let lane_by = roles.lane_by(&at("lane-by"), port.lane_by.as_ref())?;
    let mut driver = port.driver;
    environment::resolve(&name, &mut driver, |variable| std::env::var(variable).ok())?;
    check_driver(&name, &driver)?;
    let (vlan, lanes) = (None, chosen); // see `vlans`, which knows the other ports
    let switch = port.switch;
    Ok(PortPlan { id, driver, switch, rules, kernel, vlan, lanes, lane_by, name, reopen_within })
}

/// Resolves the behaviour when the interface or the device is removed.
fn reopen_within(port: &raw::Port, at: impl Fn(&str) -> String) -> Result<Option<Duration>, Error> {
    if !port.driver.is_shared() && !matches!(port.driver, Driver::Dpdk(_)) {
        let keys = [
            ("on-removal", port.on_removal.is_some()),
            ("reopen-within-s", port.reopen_within_s.is_some()),
        ];
        let Some((key, _)) = keys.into_iter().find(|(_, is_set)| *is_set) else { return Ok(None) };
        let what = "it has no effect on this driver; remove it, or use af-xdp, af-packet or dpdk";
        return Err(refuse(at(key), what));
    }
    let seconds = port.reopen_within_s;
    if port.on_removal == Some(raw::OnRemoval::Exit) {
        let what = "it has no effect with `\"on-removal\": \"exit\"`; remove one of them";
        return seconds.map_or(Ok(None), |_| Err(refuse(at("reopen-within-s"), what)));
    }
    let seconds = seconds.unwrap_or(REOPEN_WITHIN);
    if !(1..=86_400).contains(&seconds) {
        let what = format!("{seconds} is not allowed; write 1 to 86400");
        return Err(refuse(at("reopen-within-s"), what));
    }
    Ok(Some(Duration::from_secs(seconds)))
}

/// Resolves the capacity of the rings between lanes; `None` if packets stay in their lanes.
fn ring(lanes: &raw::Lanes, roles: &LaneRoles, ports: &[PortPlan]) -> Result<Option<usize>, Error> {
    let changes = ports.iter().any(|port| port.lane_by != LaneBy::Rss);
    if !roles.is_split() && (!changes || roles.applications.len() < 2) {
        return Ok(None);
    }
    let kept: Vec<_> = ports.iter().map(|port| (port.lanes.clone(), &port.driver)).collect();
    roles.ring(lanes.frames, lanes.burst, &kept).map(Some)
}

fn check_driver(name: &str, driver: &Driver) -> Result<(), Error> {
    let at = |key: &str| format!("ports.{name}.driver.{}.{key}", driver.name());
    let ring = |key: &str, size: u64| {
        let allowed = size.is_power_of_two() && (64..=32768).contains(&size);
        allowed.then_some(()).ok_or_else(|| {
            refuse(at(key), format!("{size} is not allowed; write a power of two from 64 to 32768"))
        })
    };
    match driver {
        Driver::AfXdp(xdp) => {
            ring("receive-ring", xdp.receive_ring.into())?;
            ring("transmit-ring", xdp.transmit_ring.into())
        }
        Driver::AfPacket(packet) => ring("ring", packet.ring.into()),
        Driver::Tap(tap) => tap_plan(at("").trim_end_matches('.'), tap.clone()).map(|_| ()),
        Driver::Memory(memory) => {
            let capacity = within(&at("capacity"), memory.capacity.unwrap_or(1024), 1, 1 << 20)?;
            let Some(fill) = memory.fill else { return Ok(()) };
            within(&at("fill.frames"), fill.frames, 1, capacity)?;
            within(&at("fill.length"), fill.length, 14, 65536).map(|_| ())
        }
        Driver::Dpdk(dpdk) => match (&dpdk.device, &dpdk.vdev) {
            (Some(_), None) | (None, Some(_)) => Ok(()),
            _ => {
                let what = "write either `device` (a PCI address) or `vdev` (a virtual device)";
                Err(refuse(at("").trim_end_matches('.'), what))
            }
        },
        Driver::Memif(memif) => check_memif(memif, at),
        Driver::Ring(raw::Ring { capacity, .. }) => {
            ring("capacity", capacity.unwrap_or(1024) as u64)
        }
        Driver::Pcap(pcap) if pcap.read.is_none() && pcap.write.is_none() => {
            let what = "it neither reads nor writes a file; set `read` or `write`";
            Err(refuse(at("").trim_end_matches('.'), what))
        }
        Driver::Pcap(pcap) if pcap.read.is_none() && pcap.repeat.is_some() => {
            Err(refuse(at("repeat"), "there is nothing to repeat; name a file to `read`"))
        }
        Driver::Pcap(_) | Driver::Udp(_) | Driver::Vlan(_) => Ok(()),
    }
}

fn check_memif(memif: &raw::Memif, at: impl Fn(&str) -> String) -> Result<(), Error> {
    let ring = memif.ring.unwrap_or(2048);
    if !ring.is_power_of_two() || !(64..=16384).contains(&ring) {
        let what = format!("{ring} is not allowed; write a power of two from 64 to 16384");
        return Err(refuse(at("ring"), what));
    }
    let buffer = memif.buffer.unwrap_or(2048);
    if !buffer.is_multiple_of(64) || !(128..=65472).contains(&buffer) {
        let what = format!("{buffer} is not allowed; write a multiple of 64 from 128 to 65472");
        return Err(refuse(at("buffer"), what));
    }
    if memif.secret.as_ref().is_some_and(|secret| secret.len() > 24) {
        return Err(refuse(at("secret"), "it is too long; write at most 24 bytes"));
    }
    if memif.socket.is_empty() || memif.socket == "@" {
        return Err(refuse(at("socket"), "it has no name; write a path, or `@` and a name"));
    }
    Ok(())
}

/// Resolves the settings of a TAP device at the key `path`.
pub(crate) fn tap_plan(path: &str, tap: raw::Tap) -> Result<TapPlan, Error> {
    if let Some(name) = tap.name.as_ref().filter(|name| name.is_empty() || name.len() > 15) {
        let what = format!("`{name}` is not allowed; an interface name has 1 to 15 bytes");
        return Err(refuse(format!("{path}.name"), what));
    }
    let mac = tap.mac.map(|text| {
        text.parse().map_err(|_| {
            let what = format!("`{text}` is not a MAC address; write `02:00:00:00:00:01`");
            refuse(format!("{path}.mac"), what)
        })
    });
    let addresses = tap.addresses.iter().map(|text| {
        address_and_length(text)
            .filter(|(address, length)| *length <= if address.is_ipv4() { 32 } else { 128 })
            .ok_or_else(|| {
                let what =
                    format!("`{text}` is not an address with a prefix length; write `10.0.0.1/24`");
                refuse(format!("{path}.addresses"), what)
            })
    });
    Ok(TapPlan {
        name: tap.name,
        mac: mac.transpose()?,
        mtu: tap.mtu,
        addresses: addresses.collect::<Result<_, _>>()?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refusal(configuration: Value) -> String {
        let raw = serde_json::from_value(configuration).unwrap();
        Plan::new(raw, "test").unwrap_err().to_string()
    }

    fn of_port(port: Value) -> String {
        refusal(json!({ "ports": { "wire": port } }))
    }

    #[test]
    fn what_would_have_no_effect_is_refused() {
        let udp = json!({ "udp-port": 2152, "gtp-u": false });
        let steer = [json!({ "udp-port": 53 }), udp];
        let port = json!({ "driver": { "af-xdp": { "interface": "x" } }, "steer": steer });
        assert_eq!(of_port(port), "ports.wire.steer: rule 2: gtp-u must be `true` or absent");
        let port = json!({ "driver": { "pcap": { "write": "x", "repeat": 2 } } });
        assert!(of_port(port).starts_with("ports.wire.driver.pcap.repeat: there is nothing to"));
        let port = json!({ "driver": { "memory": {} }, "on-removal": "exit" });
        assert!(of_port(port).starts_with("ports.wire.on-removal: it has no effect on this"));
        let xdp = json!({ "af-xdp": { "interface": "x" } });
        let port = json!({ "driver": xdp, "on-removal": "exit", "reopen-within-s": 1 });
        assert!(of_port(port).starts_with("ports.wire.reopen-within-s: it has no effect with"));
        let port = json!({ "driver": xdp, "reopen-within-s": 0 });
        assert!(of_port(port).starts_with("ports.wire.reopen-within-s: 0 is not allowed"));
        let port = json!({ "driver": { "memory": {} }, "lanes": [0, 0] });
        assert!(of_port(port).starts_with("ports.wire.lanes: lane 0 is named twice"));
    }

    #[test]
    fn af_xdp_has_frames_of_2048_octets_and_more() {
        let wire = json!({ "driver": { "af-xdp": { "interface": "x" } } });
        let message = refusal(json!({ "lanes": { "frame-size": 1024 }, "ports": { "a": wire } }));
        let expected = "lanes.frame-size: 1024 is not allowed with af-xdp; \
                        write a power of two from 2048 to 65536";
        assert_eq!(message, expected);
    }
}
