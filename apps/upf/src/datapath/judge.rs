//! Applies the rules to each packet of a batch and labels it. Work that needs more than the packet
//! itself (new packets, messages) is deferred until all packets are labelled: see
//! [`later`](super::later).

use std::net::{Ipv4Addr, Ipv6Addr};

use fastlane::table::EntryId;
use fastlane::wire::{Fragment, PduSession};
use fastlane::{HoldKey, Packet, PortId, Verdict};

use super::batch::{Batch, Found, Leaving, Task};
use super::charge;
use super::decide::{self, Charge, Decision, Fate, Passing};
use super::forward::takes_hop;
use super::held::HeldSession;
use super::icmp::Trouble;
use super::inner::{self, Inner};
use super::later::Later;
use super::tables::Tables;
use super::ways::Routes;
use super::{Parts, World};
use crate::config::Role;
use crate::rules::layout::cause::Cause;
use crate::rules::layout::rules::{Direction, Rules};
use crate::rules::layout::state::{EVENTS, event};
use crate::session::SessionId;

/// Result of applying the rules to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Forward as it is now, counted under this reason.
    Leaves(PortId, Cause),
    /// Routed together with other packets of the batch.
    Waits,
    /// Labelled by deferred work.
    Later,
    /// Held until the lane resumes the key.
    Held(HoldKey),
    /// The packet is dropped.
    Drop(Cause),
    /// Not claimed: goes to Linux.
    Linux,
    /// A UE's packet that Linux forwards, because its neighbour is not resolved yet.
    ToLinux,
}

/// A classified packet and what its forwarding needs.
#[derive(Clone, Copy)]
pub(crate) struct Case<'a> {
    /// The packet and its index in the batch.
    pub(crate) task: &'a Task,
    pub(crate) number: u8,
    /// The session and its rules.
    pub(crate) session: SessionId,
    pub(crate) rules: &'a Rules,
    pub(crate) direction: Direction,
    /// Charge that is due when the packet leaves.
    pub(crate) charge: Charge,
}

impl<R: Routes> Parts<R> {
    /// Applies the rules to all packets of a batch.
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
            // A safe label in case the deferred work is lost.
            Outcome::Waits | Outcome::Later => return packet.set_verdict(Verdict::Drop),
        };
        packet.set_verdict(verdict);
        match cause {
            Cause::ForwardedUplink => self.sent.count(Direction::Up, octets),
            Cause::ForwardedDownlink => self.sent.count(Direction::Down, octets),
            cause => tables.count(cause, 1, octets),
        }
    }

    /// Applies the rules to a packet. Most packets finish here.
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

    /// Applies the rules to a packet that the short path does not handle.
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
        if path.redirects(direction, &subject) {
            return self.redirect(case, &inner, world);
        }
        let path = match path.redirect {
            // From the redirect server: forwarded as if there were no redirection.
            Some(_) if direction == Direction::Down => {
                match decide::own_path(rules, &blocks, &subject, session) {
                    Some(path) => path,
                    None => return Outcome::Drop(Cause::Redirected),
                }
            }
            _ => path,
        };
        if inner.time_to_live <= 1 && !task.is_hairpin && takes_hop(task, &path) {
            let (task, session, trouble) = (number, session, Trouble::TimeExceeded);
            self.later.push(Later::Trouble { task, session, trouble });
            return Outcome::Later;
        }
        let outcome = self.forward(case, &inner, &path, packet, leaving, world);
        if !decision.copies.is_empty() && !matches!(outcome, Outcome::Drop(_)) {
            if matches!(outcome, Outcome::Waits | Outcome::Later) {
                // Copies are taken from the end, so padding behind the inner packet has to go.
                let _ = packet.truncate(usize::from(task.at) + inner.length as usize);
            }
            self.copy_later(number, (inner.tos, inner.length), &decision, world);
        }
        outcome
    }

    /// Finds the session of a packet if it is not known yet.
    ///
    /// # Errors
    /// Returns the outcome of a packet without a session.
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
                    return Err(self.no_tunnel_for(number, packet, world));
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

    /// Handles a packet for an unknown tunnel. Packets beyond the rate limit are dropped at once.
    #[inline(never)]
    fn no_tunnel_for(&mut self, number: u8, packet: &Packet, world: World<'_>) -> Outcome {
        let World { tables, now, .. } = world;
        if now >= self.quiet_until && self.errors.has(now) {
            self.later.push(Later::ErrorIndication { task: number });
            return Outcome::Later;
        }
        tables.count(Cause::ErrorIndicationSuppressed, 1, packet.len() as u64);
        Outcome::Drop(Cause::UnknownTunnel)
    }

    /// Finds the session of an IP packet by the networks behind UEs, or returns the packet's
    /// outcome.
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
        // Linux has no route to it and would answer with ICMP errors.
        match task.is_hairpin || self.pools.has(task.instance, to) {
            true => Err(Outcome::Drop(Cause::UnknownUser)),
            false => Err(Outcome::Linux),
        }
    }

    /// Returns the QoS flow of the packet's PDU session container; `None` if the container is of
    /// the other direction.
    #[inline]
    pub(super) fn flow_of(&self, task: &Task) -> Option<Option<u8>> {
        let Some(tunnel) = &task.tunnel else { return Some(None) };
        let Some(container) = tunnel.pdu_session else { return Some(None) };
        let interface = self.sides.interfaces.get(usize::from(tunnel.interface));
        let is_n3 = interface.is_some_and(|interface| interface.role == Role::N3);
        (!is_n3 || container.pdu_type == PduSession::UPLINK).then_some(Some(container.qfi))
    }

    /// Resumes or discards the held packets of a session before this packet, if its rules have
    /// changed.
    #[cold]
    fn resume_before(&mut self, session: SessionId, rules: &Rules) {
        let Some(held) = self.held.get(session) else { return };
        if held.version != rules.version() {
            let look = held.look(Some(rules), u64::MAX);
            // Packets labelled just now are not held yet; the next turn resumes them.
            if !self.fresh.contains(&session.0) {
                self.held.remove(session);
            }
            self.later.push(Later::EndHold(session, look));
        }
    }

    /// Holds a packet if there is room.
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
            until = before.until; // the limit runs from the first held packet
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

    /// Defers an ICMP error for a packet that could leave otherwise.
    #[cold]
    pub(super) fn trouble(
        &mut self,
        case: Case<'_>,
        trouble: Trouble,
        world: World<'_>,
    ) -> Outcome {
        let Case { number: task, session, rules, charge, .. } = case;
        if let Some(cause) = charge::is_stopped((session, rules), charge, world) {
            return Outcome::Drop(cause);
        }
        self.later.push(Later::Trouble { task, session, trouble });
        Outcome::Later
    }
}

/// Raises the overflow event, once per version of the rules.
#[cold]
fn overflow(tables: &Tables, session: SessionId, rules: &Rules) {
    let words = tables.state.at(EntryId(session.0));
    let (word, version) = (words.get(EVENTS), u64::from(rules.version()));
    let before = if word >> 32 == version { word & event::ALL } else { 0 };
    if before & event::OVERFLOW == 0 && !decide::is_later(word, rules.version()) {
        let new = before | event::OVERFLOW | word & event::MARKER;
        words.publish(EVENTS, version << 32 | new);
        tables.events.raise(EntryId(session.0));
    }
}
