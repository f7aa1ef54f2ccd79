//! Carrying verdicts out.

use fastlane_table::counters::PortCounter;

use crate::capture::{Departure, Recorder};
use crate::exchange::Exchange;
use crate::hold::Hold;
use crate::relocate::fit;
use crate::{Burst, Packet, Pool, Port, Sent, Verdict};

/// The exits of a lane, and what this turn may still give to Linux.
pub(crate) struct Dispatch {
    pub(crate) ports: Vec<Port>,
    pub(crate) recorder: Recorder,
    /// With other lanes, if packets change lanes.
    pub(crate) exchange: Option<Box<Exchange>>,
    /// Packets that a turn gives to Linux, and on top those that keep a network alive.
    budget: (usize, usize),
    kernel_left: usize,
    control_left: usize,
    /// Whether Linux had sent something when it was last looked at.
    linux_sends: bool,
}

impl Dispatch {
    /// A turn may give `budget` packets to Linux; a quarter as many, at least one, come on top for
    /// the packets that keep a network alive (ARP, ICMP, ICMPv6), so that others cannot crowd them
    /// out. No burst is longer than `burst`.
    pub(crate) fn new(ports: Vec<Port>, budget: usize, burst: usize) -> Self {
        let (recorder, budget) = (Recorder::new(burst), (budget, (budget / 4).max(1)));
        Self {
            ports,
            recorder,
            exchange: None,
            budget,
            kernel_left: 0,
            control_left: 0,
            linux_sends: false,
        }
    }

    #[inline]
    pub(crate) fn begin(&mut self) {
        self.recorder.begin();
        (self.kernel_left, self.control_left) = self.budget;
    }

