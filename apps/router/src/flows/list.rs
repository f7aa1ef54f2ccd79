//! Flows of a running router as tools read them, and their text.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use fastlane::mirror::conntrack::ConnectionTuple;
use fastlane::mirror::flows::{FLOW_WORDS, FlowKey, FlowRecord, FlowState, FlowStatus};
use fastlane::now;
use fastlane::slow::{SlowError, SlowPath};
use fastlane::table::{EntryId, HashReader, LaneState, RecordReader, State};

use super::offload::{FLOWS, STATUS};

/// Read access of a tool.
pub(super) struct FlowList {
    table: HashReader<FlowKey, FlowRecord>,
    lanes: Vec<LaneState<FLOW_WORDS>>,
    status: RecordReader<FlowStatus>,
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
    /// Packets and bytes of the original and of the reply direction.
    pub(super) counts: [[u64; 2]; 2],
    /// Time since the last packet, in nanoseconds; `None` if there was none.
    pub(super) idle: Option<u64>,
    /// True if a packet that ends the connection was seen.
    pub(super) is_closing: bool,
}

impl FlowList {
    pub(super) fn attach(slow: &SlowPath) -> Result<Self, SlowError> {
        let state: State<FLOW_WORDS> = slow.state(FLOWS)?;
        let lanes = (0..state.lanes().max(1)).map(|lane| state.lane(lane)).collect();
        Ok(Self { table: slow.hash(FLOWS)?, lanes, status: slow.record(STATUS)? })
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
        let originals = self.table.copies().filter(|(_, _, record)| record.is_reply == 0);
        originals.map(|(key, entry, record)| self.flow(&key, entry, &record))
    }

    /// Returns the flow of the packets of a tuple, of either direction.
    pub(super) fn find(&self, tuple: &ConnectionTuple, zone: u16) -> Option<ListedFlow> {
        let key = FlowKey::new(tuple, zone);
        let (entry, record) = self.table.copy(&key)?;
        if record.is_reply == 0 {
            return Some(self.flow(&key, entry, &record));
        }
        let original = reverse(&key, &record);
        let (entry, record) = self.table.copy(&original)?;
        Some(self.flow(&original, entry, &record))
    }

    fn flow(&self, key: &FlowKey, entry: EntryId, record: &FlowRecord) -> ListedFlow {
        let reply = self.table.copy(&reverse(key, record)).map(|(entry, _)| entry);
        let mut counts = [[0; 2]; 2];
        let (mut last_seen, mut is_closing) = (0, false);
        for (counts, entry) in counts.iter_mut().zip([Some(entry), reply]) {
            let Some(entry) = entry else { continue };
            for lane in &self.lanes {
                let state = FlowState::new(lane.at(entry));
                let [packets, octets, seen] = state.totals();
                counts[0] += packets;
                counts[1] += octets;
                last_seen = last_seen.max(seen);
                is_closing |= state.is_closing();
            }
        }
        ListedFlow {
            arrives: key.tuple(),
            leaves: record.tuple(key),
            zone: key.zone,
            id: record.id,
            counts,
            idle: (last_seen > 0).then(|| now().saturating_sub(last_seen)),
            is_closing,
        }
    }
}

/// Returns the key of the other direction: its packets are the reverse of what leaves.
fn reverse(key: &FlowKey, record: &FlowRecord) -> FlowKey {
    let [from, to] = record.ports;
    let (source, destination) = (record.destination, record.source);
    FlowKey { source, destination, ports: [to, from], ..*key }
}

impl ListedFlow {
    /// Returns the addresses before and after translation.
    pub(super) fn addresses(&self) -> [IpAddr; 4] {
        let Self { arrives, leaves, .. } = self;
        [arrives.source, arrives.destination, leaves.source, leaves.destination]
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
        write!(formatter, " {}", if self.is_closing { "closing" } else { "open" })
    }
}

/// Renders both ends of a tuple.
pub(super) fn ends(tuple: &ConnectionTuple) -> String {
    let end = |address, port| SocketAddr::new(address, port);
    let [from, to] = tuple.ports;
    format!("{} > {}", end(tuple.source, from), end(tuple.destination, to))
}
