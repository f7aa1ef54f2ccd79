//! Forwards packets: into a tunnel, or into the batch of packets that are routed together.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::{Packet, Turn};

use super::batch::{Leaving, Plain, Task};
use super::control::peer_of;
use super::decide::Path;
use super::encapsulate::{self, Container, Exit, Outer};
use super::icmp::Trouble;
use super::inner::Inner;
use super::judge::{Case, Outcome};
use super::later::{Later, Out};
use super::route;
use super::tables::To;
use super::ways::Routes;
use super::{Parts, World};
use crate::rules::layout::cause::Cause;
use crate::rules::layout::rules::{Direction, Outer as Put};
use crate::session::{Destination, InstanceId};

impl<R: Routes> Parts<R> {
    /// Forwards a packet.
    #[inline(always)]
    pub(super) fn forward(
        &mut self,
        case: Case<'_>,
        inner: &Inner,
        path: &Path<'_>,
        packet: &mut Packet,
        (four, six): (&mut Leaving<Ipv4Addr>, &mut Leaving<Ipv6Addr>),
        world: World<'_>,
    ) -> Outcome {
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

    /// Finds the tunnel route and the outer header of a packet; an unresolved neighbour is
    /// requested.
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
        match self.ways.to(&self.routes, &self.sides, turn, instance, to) {
            Ok(exit) => Ok((*exit, outer(tos, path, teid, direction))),
            Err(cause) => {
                if cause == Cause::NoNeighbour {
                    self.later.push(Later::Resolve(to));
                }
                Err(cause)
            }
        }
    }

    /// Encapsulates a packet and forwards it to the far end of the tunnel.
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

    /// Forwards a packet without a tunnel: to another UE, or into the batch that is routed
    /// together.
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

    /// Drops a packet whose tunnel endpoint is unreachable now.
    #[cold]
    fn no_way(&mut self, to: IpAddr, cause: Cause) -> Outcome {
        if cause == Cause::NoNeighbour {
            self.later.push(Later::Resolve(to));
        }
        Outcome::Drop(cause)
    }
}

/// Builds the per-packet fields of the outer header.
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

/// Returns the network instance that packets of a tunnel leave in, if one was named.
#[inline(always)]
fn instance_of(path: &Path<'_>) -> Option<InstanceId> {
    match path.way.destination() {
        Destination::Control => None,
        _ => path.way.instance(),
    }
}

/// Returns the counter of forwarded packets of a direction.
pub(crate) const fn sent(direction: Direction) -> Cause {
    match direction {
        Direction::Up => Cause::ForwardedUplink,
        Direction::Down => Cause::ForwardedDownlink,
    }
}

/// Returns true if a GTP-U message is relayed with its extension headers: between tunnels, unless
/// the rules remove or replace its container.
#[inline]
pub(crate) fn is_relayed(task: &Task, path: &Path<'_>) -> bool {
    let way = path.way;
    task.tunnel.is_some()
        && matches!(path.outer(), Some(Put::Gtpu(..)))
        && way.qfi().is_none()
        && !way.removes_extension()
}

/// Returns true if this UPF is an IP hop of the packet: decapsulated or encapsulated, but not both.
/// Between tunnels the inner packet is not changed (TS 23.501 clause 5.6.4: the UE's IP link ends
/// at the anchor).
#[inline]
pub(crate) fn takes_hop(task: &Task, path: &Path<'_>) -> bool {
    task.tunnel.is_some() != path.outer().is_some()
}

/// Returns the inner packet for modification.
#[inline]
pub(crate) fn inner_mut<'a>(packet: &'a mut Packet, task: &Task) -> &'a mut [u8] {
    let range = usize::from(task.at)..task.end as usize;
    packet.bytes_mut().get_mut(range).unwrap_or_default()
}
