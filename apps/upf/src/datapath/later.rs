//! Deferred work: what is done once all packets of a batch are labelled (replies, copies, messages,
//! packets between UEs). All of it is rare or was requested.

use std::net::IpAddr;

use fastlane::mirror::RouteLookup;
use fastlane::wire::GtpU;
use fastlane::{HoldKey, Packet, PortId, Turn, Verdict};

use super::answer::{self, Message};
use super::batch::{Batch, Task};
use super::decide::{self, Charge, Decision, Path};
use super::encapsulate::{self, Exit, Outer};
use super::forward::inner_mut;
use super::held::Look;
use super::icmp::{self, Trouble};
use super::inner::{self, Inner};
use super::judge::Outcome;
use super::route;
use super::tables::{Tables, To};
use super::ways::{Routes, cause_of};
use super::{Parts, World};
use crate::config::Role;
use crate::rules::layout::cause::Cause;
use crate::rules::layout::message::{SessionEvent, kind};
use crate::rules::layout::rules::Direction;
use crate::session::{InstanceId, SessionId};

/// An item of deferred work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Later {
    /// Error indication for a packet of an unknown tunnel.
    ErrorIndication { task: u8 },
    /// Notification that a required extension header is not supported.
    Notification { task: u8 },
    /// Message to the slow path about an event of a session.
    Event(SessionEvent),
    /// Resumes held packets ahead of those labelled now, or discards them.
    EndHold(SessionId, Look),
    /// ICMP error to the sender of a packet that cannot be forwarded.
    Trouble { task: u8, session: SessionId, trouble: Trouble },
    /// HTTP redirect response.
    Redirect { task: u8, session: SessionId },
    /// Packet to another UE of a network instance.
    ToUser { task: u8, instance: InstanceId, session: SessionId, charge: Charge },
    /// Copy of the last `length` octets of a packet (DUPL).
    Copy { task: u8, length: u32, exit: Exit, outer: Outer },
    /// Fragmentation of a packet into fragments of at most `room` octets.
    Pieces { task: u8, out: Out, room: u32, session: SessionId, charge: Charge },
    /// Request to resolve a neighbour.
    Resolve(IpAddr),
}

/// Egress of a new packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Out {
    /// Through a tunnel.
    Tunnel(Exit, Outer),
    /// Without a tunnel, to a next hop.
    Plain(fastlane::mirror::NextHop),
}

impl<R: Routes> Parts<R> {
    /// Runs all deferred work.
    #[cold]
    pub(super) fn catch_up(
        &mut self,
        tables: &Tables,
        batch: &Batch,
        packets: &mut [Packet],
        turn: &mut Turn,
    ) {
        let spare = std::mem::take(&mut self.spare);
        let mut all = std::mem::replace(&mut self.later, spare);
        for later in all.iter() {
            match *later {
                Later::Event(event) => {
                    turn.send_value(kind::EVENT, &event);
                }
                Later::EndHold(session, look) => {
                    if let Some(key) = HoldKey::new(session.0) {
                        super::end_hold(tables, key, look, turn);
                    }
                }
                Later::Resolve(peer) => self.ask_linux(peer, turn),
                Later::ErrorIndication { task }
                | Later::Notification { task }
                | Later::Trouble { task, .. }
                | Later::Redirect { task, .. }
                | Later::ToUser { task, .. }
                | Later::Pieces { task, .. }
                | Later::Copy { task, .. } => {
                    let Some(task) = batch.tasks.get(usize::from(task)) else { continue };
                    let Some(packet) = packets.get_mut(usize::from(task.place)) else { continue };
                    self.catch_up_packet(tables, later, task, packet, turn);
                }
            }
        }
        all.clear();
        // Charging may have raised events, and a new packet may need a neighbour.
        std::mem::swap(&mut self.later, &mut all);
        for later in all.iter() {
            match *later {
                Later::Event(event) => {
                    turn.send_value(kind::EVENT, &event);
                }
                Later::Resolve(peer) => self.ask_linux(peer, turn),
                _ => {}
            }
        }
        all.clear();
        self.spare = all;
    }

