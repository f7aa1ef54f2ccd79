//! What becomes of each packet of a batch. Whatever needs more than the packet itself (new packets,
//! messages) is put off until all of them are labelled: see [`later`](super::later).

use fastlane::table::EntryId;
use fastlane::wire::{Fragment, PduSession};
use fastlane::{HoldKey, Packet, PortId, Turn, Verdict};

use super::batch::{Batch, Plain, Task};
use super::control::peer_of;
use super::decide::{self, Charge, Fate, Path};
use super::encapsulate::{self, Container, Outer};
use super::held::HeldSession;
use super::icmp::Trouble;
use super::inner::{self, Inner};
use super::later::{Later, Out};
use super::route;
use super::tables::{Tables, To};
use super::ways::{Exit, Routes};
use super::{Parts, World};
use crate::model::{Destination, SessionId};
use crate::settings::Role;
use crate::shared::cause::Cause;
use crate::shared::rules::{Direction, Outer as Put, Rules};
use crate::shared::state::{EVENTS, event};

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It leaves, as it is now.
    Leaves(PortId, Cause),
    /// Its way is looked up with those of others.
    Waits,
    /// It is labelled later.
    Later,
    /// It is kept.
    Held(HoldKey),
    /// It is dropped.
    Drop(Cause),
    /// Linux gets it: it is nothing of ours.
    Linux,
    /// Linux gets a user's packet: it finds the neighbour out.
    ToLinux,
}

/// A packet that is being judged.
pub(crate) struct Case<'a> {
    /// Which task, and its number.
    pub(crate) task: &'a Task,
    pub(crate) number: u8,
    pub(crate) inner: &'a Inner,
    pub(crate) session: SessionId,
    /// What is charged when it leaves.
    pub(crate) charge: Charge,
}

impl<R: Routes> Parts<R> {
    /// Judges all packets of a batch.
    pub(super) fn judge(&mut self, batch: &mut Batch, packets: &mut [Packet], world: World<'_>) {
        for number in 0..batch.count {
            let task = batch.tasks[number];
            let Some(packet) = packets.get_mut(usize::from(task.place)) else { continue };
            let octets = packet.len() as u64;
            let outcome = self.outcome(number as u8, &task, packet, batch, world);
            self.settle(world.tables, packet, outcome, octets);
        }
    }

    /// Labels a packet and counts it.
    #[inline]
    pub(super) fn settle(
        &mut self,
        tables: &Tables,
        packet: &mut Packet,
        outcome: Outcome,
        octets: u64,
    ) {
        let (verdict, cause) = match outcome {
            Outcome::Leaves(port, cause) => (Verdict::Forward(port), cause),
            Outcome::Held(key) => (Verdict::Hold(key), Cause::Held),
            Outcome::Drop(cause) => (Verdict::Drop, cause),
            Outcome::Linux => (Verdict::Kernel, Cause::NotOurs),
            Outcome::ToLinux => (Verdict::Kernel, Cause::ForwardedByLinux),
            // A label that is safe, should nobody come back to it.
            Outcome::Waits | Outcome::Later => return packet.set_verdict(Verdict::Drop),
        };
        packet.set_verdict(verdict);
        match cause {
            Cause::ForwardedUplink => self.sent.count(Direction::Up, octets),
            Cause::ForwardedDownlink => self.sent.count(Direction::Down, octets),
            cause => tables.count(cause, 1, octets),
        }
    }

