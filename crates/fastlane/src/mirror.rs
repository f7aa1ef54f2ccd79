//! The mirror of an application: Linux's links, neighbours and routes in the tables of
//! [`fastlane_mirror`], kept up to date by a thread, in the network namespace of the start.
//!
//! The interface of a port is the network interface itself on a shared device (AF_XDP, AF_PACKET).
//! On an owned device (memif, DPDK) it is the port's kernel peer (`"kernel": {"tap": ..}`), so
//! addresses, neighbours and routes are those of the TAP. A port of the driver `tap` has no
//! interface: frames that Linux transmits on the TAP arrive at the port. The interface of a VLAN is
//! Linux's VLAN interface with the same identifier on the interface of the port that carries it.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use fastlane_mirror::{self as tables, Follower, KeepAlive, Memories, MirrorSettings};
use fastlane_table::counters::Counters;
use fastlane_table::{AnyState, Readers, SharedMemory, TableError};

use crate::config::plan::Plan;
use crate::{Error, PortId, Turn};

mod ingress;
mod netconf;
mod statistics;
mod thread;
mod vlan_interfaces;

use ingress::IngressTable;
pub use ingress::{IngressInterface, ReversePath};
use netconf::Netconf;
pub(crate) use thread::MirrorThread;
use vlan_interfaces::VlanInterfaces;

pub use fastlane_mirror::message::Link;
pub use fastlane_mirror::{
    Error as MirrorError, FallbackReason, Family, NextHop, ReturnRoute, RouteChange, RouteListener,
    RouteLookup, TableId, blackhole, conntrack, flows, ipsec, packet_rules, query,
};

/// Maximum number of neighbour probes requested of Linux per second.
const PROBES: u32 = 100;

/// Maximum number of next-hop groups: prefix tables hold values below 2^22, some of which are
/// fallback reasons.
const MOST_GROUPS: usize = (1 << 22) - 64;

/// View of the mirror for a lane: routes ([`route4_many`](tables::Mirror::route4_many)) and ingress
/// interfaces ([`ingress`](Self::ingress)).
#[derive(Clone, Debug)]
pub struct Mirror {
    tables: tables::Mirror,
    ingress: Arc<IngressTable>,
    counts_routes: bool,
}

impl Mirror {
    /// Returns the Linux interface of a port. `None` if Linux has none or the mirror has failed;
    /// leave the packets to Linux then.
    #[inline]
    #[must_use]
    pub fn ingress(&self, turn: &Turn, port: PortId) -> Option<IngressInterface> {
        let found = self.ingress.get(port)?;
        let link = self.tables.link(turn, found.link)?;
        let master = (link.master() != 0).then(|| self.tables.link(turn, link.master())).flatten();
        let is_in_vrf = master.is_some_and(|master| master.vrf_table() != 0);
        Some(IngressInterface { mac: link.mac(), is_in_vrf, ..found })
    }

    /// Returns true if each destination has its own route number for counters.
    #[must_use]
    pub fn counts_routes(&self) -> bool {
        self.counts_routes
    }
}

impl Deref for Mirror {
    type Target = tables::Mirror;

    #[inline]
    fn deref(&self) -> &tables::Mirror {
        &self.tables
    }
}

/// Mirror of an application: opened before its lanes are created, then run by a thread.
pub(crate) struct MirrorService {
    follower: Follower,
    netconf: Netconf,
    readers: Arc<Readers>,
    memories: Memories,
    ingress: Arc<IngressTable>,
    counts_routes: bool,
    vlans: VlanInterfaces,
    /// Lane state indexed by route numbers, by name.
    counts: Mutex<BTreeMap<String, AnyState>>,
}

impl std::fmt::Debug for MirrorService {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let statistics = self.follower.statistics();
        formatter
            .debug_struct("MirrorService")
            .field("statistics", &statistics)
            .finish_non_exhaustive()
    }
}

