//! The cost of flows with NAT on a memory port, compared with swapping addresses.
//!
//! Both contenders first write new IPv4 and UDP headers into each packet, in the order of a list,
//! so that a returning packet equals a new one. Routes are constant: a lane remembers the next hop
//! of a flow, so that only the first packet looks it up.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use fastlane::Turn;
use fastlane::mirror::conntrack::{Connection, ConnectionTuple, Status};
use fastlane::mirror::flows::{
    FLOW_WORDS, FlowKey, FlowRecord, FlowStatistics, FlowStatus, PinsPath,
};
use fastlane::mirror::{
    FallbackReason, IngressInterface, NextHop, ReturnRoute, ReversePath, RouteLookup,
};
use fastlane_core::{App, Packet, PortId};
use fastlane_table::{
    EntryId, HashReader, HashWriter, Readers, RecordReader, RecordWriter, SharedMemory, Spec, State,
};
use fastlane_wire::checksum::{Sum, checksum};
use router::counts::Counts;
use router::flows::LaneFlows;
use router::{FlowHash, Router, Routes};

use crate::Result;
use crate::device::memory_lane::{MemoryLane, macswap};
use crate::loops::lookup::workload::Random;
use crate::slices::{Contender, Effort, Pairs, pair};

/// Maximum number of packets in a burst.
const BURST: usize = 32;
/// Length of a frame in bytes: Ethernet, IPv4, UDP.
const LENGTH: usize = 60;
/// Length of the headers that are written anew: IPv4 and UDP.
const HEADERS: usize = 28;
/// Destination Ethernet address of the packets.
const STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Ethernet header of the frames: to the station, from another one, with IPv4.
const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
/// Address behind which sources are translated.
const OUTSIDE: [u8; 4] = [198, 51, 100, 1];

/// A table of flows and the headers of their packets.
pub struct FlowSet {
    table: Arc<SharedMemory>,
    status: Arc<SharedMemory>,
    capacity: usize,
    headers: Vec<[u8; HEADERS]>,
}

impl FlowSet {
    /// Creates `count` flows of UDP behind a masquerade.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub fn new(count: usize) -> Result<Self> {
        let capacity = 2 * count;
        let table = Spec::hash::<FlowKey, FlowRecord>("flows", capacity).create()?;
        let status = Spec::record::<FlowStatus>("offload").create()?;
        let readers = Arc::new(Readers::unknown());
        let mut writer = HashWriter::attach(&table, &readers)?;
        for number in 0..count as u32 {
            let connection = connection(number);
            let records = FlowRecord::of(&connection);
            for (key, record) in FlowKey::of(&connection).into_iter().zip(records) {
                writer.insert(&key, &record)?;
            }
        }
        // Its heartbeat never ends.
        RecordWriter::attach(&status, &readers)?.set(&FlowStatus {
            heartbeat: u64::MAX,
            grace: 0,
            is_active: 1,
            mark: 1,
            mask: 1,
            one_way: 0,
            rules: 0,
            statistics: FlowStatistics::default(),
            pins: PinsPath::default(),
        })?;
        let mut random = Random::new(0x666c);
        let length = (1 << 17).max(2 * count);
        let headers = (0..length).map(|_| headers(random.below(count as u64) as u32)).collect();
        Ok(Self { table, status, capacity, headers })
    }
}

impl FlowSet {
    /// Returns `count` packets of flows at random, as frames.
    pub(super) fn frames(&self, count: usize) -> Vec<Vec<u8>> {
        let frame = |headers: &[u8; HEADERS]| {
            let mut frame = vec![0; LENGTH];
            frame[..14].copy_from_slice(&ETHERNET);
            frame[14..14 + HEADERS].copy_from_slice(headers);
            frame
        };
        self.headers.iter().take(count).map(frame).collect()
    }
}

/// Returns source address and port of a flow.
fn source(number: u32) -> (Ipv4Addr, u16) {
    (Ipv4Addr::from_bits(0x0a00_0000 + (number >> 8)), 10_000 + (number & 0xff) as u16)
}

/// Returns destination address and port of a flow.
fn destination(number: u32) -> (Ipv4Addr, u16) {
    (Ipv4Addr::from_bits(0xc612_0000 + number % 1000), 443)
}

