//! What becomes of each packet of a batch. Whatever needs more than the packet itself (new packets,
//! messages) is put off until all of them are labelled: see [`later`](super::later).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::table::EntryId;
use fastlane::wire::{Fragment, PduSession};
use fastlane::{HoldKey, Packet, PortId, Turn, Verdict};

use super::batch::{Batch, Found, Leaving, Plain, Task};
use super::control::peer_of;
use super::decide::{self, Charge, Decision, Fate, Passing, Path};
use super::encapsulate::{self, Container, Exit, Outer};
use super::held::HeldSession;
use super::icmp::Trouble;
use super::inner::{self, Inner};
use super::later::{Later, Out};
use super::route;
use super::tables::{Tables, To};
use super::ways::Routes;
use super::{Parts, World};
use crate::model::{Destination, InstanceId, SessionId};
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
#[derive(Clone, Copy)]
pub(crate) struct Case<'a> {
    /// Which task, and its number.
    pub(crate) task: &'a Task,
    pub(crate) number: u8,
    /// Its session, and what that says of it.
    pub(crate) session: SessionId,
    pub(crate) rules: &'a Rules,
    pub(crate) direction: Direction,
    /// What is charged when it leaves.
    pub(crate) charge: Charge,
}

impl<R: Routes> Parts<R> {
    /// Judges all packets of a batch.
    pub(super) fn judge<'t>(
        &mut self,
        batch: &mut Batch,
        found: &mut Found<'t>,
        packets: &mut [Packet],
        world: World<'t>,
    ) {
        let Batch { count, tasks, four, six, .. } = batch;
        for (number, (task, rules)) in tasks.iter_mut().zip(found).take(*count).enumerate() {
            let Some(packet) = packets.get_mut(usize::from(task.place)) else { continue };
            let octets = packet.len() as u64;
            let number = number as u8;
            let outcome = self.outcome(number, task, rules, packet, (four, six), world);
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

    #[inline(always)]
    fn outcome<'t>(
        &mut self,
        number: u8,
        task: &mut Task,
        found: &mut Option<&'t Rules>,
        packet: &mut Packet,
        leaving: (&mut Leaving<Ipv4Addr>, &mut Leaving<Ipv6Addr>),
        world: World<'t>,
    ) -> Outcome {
        if let Err(outcome) = self.whose(number, task, found, packet, world) {
            return outcome;
        }
        let task = &*task;
        let (Some(session), Some(rules)) = (task.session, *found) else {
            return Outcome::Drop(Cause::UnknownUser);
        };
        let Some(inner) = inner::read(task.inner(packet.bytes())) else {
            return Outcome::Drop(Cause::Malformed);
        };
        let Some(qfi) = self.flow_of(task) else { return Outcome::Drop(Cause::Malformed) };
        let teid = task.tunnel.map(|tunnel| tunnel.teid);
        let subject = inner.subject(teid, task.instance, qfi);
        if let Some(Passing { path, direction, charge }) = decide::decide_at_once(rules, &subject)
            && self.held.is_empty()
            && inner.time_to_live > 1
        {
            let case = Case { task, number, session, rules, direction, charge };
            return self.forward(case, &inner, &path, packet, leaving, world);
        }
        self.judge_closely(number, task, (session, rules), qfi, packet, leaving, world)
    }

    /// What becomes of a packet that is not one of most.
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "what is known of the packet by now")]
    fn judge_closely(
        &mut self,
        number: u8,
        task: &Task,
        (session, rules): (SessionId, &Rules),
        qfi: Option<u8>,
        packet: &mut Packet,
        leaving: (&mut Leaving<Ipv4Addr>, &mut Leaving<Ipv6Addr>),
        world: World<'_>,
    ) -> Outcome {
        let World { tables, turn, now } = world;
        let Some(mut inner) = inner::read(task.inner(packet.bytes())) else {
            return Outcome::Drop(Cause::Malformed);
        };
        if inner.fragment != Fragment::None && rules.has_blocks() {
            self.fragments.complete(session.0, &mut inner, now);
        }
        let teid = task.tunnel.map(|tunnel| tunnel.teid);
        let subject = inner.subject(teid, task.instance, qfi);
        let blocks = tables.blocks(turn);
        let decision = decide::decide(rules, &blocks, &subject, session, &tables.state, now);
        let Decision { direction, charge, .. } = decision;
        if decision.events != 0 {
            self.later.raise(task, inner.tos >> 2, session, rules, &decision.into(), world);
        }
        if !self.held.is_empty() {
            self.resume_before(session, rules);
        }
        let path = match decision.fate {
            Fate::Forward(path) => path,
            Fate::Drop(cause) => return Outcome::Drop(cause),
            Fate::Hold(hold) => return self.hold(session, rules, hold, world),
        };
        let case = Case { task, number, session, rules, direction, charge };
        if inner.time_to_live <= 1 && !task.is_hairpin && takes_hop(task, &path) {
            return self.trouble(case, Trouble::TimeExceeded, world);
        }
        let outcome = self.forward(case, &inner, &path, packet, leaving, world);
        if !decision.copies.is_empty() && !matches!(outcome, Outcome::Drop(_)) {
            self.copy_later(number, (inner.tos, inner.length), &decision, world);
        }
        outcome
    }

    /// Finds whose a packet is, if that is not known yet.
    ///
    /// # Errors
    /// What becomes of a packet that is nobody's.
    #[inline(always)]
    fn whose<'t>(
        &mut self,
        number: u8,
        task: &mut Task,
        found: &mut Option<&'t Rules>,
        packet: &Packet,
        world: World<'t>,
    ) -> Result<(), Outcome> {
        let World { tables, turn, .. } = world;
        match &task.tunnel {
            Some(tunnel) => {
                let blocks = tables.blocks(turn);
                let is_its = |rules: &Rules| decide::has_tunnel(rules, &blocks, tunnel.teid);
                if !found.is_some_and(is_its) {
                    let by = tables.by_other_tunnel(turn, tunnel.teid);
                    (task.session, *found) = by.unzip();
                }
                if found.is_none() {
                    self.later.push(Later::ErrorIndication { task: number });
                    return Err(Outcome::Later);
                }
                if !tunnel.is_understood {
                    self.later.push(Later::Notification { task: number });
                    return Err(Outcome::Later);
                }
            }
            None if task.session.is_none() => {
                let session = self.by_address(task, packet, world)?;
                (task.session, *found) = (Some(session), tables.rules(turn, session));
            }
            None => {}
        }
        Ok(())
    }

    /// Whose a packet is that came through no tunnel to nobody's address, or what becomes of it.
    #[inline(never)]
    fn by_address(
        &self,
        task: &Task,
        packet: &Packet,
        world: World<'_>,
    ) -> Result<SessionId, Outcome> {
        let inner = inner::read(task.inner(packet.bytes()));
        let Some(to) = inner.as_ref().map(Inner::to) else { return Err(Outcome::Linux) };
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
        let Some(container) = tunnel.pdu_session else { return Some(None) };
        let interface = self.sides.interfaces.get(usize::from(tunnel.interface));
        let is_n3 = interface.is_some_and(|interface| interface.role == Role::N3);
        (!is_n3 || container.pdu_type == PduSession::UPLINK).then_some(Some(container.qfi))
    }

    /// What is held for a session goes before this packet, or is given up, if its rules are others
    /// now.
    #[cold]
    fn resume_before(&mut self, session: SessionId, rules: &Rules) {
        let Some(held) = self.held.get(session) else { return };
        if held.version != rules.version() {
            let look = held.look(Some(rules), u64::MAX);
            // What was labelled just now is not held yet: it is looked at in the next turn.
            if !self.fresh.contains(&session.0) {
                self.held.remove(session);
            }
            self.later.push(Later::EndHold(session, look));
        }
    }

    /// Keeps a packet, if there is room.
    #[cold]
    pub(super) fn hold(
        &mut self,
        session: SessionId,
        rules: &Rules,
        hold: decide::Hold,
        world: World<'_>,
    ) -> Outcome {
        let now = world.now;
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

    /// Tells the sender, later, what is wrong with a packet that would leave otherwise.
    #[cold]
    pub(super) fn trouble(
        &mut self,
        case: Case<'_>,
        trouble: Trouble,
        world: World<'_>,
    ) -> Outcome {
        let Case { task, number, session, charge, .. } = case;
        if let Err(outcome) = self.may_pass(task, session, charge, world) {
            return outcome;
        }
        self.later.push(Later::Trouble { task: number, session, trouble });
        Outcome::Later
    }

    /// Sends a packet on.
    #[inline(always)]
    fn forward(
        &mut self,
        case: Case<'_>,
        inner: &Inner,
        path: &Path<'_>,
        packet: &mut Packet,
        (four, six): (&mut Leaving<Ipv4Addr>, &mut Leaving<Ipv6Addr>),
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
        match path.outer() {
            Some(put) => self.put_into_tunnel(case, inner, path, put, packet, world),
            None => self.put_aside(case, inner, path, four, six),
        }
    }

    /// The outer header that a packet gets, and its way.
    #[cold]
    pub(super) fn outer(
        &mut self,
        tos: u8,
        path: &Path<'_>,
        put: Put,
        direction: Direction,
        turn: &Turn,
    ) -> Result<(Exit, Outer), Cause> {
        let Put::Gtpu(_, teid) = put else { return Err(Cause::NoRoute) };
        let (to, instance) = (peer_of(put), instance_of(path));
        let exit = self.ways.to(&self.routes, &self.sides, turn, instance, to)?;
        Ok((*exit, outer(tos, path, teid, direction)))
    }

    /// Puts an outer header on, and sends it on to its far end.
    #[inline(always)]
    fn put_into_tunnel(
        &mut self,
        case: Case<'_>,
        inner: &Inner,
        path: &Path<'_>,
        put: Put,
        packet: &mut Packet,
        world: World<'_>,
    ) -> Outcome {
        let Case { task, session, rules, direction, charge, .. } = case;
        let Put::Gtpu(_, teid) = put else { return Outcome::Drop(Cause::NoRoute) };
        let (to, instance) = (peer_of(put), instance_of(path));
        let exit = match self.ways.to(&self.routes, &self.sides, world.turn, instance, to) {
            Ok(exit) => exit,
            Err(cause) => return self.no_way(to, cause),
        };
        let outer = outer(inner.tos, path, teid, direction);
        let is_relayed = is_relayed(task, path);
        let (at, length) = match &task.tunnel {
            Some(tunnel) if is_relayed => (usize::from(tunnel.gtp), tunnel.length()),
            _ => (usize::from(task.at), inner.length as usize),
        };
        let front = match is_relayed {
            true => exit.ends.ip_length() + fastlane::wire::Udp::LENGTH,
            false => outer.length(exit.ends),
        };
        if front + length > exit.hop.mtu as usize {
            let overhead = (front + length) as u32 - inner.length;
            let room = exit.hop.mtu.saturating_sub(overhead);
            if !inner.dont_fragment && !is_relayed {
                let out = Out::Tunnel(*exit, outer);
                return self.cut_up(case.number, (session, charge), out, room);
            }
            return self.trouble(case, Trouble::TooLong(room), world);
        }
        if !encapsulate::has_room(packet, at, length, front) {
            return Outcome::Drop(Cause::NoFrame);
        }
        if let Err(outcome) = self.later.charge(task, (session, rules), charge, world) {
            return outcome;
        }
        if takes_hop(task, path) && !task.is_hairpin {
            route::take_hop(inner_mut(packet, task));
        }
        let fits = match is_relayed {
            true => encapsulate::relay(packet, at, length, exit, &outer),
            false => encapsulate::encapsulate(packet, at, length, exit, &outer),
        };
        match fits {
            true => Outcome::Leaves(exit.hop.port, sent(direction)),
            false => Outcome::Drop(Cause::NoFrame),
        }
    }

    /// Sends a packet on without a tunnel: to another user, or by a way that is looked up with
    /// those of others.
    #[inline(always)]
    fn put_aside(
        &mut self,
        case: Case<'_>,
        inner: &Inner,
        path: &Path<'_>,
        four: &mut Leaving<Ipv4Addr>,
        six: &mut Leaving<Ipv6Addr>,
    ) -> Outcome {
        let (way, task) = (path.way, case.number);
        if !matches!(way.destination(), Destination::Core | Destination::SgiLan) {
            return Outcome::Drop(Cause::NoRoute);
        }
        let to = inner.to();
        let Case { session, charge, .. } = case;
        if let Some(instance) = way.instance().or(self.only_instance)
            && self.pools.has(instance, to)
        {
            self.later.push(Later::ToUser { task, instance, session, charge });
            return Outcome::Later;
        }
        let plain = Plain {
            task,
            session,
            charge,
            instance: way.instance(),
            marking: way.marking,
            mask: way.mask,
            length: inner.length,
        };
        let flow = inner.flow_hash();
        match to {
            To::Four(to) => four.push(plain, to, flow),
            To::Six(to) => six.push(plain, to, flow),
        }
        Outcome::Waits
    }

    /// A packet for a tunnel whose far end cannot be reached now.
    #[cold]
    fn no_way(&mut self, to: IpAddr, cause: Cause) -> Outcome {
        if cause == Cause::NoNeighbour {
            self.later.push(Later::Resolve(to));
        }
        Outcome::Drop(cause)
    }
}

/// What is put on a packet for a tunnel, besides what its way has for all.
#[inline(always)]
fn outer(tos: u8, path: &Path<'_>, teid: u32, direction: Direction) -> Outer {
    let way = path.way;
    let container = match (way.qfi(), direction) {
        (None, _) => Container::NONE,
        (Some(qfi), Direction::Down) => {
            Container::downlink(qfi, way.is_reflective(), way.paging_policy())
        }
        (Some(qfi), Direction::Up) => Container::uplink(qfi),
    };
    Outer { tos: way.marked(tos), teid, container }
}

/// The network instance that a tunnel's packets leave in, if one was named.
#[inline(always)]
fn instance_of(path: &Path<'_>) -> Option<InstanceId> {
    match path.way.destination() {
        Destination::Control => None,
        _ => path.way.instance(),
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