impl MirrorService {
    /// Reads the kernel state in the network namespace of the calling thread, if the plan has a
    /// mirror.
    pub(crate) fn open(plan: &Plan) -> Result<Option<Self>, Error> {
        let Some(raw) = &plan.mirror else { return Ok(None) };
        let plain = MirrorSettings::new(&plan.name);
        let counts_routes = raw.count_routes;
        let settings = MirrorSettings {
            tables: raw.tables.clone(),
            routes4: raw.routes,
            routes6: raw.routes,
            groups: if counts_routes {
                (2 * raw.routes * raw.tables.len()).min(MOST_GROUPS)
            } else {
                plain.groups
            },
            neighbours: raw.neighbours,
            count_routes: counts_routes,
            honour_traffic_control: raw.honour_traffic_control,
            keep_alive: KeepAlive::All { rate: PROBES },
            ..plain
        };
        // The lanes are not known before `start`.
        let readers = Arc::new(Readers::unknown());
        let follower =
            Follower::open(settings, &[], &readers).map_err(|error| failed(error.to_string()))?;
        let netconf = Netconf::open().map_err(|error| {
            failed(format!("the forwarding settings of Linux cannot be read ({error})"))
        })?;
        let memories = follower.memories().clone();
        let ingress = Arc::new(IngressTable::new(plan.ports.len()));
        let (counts, vlans) = (Mutex::default(), VlanInterfaces::new(plan.vlan_ports()));
        let service =
            Self { follower, netconf, readers, memories, ingress, counts_routes, vlans, counts };
        Ok(Some(service))
    }

    /// Registers lane state that is indexed by route numbers.
    pub(crate) fn count_in(&self, name: &str, state: &Arc<SharedMemory>) -> Result<(), TableError> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if !counts.contains_key(name) {
            counts.insert(name.to_owned(), AnyState::attach(state)?);
        }
        Ok(())
    }

    /// Returns the view for a lane.
    pub(crate) fn lane(&self) -> Result<Mirror, Error> {
        let tables = tables::Mirror::attach(&self.memories);
        let tables = tables.map_err(|error| failed(error.to_string()))?;
        let (ingress, counts_routes) = (Arc::clone(&self.ingress), self.counts_routes);
        Ok(Mirror { tables, ingress, counts_routes })
    }

    /// Starts the thread, for lanes with these counters. `linux_interfaces` has the index of each
    /// port's interface in Linux, if it has one.
    pub(crate) fn start(
        self,
        linux_interfaces: Vec<Option<u32>>,
        counters: &Counters,
    ) -> Result<MirrorThread, Error> {
        let Self { mut follower, netconf, readers, ingress, mut vlans, counts, .. } = self;
        let counts = counts.into_inner().unwrap_or_else(PoisonError::into_inner);
        counts.into_values().for_each(|counts| follower.count_in(counts));
        // Before the lanes are known: a write that needs memory of an earlier one would wait a
        // second for lanes that do not run yet. It fails at once instead, and the follower writes
        // it again when they have passed a turn.
        vlans.set_configured(linux_interfaces);
        vlans.resolve(&follower);
        follower.set_ports(&ports_of(vlans.interfaces()));
        crate::table_readers::name_lanes(&readers, counters);
        MirrorThread::start(follower, netconf, ingress, vlans)
            .map_err(|error| failed(format!("its thread cannot start ({error})")))
    }
}

/// Returns the port of each interface. `linux_interfaces` has the index of each port's interface.
fn ports_of(linux_interfaces: &[Option<u32>]) -> Vec<(u32, PortId)> {
    let links = linux_interfaces.iter().enumerate();
    links.filter_map(|(port, link)| Some(((*link)?, PortId(port as u16)))).collect()
}

/// Returns the error of an application that needs a mirror without its configuration.
pub(crate) fn not_configured() -> Error {
    let what = "the application needs the routes of Linux; write `\"mirror\": {}`";
    Error::Value { path: "mirror".to_owned(), what: what.to_owned(), meant: None }
}

fn failed(reason: String) -> Error {
    Error::Service { what: "mirror", reason: format!("mirror: {reason}") }
}
