//! Ports of the kernel tier: attaches its program to their interfaces, and makes it forget next
//! hops when Linux's routes, neighbours, links or addresses change.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fastlane::config::KernelPort;
use fastlane::flow_tier::{Adoption, InterfaceKind, KernelTier, SharedTier, TierHook, TierPort};
use fastlane::mirror::{Link, RouteChange, RouteListener};

use fastlane::LoadedConfig;

use crate::settings::Settings;

/// Directory of the pins of all applications.
const PINS: &str = "/sys/fs/bpf/fastlane-flows";

/// Time between two looks at interfaces: no event tells when one begins to transmit, or ends it.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Reasons why flows do not leave by an interface.
const MUTE: &str = "it does not transmit redirected frames; its driver must support it \
    (ndo_xdp_xmit), and the other end of a veth pair needs GRO (`ethtool -K IFACE gro on`, while \
    it is up)";
const CONTROLLED: &str =
    "it has traffic control, which `tc qdisc show` and `tc filter show dev IFACE egress` list";
const BY_RULE: &str = "a routing rule selects packets by mark, type of service or user, which \
    the route lookup of the kernel tier does not know; `ip rule` and `ip -6 rule` list it";
const IN_VRF: &str = "it belongs to a VRF, whose routing table and connections the kernel tier \
    does not tell apart; nothing that arrives by it is fast, either";
const REFUSED: &str = "the program cannot be attached to it";
const WITHOUT_LANES: &str = "it is of both tiers, and the router has not opened it yet";

/// Settings of the kernel tier of an application.
#[derive(Clone, Debug)]
pub(super) struct TierSettings {
    ports: Vec<KernelPort>,
    app: Settings,
    pins: PathBuf,
    /// True if packets are Linux's where they leave by an interface with traffic control.
    honours_traffic_control: bool,
}

impl TierSettings {
    /// Creates the settings; `None` if no port is of the kernel tier.
    pub(super) fn new(loaded: &LoadedConfig<Settings>) -> Option<Self> {
        let (ports, app) = (loaded.kernel_ports.clone(), loaded.settings.clone());
        let configured = app.flows.as_ref()?.pins.clone();
        let pins = configured.unwrap_or_else(|| Path::new(PINS).join(&loaded.name));
        let mirror = loaded.configuration.mirror.as_ref();
        let honours_traffic_control = mirror.is_none_or(|mirror| mirror.honour_traffic_control);
        (!ports.is_empty()).then_some(Self { ports, app, pins, honours_traffic_control })
    }

    /// Returns the directory of the pins.
    pub(super) fn pins(&self) -> &Path {
        &self.pins
    }

    fn zone(&self, port: &str) -> u16 {
        let flows = self.app.flows.as_ref();
        flows.and_then(|flows| flows.zones.get(port)).copied().unwrap_or(0)
    }

    /// Returns a port with the interface that it has now.
    fn port(&self, port: &KernelPort, link: &Link, is_closed: bool) -> TierPort {
        TierPort {
            interface: port.interface.clone(),
            index: link.index,
            mac: link.mac,
            zone: self.zone(&port.name),
            hook: port.mode.map(TierHook::Xdp),
            kind: InterfaceKind::of(link.index, &link.kind),
            forwards_back: self.app.same_interface,
            takes_ipv6: takes_ipv6(&link.name),
            is_closed,
            has_lanes: port.has_lanes,
        }
    }
}

/// Returns true if Linux takes IPv6 packets from an interface.
fn takes_ipv6(interface: &str) -> bool {
    let path = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "0")
}

/// The kernel tier, attached to the interfaces of its ports.
pub(super) struct TierPorts {
    settings: TierSettings,
    tier: SharedTier,
    listener: RouteListener,
    /// Interfaces by which flows do not leave, and the reason.
    closed: BTreeMap<String, &'static str>,
    /// Interfaces to which the program could not be attached, and the error.
    refused: BTreeMap<String, String>,
    /// Time of the next look at the interfaces.
    next_look: Instant,
}

impl TierPorts {
    /// Opens the tier, with room for `capacity` directions of flows, and attaches it.
    ///
    /// # Errors
    /// The mistake and its remedy.
    pub(super) fn open(settings: &TierSettings, capacity: usize) -> Result<Self, String> {
        let listener = RouteListener::open()
            .map_err(|error| format!("the routes of Linux cannot be followed: {error}"))?;
        let opened = KernelTier::open(capacity, &settings.pins);
        let (tier, adoption) = opened.map_err(|error| error.to_string())?;
        let mut ports = Self {
            settings: settings.clone(),
            tier: SharedTier::new(tier),
            listener,
            closed: BTreeMap::new(),
            refused: BTreeMap::new(),
            next_look: Instant::now(),
        };
        if let Some(missing) = ports.attach()? {
            return Err(format!(
                "no interface `{missing}` in this network namespace: `ip link` lists those that are"
            ));
        }
        if let Some((_, error)) = ports.refused.pop_first() {
            return Err(error);
        }
        // Routes may have changed while nobody followed them.
        ports.follow_routes()?;
        match adoption {
            Adoption::Loaded => {}
            Adoption::Adopted => eprintln!("router offload: the kernel tier was adopted"),
            Adoption::Renewed => eprintln!(
                "router offload: the kernel tier was adopted, and its program of another version \
                 replaced"
            ),
        }
        Ok(ports)
    }

