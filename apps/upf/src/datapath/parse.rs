//! Receives packets: UE packets go into the batch, all others are finished here.

use fastlane::wire::Ethernet;
use fastlane::{Packet, Turn, Verdict};

use super::Datapath;
use super::lane_tables::{LaneTables, TurnContext};
use super::lookup::Batch;
use super::nat_arrivals::{Arrivals, is_for_nat};
use super::outcome::Outcome;
use super::outer_header::{self, FrameKind, GtpuPacket};
use super::port_map::{self, PortRole};
use super::reassembly::Progress;
use super::routes::Routes;
use crate::rules::layout::drop_reason::DropReason;

/// Rest of the work on a frame that is not in the usual form, after all frames are parsed.
enum Parsed {
    /// None: it is in the batch, or has its verdict.
    Finished,
    /// GTP-U message without user data, or a fragment.
    Control,
    /// Packet that NAT translates.
    External,
}

impl<R: Routes> Datapath<R> {
    /// Parses frames: UE packets go into the batch, all others are finished here.
    pub(super) fn parse(
        &mut self,
        tables: &LaneTables,
        batch: &mut Batch,
        packets: &mut [Packet],
        turn: &mut Turn,
    ) {
        let Some(port) = packets.first().map(Packet::port) else { return };
        let Some(role) = self.forwarder.ports.of(port) else {
            let octets = packets.iter().map(|packet| packet.len() as u64).sum();
            packets.iter_mut().for_each(|packet| packet.set_verdict(Verdict::Kernel));
            return tables.count(DropReason::NotOurs, packets.len() as u64, octets);
        };
        let now = turn.now();
        let port_mac = self.forwarder.routes.ingress(turn, port).map(|entrance| entrance.mac);
        let port_mac = port_mac.filter(|_| !role.is_hairpin);
        // One bit per packet; a batch has at most 32.
        let (mut control, mut external) = (0_u32, 0_u32);
        for (position, packet) in packets.iter_mut().enumerate() {
            let is_taken = match outer_header::parse_usual(packet.bytes(), role, port_mac) {
                Some(FrameKind::Data(tunnel)) => {
                    self.add_tunnelled(tables, batch, position, tunnel)
                }
                Some(FrameKind::Ip { is_v6 })
                    if is_for_nat(&self.forwarder, packet.bytes(), role, is_v6) =>
                {
                    packet.set_verdict(Verdict::Drop);
                    external |= 1 << position;
                    true
                }
                Some(FrameKind::Ip { is_v6 }) => self.add_ip(batch, position, packet, role, is_v6),
                Some(FrameKind::Control(tunnel)) => {
                    // Replies are written after all packets are parsed; until then a safe label.
                    packet.set_verdict(Verdict::Drop);
                    match self.gtpu.exceeds_echo_rate(&tunnel, now) {
                        true => tables.count(DropReason::EchoSuppressed, 1, packet.len() as u64),
                        false => control |= 1 << position,
                    }
                    true
                }
                _ => false,
            };
            if !is_taken {
                match self.parse_slow(tables, batch, position, packet, port_mac) {
                    Parsed::Control => control |= 1 << position,
                    Parsed::External => external |= 1 << position,
                    Parsed::Finished => {}
                }
            }
        }
        if external != 0 {
            let Self { forwarder, reassembler, .. } = self;
            let context = &mut TurnContext { tables, turn };
            Arrivals { forwarder, reassembler }.translate(batch, packets, external, context);
        }
        if control != 0 {
            let context = &mut TurnContext { tables, turn };
            self.handle_control(batch, packets, control, port_mac, context);
        }
    }

    /// Parses a frame that is not in the usual form.
    #[inline(never)]
    fn parse_slow(
        &self,
        tables: &LaneTables,
        batch: &mut Batch,
        position: usize,
        packet: &mut Packet,
        port_mac: Option<[u8; 6]>,
    ) -> Parsed {
        let Some(role) = self.forwarder.ports.of(packet.port()) else { return Parsed::Finished };
        let (verdict, reason) = match outer_header::read(packet.bytes(), role, port_mac) {
            FrameKind::Data(tunnel) => {
                self.add_tunnelled(tables, batch, position, tunnel);
                return Parsed::Finished;
            }
            FrameKind::Control(_) | FrameKind::Fragment => {
                // Replies are written after all packets are parsed.
                packet.set_verdict(Verdict::Drop);
                return Parsed::Control;
            }
            FrameKind::Ip { is_v6 } if is_for_nat(&self.forwarder, packet.bytes(), role, is_v6) => {
                packet.set_verdict(Verdict::Drop);
                return Parsed::External;
            }
            FrameKind::Ip { is_v6 } => {
                if self.add_ip(batch, position, packet, role, is_v6) {
                    return Parsed::Finished;
                }
                (Verdict::Kernel, DropReason::NotOurs)
            }
            FrameKind::Linux => (Verdict::Kernel, DropReason::NotOurs),
            FrameKind::Drop(reason) => (Verdict::Drop, reason),
        };
        packet.set_verdict(verdict);
        tables.count(reason, 1, packet.len() as u64);
        Parsed::Finished
    }

