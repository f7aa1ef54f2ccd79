//! Flows of a running router as tools read them, and their text.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use clap::ValueEnum;
use fastlane::flow_tier::TierReader;
use fastlane::metrics::OutcomeCounts;
use fastlane::mirror::conntrack::ConnectionTuple;
use fastlane::mirror::flows::{FLOW_WORDS, FlowKey, FlowRecord, FlowState, FlowStatus, TierTotals};
use fastlane::now;
use fastlane::slow::{SlowError, SlowPath};
use fastlane::table::{EntryId, HashReader, LaneState, RecordReader, State};

use super::offload::{FLOWS, STATUS};

/// Read access of a tool.
pub(super) struct FlowList {
    table: HashReader<FlowKey, FlowRecord>,
    lanes: Vec<LaneState<FLOW_WORDS>>,
    status: RecordReader<FlowStatus>,
    tier: Option<TierReader>,
}

/// Zones of the directions that are in one, by the number of their connection and their key without
/// the zone. The directions of a connection may have different ones (`ct original zone set`).
type Zones = HashMap<(u32, FlowKey), u16>;

/// Direction of a flow in the table.
#[derive(Clone, Copy)]
struct Direction {
    key: FlowKey,
    entry: EntryId,
    record: FlowRecord,
}

/// Tier that forwards packets of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FlowTierName {
    /// The lanes.
    Lanes,
    /// The program in the kernel (XDP or ingress).
    Kernel,
}

/// A flow, both directions.
#[derive(Clone, Debug)]
pub(super) struct ListedFlow {
    /// Packets of the side that began, as they arrive and as they leave.
    pub(super) arrives: ConnectionTuple,
    pub(super) leaves: ConnectionTuple,
    pub(super) zone: u16,
    /// Number that Linux gives the connection.
    pub(super) id: u32,
    /// Packets and bytes of the original and of the reply direction, of all tiers.
    pub(super) counts: [[u64; 2]; 2],
    /// Packets of both directions that the kernel tier forwarded.
    pub(super) kernel_packets: u64,
    /// Time since the last packet, in nanoseconds; `None` if there was none.
    pub(super) idle: Option<u64>,
    /// True if a packet that ends the connection was seen in the direction.
    pub(super) closing: [bool; 2],
    /// True if the route of the direction has led to another interface than the first one.
    pub(super) rerouted: [bool; 2],
    /// True if the directions of the table are in that of the kernel tier.
    pub(super) is_in_kernel: bool,
}

impl FlowList {
    /// Attaches to the tables of the lanes and of the kernel tier.
    ///
    /// # Errors
    /// The mistake and its remedy.
    pub(super) fn attach(slow: &SlowPath) -> Result<Self, String> {
        let failed = |error: SlowError| error.to_string();
        let state: State<FLOW_WORDS> = slow.state(FLOWS).map_err(failed)?;
        let lanes = (0..state.lanes().max(1)).map(|lane| state.lane(lane)).collect();
        let status = slow.record(STATUS).map_err(failed)?;
        let tier = tier_of(&status)?;
        Ok(Self { table: slow.hash(FLOWS).map_err(failed)?, lanes, status, tier })
    }

    /// Opens the kernel tier, which may have begun or ended since.
    ///
    /// # Errors
    /// The mistake and its remedy.
    pub(super) fn look_for_tier(&mut self) -> Result<(), String> {
        self.tier = tier_of(&self.status)?;
        Ok(())
    }

    /// Returns the tier that handles a flow; `None` if the kernel tier had no room for it, and no
    /// lane has forwarded it, either.
    pub(super) fn tier_of(&self, flow: &ListedFlow) -> Option<FlowTierName> {
        match flow.tier() {
            Some(tier) => Some(tier),
            None if self.tier.is_some() => flow.is_in_kernel.then_some(FlowTierName::Kernel),
            None => Some(FlowTierName::Lanes),
        }
    }

    /// Returns the status of the slow path; `None` before it has run.
    pub(super) fn status(&self) -> Option<FlowStatus> {
        self.status.copy()
    }

    /// Returns the maximum number of flows.
    pub(super) fn capacity(&self) -> usize {
        self.table.capacity() / 2
    }

    /// Returns all flows.
    pub(super) fn flows(&self) -> impl Iterator<Item = ListedFlow> {
        let zones = self.zones();
        let originals = self.directions().filter(|direction| direction.record.is_reply == 0);
        originals.map(move |direction| self.flow(&direction, self.other(&direction, &zones)))
    }

    /// Returns the flow of the packets of a tuple, and its direction: 0, or 1 for replies.
    pub(super) fn find(&self, tuple: &ConnectionTuple, zone: u16) -> Option<(ListedFlow, usize)> {
        let direction = self.direction(FlowKey::new(tuple, zone))?;
        let other = self.other(&direction, &self.zones());
        match direction.record.is_reply {
            0 => Some((self.flow(&direction, other), 0)),
            _ => Some((self.flow(&other?, Some(direction)), 1)),
        }
    }

    fn directions(&self) -> impl Iterator<Item = Direction> {
        self.table.copies().map(|(key, entry, record)| Direction { key, entry, record })
    }

    fn direction(&self, key: FlowKey) -> Option<Direction> {
        self.table.copy(&key).map(|(entry, record)| Direction { key, entry, record })
    }

    fn zones(&self) -> Zones {
        let directions = self.directions().filter(|direction| direction.key.zone != 0);
        let zones = directions.map(|Direction { key, record, .. }| {
            ((record.id, FlowKey { zone: 0, ..key }), key.zone)
        });
        zones.collect()
    }

