//! The user plane application that runs on each lane.
//!
//! A burst passes through stages, so that memory which a stage needs is prefetched by an earlier
//! one: [`arrive`] parses frames ([`outer`]), [`batch`] looks up sessions and prefetches their
//! rules and state, [`judge`] applies the rules ([`decide`]), [`forward`] encapsulates
//! ([`encapsulate`], [`route`]), [`leave`] routes packets to the data network, and [`later`] does
//! the rare work that was deferred. [`charge`] accounts for a packet once nothing can prevent it
//! from leaving. [`control`] handles GTP-U messages without user data, and [`web`] answers
//! redirected HTTP clients.

mod answer;
mod arrive;
mod batch;
mod charge;
mod control;
pub mod decide;
mod encapsulate;
mod forward;
mod fragments;
mod held;
mod icmp;
mod inner;
mod judge;
mod later;
mod leave;
mod limit;
mod outer;
mod pieces;
mod pools;
mod route;
mod sides;
mod tables;
mod ways;
mod web;

use std::net::IpAddr;

use fastlane::mirror::Mirror;
use fastlane::{App, Error, LaneInfo, Packet, PortId, Turn};

pub use tables::{CAUSE_WORDS, Tables};
pub use ways::Routes;

use self::batch::Batch;
use self::fragments::Fragments;
use self::held::{Held, Look};
use self::later::Later;
use self::limit::Limit;
use self::outer::Arrival;
use self::pools::Pools;
use self::sides::Sides;
use self::tables::To;
use self::ways::{BATCH, Ways};
use crate::config::{Role, Settings};
use crate::rules::layout::cause::Cause;
use crate::rules::layout::identifier::TeidShape;
use crate::rules::layout::rules::Direction;
use crate::session::{InstanceId, SessionId};

/// Maximum rate of messages to the slow path about paths and neighbours, per second.
const REPORTS: u32 = 1000;
/// Maximum rate of HTTP redirect responses, per second.
const REDIRECTS: u32 = 10_000;
/// Capacity of the deferred queue for one batch: per packet two events, a hold, the packet itself
/// and its copies.
const LATER: usize = 8 * BATCH;

/// User plane application of one lane.
pub struct Upf<R = Mirror> {
    tables: Tables,
    parts: Parts<R>,
    batch: Box<Batch>,
}

/// State of the datapath besides the tables.
struct Parts<R> {
    routes: R,
    sides: Sides,
    shape: TeidShape,
    pools: Pools,
    ways: Ways,
    fragments: Fragments,
    held: Held,
    /// Sessions of packets labelled `Hold` in the current burst; the lane's own count does not
    /// include them yet.
    fresh: Vec<u32>,
    /// Number of the current burst.
    burst: u64,
    /// Last published number of held packets.
    held_packets: usize,
    later: Put,
    /// Second queue, which takes work that is deferred while the first one runs.
    spare: Put,
    errors: Limit,
    echoes: Limit,
    icmp: Limit,
    redirects: Limit,
    reports: Limit,
    /// No error indication is sent before this time, in ns of `CLOCK_MONOTONIC`.
    quiet_until: u64,
    /// Source addresses of ICMP errors: IPv4, IPv6.
    speakers: [Option<IpAddr>; 2],
    /// Network instance of N6 if there is exactly one.
    only_instance: Option<InstanceId>,
    /// Network instances of N6.
    instances: Vec<InstanceId>,
    /// Packets forwarded in this batch.
    sent: SentOn,
    /// True if the current packet is to be reflected as it is now.
    reflects: bool,
}

/// Queue of deferred work. It never grows beyond its initial capacity.
#[derive(Default)]
struct Put(Vec<Later>);

impl Put {
    #[inline]
    fn push(&mut self, later: Later) {
        if self.0.len() < self.0.capacity() {
            self.0.push(later);
        }
    }

    /// Returns true if there is room for a copy. The rest is reserved: two events, a hold and the
    /// packet itself per packet. Rules may ask for any number of copies.
    fn has_room_for_copies(&self) -> bool {
        self.0.len() < LATER - 4 * BATCH
    }