    #[inline]
    fn outcome(
        &mut self,
        number: u8,
        task: &Task,
        packet: &mut Packet,
        batch: &mut Batch,
        world: World<'_>,
    ) -> Outcome {
        let World { tables, turn, now } = world;
        let bytes = task.inner(packet.bytes());
        let mut read = inner::read(bytes);
        let found = match &task.tunnel {
            Some(tunnel) => {
                let found = tables.by_tunnel(turn, self.shape, tunnel.message.teid);
                if found.is_none() {
                    self.later.push(Later::ErrorIndication { task: number });
                    return Outcome::Later;
                }
                if tunnel.message.not_understood.is_some() {
                    self.later.push(Later::Notification { task: number });
                    return Outcome::Later;
                }
                found
            }
            None => match self.by_address(task, read.as_ref(), world) {
                Ok(session) => tables.rules(turn, session).map(|rules| (session, rules)),
                Err(outcome) => return outcome,
            },
        };
        let Some((session, rules)) = found else { return Outcome::Drop(Cause::UnknownUser) };
        let Some(inner) = &mut read else { return Outcome::Drop(Cause::Malformed) };
        let Some(qfi) = self.flow_of(task) else { return Outcome::Drop(Cause::Malformed) };
        if inner.fragment != Fragment::None && rules.has_blocks() {
            self.fragments.complete(session.0, inner, now);
        }
        let teid = task.tunnel.map(|tunnel| tunnel.message.teid);
        let subject = inner.subject(teid, task.instance, qfi);
        let blocks = tables.blocks(turn);
        let decision = decide::decide(rules, &blocks, &subject, session, &tables.state, now);
        let case = Case { task, number, inner, session, charge: decision.charge };
        if decision.events != 0 {
            self.raise(task, inner.tos >> 2, session, rules, &decision, world);
        }
        if !self.held.is_empty() {
            self.resume_before(&case, rules);
        }
        match decision.fate {
            Fate::Forward(path) => {
                if inner.time_to_live <= 1 && !task.is_hairpin && takes_hop(task, &path) {
                    return self.trouble(&case, Trouble::TimeExceeded);
                }
                let direction = decision.direction;
                let outcome = self.forward(&case, &path, direction, packet, batch, world);
                if !decision.copies.is_empty() && !matches!(outcome, Outcome::Drop(_)) {
                    self.copy_later(&case, &decision, world);
                }
                outcome
            }
            Fate::Drop(cause) => Outcome::Drop(cause),
            Fate::Hold(hold) => self.hold(&case, rules, hold, world),
        }
    }

    /// Whose a packet is that came through no tunnel, or what becomes of it.
    fn by_address(
        &self,
        task: &Task,
        inner: Option<&Inner>,
        world: World<'_>,
    ) -> Result<SessionId, Outcome> {
        if let Some(session) = task.session {
            return Ok(session);
        }
        let Some(to) = inner.map(Inner::to) else { return Err(Outcome::Linux) };
        if let Some(session) = world.tables.behind(world.turn, task.instance, to) {
            return Ok(session);
        }
        // To Linux it would be to nowhere, and draw an answer.
        match task.is_hairpin || self.pools.has(task.instance, to) {
            true => Err(Outcome::Drop(Cause::UnknownUser)),
            false => Err(Outcome::Linux),
        }
    }

    /// The QoS flow that a packet's container names; `None` when it is one of the other direction.
    #[inline]
    pub(super) fn flow_of(&self, task: &Task) -> Option<Option<u8>> {
        let Some(tunnel) = &task.tunnel else { return Some(None) };
        let Some(container) = tunnel.message.pdu_session else { return Some(None) };
        let interface = self.sides.interfaces.get(usize::from(tunnel.interface));
        let is_n3 = interface.is_some_and(|interface| interface.role == Role::N3);
        (!is_n3 || container.pdu_type == PduSession::UPLINK).then_some(Some(container.qfi))
    }

    /// What is held for a session goes before this packet, or is given up, if its rules are others
    /// now.
    #[cold]
    fn resume_before(&mut self, case: &Case<'_>, rules: &Rules) {
        let Some(held) = self.held.get(case.session) else { return };
        if held.version != rules.version() {
            let look = held.look(Some(rules), u64::MAX);
            // What was labelled just now is not held yet: it is looked at in the next turn.
            if !self.fresh.contains(&case.session.0) {
                self.held.remove(case.session);
            }
            self.later.push(Later::EndHold(case.session, look));
        }
    }

