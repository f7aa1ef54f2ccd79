//! The user plane application that runs on each lane.
//!
//! A burst passes through stages, so that memory which a stage needs is prefetched by an earlier
//! one: [`parse`] parses frames ([`outer_header`]), [`lookup`] looks up sessions and prefetches
//! their rules and state, [`apply`] applies the rules ([`classify`]), [`forward`] encapsulates
//! ([`encap`], [`ip_header`]), [`egress`] routes packets to the data network, and [`deferred`] does
//! the rare work that was deferred. [`charge`] accounts for a packet once nothing can prevent it
//! from leaving. [`gtpu_control`] handles GTP-U messages without user data, and [`http_redirect`]
//! answers redirected HTTP clients.

mod apply;
mod charge;
pub mod classify;
mod deferred;
mod dl_buffer;
mod egress;
mod encap;
mod forward;
mod fragment_table;
mod gtpu_control;
mod gtpu_message;
mod http_redirect;
mod icmp;
mod inner_packet;
mod ip_fragment;
mod ip_header;
mod lane_tables;
mod lookup;
mod next_hop;
mod outer_header;
mod parse;
mod port_map;
mod rate_limiter;
mod ue_pools;

use std::net::IpAddr;

use fastlane::mirror::Mirror;
use fastlane::{App, Error, LaneInfo, Packet, PortId, Turn};

pub use lane_tables::{DROP_REASON_WORDS, LaneTables};
pub use next_hop::Routes;

use self::deferred::Deferred;
use self::dl_buffer::{BufferDecision, DlBuffer};
use self::fragment_table::FragmentTable;
use self::lane_tables::DestinationAddress;
use self::lookup::Batch;
use self::next_hop::{BATCH, NextHopCache};
use self::outer_header::FrameKind;
use self::port_map::PortMap;
use self::rate_limiter::RateLimiter;
use self::ue_pools::UePools;
use crate::config::{Role, Settings};
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::session_rules::Direction;
use crate::rules::layout::teid_layout::TeidLayout;
use crate::session::{InstanceId, SessionIndex};

/// Maximum rate of messages to the slow path about paths and neighbours, per second.
const MAX_REPORTS: u32 = 1000;
/// Maximum rate of HTTP redirect responses, per second.
const MAX_REDIRECTS: u32 = 10_000;
/// Capacity of the deferred queue for one batch: per packet two events, a hold, the packet itself
/// and its copies.
const MAX_DEFERRED: usize = 8 * BATCH;

/// User plane application of one lane.
pub struct Upf<R = Mirror> {
    tables: LaneTables,
    parts: Datapath<R>,
    batch: Box<Batch>,
}

/// State of the datapath besides the tables.
struct Datapath<R> {
    routes: R,
    ports: PortMap,
    teid_layout: TeidLayout,
    pools: UePools,
    next_hops: NextHopCache,
    fragments: FragmentTable,
    held: DlBuffer,
    /// Sessions of packets labelled `Hold` in the current burst; the lane's own count does not
    /// include them yet.
    fresh: Vec<u32>,
    /// Number of the current burst.
    burst: u64,
    /// Last published number of held packets.
    held_packets: usize,
    deferred: DeferredQueue,
    /// Second queue, which takes work that is deferred while the first one runs.
    spare: DeferredQueue,
    errors: RateLimiter,
    echoes: RateLimiter,
    icmp: RateLimiter,
    redirects: RateLimiter,
    reports: RateLimiter,
    /// No error indication is sent before this time, in ns of `CLOCK_MONOTONIC`.
    error_indications_from: u64,
    /// Source addresses of ICMP errors: IPv4, IPv6.
    icmp_sources: [Option<IpAddr>; 2],
    /// Network instance of N6 if there is exactly one.
    only_instance: Option<InstanceId>,
    /// Network instances of N6.
    instances: Vec<InstanceId>,
    /// Packets forwarded in this batch.
    sent: ForwardedCounters,
    /// True if the current packet is to be reflected as it is now.
    reflects: bool,
}

/// Queue of deferred work. It never grows beyond its initial capacity.
#[derive(Default)]
struct DeferredQueue(Vec<Deferred>);