fn connection(number: u32) -> Connection {
    let ((from, port), (to, service)) = (source(number), destination(number));
    let tuple = |source: Ipv4Addr, destination: Ipv4Addr, ports| ConnectionTuple {
        source: source.into(),
        destination: destination.into(),
        protocol: 17,
        ports,
    };
    // Each address of the outside has 32768 ports.
    let outside = Ipv4Addr::from_bits(u32::from_be_bytes(OUTSIDE) + number / 32_768 % 128);
    let translated = 32_768 + (number % 32_768) as u16;
    Connection {
        id: number,
        original: tuple(from, to, [port, service]),
        reply: tuple(to, outside, [service, translated]),
        zones: [0; 2],
        status: Status(Status::CONFIRMED | Status::SEEN_REPLY | Status::ASSURED),
        mark: 1,
        timeout: Some(120),
        is_refreshed: false,
        tcp: None,
        helper: String::new(),
        has_master: false,
        adjusts_sequence: false,
        counters: [None; 2],
    }
}

fn headers(number: u32) -> [u8; HEADERS] {
    let ((from, port), (to, service)) = (source(number), destination(number));
    let mut bytes = [0; HEADERS];
    bytes[..12].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
    bytes[12..16].copy_from_slice(&from.octets());
    bytes[16..20].copy_from_slice(&to.octets());
    let sum = checksum(&bytes[..20]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes[20..22].copy_from_slice(&port.to_be_bytes());
    bytes[22..24].copy_from_slice(&service.to_be_bytes());
    bytes[24..26].copy_from_slice(&26_u16.to_be_bytes());
    // The payload is zeros.
    let sum = Sum::pseudo_ipv4(from.octets(), to.octets(), 17, 26).add_bytes(&bytes[20..28]);
    bytes[26..28].copy_from_slice(&sum.checksum().to_be_bytes());
    bytes
}

/// Routes in one generation: sources are on the ingress interface, all else on another one.
pub(super) struct ConstantRoutes;

impl ConstantRoutes {
    fn fill<A: Copy>(to: &[A], answers: &mut [RouteLookup], is_inside: impl Fn(A) -> bool) {
        for (answer, to) in answers.iter_mut().zip(to) {
            let link = if is_inside(*to) { 0 } else { 1 };
            let (source, destination) = (STATION, [2, 0, 0, 0, 0, 9]);
            let (port, mtu, route, is_divided) = (PortId(0), 1500, 0, false);
            let hop = NextHop { port, source, destination, mtu, link, route, is_divided };
            *answer = RouteLookup::Forward(hop);
        }
    }
}

impl Routes for ConstantRoutes {
    fn ingress(&self, _: &Turn, _: PortId) -> Option<IngressInterface> {
        let (forwards4, forwards6, reverse_path) = (true, true, ReversePath::Any);
        let (link, is_in_vrf) = (0, false);
        Some(IngressInterface { link, mac: STATION, forwards4, forwards6, is_in_vrf, reverse_path })
    }

    fn ways4(&self, _: &Turn, to: &[Ipv4Addr], _: &[u32], answers: &mut [RouteLookup]) {
        Self::fill(to, answers, |address| address.octets()[0] == 10);
    }

    fn ways6(&self, _: &Turn, _: &[Ipv6Addr], _: &[u32], answers: &mut [RouteLookup]) {
        answers.fill(RouteLookup::Fallback(FallbackReason::NoRoute));
    }

    fn returns4(&self, _: &Turn, from: &[Ipv4Addr], _: &[u32], returns: &mut [ReturnRoute]) {
        for (back, from) in returns.iter_mut().zip(from) {
            let link = if from.octets()[0] == 10 { 0 } else { 1 };
            *back = ReturnRoute { link: Some(link), reason: None, is_divided: false };
        }
    }

    fn returns6(&self, _: &Turn, _: &[Ipv6Addr], _: &[u32], returns: &mut [ReturnRoute]) {
        returns.fill(ReturnRoute::UNKNOWN);
    }

    fn generation(&self) -> Option<u64> {
        Some(2)
    }

    fn is_own(&self, _: &Turn, _: IpAddr) -> bool {
        false
    }
}

/// Application that overwrites each packet with new headers before it is processed.
struct Renewed<'a, A> {
    app: A,
    headers: &'a [[u8; HEADERS]],
    next: usize,
}