    fn iter(&self) -> impl Iterator<Item = &Later> {
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
struct SentOn([[u64; 2]; 2]);

impl SentOn {
    #[inline]
    fn count(&mut self, direction: Direction, octets: u64) {
        let [packets, sum] = &mut self.0[direction as usize];
        (*packets, *sum) = (*packets + 1, *sum + octets);
    }

    #[inline]
    fn publish(&mut self, tables: &Tables) {
        for (direction, [packets, octets]) in
            [Direction::Up, Direction::Down].into_iter().zip(self.0)
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
struct World<'t> {
    tables: &'t Tables,
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
    Upf::new(&settings, ports, Tables::of(lane)?, routes, |name| lane.require_port(name))
}

impl<R: Routes> Upf<R> {
    /// Creates the user plane of a lane with `ports` ports; `port` finds a port by name.
    ///
    /// # Errors
    /// Errors of `port`, and invalid settings.
    pub fn new(
        settings: &Settings,
        ports: usize,
        tables: Tables,
        routes: R,
        port: impl Fn(&str) -> Result<PortId, Error>,
    ) -> Result<Self, Error> {
        let wrong = |what: String| Error::Value { path: "app".to_owned(), what, meant: None };
        let mut sides = Sides::new(settings, ports, &port)?;
        if let Some(name) = &settings.hairpin {
            sides.set_hairpin(port(name)?);
        }
        let speakers = [sides.speaker(false), sides.speaker(true)];
        let mut instances: Vec<InstanceId> = sides
            .interfaces
            .iter()
            .filter(|interface| interface.role == Role::N6)
            .map(|interface| interface.instance)
            .collect();
        instances.dedup();
        let gtp = &settings.gtp;
        let sessions = settings.sessions as usize;
        let parts = Parts {
            routes,
            sides,
            shape: TeidShape::of(sessions),
            pools: Pools::new(settings).map_err(wrong)?,
            ways: Ways::new(),
            fragments: Fragments::new(),
            held: Held::new(sessions),
            fresh: Vec::with_capacity(1024),
            burst: 0,
            held_packets: 0,
            later: Put(Vec::with_capacity(LATER)),
            spare: Put(Vec::with_capacity(LATER)),
            errors: Limit::new(gtp.errors_per_s),
            echoes: Limit::new(gtp.echoes_per_s),
            icmp: Limit::new(gtp.icmp_per_s),
            redirects: Limit::new(REDIRECTS),
            reports: Limit::new(REPORTS),
            quiet_until: fastlane::now().saturating_add(gtp.quiet_s.saturating_mul(1_000_000_000)),
            speakers,
            only_instance: instances.first().copied().filter(|_| instances.len() == 1),
            instances,
            sent: SentOn::default(),
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
            let world = World { tables, turn, now: turn.now() };
            let mut found = batch.find(tables, turn);
            parts.judge(batch, &mut found, packets, world);
            parts.leave(batch, &found, packets, world);
            if !parts.later.is_empty() {
                parts.catch_up(tables, batch, packets, turn);
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
        self.parts.say_held(&self.tables, turn);
    }

    fn shard(&mut self, packet: &Packet, turn: &Turn) -> u8 {
        // A packet without a session may be counted or answered on any lane.
        self.session(packet, turn).map_or(0, |session| session.0 as u8)
    }

    fn turn(&mut self, turn: &mut Turn) {
        let Self { tables, parts, .. } = self;
        parts.listen(tables, turn);
        parts.fresh.clear();
        if !parts.held.is_empty() {
            parts.look_at_held(tables, turn);
        }
        parts.say_held(tables, turn);
    }
}

impl<R: Routes> Upf<R> {
    /// Returns the session of a packet.
    fn session(&self, packet: &Packet, turn: &Turn) -> Option<SessionId> {
        let side = self.parts.sides.of(packet.port())?;
        let frame = packet.bytes();
        match outer::read(frame, side, None) {
            Arrival::Data(tunnel) | Arrival::Control(tunnel) => {
                let found = self.tables.by_tunnel(turn, self.parts.shape, tunnel.teid);
                found.map(|(session, _)| session)
            }
            Arrival::Plain { is_v6 } => {
                let to = To::of(frame, is_v6)?;
                let instance = self.parts.instance_of(packet, side.is_hairpin, side.plain());
                self.tables.owner(turn, &to.key(instance), to)
            }
            Arrival::Linux | Arrival::Drop(_) => None,
        }
    }
}

impl<R: Routes> Parts<R> {
    /// Publishes the number of held packets, including those labelled just now.
    #[inline]
    fn say_held(&mut self, tables: &Tables, turn: &Turn) {
        let now = turn.held_packets() + self.fresh.len();
        if now != self.held_packets {
            self.held_packets = now;
            tables.holds(now as u64);
        }
    }

    /// Checks some of the sessions that have held packets.
    #[cold]
    fn look_at_held(&mut self, tables: &Tables, turn: &mut Turn) {
        let now = turn.now();
        turn.keep_awake(); // rules may change and hold times may expire
        let mut told: [Option<(fastlane::HoldKey, Look)>; 16] = [None; 16];
        let mut count = 0;
        let view = &*turn;
        self.held.look(
            |held| held.look(tables.rules(view, held.session), now),
            |key, look| {
                if let Some(place) = told.get_mut(count) {
                    *place = Some((key, look));
                    count += 1;
                }
            },
        );
        for (key, look) in told.into_iter().flatten() {
            end_hold(tables, key, look, turn);
        }
    }
}

/// Resumes or discards the held packets of a session.
#[cold]
fn end_hold(tables: &Tables, key: fastlane::HoldKey, look: Look, turn: &mut Turn) {
    match look {
        Look::Resume => {
            turn.resume(key);
        }
        Look::Discard => {
            let discarded = turn.discard(key);
            tables.count(Cause::HoldDiscarded, discarded as u64, 0);
        }
        Look::Hold => {}
    }
}