impl DeferredQueue {
    #[inline]
    fn push(&mut self, deferred: Deferred) {
        if self.0.len() < self.0.capacity() {
            self.0.push(deferred);
        }
    }

    /// Returns true if there is room for a copy. The rest is reserved: two events, a hold and the
    /// packet itself per packet. Rules may ask for any number of copies.
    fn has_room_for_copies(&self) -> bool {
        self.0.len() < MAX_DEFERRED - 4 * BATCH
    }

    fn iter(&self) -> impl Iterator<Item = &Deferred> {
        self.0.iter()
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Forwarded packets and octets by direction.
#[derive(Clone, Copy, Debug, Default)]
struct ForwardedCounters([[u64; 2]; 2]);

impl ForwardedCounters {
    #[inline]
    fn count(&mut self, direction: Direction, octets: u64) {
        let [packets, sum] = &mut self.0[direction as usize];
        (*packets, *sum) = (*packets + 1, *sum + octets);
    }

    #[inline]
    fn publish(&mut self, tables: &LaneTables) {
        for (direction, [packets, octets]) in
            [Direction::Uplink, Direction::Downlink].into_iter().zip(self.0)
        {
            if packets > 0 {
                tables.count(forward::sent(direction), packets, octets);
            }
        }
        *self = Self::default();
    }
}

/// Context of a burst: tables, turn and time.
#[derive(Clone, Copy)]
struct BurstContext<'t> {
    tables: &'t LaneTables,
    turn: &'t Turn,
    now: u64,
}

/// Creates the user plane of a lane from its configuration.
///
/// # Errors
/// If the settings are invalid, name an unknown port, or a table or the mirror is missing.
pub fn upf(lane: &LaneInfo<'_>) -> Result<Upf, Error> {
    let settings: Settings = lane.settings()?;
    let ports = lane.port_names().count();
    let routes = lane.mirror()?;
    Upf::new(&settings, ports, LaneTables::of(lane)?, routes, |name| lane.require_port(name))
}

impl<R: Routes> Upf<R> {
    /// Creates the user plane of a lane with `ports` ports; `port` finds a port by name.
    ///
    /// # Errors
    /// Errors of `port`, and invalid settings.
    pub fn new(
        settings: &Settings,
        ports: usize,
        tables: LaneTables,
        routes: R,
        port: impl Fn(&str) -> Result<PortId, Error>,
    ) -> Result<Self, Error> {
        let wrong = |what: String| Error::Value { path: "app".to_owned(), what, meant: None };
        let mut ports = PortMap::new(settings, ports, &port)?;
        if let Some(name) = &settings.hairpin {
            ports.set_hairpin(port(name)?);
        }
        let icmp_sources = [ports.icmp_source(false), ports.icmp_source(true)];
        let mut instances: Vec<InstanceId> = ports
            .interfaces
            .iter()
            .filter(|interface| interface.role == Role::N6)
            .map(|interface| interface.instance)
            .collect();
        instances.dedup();
        let gtp = &settings.gtp;
        let sessions = settings.sessions as usize;
        let parts = Datapath {
            routes,
            ports,
            teid_layout: TeidLayout::of(sessions),
            pools: UePools::new(settings).map_err(wrong)?,
            next_hops: NextHopCache::new(),
            fragments: FragmentTable::new(),
            held: DlBuffer::new(sessions),
            fresh: Vec::with_capacity(1024),
            burst: 0,
            held_packets: 0,
            deferred: DeferredQueue(Vec::with_capacity(MAX_DEFERRED)),
            spare: DeferredQueue(Vec::with_capacity(MAX_DEFERRED)),
            errors: RateLimiter::new(gtp.errors_per_s),
            echoes: RateLimiter::new(gtp.echoes_per_s),
            icmp: RateLimiter::new(gtp.icmp_per_s),
            redirects: RateLimiter::new(MAX_REDIRECTS),
            reports: RateLimiter::new(MAX_REPORTS),
            error_indications_from: fastlane::now()
                .saturating_add(gtp.quiet_s.saturating_mul(1_000_000_000)),
            icmp_sources,
            only_instance: instances.first().copied().filter(|_| instances.len() == 1),
            instances,
            sent: ForwardedCounters::default(),
            reflects: false,
        };
        tables.count_lost();
        Ok(Self { tables, parts, batch: Box::new(Batch::new()) })
    }