    fn catch_up_packet(
        &mut self,
        tables: &Tables,
        later: &Later,
        task: &Task,
        packet: &mut Packet,
        turn: &mut Turn,
    ) {
        let octets = packet.len() as u64;
        let outcome = match *later {
            Later::ErrorIndication { .. } => self.no_tunnel(tables, task, packet, turn),
            Later::Notification { .. } => self.notify(tables, task, packet, turn),
            Later::Trouble { session, trouble, .. } => {
                self.tell(tables, task, session, trouble, packet, turn)
            }
            Later::Redirect { session, .. } => {
                self.send_elsewhere(tables, task, session, packet, turn)
            }
            Later::ToUser { instance, session, charge, .. } => {
                let world = World { tables, turn, now: turn.now() };
                self.send_to_user(task, instance, (session, charge), packet, world)
            }
            Later::Pieces { ref out, room, session, charge, .. } => {
                self.send_pieces(tables, task, (out, room), (session, charge), packet, turn)
            }
            Later::Copy { length, exit, outer, .. } => {
                let start = packet.len().saturating_sub(length as usize);
                let bytes = packet.bytes().get(start..).unwrap_or_default();
                let cause = match emit(turn, bytes, &Out::Tunnel(exit, outer)) {
                    true => Cause::Duplicated,
                    false => Cause::NotDuplicated,
                };
                return tables.count(cause, 1, u64::from(length));
            }
            Later::Event(_) | Later::EndHold(..) | Later::Resolve(_) => return,
        };
        self.settle(tables, packet, outcome, octets);
        if outcome == Outcome::Drop(Cause::UnknownTunnel) && self.reflects {
            packet.set_verdict(Verdict::Reflect);
        }
        self.reflects = false;
    }

    /// Defers the copies of a packet.
    #[cold]
    pub(super) fn copy_later(
        &mut self,
        task: u8,
        (tos, length): (u8, u32),
        decision: &Decision<'_>,
        world: World<'_>,
    ) {
        for copy in decision.copies {
            let path = Path { way: &copy.way, peer6: &copy.peer6, redirect: None };
            let direction = decision.direction;
            let outer = path
                .outer()
                .and_then(|put| self.outer(tos, &path, put, direction, world.turn).ok());
            // A copy is neither fragmented nor answered with an ICMP error.
            let fits = |(exit, outer): &(Exit, Outer)| {
                outer.length(exit.ends) + length as usize <= exit.hop.mtu as usize
            };
            match outer.filter(|to| fits(to) && self.later.has_room_for_copies()) {
                Some((exit, outer)) => self.later.push(Later::Copy { task, length, exit, outer }),
                None => world.tables.count(Cause::NotDuplicated, 1, u64::from(length)),
            }
        }
    }

    /// Answers a packet of an unknown tunnel with an error indication (TS 29.281 clause 7.3.1), but
    /// not shortly after the start, when sessions may still be restored (TS 23.527 clause 4.2.2).
    fn no_tunnel(
        &mut self,
        tables: &Tables,
        task: &Task,
        packet: &mut Packet,
        turn: &Turn,
    ) -> Outcome {
        let Some(tunnel) = task.tunnel else { return Outcome::Drop(Cause::UnknownTunnel) };
        let now = turn.now();
        let octets = packet.len() as u64;
        let is_told = now >= self.quiet_until
            && self.errors.take(now)
            && answer::back(packet, &tunnel).is_some_and(|(ends, hop)| {
                let local = match ends {
                    encapsulate::Ends::Four(local, _) => IpAddr::V4(local),
                    encapsulate::Ends::Six(local, _) => IpAddr::V6(local),
                };
                let teid = tunnel.teid;
                let message = Message::error_indication(teid, local, tunnel.source_port);
                answer::write(packet, ends, &hop, GtpU::PORT, &message)
            });
        let cause = match is_told {
            true => Cause::ErrorIndicationSent,
            false => Cause::ErrorIndicationSuppressed,
        };
        tables.count(cause, 1, octets);
        self.reflects = is_told;
        Outcome::Drop(Cause::UnknownTunnel)
    }