    /// Receives from one queue of a port; returns how many packets.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        at: (usize, usize),
        burst: &mut Burst,
        pool: &mut Pool,
    ) -> usize {
        let port = &mut self.ports[at.0];
        port.queues[at.1].receive(burst, pool);
        let count = burst.len();
        if count > 0 {
            port.counters.add(PortCounter::ReceivedPackets, count as u64);
            port.counters.add(PortCounter::ReceivedBytes, burst.bytes());
        }
        count
    }

    /// Marks what steering claims, on a port where the lane looks after that; false on all others.
    #[inline]
    pub(crate) fn steer(&mut self, port: usize, packets: &mut [Packet]) -> bool {
        let port = &mut self.ports[port];
        let Some(filter) = &mut port.filter else { return false };
        if filter.claims_all() {
            packets.iter_mut().for_each(Packet::set_steered);
            return true;
        }
        let mut claimed = 0;
        for packet in packets.iter_mut() {
            if packet.is_steered() || filter.claims(packet.bytes()) {
                packet.set_steered();
                claimed += 1;
            }
        }
        port.counters.add(PortCounter::SteerClaimed, claimed);
        port.counters.add(PortCounter::SteerPassed, packets.len() as u64 - claimed);
        true
    }

    /// What Linux sends through the ports' kernel peers goes out of the ports, if it `is_due` or
    /// Linux has just sent; returns how many. To look whether there is something is a system call
    /// for each peer, hundreds of nanoseconds.
    #[inline]
    pub(crate) fn relay_from_kernel(
        &mut self,
        is_due: bool,
        burst: &mut Burst,
        pool: &mut Pool,
    ) -> usize {
        if !(is_due || self.linux_sends) {
            return 0;
        }
        let mut count = 0;
        for port in 0..self.ports.len() {
            if self.ports[port].kernel.as_ref().is_some_and(|path| path.receives) {
                count += self.relay(port, burst, pool);
            }
        }
        self.linux_sends = count > 0;
        count
    }

    #[inline(never)]
    fn relay(&mut self, port: usize, burst: &mut Burst, pool: &mut Pool) -> usize {
        let Some(path) = &mut self.ports[port].kernel else { return 0 };
        path.queue.receive(burst, pool);
        let count = burst.len();
        if count > 0 {
            burst.packets().iter_mut().for_each(Packet::set_from_kernel);
            self.ports[port].counters.add(PortCounter::FromKernelPackets, count as u64);
            self.transmit(port, port, 0, burst.packets(), pool);
            burst.clear(pool);
        }
        count
    }

    /// Carries out the verdicts of a burst, run by run, those that are dropped last. `queue` is the
    /// number of the queue that the burst came from: packets leave by the same one of the exit, as
    /// far as it has as many.
    #[inline]
    pub(crate) fn dispatch(
        &mut self,
        queue: usize,
        burst: &mut Burst,
        pool: &mut Pool,
        hold: &mut Hold,
    ) {
        let packets = burst.packets();
        if packets.is_empty() {
            return;
        }
        // Most often all go the same way, which is found out faster than where each run ends.
        let taken = match Packet::all_go_together(packets) {
            true => self.dispatch_run(queue, packets, pool, hold),
            false => {
                set_drops_aside(packets);
                let runs = packets.chunk_by_mut(Packet::goes_with);
                runs.map(|run| self.dispatch_run(queue, run, pool, hold)).sum()
            }
        };
        match taken == burst.len() {
            true => burst.clear_taken(),
            false => burst.clear(pool), // releases what no exit took
        }
    }

    /// Returns how many packets of the run are taken for sure.
    #[inline]
    fn dispatch_run(
        &mut self,
        queue: usize,
        run: &mut [Packet],
        pool: &mut Pool,
        hold: &mut Hold,
    ) -> usize {
        let source = self.source(run);
        self.ports[source].counters.add(verdict_counter(run), run.len() as u64);
        self.carry_out(source, queue, run, pool, hold)
    }

    /// As [`dispatch`](Self::dispatch), for packets that were not received but made by the
    /// application.
    pub(crate) fn originate(&mut self, burst: &mut Burst, pool: &mut Pool, hold: &mut Hold) {
        self.carry(0, burst, pool, hold);
    }

    /// Carries out what is labelled, and counted where it was.
    pub(crate) fn carry(
        &mut self,
        queue: usize,
        burst: &mut Burst,
        pool: &mut Pool,
        hold: &mut Hold,
    ) {
        for run in burst.packets().chunk_by_mut(Packet::goes_with) {
            let source = self.source(run);
            if run[0].verdict().verdict().is_none() {
                self.count(source, PortCounter::DropBadVerdict, run.len());
            }
            self.carry_out(source, queue, run, pool, hold);
        }
        burst.clear(pool);
    }

    /// Counts the verdict of a run that is [carried](Self::carry) out later, if it has one.
    pub(crate) fn count_verdict(&self, run: &[Packet]) {
        let counter = verdict_counter(run);
        if counter != PortCounter::DropBadVerdict {
            self.count(self.source(run), counter, run.len());
        }
    }

    /// The port of a run; the first, should the packet name one that does not exist.
    #[inline]
    fn source(&self, run: &[Packet]) -> usize {
        let port = usize::from(run[0].port().0);
        if port < self.ports.len() { port } else { 0 }
    }

    /// Returns how many packets of the run are taken for sure.
    #[inline]
    fn carry_out(
        &mut self,
        source: usize,
        queue: usize,
        run: &mut [Packet],
        pool: &mut Pool,
        hold: &mut Hold,
    ) -> usize {
        match run[0].verdict().verdict() {
            Some(Verdict::Reflect) => self.transmit(source, source, queue, run, pool),
            Some(Verdict::Forward(to)) => {
                self.transmit(source, usize::from(to.0), queue, run, pool)
            }
            Some(Verdict::Kernel) => {
                self.give_to_kernel(source, run, pool);
                0
            }
            Some(Verdict::Hold(key)) => {
                let kept = hold.keep(key.number(), queue, run);
                self.count(source, PortCounter::DropHold, run.len() - kept);
                0
            }
            Some(Verdict::Drop) | None => 0,
        }
    }

    #[inline]
    fn count(&self, port: usize, counter: PortCounter, packets: usize) {
        if packets > 0 {
            self.ports[port].counters.add(counter, packets as u64);
        }
    }

    /// Sends a run by a port, and copies it if it is looked on; returns how many the port took.
    #[inline]
    fn transmit(
        &mut self,
        source: usize,
        to: usize,
        queue: usize,
        run: &mut [Packet],
        pool: &mut Pool,
    ) -> usize {
        if self.recorder.is_on() && to < self.ports.len() {
            return self.transmit_recorded(source, to, queue, run, pool);
        }
        self.send(source, to, queue, run, pool).taken
    }

    #[cold]
    fn transmit_recorded(
        &mut self,
        source: usize,
        to: usize,
        queue: usize,
        run: &mut [Packet],
        pool: &mut Pool,
    ) -> usize {
        if self.exchange.as_ref().is_some_and(|exchange| exchange.hands_over(to)) {
            // Copied where it leaves.
            return self.send(source, to, queue, run, pool).taken;
        }
        self.recorder.leaving(to, run);
        let departure = self.send(source, to, queue, run, pool);
        self.recorder.departed(departure);
        departure.taken
    }

    #[inline(always)]
    fn send(
        &mut self,
        source: usize,
        to: usize,
        queue: usize,
        run: &mut [Packet],
        pool: &mut Pool,
    ) -> Departure {
        let Some(port) = self.ports.get_mut(to).filter(|port| !port.queues.is_empty()) else {
            return self.hand_over(source, to, PortCounter::DropNoPort, run, pool);
        };
        let queues = port.queues.len();
        let exit = &mut *port.queues[if queue < queues { queue } else { queue % queues }];
        let fitting = fit(exit, run, pool);
        let (run, homeless) = run.split_at_mut(fitting);
        let mut sent = exit.transmit(run, pool);
        if sent.taken < run.len() {
            exit.flush(pool);
            let more = exit.transmit(&mut run[sent.taken..], pool);
            sent = Sent {
                taken: sent.taken + more.taken,
                packets: sent.packets + more.packets,
                bytes: sent.bytes + more.bytes,
            };
        }
        // A driver that says more than it was shown must not end the lane.
        let taken = sent.taken.min(run.len());
        let packets = sent.packets.min(taken);
        port.counters.add(PortCounter::SentPackets, packets as u64);
        port.counters.add(PortCounter::SentBytes, sent.bytes);
        self.count(to, PortCounter::DropTransmitLength, taken - packets);
        self.count(to, PortCounter::DropTransmitFull, run.len() - taken);
        self.count(to, PortCounter::DropCopyNoFrame, homeless.len());
        Departure { has_queue: true, fitting, taken, packets }
    }

    /// What this lane has no way for goes to the lane that has, if there is one.
    #[cold]
    fn hand_over(
        &mut self,
        source: usize,
        to: usize,
        without: PortCounter,
        run: &mut [Packet],
        pool: &mut Pool,
    ) -> Departure {
        let exchange = self.exchange.as_mut();
        let Some(sent) = exchange.and_then(|exchange| exchange.hand_over(to, run, pool)) else {
            self.count(source, without, run.len());
            return Departure::NOWHERE;
        };
        self.count(source, PortCounter::DropTransmitLength, sent.taken - sent.packets);
        self.count(source, PortCounter::DropPassFull, run.len() - sent.taken);
        let (taken, packets) = (sent.taken, sent.packets);
        Departure { has_queue: true, fitting: run.len(), taken, packets }
    }

    fn give_to_kernel(&mut self, source: usize, run: &mut [Packet], pool: &mut Pool) {
        let port = &mut self.ports[source];
        let Some(path) = port.kernel.as_mut() else {
            self.hand_over(source, source, PortCounter::DropNoKernelPeer, run, pool);
            return;
        };
        let fitting = fit(&mut *path.queue, run, pool);
        let (run, homeless) = run.split_at_mut(fitting);
        let (mut given, mut over_budget) = (0, 0);
        let (within, beyond) = run.split_at_mut(self.kernel_left.min(run.len()));
        self.kernel_left -= within.len();
        let mut tried = within.len();
        if !within.is_empty() {
            given += path.queue.transmit(within, pool).packets;
        }
        for packet in beyond {
            if self.control_left > 0 && is_control(packet.bytes()) {
                self.control_left -= 1;
                tried += 1;
                given += path.queue.transmit(std::slice::from_mut(packet), pool).packets;
            } else {
                over_budget += 1;
            }
        }
        // As in `send`: a driver that says more than it was shown must not end the lane.
        let given = given.min(tried);
        self.count(source, PortCounter::ToKernelPackets, given);
        self.count(source, PortCounter::DropKernelFull, tried - given);
        self.count(source, PortCounter::DropKernelBudget, over_budget);
        self.count(source, PortCounter::DropCopyNoFrame, homeless.len());
    }
}