    /// Keeps a packet, if there is room.
    #[cold]
    pub(super) fn hold(
        &mut self,
        case: &Case<'_>,
        rules: &Rules,
        hold: decide::Hold,
        world: World<'_>,
    ) -> Outcome {
        let (session, now) = (case.session, world.now);
        let Some(key) = HoldKey::new(session.0) else { return Outcome::Drop(Cause::HoldLimit) };
        let fresh = self.fresh.iter().filter(|held| **held == session.0).count();
        let most = usize::from(hold.packets);
        let mut until = now.saturating_add(u64::from(hold.ms) * 1_000_000);
        if let Some(before) = self.held.get(session) {
            until = before.until; // from the first packet on
        }
        let held = HeldSession { session, version: rules.version(), since: now, until };
        let is_full =
            world.turn.held(key) + fresh >= most || self.fresh.len() == self.fresh.capacity();
        if is_full || until <= now || !self.held.add(held) {
            overflow(world.tables, session, rules);
            return Outcome::Drop(Cause::HoldLimit);
        }
        self.fresh.push(session.0);
        Outcome::Held(key)
    }

    /// Tells the sender, later, what is wrong.
    #[cold]
    pub(super) fn trouble(&mut self, case: &Case<'_>, trouble: Trouble) -> Outcome {
        self.later.push(Later::Trouble { task: case.number, session: case.session, trouble });
        Outcome::Later
    }

    /// Sends a packet on.
    #[inline]
    pub(super) fn forward(
        &mut self,
        case: &Case<'_>,
        path: &Path<'_>,
        direction: Direction,
        packet: &mut Packet,
        batch: &mut Batch,
        world: World<'_>,
    ) -> Outcome {
        if path.redirect.is_some() {
            return Outcome::Drop(Cause::Redirected);
        }
        let task = case.task;
        if let Some(tunnel) = &task.tunnel
            && tunnel.ecn == 3
            && !(is_relayed(task, path) || route::note_congestion(inner_mut(packet, task)))
        {
            return Outcome::Drop(Cause::Congested);
        }
        let Some(put) = path.outer() else { return self.put_aside(case, path, batch) };
        let outer = match self.outer(case.inner.tos, path, put, direction, world.turn) {
            Ok(outer) => outer,
            Err(cause) => return self.no_way(path, cause),
        };
        self.put_into_tunnel(case, path, &outer, packet, direction, world)
    }

    /// The outer header that a packet gets, and its way.
    #[inline]
    pub(super) fn outer(
        &mut self,
        tos: u8,
        path: &Path<'_>,
        put: Put,
        direction: Direction,
        turn: &Turn,
    ) -> Result<(Exit, Outer), Cause> {
        let Put::Gtpu(_, teid) = put else { return Err(Cause::NoRoute) };
        let to = peer_of(put);
        let way = path.way;
        let instance = match way.destination() {
            Destination::Control => None,
            _ => way.instance(),
        };
        let exit = self.ways.to(&self.routes, &self.sides, turn, instance, to)?;
        let container = match (way.qfi(), direction) {
            (None, _) => Container::NONE,
            (Some(qfi), Direction::Down) => {
                Container::downlink(qfi, way.is_reflective(), way.paging_policy())
            }
            (Some(qfi), Direction::Up) => Container::uplink(qfi),
        };
        let tos = way.marked(tos);
        Ok((exit, Outer { ends: exit.ends, tos, teid, container }))
    }

    #[inline]
    fn put_into_tunnel(
        &mut self,
        case: &Case<'_>,
        path: &Path<'_>,
        (exit, outer): &(Exit, Outer),
        packet: &mut Packet,
        direction: Direction,
        world: World<'_>,
    ) -> Outcome {
        let (task, inner) = (case.task, case.inner);
        let is_relayed = is_relayed(task, path);
        let (at, length) = match &task.tunnel {
            Some(tunnel) if is_relayed => (usize::from(tunnel.gtp), tunnel.message.end as usize),
            _ => (usize::from(task.at), inner.length as usize),
        };
        let front = match is_relayed {
            true => outer.ends.ip_length() + fastlane::wire::Udp::LENGTH,
            false => outer.length(),
        };
        if front + length > exit.hop.mtu as usize {
            let overhead = (front + length) as u32 - inner.length;
            let room = exit.hop.mtu.saturating_sub(overhead);
            if !inner.dont_fragment && !is_relayed {
                return self.cut_up(case, Out::Tunnel(*exit, *outer), room);
            }
            return self.trouble(case, Trouble::TooLong(room));
        }
        if !encapsulate::has_room(packet, at, length, front) {
            return Outcome::Drop(Cause::NoFrame);
        }
        if let Err(outcome) = self.charge(task, case.session, &case.charge, packet, world) {
            return outcome;
        }
        if takes_hop(task, path) && !task.is_hairpin {
            route::take_hop(inner_mut(packet, task));
        }
        let fits = match is_relayed {
            true => encapsulate::relay(packet, at, length, outer, &exit.hop),
            false => encapsulate::encapsulate(packet, at, length, outer, &exit.hop),
        };
        match fits {
            true => Outcome::Leaves(exit.hop.port, sent(direction)),
            false => Outcome::Drop(Cause::NoFrame),
        }
    }

