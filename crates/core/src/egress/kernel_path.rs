//! Packets between a port and Linux: those that the application labels `Kernel`, and those that
//! Linux sends through the kernel peer of a port.

use fastlane_table::counters::PortCounter;

use super::{Egress, Exit, KernelPeer};
use crate::packet::same_run;
use crate::turn::now;
use crate::{Burst, Packet, Pool};

impl Egress {
    /// Forwards packets that Linux sends through one kernel peer. Returns their number.
    #[inline(never)]
    pub(super) fn relay(&mut self, peer: usize, burst: &mut Burst, pool: &mut Pool) -> usize {
        let slot = &mut self.ports.kernel_peers[peer].slot;
        let port = slot.port;
        slot.queue.receive(burst, pool);
        let count = burst.len();
        if count > 0 {
            burst.packets().iter_mut().for_each(Packet::set_from_kernel);
            self.ports.count(port, PortCounter::FromKernelPackets, count);
            // Some may have a partial checksum, and others not.
            for run in burst.packets().chunk_by_mut(same_run) {
                self.send(Exit { source: port, to: port, queue: 0 }, run, pool);
            }
            burst.clear(pool);
        }
        count
    }

    /// Gives a run to the kernel peer of its port of arrival, within the budget of the turn.
    pub(super) fn send_to_kernel(&mut self, source: usize, run: &mut [Packet], pool: &mut Pool) {
        self.kernel_share.note_for_linux(run.len());
        let Some(KernelPeer { slot, .. }) = self.ports.kernel_peer(source) else {
            let exit = Exit { source, to: source, queue: 0 };
            self.send_to_lane(exit, PortCounter::DropNoKernelPeer, run, pool);
            return;
        };
        // The path of the carrier, for a logical port that has none of its own.
        let is_shared = slot.port != source;
        let encapsulated = match &mut self.logical_ports {
            Some(logical_ports) if is_shared => logical_ports.encapsulate(source, run),
            _ => run.len(),
        };
        let (run, without_room) = run.split_at_mut(encapsulated);
        let fitting = slot.make_transmittable(run, pool);
        let (run, not_copied) = run.split_at_mut(fitting);
        let (mut sent, mut over_budget) = (0, 0);
        let (within, beyond) = run.split_at_mut(self.kernel_left.min(run.len()));
        self.kernel_left -= within.len();
        let mut tried = within.len();
        if !within.is_empty() {
            // The clock costs 25 ns, so it is read only if the time matters.
            let begin = self.kernel_share.is_congested().then(now);
            sent += slot.queue.transmit(within, pool).packets;
            if let Some(begin) = begin {
                self.kernel_share.note_time(now() - begin, tried);
            }
        }
        for packet in beyond {
            if self.control_left > 0 && is_control(packet.bytes()) {
                self.control_left -= 1;
                tried += 1;
                sent += slot.queue.transmit(std::slice::from_mut(packet), pool).packets;
            } else {
                over_budget += 1;
            }
        }
        // A driver that reports more packets than it was passed must not end the lane.
        let sent = sent.min(tried);
        self.ports.count(source, PortCounter::ToKernelPackets, sent);
        self.ports.count(source, PortCounter::DropKernelFull, tried - sent);
        self.ports.count(source, PortCounter::DropKernelBudget, over_budget);
        self.ports.count(source, PortCounter::DropCopyNoFrame, not_copied.len());
        self.ports.count(source, PortCounter::DropTransmitLength, without_room.len());
    }
}

/// Returns true for packets that the network itself needs: ARP, ICMP and ICMPv6, behind at most two
/// VLAN tags. ICMPv6 includes neighbour discovery, and multicast listener discovery behind a
/// hop-by-hop header.
fn is_control(frame: &[u8]) -> bool {
    let is_tagged = |at: usize| matches!(frame.get(at..at + 2), Some([0x81, 0x00] | [0x88, 0xa8]));
    let tags = usize::from(is_tagged(12)) + usize::from(is_tagged(12) && is_tagged(16));
    let network = 14 + 4 * tags;
    let octet = |at: usize| frame.get(network + at).copied();
    match frame.get(network - 2..network) {
        Some([0x08, 0x06]) => true,
        Some([0x08, 0x00]) => octet(9) == Some(1),
        Some([0x86, 0xdd]) => match octet(6) {
            Some(0) => octet(40) == Some(58),
            next => next == Some(58),
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_control;

    fn frame(types: &[u16], network: &[(usize, u8)]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        for (index, ethertype) in types.iter().enumerate() {
            frame.extend(ethertype.to_be_bytes());
            frame.extend(if index + 1 < types.len() { &[0, 5][..] } else { &[] });
        }
        let start = frame.len();
        frame.resize(start + 60, 0);
        network.iter().for_each(|(at, value)| frame[start + at] = *value);
        frame
    }

    #[test]
    fn control_packets_are_recognised_behind_tags() {
        for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100]] {
            let with = |ethertype: u16, network: &[(usize, u8)]| {
                is_control(&frame(&[tags, &[ethertype]].concat(), network))
            };
            assert!(with(0x0806, &[]));
            assert!(with(0x0800, &[(9, 1)]) && !with(0x0800, &[(9, 17)]));
            assert!(with(0x86dd, &[(6, 58)]) && !with(0x86dd, &[(6, 17)]));
            assert!(with(0x86dd, &[(6, 0), (40, 58)]) && !with(0x86dd, &[(6, 0), (40, 17)]));
        }
        let ping = frame(&[0x0800], &[(9, 1)]);
        assert!((0..23).all(|length| !is_control(&ping[..length])));
    }
}
