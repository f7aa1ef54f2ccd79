//! The application on the lanes.
//!
//! A burst goes through in steps, so that what each packet needs from memory is there when it is
//! looked at: [`arrive`] reads frames ([`outer`]), [`batch`] finds sessions and asks for their
//! rules and state, [`judge`] applies the rules ([`decide`]), [`forward`] sends packets on
//! ([`encapsulate`], [`route`]), [`leave`] looks up the ways of those that go to the data network,
//! [`later`] does what is rare, [`web`] answers clients that are redirected. What leaves is charged
//! when nothing can keep it here any more ([`charge`]). [`control`] are the messages of GTP-U that
//! carry no user data.

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

/// Messages to the slow half about paths and neighbours, in a second.
const REPORTS: u32 = 1000;
/// Answers to clients of the web that are redirected, in a second.
const REDIRECTS: u32 = 10_000;
/// The most that is put off in a batch: of each packet two events, what is held, itself, copies.
const LATER: usize = 8 * BATCH;

/// A lane's user plane; one for each lane.
pub struct Upf<R = Mirror> {
    tables: Tables,
    parts: Parts<R>,
    batch: Box<Batch>,
}

/// What packets are judged by, besides tables.
struct Parts<R> {
    routes: R,
    sides: Sides,
    shape: TeidShape,
    pools: Pools,
    ways: Ways,
    fragments: Fragments,
    held: Held,
    /// Sessions of packets of the burst at hand that are to be held: the lane does not count them
    /// yet.
    fresh: Vec<u32>,
    /// The number of that burst.
    burst: u64,
    /// How many packets the lane has said that it holds.
    held_packets: usize,
    later: Put,
    /// Room for what is put off while that is done.
    spare: Put,
    errors: Limit,
    echoes: Limit,
    icmp: Limit,
    redirects: Limit,
    reports: Limit,
    /// No error indications before: nanoseconds of `CLOCK_MONOTONIC`.
    quiet_until: u64,
    /// Where errors about users' packets come from: IPv4, IPv6.
    speakers: [Option<IpAddr>; 2],
    /// The network instance of N6, if there is but one.
    only_instance: Option<InstanceId>,
    /// The network instances of N6.
    instances: Vec<InstanceId>,
    /// What was sent in this batch.
    sent: SentOn,
    /// Whether the packet at hand goes back as it is now.
    reflects: bool,
}

/// What was put off; never more than was allocated.
#[derive(Default)]
struct Put(Vec<Later>);

impl Put {
    #[inline]
    fn push(&mut self, later: Later) {
        if self.0.len() < self.0.capacity() {
            self.0.push(later);
        }
    }

    /// Whether there is room besides what packets may need: of each two events, what is held,
    /// itself. Of copies rules may ask for any number.
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

/// Packets and octets, by direction.
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

/// What is there while packets are judged.
#[derive(Clone, Copy)]
struct World<'t> {
    tables: &'t Tables,
    turn: &'t Turn,
    now: u64,
}

/// The user plane of a lane, as it is configured.
///
/// # Errors
/// When the settings are wrong, name a port that is not there, or a table or the mirror is missing.
pub fn upf(lane: &LaneInfo<'_>) -> Result<Upf, Error> {
    let settings: Settings = lane.settings()?;
    let ports = lane.port_names().count();
    let routes = lane.mirror()?;
    Upf::new(&settings, ports, Tables::of(lane)?, routes, |name| lane.require_port(name))
}

impl<R: Routes> Upf<R> {
    /// The user plane of a lane with so many ports; `port` finds them by name.
    ///
    /// # Errors
    /// What `port` says; what of the settings cannot be.
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

    /// Takes packets that came by one port.
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
        // Most often they come by one port; from another lane they may come by several.
        for packets in packets.chunk_by_mut(|one, other| one.port() == other.port()) {
            for packets in packets.chunks_mut(BATCH) {
                self.batch(packets, turn);
            }
        }
        self.parts.say_held(&self.tables, turn);
    }

    fn shard(&mut self, packet: &Packet, turn: &Turn) -> u8 {
        // Without a session it is counted, or answered, wherever it is.
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
    /// Whose a packet is.
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
    /// Says how many packets are held, those included that were labelled just now.
    #[inline]
    fn say_held(&mut self, tables: &Tables, turn: &Turn) {
        let now = turn.held_packets() + self.fresh.len();
        if now != self.held_packets {
            self.held_packets = now;
            tables.holds(now as u64);
        }
    }

    /// Looks at some of the sessions for which packets are held.
    #[cold]
    fn look_at_held(&mut self, tables: &Tables, turn: &mut Turn) {
        let now = turn.now();
        turn.keep_awake(); // their rules may change, their time may run out
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

/// Shows what is held again, or gives it up.
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
