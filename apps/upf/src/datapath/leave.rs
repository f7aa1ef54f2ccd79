//! Egress of packets without a tunnel, to the data network: they are routed together.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::mirror::{Entrance, ReversePath};
use fastlane::mirror::{FallbackReason, NextHop, RouteLookup};
use fastlane::wire::Ipv4;
use fastlane::{Packet, Turn};

use super::batch::{Batch, Found, Leaving, Plain, Task};
use super::forward::inner_mut;
use super::icmp::Trouble;
use super::inner;
use super::judge::{Case, Outcome};
use super::later::{Later, Out};
use super::route;
use super::sides::Leading;
use super::tables::To;
use super::ways::{Routes, cause_of};
use super::{Parts, World};
use crate::config::Role;
use crate::rules::layout::cause::Cause;
use crate::rules::layout::rules::{Direction, Rules};

/// An IP version, by its address type.
pub(crate) trait Family: Copy + Into<IpAddr> {
    /// True for IPv6.
    const IS_V6: bool;

    /// Routes all packets of a batch.
    fn ways<R: Routes>(routes: &R, turn: &Turn, table: Option<u32>, leaving: &mut Leaving<Self>);

    /// Returns the address as a destination.
    fn to(self) -> To;

    /// Returns true if Linux forwards packets that arrive there, whatever their source.
    fn is_forwarded(entrance: &Entrance) -> bool;
}

impl Family for Ipv4Addr {
    const IS_V6: bool = false;

    fn ways<R: Routes>(routes: &R, turn: &Turn, table: Option<u32>, leaving: &mut Leaving<Self>) {
        let count = leaving.count;
        let (to, flows) = (&leaving.to[..count], &leaving.flows[..count]);
        routes.ways4(turn, table, to, flows, &mut leaving.answers[..count]);
    }

    fn to(self) -> To {
        To::Four(self)
    }

    fn is_forwarded(entrance: &Entrance) -> bool {
        // The UE pools are blackhole routes, so a reverse path check in Linux would drop the
        // packet.
        entrance.forwards4 && entrance.reverse_path == ReversePath::Any
    }
}

impl Family for Ipv6Addr {
    const IS_V6: bool = true;

    fn ways<R: Routes>(routes: &R, turn: &Turn, table: Option<u32>, leaving: &mut Leaving<Self>) {
        let count = leaving.count;
        let (to, flows) = (&leaving.to[..count], &leaving.flows[..count]);
        routes.ways6(turn, table, to, flows, &mut leaving.answers[..count]);
    }

    fn to(self) -> To {
        To::Six(self)
    }

    fn is_forwarded(entrance: &Entrance) -> bool {
        entrance.forwards6
    }
}

impl<R: Routes> Parts<R> {
    /// Forwards all packets of the batch that leave without a tunnel.
    #[inline]
    pub(super) fn leave(
        &mut self,
        batch: &mut Batch,
        found: &Found<'_>,
        packets: &mut [Packet],
        world: World<'_>,
    ) {
        let Batch { tasks, four, six, .. } = batch;
        if four.count > 0 {
            self.leave_by((tasks, found), four, packets, world);
        }
        if six.count > 0 {
            self.leave_by((tasks, found), six, packets, world);
        }
    }