impl<A: App> App for Renewed<'_, A> {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        for packet in packets.iter_mut() {
            let bytes = packet.bytes_mut();
            bytes[..6].copy_from_slice(&STATION);
            bytes[12..14].copy_from_slice(&[8, 0]);
            bytes[14..14 + HEADERS].copy_from_slice(&self.headers[self.next]);
            self.next = (self.next + 1) % self.headers.len();
        }
        self.app.process(packets, turn);
    }
}

/// Lane state of a router with flows.
pub(super) struct FlowLane {
    causes: State<2>,
    state: State<FLOW_WORDS>,
}

impl FlowLane {
    pub(super) fn new(flows: &FlowSet) -> Result<Self> {
        let causes = State::attach(&Spec::state::<2>("causes", router::CAUSES, 1).create()?)?;
        let state = Spec::state::<FLOW_WORDS>("flows", flows.capacity, 1).create()?;
        // As an application gets it: lanes write all of their state.
        state.populate()?;
        Ok(Self { causes, state: State::attach(&state)? })
    }

    pub(super) fn router(
        &self,
        flows: &FlowSet,
        prefetches: bool,
    ) -> Result<Router<ConstantRoutes>> {
        let (table, status) =
            (HashReader::attach(&flows.table)?, RecordReader::attach(&flows.status)?);
        let lane = LaneFlows::new(table, self.state.lane(0), status, vec![0]);
        let lane = lane.with_prefetch(prefetches);
        let counts = Counts::new(self.causes.lane(0), None);
        Ok(Router::new(ConstantRoutes, counts, FlowHash::random()).with_flows(lane))
    }

    /// Checks that all packets were forwarded.
    pub(super) fn check(&self) -> Result<()> {
        for (number, name) in router::names().filter(|(number, _)| *number > 0) {
            let [packets, _] = self.causes.read(EntryId(number));
            if packets > 0 {
                return Err(format!("{packets} packets were not forwarded: {name}").into());
            }
        }
        Ok(())
    }
}

/// Translates about `packets` packets of 1,024 flows. Returns the exact number.
///
/// # Errors
/// Returns an error if there is not enough memory or a packet is not forwarded.
pub fn translate(packets: u64) -> Result<u64> {
    let flows = FlowSet::new(1024)?;
    let lane = FlowLane::new(&flows)?;
    let app = Renewed { app: lane.router(&flows, true)?, headers: &flows.headers, next: 0 };
    let moved = MemoryLane::new(app, BURST, LENGTH)?.turns(packets);
    lane.check()?;
    Ok(moved)
}

/// Compares the CPU time per packet of flows with NAT with that of macswap.
///
/// # Errors
/// Returns an error if there is not enough memory or a packet is not forwarded.
pub fn compare_flows(flows: &FlowSet, effort: Effort) -> Result<Pairs> {
    let mut pairs = Pairs::default();
    let (headers, lane) = (&flows.headers, FlowLane::new(flows)?);
    for _ in 0..effort.pairs {
        let app = lane.router(flows, true)?;
        let mut ours = MemoryLane::new(Renewed { app, headers, next: 0 }, BURST, LENGTH)?;
        let mut rival = MemoryLane::new(Renewed { app: macswap, headers, next: 0 }, BURST, LENGTH)?;
        let warm_up = effort.slice / 5;
        ours.run(warm_up)?;
        rival.run(warm_up)?;
        pair(&mut pairs, effort.slice, &mut ours, &mut rival)?;
        lane.check()?;
    }
    Ok(pairs)
}

/// Compares the CPU time per packet of flows with NAT without prefetching with that with it.
///
/// # Errors
/// Returns an error if there is not enough memory or a packet is not forwarded.
pub fn compare_prefetch(flows: &FlowSet, effort: Effort) -> Result<Pairs> {
    let mut pairs = Pairs::default();
    let (headers, lane) = (&flows.headers, FlowLane::new(flows)?);
    for _ in 0..effort.pairs {
        let router = |prefetches| -> Result<_> {
            let app = lane.router(flows, prefetches)?;
            MemoryLane::new(Renewed { app, headers, next: 0 }, BURST, LENGTH)
        };
        let (mut without, mut with) = (router(false)?, router(true)?);
        let warm_up = effort.slice / 5;
        without.run(warm_up)?;
        with.run(warm_up)?;
        pair(&mut pairs, effort.slice, &mut without, &mut with)?;
        lane.check()?;
    }
    Ok(pairs)
}
