//! Table of flows as a lane reads it, and the decision about a packet before its route.

use fastlane::mirror::flows::{
    FLOW_WORDS, FlowKey, FlowRecord, FlowState, FlowStatus, RememberedHop,
};
use fastlane::table::{HashEntry, HashReader, LaneState, RecordReader};
use fastlane::wire::{Ethernet, IpProtocol, Tcp, Udp, header};
use fastlane::{PortId, Turn};

use crate::family::Family;
use crate::headers::Headers;
use crate::{BATCH, Outcome};

/// Flows of a lane.
#[derive(Clone, Debug)]
pub struct LaneFlows {
    table: HashReader<FlowKey, FlowRecord>,
    state: LaneState<FLOW_WORDS>,
    status: RecordReader<FlowStatus>,
    /// Zone of the connection tracking by port.
    zones: Vec<u16>,
    prefetches: bool,
}

/// Packet of a flow that may be forwarded if there is a hop.
#[derive(Clone, Copy)]
pub(crate) struct Candidate<'t> {
    pub(crate) record: &'t FlowRecord,
    pub(crate) state: FlowState<'t>,
}

/// Entries of the packets of a batch, for those that have a flow.
pub(crate) type FlowEntries<'t> = [Option<HashEntry<'t, FlowRecord>>; BATCH];

impl LaneFlows {
    /// Creates the flows of a lane. `zones` are those of the ports; ports beyond have zone 0.
    #[must_use]
    pub fn new(
        table: HashReader<FlowKey, FlowRecord>,
        state: LaneState<FLOW_WORDS>,
        status: RecordReader<FlowStatus>,
        zones: Vec<u16>,
    ) -> Self {
        Self { table, state, status, zones, prefetches: true }
    }

    /// Prefetches the flows of a burst, as by default, or looks them up one after the other.
    #[must_use]
    pub fn with_prefetch(mut self, prefetches: bool) -> Self {
        self.prefetches = prefetches;
        self
    }

    /// Returns true if the slow path lives and permits flows.
    #[inline]
    pub(crate) fn are_permitted(&self, turn: &Turn) -> bool {
        self.status.get(turn).is_some_and(|status| status.permits(turn.now()))
    }

    /// Looks up the flows of packets that arrived by a port, and writes the entries of those that
    /// have one to `found`.
    #[inline]
    pub(crate) fn find<'t, A: Family>(
        &'t self,
        turn: &'t Turn,
        port: PortId,
        headers: &[Headers<A>],
        found: &mut FlowEntries<'t>,
    ) {
        let zone = self.zones.get(usize::from(port.0)).copied().unwrap_or(0);
        let mut keys = [FlowKey::default(); BATCH];
        for (key, headers) in keys.iter_mut().zip(headers) {
            *key = FlowKey {
                source: headers.source.octets(),
                destination: headers.destination.octets(),
                ports: headers.ports,
                zone,
                protocol: headers.protocol,
                version: A::VERSION,
            };
        }
        let count = headers.len().min(BATCH);
        if !self.prefetches {
            for (found, key) in found[..count].iter_mut().zip(&keys) {
                *found = self.table.get(turn, key);
            }
            return;
        }
        // Three stages: the buckets of all keys, the entries that these name, and their states.
        let octets =
            if A::VERSION == 4 { FlowRecord::IPV4_OCTETS } else { size_of::<FlowRecord>() };
        self.table.find_many(turn, &keys[..count], octets, |at, entry| {
            self.state.prefetch(entry.entry);
            found[at] = Some(entry);
        });
    }

    /// Decides about a packet whose flow was looked up, before its route.
    ///
    /// # Errors
    /// The reason why Linux gets it.
    #[inline]
    pub(crate) fn examine<'t, A: Family>(
        &'t self,
        found: Option<&HashEntry<'t, FlowRecord>>,
        headers: &Headers<A>,
        frame: &[u8],
        now: u64,
    ) -> Result<Candidate<'t>, Outcome> {
        if !headers.shows_ports {
            return Err(Outcome::FlowNoPorts);
        }
        let Some(found) = found else {
            return Err(match headers.protocol {
                IpProtocol::TCP if opens(frame, A::HEADER) => Outcome::TcpOpen,
                IpProtocol::TCP | IpProtocol::UDP => Outcome::NoFlow,
                _ => Outcome::FlowProtocol,
            });
        };
        let Some(state) = self.state.writable(found.entry) else { return Err(Outcome::NoFlow) };
        let state = FlowState::new(state.into());
        // Linux sees the packets that it gets, too: it may not be told of an earlier one.
        state.see(now);
        if headers.fallback != Outcome::Forwarded {
            return Err(headers.fallback);
        }
        transport(headers, A::HEADER, frame).inspect_err(|outcome| {
            if *outcome == Outcome::TcpClose {
                state.close();
            }
        })?;
        if state.is_linuxs() {
            return Err(match state.is_closing() {
                true => Outcome::FlowClosing,
                false => Outcome::FlowExit,
            });
        }
        Ok(Candidate { record: found.value, state })
    }
}

impl Candidate<'_> {
    /// Returns the hop that is remembered from this generation of the routes, if one is.
    #[inline(always)]
    pub(crate) fn remembered(&self, generation: Option<u64>) -> Option<RememberedHop> {
        generation.and_then(|generation| self.state.remembered(generation))
    }
}

/// Returns true if a TCP packet, behind an IP header of `ip` bytes, asks for a connection or agrees
/// to one. The kernel tier looks for no flow of such a packet.
fn opens(frame: &[u8], ip: usize) -> bool {
    let tcp: Option<&Tcp> = header(frame, Ethernet::LENGTH + ip);
    tcp.is_some_and(|tcp| tcp.control() & (Tcp::SYN | Tcp::FIN | Tcp::RST) == Tcp::SYN)
}

/// Checks the transport header behind an IP header of `ip` bytes. Linux gets what begins or ends a
/// connection, and what its tracking would call invalid.
#[inline]
fn transport<A>(headers: &Headers<A>, ip: usize, frame: &[u8]) -> Result<(), Outcome> {
    let room = (headers.length as usize).saturating_sub(ip);
    let at = Ethernet::LENGTH + ip;
    if headers.protocol == IpProtocol::UDP {
        let udp: &Udp = header(frame, at).ok_or(Outcome::Malformed)?;
        let length = usize::from(udp.length.get());
        let is_sound = (Udp::LENGTH..=room).contains(&length);
        return if is_sound { Ok(()) } else { Err(Outcome::Malformed) };
    }
    let tcp: &Tcp = header(frame, at).ok_or(Outcome::Malformed)?;
    if !(Tcp::LENGTH..=room).contains(&tcp.header_length()) {
        return Err(Outcome::Malformed);
    }
    match tcp.control() & (Tcp::SYN | Tcp::FIN | Tcp::RST | Tcp::ACK) {
        Tcp::ACK => Ok(()),
        control if control & (Tcp::FIN | Tcp::RST) != 0 => Err(Outcome::TcpClose),
        _ => Err(Outcome::TcpOpen),
    }
}