    /// Sends a packet on without a tunnel: to another user, or by a way that is looked up with
    /// those of others.
    #[inline]
    fn put_aside(&mut self, case: &Case<'_>, path: &Path<'_>, batch: &mut Batch) -> Outcome {
        let (way, inner) = (path.way, case.inner);
        if !matches!(way.destination(), Destination::Core | Destination::SgiLan) {
            return Outcome::Drop(Cause::NoRoute);
        }
        let to = inner.to();
        if let Some(instance) = way.instance().or(self.only_instance)
            && self.pools.has(instance, to)
        {
            let (task, session, charge) = (case.number, case.session, case.charge);
            self.later.push(Later::ToUser { task, instance, session, charge });
            return Outcome::Later;
        }
        let plain = Plain {
            task: case.number,
            session: case.session,
            charge: case.charge,
            instance: way.instance(),
            marking: way.marking,
            mask: way.mask,
            length: inner.length,
        };
        let flow = inner.flow_hash();
        match to {
            To::Four(to) => batch.four.push(plain, to, flow),
            To::Six(to) => batch.six.push(plain, to, flow),
        }
        Outcome::Waits
    }

    /// A packet for a tunnel whose far end cannot be reached now.
    #[cold]
    fn no_way(&mut self, path: &Path<'_>, cause: Cause) -> Outcome {
        if let Some(put) = path.outer().filter(|_| cause == Cause::NoNeighbour) {
            self.later.push(Later::Resolve(peer_of(put)));
        }
        Outcome::Drop(cause)
    }
}

/// The cause under which what is sent on is counted.
pub(crate) const fn sent(direction: Direction) -> Cause {
    match direction {
        Direction::Up => Cause::ForwardedUplink,
        Direction::Down => Cause::ForwardedDownlink,
    }
}

/// Whether a message of GTP-U goes on as it is, with its extension headers: between tunnels, unless
/// the rules say that its container goes, or give it another.
#[inline]
pub(crate) fn is_relayed(task: &Task, path: &Path<'_>) -> bool {
    let way = path.way;
    task.tunnel.is_some()
        && matches!(path.outer(), Some(Put::Gtpu(..)))
        && way.qfi().is_none()
        && !way.removes_extension()
}

/// Whether a packet is routed as IP here: it comes through a tunnel and leaves without one, or the
/// other way round. Between tunnels it is not touched (TS 23.501 clause 5.6.4: the user's IP link
/// ends at the anchor).
#[inline]
pub(crate) fn takes_hop(task: &Task, path: &Path<'_>) -> bool {
    task.tunnel.is_some() != path.outer().is_some()
}

/// The inner packet, to be changed.
#[inline]
pub(crate) fn inner_mut<'a>(packet: &'a mut Packet, task: &Task) -> &'a mut [u8] {
    let range = usize::from(task.at)..task.end as usize;
    packet.bytes_mut().get_mut(range).unwrap_or_default()
}

/// More was held than may be: that is an event, once for each version of the rules.
#[cold]
fn overflow(tables: &Tables, session: SessionId, rules: &Rules) {
    let words = tables.state.at(EntryId(session.0));
    let (word, version) = (words.get(EVENTS), u64::from(rules.version()));
    let before = if word >> 32 == version { word & event::ALL } else { 0 };
    if before & event::OVERFLOW == 0 {
        let new = before | event::OVERFLOW | word & event::MARKER;
        words.publish(EVENTS, version << 32 | new);
        tables.events.raise(EntryId(session.0));
    }
}