/// Moves what is dropped behind all else, which stays in order: among packets that leave by one
/// exit each of them would end a run, and a run costs as much as several packets.
#[inline(never)]
fn set_drops_aside(packets: &mut [Packet]) {
    let mut kept = 0;
    for at in 0..packets.len() {
        if packets[at].verdict().verdict() != Some(Verdict::Drop) {
            if at != kept {
                packets.swap(kept, at);
            }
            kept += 1;
        }
    }
}

#[inline(always)]
fn verdict_counter(run: &[Packet]) -> PortCounter {
    match run[0].verdict().verdict() {
        Some(Verdict::Kernel) => PortCounter::VerdictKernel,
        Some(Verdict::Drop) => PortCounter::VerdictDrop,
        Some(Verdict::Reflect) => PortCounter::VerdictReflect,
        Some(Verdict::Forward(_)) => PortCounter::VerdictForward,
        Some(Verdict::Hold(_)) => PortCounter::VerdictHold,
        None => PortCounter::DropBadVerdict,
    }
}

/// Whether a frame keeps the network itself alive: ARP, ICMP, ICMPv6 (which includes neighbour and
/// multicast listener discovery, the latter behind a hop-by-hop header), behind at most two VLAN
/// tags.
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
        for (place, ethertype) in types.iter().enumerate() {
            frame.extend(ethertype.to_be_bytes());
            frame.extend(if place + 1 < types.len() { &[0, 5][..] } else { &[] });
        }
        let start = frame.len();
        frame.resize(start + 60, 0);
        network.iter().for_each(|(at, value)| frame[start + at] = *value);
        frame
    }

    #[test]
    fn what_keeps_a_network_alive_is_known_behind_tags() {
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