    /// Drops a packet with an unsupported extension header and sends the list of supported ones (TS
    /// 29.281 clause 5.2.1).
    fn notify(
        &mut self,
        tables: &Tables,
        task: &Task,
        packet: &mut Packet,
        turn: &mut Turn,
    ) -> Outcome {
        let Some(tunnel) = task.tunnel else { return Outcome::Drop(Cause::GtpExtension) };
        let is_due = self.errors.take(turn.now());
        if let Some((ends, hop)) = answer::back(packet, &tunnel).filter(|_| is_due)
            && let Some(new) = turn.new_packet(packet.port())
        {
            let message = Message::supported_extension_headers();
            let is_sent = answer::write(new, ends, &hop, GtpU::PORT, &message);
            if is_sent {
                tables.count(Cause::ExtensionNotification, 1, new.len() as u64);
            } else {
                new.set_verdict(Verdict::Drop);
            }
        }
        Outcome::Drop(Cause::GtpExtension)
    }

    /// Sends an ICMP error about a packet that cannot be forwarded.
    fn tell(
        &mut self,
        tables: &Tables,
        task: &Task,
        session: SessionId,
        trouble: Trouble,
        packet: &mut Packet,
        turn: &mut Turn,
    ) -> Outcome {
        let cause = match trouble {
            Trouble::TimeExceeded => Cause::TimeToLive,
            Trouble::TooLong(_) => Cause::TooLong,
        };
        let bytes = task.inner(packet.bytes());
        let Some(inner) = inner::read(bytes) else { return Outcome::Drop(cause) };
        let bytes = bytes.get(..inner.length as usize).unwrap_or_default();
        if !icmp::may_tell(&inner, bytes, trouble) {
            return Outcome::Drop(cause);
        }
        let now = turn.now();
        let mut scratch = [0; icmp::LONGEST];
        let own = self.speakers[usize::from(inner.is_v6)].filter(|_| self.icmp.take(now));
        let length = own.and_then(|own| icmp::write(&mut scratch, trouble, own, &inner, bytes));
        let error = length.and_then(|length| scratch.get(..length));
        let is_sent = error.is_some_and(|error| {
            let world = World { tables, turn, now };
            let out = match task.tunnel {
                // This UPF made it, so it is not charged.
                Some(_) => self.way_back(world, session, error),
                None => self.way_to_network(world, task, error),
            };
            out.is_ok_and(|out| emit(turn, error, &out))
        });
        let told = if is_sent { Cause::IcmpSent } else { Cause::IcmpSuppressed };
        tables.count(told, 1, error.map_or(0, |error| error.len() as u64));
        Outcome::Drop(cause)
    }

    /// Finds the egress of a packet of this UPF to the UE: the rules of the first network instance
    /// of N6 that forward it. The instance that the original packet went to is not known here.
    pub(super) fn way_back(
        &mut self,
        world: World<'_>,
        session: SessionId,
        error: &[u8],
    ) -> Result<Out, Cause> {
        let World { tables, turn, now } = world;
        let mut out = Err(Cause::UnknownUser);
        for place in 0..self.instances.len() {
            let instance = self.instances.get(place).copied();
            let way = self.way_to_session(World { tables, turn, now }, session, instance, error);
            out = way.map(|(exit, outer)| Out::Tunnel(exit, outer));
            if out.is_ok() {
                break;
            }
        }
        out
    }

    /// Finds the tunnel of a packet of this UPF to the UE of a session. URRs and meters do not
    /// apply to it.
    fn way_to_session(
        &mut self,
        world: World<'_>,
        session: SessionId,
        instance: Option<InstanceId>,
        bytes: &[u8],
    ) -> Result<(Exit, Outer), Cause> {
        let World { tables, turn, .. } = world;
        let rules = tables.rules(turn, session).ok_or(Cause::UnknownUser)?;
        let inner = inner::read(bytes).ok_or(Cause::Malformed)?;
        let subject = inner.subject(None, instance.unwrap_or_default(), None);
        let path = decide::own_path(rules, &tables.blocks(turn), &subject, session);
        let path = path.ok_or(Cause::NoRule)?;
        let put = path.outer().ok_or(Cause::NoRoute)?;
        let (exit, outer) = self.outer(inner.tos, &path, put, Direction::Down, turn)?;
        if outer.length(exit.ends) + bytes.len() > exit.hop.mtu as usize {
            return Err(Cause::TooLong);
        }
        Ok((exit, outer))
    }