    /// Returns the other direction: its packets are the reverse of what leaves.
    fn other(&self, Direction { key, record, .. }: &Direction, zones: &Zones) -> Option<Direction> {
        let [from, to] = record.ports;
        let (source, destination) = (record.destination(), record.source());
        let key = FlowKey { source, destination, ports: [to, from], zone: 0, ..*key };
        let zone = zones.get(&(record.id, key)).copied().unwrap_or_default();
        self.direction(FlowKey { zone, ..key })
    }

    fn flow(&self, original: &Direction, reply: Option<Direction>) -> ListedFlow {
        let (mut totals, mut kernel_packets) = ([TierTotals::default(); 2], 0);
        let mut is_in_kernel = true;
        for (totals, direction) in totals.iter_mut().zip([Some(*original), reply]) {
            let Some(Direction { key, entry, .. }) = direction else { continue };
            // A flow that has just been removed has no totals.
            let in_kernel = self.tier.as_ref().and_then(|tier| tier.totals(&key).ok()?);
            is_in_kernel &= in_kernel.is_some();
            *totals = in_kernel.unwrap_or_default();
            kernel_packets += totals.packets;
            for lane in &self.lanes {
                *totals += FlowState::new(lane.at(entry)).totals();
            }
        }
        let Direction { key, record, .. } = original;
        let last_seen = totals[0].last_seen.max(totals[1].last_seen);
        ListedFlow {
            arrives: key.tuple(),
            leaves: record.tuple(key),
            zone: key.zone,
            id: record.id,
            counts: totals.map(|it| [it.packets, it.octets]),
            kernel_packets,
            idle: (last_seen > 0).then(|| now().saturating_sub(last_seen)),
            closing: totals.map(|it| it.is_closing),
            rerouted: totals.map(|it| it.is_rerouted),
            is_in_kernel,
        }
    }
}

/// Opens the kernel tier of a slow path, if it has one that was not removed.
///
/// # Errors
/// The mistake and its remedy.
pub(crate) fn tier_of(status: &RecordReader<FlowStatus>) -> Result<Option<TierReader>, String> {
    let Some(status) = status.copy() else { return Ok(None) };
    let is_there =
        |path: &&Path| !fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let tier = status.pins.path().filter(is_there).map(TierReader::open).transpose();
    tier.map_err(|error| error.to_string())
}

/// Returns a reader of the outcomes in the kernel tier, for metrics. It has none without privilege.
pub fn kernel_outcomes(
    status: RecordReader<FlowStatus>,
) -> impl Fn() -> Vec<OutcomeCounts> + Send + Sync + 'static {
    move || {
        let tier = tier_of(&status).ok().flatten();
        let counts = tier.and_then(|tier| tier.outcomes().ok()).unwrap_or_default();
        let named = counts.into_iter().map(|count| OutcomeCounts {
            name: count.outcome.name().to_owned(),
            packets: count.packets,
            octets: count.octets,
        });
        named.collect()
    }
}

impl ListedFlow {
    /// Returns the addresses before and after translation.
    pub(super) fn addresses(&self) -> [IpAddr; 4] {
        let Self { arrives, leaves, .. } = self;
        [arrives.source, arrives.destination, leaves.source, leaves.destination]
    }

    /// Returns true if a packet that ends the connection was seen.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.contains(&true)
    }

    /// Returns the tier that forwarded most packets; `None` if no packet was forwarded.
    pub(super) fn tier(&self) -> Option<FlowTierName> {
        let packets = self.counts[0][0] + self.counts[1][0];
        match (packets, packets - self.kernel_packets) {
            (0, _) => None,
            (_, by_lanes) if by_lanes >= self.kernel_packets => Some(FlowTierName::Lanes),
            _ => Some(FlowTierName::Kernel),
        }
    }

    /// Returns the ports before and after translation.
    pub(super) fn ports(&self) -> [u16; 4] {
        let ([a, b], [c, d]) = (self.arrives.ports, self.leaves.ports);
        [a, b, c, d]
    }
}

impl fmt::Display for ListedFlow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { arrives, leaves, zone, counts: [original, reply], .. } = self;
        let name = if arrives.protocol == 6 { "tcp" } else { "udp" };
        write!(formatter, "{name} {}", ends(arrives))?;
        if arrives != leaves {
            write!(formatter, " as {}", ends(leaves))?;
        }
        if *zone != 0 {
            write!(formatter, " zone {zone}")?;
        }
        write!(
            formatter,
            " packets {} {} bytes {} {}",
            original[0], reply[0], original[1], reply[1]
        )?;
        match self.idle {
            Some(idle) => {
                write!(formatter, " idle {}.{}", idle / 1_000_000_000, idle / 100_000_000 % 10)?
            }
            None => write!(formatter, " unused")?,
        }
        write!(formatter, " {}", if self.is_closing() { "closing" } else { "open" })?;
        match self.tier() {
            Some(tier) => write!(formatter, " {}", tier.name()),
            None => Ok(()),
        }
    }
}

impl FlowTierName {
    /// Returns the name, as in the configuration.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Lanes => "lanes",
            Self::Kernel => "kernel",
        }
    }
}

/// Renders both ends of a tuple.
pub(super) fn ends(tuple: &ConnectionTuple) -> String {
    let end = |address, port| SocketAddr::new(address, port);
    let [from, to] = tuple.ports;
    format!("{} > {}", end(tuple.source, from), end(tuple.destination, to))
}
