//! Receives packets: UE packets go into the batch, all others are finished here.

use fastlane::wire::{Ethernet, GtpMessageType, header};
use fastlane::{Packet, Turn, Verdict};

use super::Parts;
use super::batch::Batch;
use super::outer::{self, Arrival, Tunnel};
use super::sides::Side;
use super::tables::Tables;
use super::ways::Routes;
use crate::rules::layout::cause::Cause;
use crate::session::InstanceId;

impl<R: Routes> Parts<R> {
    /// Parses frames: UE packets go into the batch, all others are finished here.
    pub(super) fn read(
        &mut self,
        tables: &Tables,
        batch: &mut Batch,
        packets: &mut [Packet],
        turn: &mut Turn,
    ) {
        let Some(port) = packets.first().map(Packet::port) else { return };
        let Some(side) = self.sides.of(port) else {
            let octets = packets.iter().map(|packet| packet.len() as u64).sum();
            packets.iter_mut().for_each(|packet| packet.set_verdict(Verdict::Kernel));
            return tables.count(Cause::NotOurs, packets.len() as u64, octets);
        };
        let now = turn.now();
        let station = self.routes.entrance(turn, port).map(|entrance| entrance.mac);
        let station = station.filter(|_| !side.is_hairpin);
        let mut control = 0_u32; // one bit per packet; a batch has at most 32
        for (place, packet) in packets.iter_mut().enumerate() {
            let is_taken = match outer::read_usual(packet.bytes(), side, station) {
                Some(Arrival::Data(tunnel)) => self.take_tunnelled(tables, batch, place, tunnel),
                Some(Arrival::Plain { is_v6 }) => {
                    self.take_plain(batch, place, packet, side, is_v6)
                }
                Some(Arrival::Control(tunnel)) => {
                    // Replies are written after all packets are parsed; until then a safe label.
                    packet.set_verdict(Verdict::Drop);
                    match self.is_too_much(&tunnel, now) {
                        true => tables.count(Cause::EchoSuppressed, 1, packet.len() as u64),
                        false => control |= 1 << place,
                    }
                    true
                }
                _ => false,
            };
            if !is_taken && self.read_closely(tables, batch, (place, packet), station) {
                control |= 1 << place;
            }
        }
        if control != 0 {
            self.read_control(tables, packets, control, station, turn);
        }
    }

    /// Parses a frame that is not in the usual form. Returns true if it is a GTP-U message without
    /// user data.
    #[inline(never)]
    fn read_closely(
        &self,
        tables: &Tables,
        batch: &mut Batch,
        (place, packet): (usize, &mut Packet),
        station: Option<[u8; 6]>,
    ) -> bool {
        let Some(side) = self.sides.of(packet.port()) else { return false };
        let (verdict, cause) = match outer::read(packet.bytes(), side, station) {
            Arrival::Data(tunnel) => {
                self.take_tunnelled(tables, batch, place, tunnel);
                return false;
            }
            Arrival::Control(_) => {
                // Replies are written after all packets are parsed.
                packet.set_verdict(Verdict::Drop);
                return true;
            }
            Arrival::Plain { is_v6 } => {
                if self.take_plain(batch, place, packet, side, is_v6) {
                    return false;
                }
                (Verdict::Kernel, Cause::NotOurs)
            }
            Arrival::Linux => (Verdict::Kernel, Cause::NotOurs),
            Arrival::Drop(cause) => (Verdict::Drop, cause),
        };
        packet.set_verdict(verdict);
        tables.count(cause, 1, packet.len() as u64);
        false
    }

    /// Adds a decapsulated packet to the batch.
    #[inline(always)]
    fn take_tunnelled(
        &self,
        tables: &Tables,
        batch: &mut Batch,
        place: usize,
        tunnel: Tunnel,
    ) -> bool {
        let interface = self.sides.interfaces.get(usize::from(tunnel.interface));
        let instance = interface.map_or(0, |interface| interface.instance);
        batch.push_tunnel(place, tunnel, instance, self.shape, tables);
        true
    }

    /// Adds an IP packet without a tunnel to the batch; false if it has no destination.
    #[inline(always)]
    fn take_plain(
        &self,
        batch: &mut Batch,
        place: usize,
        packet: &Packet,
        side: &Side,
        is_v6: bool,
    ) -> bool {
        let instance = self.instance_of(packet, side.is_hairpin, side.plain());
        batch.push_plain(place, packet, is_v6, instance, side.is_hairpin)
    }

    /// Returns true for echo requests beyond the rate limit: a flood of them must cost little.
    #[inline]
    fn is_too_much(&self, tunnel: &Tunnel, now: u64) -> bool {
        tunnel.message_type == GtpMessageType::ECHO_REQUEST && !self.echoes.has(now)
    }

    /// Handles GTP-U messages without user data.
    #[cold]
    fn read_control(
        &mut self,
        tables: &Tables,
        packets: &mut [Packet],
        mut places: u32,
        station: Option<[u8; 6]>,
        turn: &mut Turn,
    ) {
        while places != 0 {
            let place = places.trailing_zeros();
            places &= places - 1;
            let Some(packet) = packets.get_mut(place as usize) else { return };
            let Some(side) = self.sides.of(packet.port()) else { return };
            let cause = match outer::read(packet.bytes(), side, station) {
                Arrival::Control(tunnel) => {
                    self.control(tables, &tunnel, packet, turn);
                    continue;
                }
                Arrival::Drop(cause) => cause,
                // The full parser disagrees with the header.
                Arrival::Data(_) | Arrival::Plain { .. } | Arrival::Linux => Cause::Malformed,
            };
            packet.set_verdict(Verdict::Drop);
            tables.count(cause, 1, packet.len() as u64);
        }
    }

    /// Returns the network instance of an IP packet without a tunnel.
    #[inline]
    pub(super) fn instance_of(
        &self,
        packet: &Packet,
        is_hairpin: bool,
        plain: InstanceId,
    ) -> InstanceId {
        if !is_hairpin {
            return plain;
        }
        let ethernet = header::<Ethernet>(packet.bytes(), 0);
        let [.., high, low] = ethernet.map_or([0; 6], |ethernet| ethernet.destination.0);
        InstanceId::from_be_bytes([high, low])
    }
}