    /// Processes packets that arrived on one port.
    fn batch(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        let Self { tables, parts, batch } = self;
        batch.clear();
        parts.read(tables, batch, packets, turn);
        if batch.count > 0 {
            let burst = BurstContext { tables, turn, now: turn.now() };
            let mut found = batch.find(tables, turn);
            parts.apply_rules(batch, &mut found, packets, burst);
            parts.route_all(batch, &found, packets, burst);
            if !parts.deferred.is_empty() {
                parts.run_deferred(tables, batch, packets, turn);
            }
        }
        parts.sent.publish(tables);
    }
}

impl<R: Routes> App for Upf<R> {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        if self.parts.burst != turn.burst() {
            self.parts.burst = turn.burst();
            self.parts.fresh.clear();
        }
        // Packets from another lane may have arrived on several ports.
        for packets in packets.chunk_by_mut(|one, other| one.port() == other.port()) {
            for packets in packets.chunks_mut(BATCH) {
                self.batch(packets, turn);
            }
        }
        self.parts.publish_held(&self.tables, turn);
    }

    fn shard(&mut self, packet: &Packet, turn: &Turn) -> u8 {
        // A packet without a session may be counted or answered on any lane.
        self.session(packet, turn).map_or(0, |session| session.0 as u8)
    }

    fn turn(&mut self, turn: &mut Turn) {
        let Self { tables, parts, .. } = self;
        parts.receive_messages(tables, turn);
        parts.fresh.clear();
        if !parts.held.is_empty() {
            parts.poll_held(tables, turn);
        }
        parts.publish_held(tables, turn);
    }
}

impl<R: Routes> Upf<R> {
    /// Returns the session of a packet.
    fn session(&self, packet: &Packet, turn: &Turn) -> Option<SessionIndex> {
        let side = self.parts.ports.of(packet.port())?;
        let frame = packet.bytes();
        match outer_header::read(frame, side, None) {
            FrameKind::Data(tunnel) | FrameKind::Control(tunnel) => {
                let found = self.tables.by_tunnel(turn, self.parts.teid_layout, tunnel.teid);
                found.map(|(session, _)| session)
            }
            FrameKind::Ip { is_v6 } => {
                let to = DestinationAddress::of(frame, is_v6)?;
                let instance = self.parts.instance_of(packet, side.is_hairpin, side.plain());
                self.tables.owner(turn, &to.key(instance), to)
            }
            FrameKind::Linux | FrameKind::Drop(_) => None,
        }
    }
}

impl<R: Routes> Datapath<R> {
    /// Publishes the number of held packets, including those labelled just now.
    #[inline]
    fn publish_held(&mut self, tables: &LaneTables, turn: &Turn) {
        let now = turn.held_packets() + self.fresh.len();
        if now != self.held_packets {
            self.held_packets = now;
            tables.publish_held(now as u64);
        }
    }

    /// Checks some of the sessions that have held packets.
    #[cold]
    fn poll_held(&mut self, tables: &LaneTables, turn: &mut Turn) {
        let now = turn.now();
        turn.keep_awake(); // rules may change and hold times may expire
        let mut decided: [Option<(fastlane::HoldKey, BufferDecision)>; 16] = [None; 16];
        let mut count = 0;
        let view = &*turn;
        self.held.look(
            |held| held.look(tables.rules(view, held.session), now),
            |key, look| {
                if let Some(place) = decided.get_mut(count) {
                    *place = Some((key, look));
                    count += 1;
                }
            },
        );
        for (key, look) in decided.into_iter().flatten() {
            end_hold(tables, key, look, turn);
        }
    }
}

/// Resumes or discards the held packets of a session.
#[cold]
fn end_hold(tables: &LaneTables, key: fastlane::HoldKey, look: BufferDecision, turn: &mut Turn) {
    match look {
        BufferDecision::Resume => {
            turn.resume(key);
        }
        BufferDecision::Discard => {
            let discarded = turn.discard(key);
            tables.count(DropReason::HoldDiscarded, discarded as u64, 0);
        }
        BufferDecision::Hold => {}
    }
}