    fn leave_by<A: Family>(
        &mut self,
        (tasks, found): (&[Task], &Found<'_>),
        leaving: &mut Leaving<A>,
        packets: &mut [Packet],
        world: World<'_>,
    ) {
        let first = leaving.packets[0].instance;
        let mut is_fixed = true;
        if let Leading::Table(table) = self.sides.leading(first, |role| role == Role::N6) {
            is_fixed = false;
            A::ways(&self.routes, world.turn, table, leaving);
        }
        for at in 0..leaving.count {
            let plain = &leaving.packets[at];
            let Some(task) = tasks.get(usize::from(plain.task)) else { continue };
            let Some(rules) = found.get(usize::from(plain.task)).copied().flatten() else {
                continue;
            };
            let Some(packet) = packets.get_mut(usize::from(task.place)) else { continue };
            let octets = packet.len() as u64;
            let other;
            let mut answer = &leaving.answers[at];
            if plain.instance != first || is_fixed {
                other = self.way_of_one(plain, leaving.to[at], leaving.flows[at], world);
                answer = &other;
            }
            let outcome = match answer {
                RouteLookup::Forward(hop) => {
                    self.leave_to::<A>(task, plain, rules, hop, packet, world)
                }
                RouteLookup::Fallback(reason) => {
                    self.leave_or_ask(task, plain, leaving.to[at], *reason, packet, world)
                }
            };
            self.settle(world.tables, packet, outcome, octets);
        }
    }

    /// Routes one packet: in another network instance than the first one, or where everything goes
    /// to one next hop. In the latter case packets to UEs are found here, since no route says which
    /// they are.
    #[inline(never)]
    fn way_of_one<A: Family>(
        &self,
        plain: &Plain,
        to: A,
        flow: u32,
        world: World<'_>,
    ) -> RouteLookup {
        let leading = self.sides.leading(plain.instance, |role| role == Role::N6);
        let is_users =
            |instance| world.tables.owner(world.turn, &to.to().key(instance), to.to()).is_some();
        let instance = plain.instance.or(self.only_instance);
        match leading {
            Leading::Fixed(_) if instance.is_some_and(is_users) => {
                RouteLookup::Fallback(FallbackReason::Blackhole)
            }
            _ => leading.way(&self.routes, world.turn, to.into(), flow),
        }
    }

    /// Forwards a packet to a next hop.
    #[inline(always)]
    fn leave_to<A: Family>(
        &mut self,
        task: &Task,
        plain: &Plain,
        rules: &Rules,
        hop: &NextHop,
        packet: &mut Packet,
        world: World<'_>,
    ) -> Outcome {
        // Any other interface leads to networks that UEs must not reach.
        if self.sides.exit(hop.port, plain.instance, |role| role == Role::N6).is_none() {
            return Outcome::Drop(Cause::NoRoute);
        }
        if plain.length > hop.mtu {
            return self.too_long(task, plain, rules, hop, packet, world);
        }
        let session = (plain.session, rules);
        if let Err(outcome) = self.later.charge(task, session, plain.charge, world) {
            return outcome;
        }
        let inner = inner_mut(packet, task);
        if task.tunnel.is_some() {
            route::take_hop(inner);
        }
        if plain.mask != 0 {
            route::mark(inner, plain.marking, plain.mask);
        }
        match route::send(packet, usize::from(task.at), plain.length as usize, A::IS_V6, hop) {
            true => Outcome::Leaves(hop.port, Cause::ForwardedUplink),
            false => Outcome::Drop(Cause::NoFrame),
        }
    }

    #[cold]
    fn too_long(
        &mut self,
        task: &Task,
        plain: &Plain,
        rules: &Rules,
        hop: &NextHop,
        packet: &Packet,
        world: World<'_>,
    ) -> Outcome {
        let Some(inner) = inner::read(task.inner(packet.bytes())) else {
            return Outcome::Drop(Cause::TooLong);
        };
        let Plain { task: number, session, charge, .. } = *plain;
        if !inner.dont_fragment {
            let room = hop.mtu.max(Ipv4::LENGTH as u32 + 8);
            return self.cut_up(number, (session, charge), Out::Plain(*hop), room);
        }
        let case = Case { task, number, session, rules, direction: Direction::Up, charge };
        self.trouble(case, Trouble::TooLong(hop.mtu), world)
    }

    /// Handles a packet without a route in the mirror: it may be another UE's, or Linux has to
    /// resolve its neighbour. Linux receives the UE's packet unchanged in an Ethernet frame.
    #[cold]
    fn leave_or_ask<A: Family>(
        &mut self,
        task: &Task,
        plain: &Plain,
        to: A,
        reason: FallbackReason,
        packet: &mut Packet,
        world: World<'_>,
    ) -> Outcome {
        let instance = plain.instance.or(self.only_instance);
        if reason != FallbackReason::NoNeighbour
            && let Some(instance) = instance
            && world.tables.owner(world.turn, &to.to().key(instance), to.to()).is_some()
        {
            let Plain { task, session, charge, .. } = *plain;
            self.later.push(Later::ToUser { task, instance, session, charge });
            return Outcome::Later;
        }
        if reason != FallbackReason::NoNeighbour {
            return Outcome::Drop(cause_of(reason));
        }
        let entrance = self.routes.entrance(world.turn, packet.port());
        let Some(entrance) = entrance.filter(A::is_forwarded) else {
            self.later.push(Later::Resolve(to.into()));
            return Outcome::Drop(Cause::NoNeighbour);
        };
        let charged = self.charge_later(task, plain.session, plain.charge, packet, world);
        if let Err(outcome) = charged {
            return outcome;
        }
        let addresses = [entrance.mac, [2, 0, 0, 0, 0, 0]];
        let (at, length) = (usize::from(task.at), plain.length as usize);
        match route::send_between(packet, at, length, A::IS_V6, addresses) {
            true => Outcome::ToLinux,
            false => Outcome::Drop(Cause::NoNeighbour),
        }
    }
}