    /// Finds the next hop of a packet of this UPF into the network that a packet came from.
    fn way_to_network(&self, world: World<'_>, task: &Task, bytes: &[u8]) -> Result<Out, Cause> {
        let inner = inner::read(bytes).ok_or(Cause::Malformed)?;
        let instance = Some(task.instance);
        let leading = self.sides.leading(instance, |role| role == Role::N6);
        let to = match inner.to() {
            To::Four(to) => IpAddr::V4(to),
            To::Six(to) => IpAddr::V6(to),
        };
        match leading.way(&self.routes, world.turn, to, inner.flow_hash()) {
            RouteLookup::Forward(hop) => Ok(Out::Plain(hop)),
            RouteLookup::Fallback(reason) => Err(cause_of(reason)),
        }
    }

    /// Sends a packet to another UE of the same network instance. The sender's half of the path
    /// ends here and is charged. The packet goes to the lane of the other UE, even if it is this
    /// one, and is handled there as a packet from the data network.
    fn send_to_user(
        &mut self,
        task: &Task,
        instance: InstanceId,
        (from, charge): (SessionId, Charge),
        packet: &mut Packet,
        world: World<'_>,
    ) -> Outcome {
        if task.is_hairpin {
            // The receiving UE's rules forward it to a UE again.
            return Outcome::Drop(Cause::Loop);
        }
        let Some(port) = self.sides.hairpin else { return Outcome::Drop(Cause::NoHairpin) };
        let Some(inner) = inner::read(task.inner(packet.bytes())) else {
            return Outcome::Drop(Cause::Malformed);
        };
        let to = inner.to();
        if world.tables.owner(world.turn, &to.key(instance), to).is_none() {
            return Outcome::Drop(Cause::UnknownUser);
        }
        if let Err(outcome) = self.charge_later(task, from, charge, packet, world) {
            return outcome;
        }
        world.tables.count(Cause::UserToUser, 1, u64::from(inner.length));
        pass_on(packet, task, &inner, instance, port)
    }

    /// Asks the slow path to make Linux resolve a neighbour.
    pub(super) fn ask_linux(&mut self, peer: IpAddr, turn: &mut Turn) {
        if !self.reports.take(turn.now()) {
            return;
        }
        let message = super::control::path(peer, None, 0, 0, 0, turn.now());
        turn.send_value(kind::NEIGHBOUR, &message);
    }
}

/// Sends a packet to the lane of another UE, behind an Ethernet header whose destination carries
/// the network instance.
fn pass_on(
    packet: &mut Packet,
    task: &Task,
    inner: &Inner,
    instance: InstanceId,
    port: PortId,
) -> Outcome {
    route::take_hop(inner_mut(packet, task));
    let [high, low] = instance.to_be_bytes();
    let addresses = [[2, 0, 0, 0, high, low], [2, 0, 0, 0, 0, 0]];
    let (at, length) = (usize::from(task.at), inner.length as usize);
    match route::send_between(packet, at, length, inner.is_v6, addresses) {
        true => Outcome::Leaves(port, Cause::ForwardedUplink),
        false => Outcome::Drop(Cause::NoFrame),
    }
}

/// Sends a new packet with this IP packet as its content; false if there is no frame.
pub(super) fn emit(turn: &mut Turn, bytes: &[u8], out: &Out) -> bool {
    let port = match out {
        Out::Tunnel(exit, _) => exit.hop.port,
        Out::Plain(hop) => hop.port,
    };
    let Some(packet) = turn.new_packet(port) else { return false };
    let is_written = packet.append(bytes.len()).map(|place| place.copy_from_slice(bytes)).is_some()
        && match out {
            Out::Tunnel(exit, outer) => {
                encapsulate::encapsulate(packet, 0, bytes.len(), exit, outer)
            }
            Out::Plain(hop) => {
                let is_v6 = bytes.first().is_some_and(|first| first >> 4 == 6);
                route::send(packet, 0, bytes.len(), is_v6, hop)
            }
        };
    if !is_written {
        packet.set_verdict(Verdict::Drop);
    }
    is_written
}