    /// Adds a decapsulated packet to the batch.
    #[inline(always)]
    fn add_tunnelled(
        &self,
        tables: &LaneTables,
        batch: &mut Batch,
        position: usize,
        tunnel: GtpuPacket,
    ) -> bool {
        let interface = self.forwarder.ports.interfaces.get(usize::from(tunnel.interface));
        let instance = interface.map_or(0, |interface| interface.instance);
        batch.push_tunnel(position, tunnel, instance, self.teid_layout, tables);
        true
    }

    /// Adds an IP packet without a tunnel to the batch; false if it has no destination.
    #[inline(always)]
    fn add_ip(
        &self,
        batch: &mut Batch,
        position: usize,
        packet: &Packet,
        role: &PortRole,
        is_v6: bool,
    ) -> bool {
        let frame = packet.bytes();
        batch.push_ip(position, frame, is_v6, role.instance_of(frame), role.is_hairpin)
    }

    /// Handles GTP-U messages without user data, and fragments, which may complete any packet.
    #[cold]
    fn handle_control(
        &mut self,
        batch: &mut Batch,
        packets: &mut [Packet],
        mut positions: u32,
        port_mac: Option<[u8; 6]>,
        context: &mut TurnContext<'_>,
    ) {
        while positions != 0 {
            let position = positions.trailing_zeros() as usize;
            positions &= positions - 1;
            let Some(packet) = packets.get_mut(position) else { return };
            let port = packet.port();
            let Some(role) = self.forwarder.ports.of(port) else { return };
            let mut kind = outer_header::read(packet.bytes(), role, port_mac);
            let is_fragment = kind == FrameKind::Fragment;
            if is_fragment {
                if !self.reassemble(packet, context) {
                    continue;
                }
                let Some(role) = self.forwarder.ports.of(port) else { return };
                kind = outer_header::read(packet.bytes(), role, port_mac);
            }
            let reason = match kind {
                FrameKind::Control(tunnel) => {
                    let Self { forwarder, slow_path, .. } = self;
                    self.gtpu.handle(forwarder, slow_path, &tunnel, packet, context);
                    continue;
                }
                FrameKind::Data(tunnel) if is_fragment => {
                    self.add_tunnelled(context.tables, batch, position, tunnel);
                    continue;
                }
                FrameKind::Drop(reason) => reason,
                // The full parser disagrees with the header.
                FrameKind::Data(_)
                | FrameKind::Ip { .. }
                | FrameKind::Fragment
                | FrameKind::Linux => DropReason::Malformed,
            };
            packet.set_verdict(Verdict::Drop);
            context.tables.count(reason, 1, packet.len() as u64);
        }
    }

    /// Adds a fragment to its packet. Returns true if the frame now is the whole packet, to be
    /// handled by this lane; otherwise the fragment has its verdict.
    fn reassemble(&mut self, packet: &mut Packet, context: &mut TurnContext<'_>) -> bool {
        let (tables, octets) = (context.tables, packet.len() as u64);
        let outcome = match self.reassembler.add(packet, context.turn.now(), tables) {
            Progress::Whole => match self.pass_to_session(packet, context) {
                None => return true,
                Some(outcome) => outcome,
            },
            Progress::Incomplete => Outcome::Drop(DropReason::OuterFragment),
            Progress::Refused => Outcome::Drop(DropReason::OuterFragmentRefused),
            Progress::Linux => Outcome::Linux,
        };
        self.forwarder.counters.label(tables, packet, outcome, octets, None);
        false
    }

    /// Passes an outer packet that this lane has reassembled to the lane of its session: fragments
    /// find their lane by their addresses. `None` if that is this lane, or no session is known.
    fn pass_to_session(&self, packet: &mut Packet, context: &TurnContext<'_>) -> Option<Outcome> {
        let TurnContext { tables, turn } = context;
        let role = self.forwarder.ports.of(packet.port())?;
        let FrameKind::Data(tunnel) = outer_header::read(packet.bytes(), role, None) else {
            return None;
        };
        let (session, _) = tables.by_tunnel(turn, self.teid_layout, tunnel.teid)?;
        let hairpin = self.forwarder.ports.hairpin.filter(|_| !turn.owns(session.0 as u8))?;
        let ethernet = packet.header::<Ethernet>()?;
        ethernet.destination.0 = port_map::reassembled(tunnel.interface);
        Some(Outcome::Forward(hairpin, DropReason::OuterFragment))
    }
}