    /// Returns a handle of the tier.
    pub(super) fn tier(&self) -> SharedTier {
        self.tier.clone()
    }

    /// Applies changes of Linux. Does not wait.
    ///
    /// # Errors
    /// The mistake and its remedy.
    pub(super) fn step(&mut self) -> Result<(), String> {
        let change = self.listener.hear();
        let change = change.map_err(|error| format!("cannot read events of routes: {error}"))?;
        if change >= RouteChange::Routes {
            self.follow_routes()?;
        }
        let must_look = Instant::now() >= self.next_look;
        if must_look {
            self.next_look = Instant::now() + LOOK_INTERVAL;
        }
        if change == RouteChange::Links || must_look {
            let before = std::mem::take(&mut self.refused);
            if let Err(error) = self.attach() {
                eprintln!("router offload: {error}");
            }
            // The interface may be busy for a moment; the next look tries again.
            let is_new = |(name, error): &(&String, &String)| before.get(*name) != Some(*error);
            for (_, error) in self.refused.iter().filter(is_new) {
                eprintln!("router offload: {error}");
            }
        }
        let tier = self.tier.lock();
        self.listener.keep_alive(|link| tier.has(link));
        Ok(())
    }

    /// Makes the tier forget its next hops, and tells it the MTUs of routes.
    fn follow_routes(&mut self) -> Result<(), String> {
        let (mtus, mut tier) = (self.listener.route_mtus(), self.tier.lock());
        let followed = tier.set_route_mtus(mtus).and_then(|()| tier.forget_hops());
        followed.map_err(|error| format!("the kernel tier cannot follow the routes: {error}"))
    }

    /// Attaches the program to the interfaces of the ports as they are now, and detaches it from
    /// others. Returns the name of one that does not exist. One that is refused does not keep the
    /// others from being followed.
    fn attach(&mut self) -> Result<Option<String>, String> {
        let links = self.listener.links();
        let links = links.map_err(|error| format!("cannot read the interfaces: {error}"))?;
        let mut controlled = BTreeSet::new();
        if self.settings.honours_traffic_control {
            controlled = self
                .listener
                .controlled_links()
                .map_err(|error| format!("cannot read `tc qdisc`: {error}"))?;
        }
        let by_rule = self.listener.has_rule_beyond_lookup();
        let by_rule = by_rule.map_err(|error| format!("cannot read `ip rule`: {error}"))?;
        let vrfs: Vec<u32> =
            links.iter().filter(|link| link.vrf_table != 0).map(|link| link.index).collect();
        let mut tier = self.tier.lock();
        let (mut missing, mut present) = (None, Vec::new());
        for port in &self.settings.ports {
            let Some(link) = links.iter().find(|link| link.name == port.interface) else {
                missing = Some(port.interface.clone());
                continue;
            };
            let is_in_vrf = vrfs.contains(&link.master);
            let is_controlled = controlled.contains(&link.index);
            let name = &port.interface;
            if !is_in_vrf {
                present.push(link.index);
                let attached =
                    tier.attach(&self.settings.port(port, link, by_rule || is_controlled));
                if let Err(error) = attached {
                    self.refused.insert(name.clone(), error.to_string());
                    self.closed.insert(name.clone(), REFUSED);
                    continue;
                }
            }
            let is_attached = tier.has(link.index);
            let is_exit = !is_in_vrf && is_attached && tier.transmits(link.index);
            let reason = match (is_in_vrf, is_attached, is_controlled) {
                (true, ..) => IN_VRF,
                (false, false, _) => WITHOUT_LANES,
                (false, true, _) if by_rule => BY_RULE,
                (false, true, true) => CONTROLLED,
                (false, true, false) => MUTE,
            };
            if is_exit && self.closed.remove(name).is_some() {
                eprintln!("router offload: flows leave by `{name}` now");
            } else if !is_exit && self.closed.insert(name.clone(), reason) != Some(reason) {
                eprintln!("router offload: flows by `{name}` are left to Linux: {reason}");
            }
        }
        let others: Vec<u32> = tier.interfaces().filter(|it| !present.contains(it)).collect();
        for other in others {
            if let Err(error) = tier.detach(other) {
                self.refused.insert(format!("interface {other}"), error.to_string());
            }
        }
        Ok(missing)
    }
}

impl AsFd for TierPorts {
    /// Returns a socket that is readable when Linux has changed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}
