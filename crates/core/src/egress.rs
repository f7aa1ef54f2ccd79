//! Egress: carries out the verdicts of a burst, run by run.
//!
//! A burst passes [`Egress::dispatch`], which splits it into runs, and [`Egress::send`], which
//! passes a run to [`Queue::transmit`](crate::Queue::transmit) of its exit.

use fastlane_table::counters::PortCounter;

use crate::copy::make_transmittable;
use crate::exchange::Exchange;
use crate::hold::Hold;
use crate::observer::{Departure, PacketObserver};
use crate::{Burst, Packet, PacketOwnership, Pool, Port, PortId, Sent, Verdict};

/// Exits of a lane, and the packets that this turn may still give to Linux.
pub(crate) struct Egress {
    pub(crate) ports: Vec<Port>,
    pub(crate) observer: Option<Box<dyn PacketObserver>>,
    /// True if the observer is active in this turn.
    is_observed: bool,
    /// Exchange with other lanes, if packets change lanes.
    pub(crate) exchange: Option<Box<dyn Exchange>>,
    /// Packets per turn for Linux, and in addition for control protocols.
    budget: (usize, usize),
    kernel_left: usize,
    control_left: usize,
    /// True if the last poll of the kernel peers found packets.
    linux_sends: bool,
}

/// Way of a run out of the lane.
#[derive(Clone, Copy)]
struct Exit {
    /// Port of arrival.
    source: usize,
    /// Port of departure.
    to: usize,
    /// Number of the queue of arrival. Packets leave by the queue of the same number, modulo the
    /// number of queues of the exit.
    queue: usize,
}

impl Egress {
    /// Creates the egress of a lane. A turn gives at most `budget` packets to Linux. A quarter of
    /// that, at least one, is reserved in addition for ARP, ICMP and ICMPv6, so that other packets
    /// cannot crowd them out.
    pub(crate) fn new(ports: Vec<Port>, budget: usize) -> Self {
        Self {
            ports,
            observer: None,
            is_observed: false,
            exchange: None,
            budget: (budget, (budget / 4).max(1)),
            kernel_left: 0,
            control_left: 0,
            linux_sends: false,
        }
    }

    /// Begins a turn.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.is_observed = self.observer.as_mut().is_some_and(|it| it.begin_turn());
        (self.kernel_left, self.control_left) = self.budget;
    }

    /// Calls the observer if it is active in this turn.
    #[inline]
    pub(crate) fn observe(&mut self, call: impl FnOnce(&mut dyn PacketObserver)) {
        if self.is_observed
            && let Some(observer) = &mut self.observer
        {
            call(&mut **observer);
        }
    }

    /// Returns true if the observer is active in this turn.
    #[inline]
    pub(crate) fn is_observed(&self) -> bool {
        self.is_observed
    }

    /// Receives from one queue of a port and returns the number of packets.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        port: usize,
        queue: usize,
        burst: &mut Burst,
        pool: &mut Pool,
    ) -> usize {
        let port = &mut self.ports[port];
        port.queues[queue].receive(burst, pool);
        let count = burst.len();
        if count > 0 {
            port.counters.add(PortCounter::ReceivedPackets, count as u64);
            port.counters.add(PortCounter::ReceivedBytes, burst.bytes());
        }
        count
    }

    /// Marks the packets that steering claims, on a port that the lane steers. Returns false on all
    /// others.
    #[inline]
    pub(crate) fn steer(&mut self, port: usize, packets: &mut [Packet]) -> bool {
        let port = &mut self.ports[port];
        let Some(filter) = &mut port.filter else { return false };
        if filter.claims_all() {
            packets.iter_mut().for_each(Packet::set_claimed);
            return true;
        }
        let mut claimed = 0;
        for packet in packets.iter_mut() {
            if packet.is_claimed() || filter.claims(packet.bytes()) {
                packet.set_claimed();
                claimed += 1;
            }
        }
        port.counters.add(PortCounter::SteerClaimed, claimed);
        port.counters.add(PortCounter::SteerPassed, packets.len() as u64 - claimed);
        true
    }

    /// Forwards packets that Linux sends through the kernel peers of owned devices, if `is_due` or
    /// if the last call found some. Returns their number. Each peer costs a system call of some
    /// hundred nanoseconds.
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
            self.send(Exit { source: port, to: port, queue: 0 }, burst.packets(), pool);
            burst.clear(pool);
        }
        count
    }

    /// Carries out the verdicts of a burst that was received from the queue of this number. Dropped
    /// packets come last.
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
        // Most bursts are one run, and checking that is faster than searching the end of each run.
        let taken = match Packet::is_one_run(packets) {
            true => self.dispatch_counted(queue, packets, pool, hold),
            false => {
                move_drops_last(packets);
                let runs = packets.chunk_by_mut(Packet::same_run);
                runs.map(|run| self.dispatch_counted(queue, run, pool, hold)).sum()
            }
        };
        match taken == burst.len() {
            true => burst.clear_taken(),
            false => burst.clear(pool), // releases packets that no exit took
        }
    }

    /// Counts the verdict of a run and carries it out. Returns a lower bound of the packets that
    /// were taken.
    #[inline]
    fn dispatch_counted(
        &mut self,
        queue: usize,
        run: &mut [Packet],
        pool: &mut Pool,
        hold: &mut Hold,
    ) -> usize {
        let source = self.source(run);
        self.ports[source].counters.add(verdict_counter(run), run.len() as u64);
        self.dispatch_run(source, queue, run, pool, hold)
    }

    /// Carries out verdicts that are counted elsewhere: of packets that the application made, or
    /// that another lane has labelled.
    pub(crate) fn dispatch_uncounted(
        &mut self,
        queue: usize,
        burst: &mut Burst,
        pool: &mut Pool,
        hold: &mut Hold,
    ) {
        for run in burst.packets().chunk_by_mut(Packet::same_run) {
            let source = self.source(run);
            if run[0].verdict().verdict().is_none() {
                self.count(source, PortCounter::DropBadVerdict, run.len());
            }
            self.dispatch_run(source, queue, run, pool, hold);
        }
        burst.clear(pool);
    }

    /// Counts the verdict of a run that passes
    /// [`dispatch_uncounted`](Self::dispatch_uncounted), unless the verdict has no meaning.
    pub(crate) fn count_verdict(&self, run: &[Packet]) {
        let counter = verdict_counter(run);
        if counter != PortCounter::DropBadVerdict {
            self.count(self.source(run), counter, run.len());
        }
    }

    /// Returns the port of arrival of a run, or the first port if the packet names one that does
    /// not exist.
    #[inline]
    fn source(&self, run: &[Packet]) -> usize {
        let port = usize::from(run[0].port().0);
        if port < self.ports.len() { port } else { 0 }
    }

    /// Carries out the verdict of a run. Returns a lower bound of the packets that were taken.
    #[inline]
    fn dispatch_run(
        &mut self,
        source: usize,
        queue: usize,
        run: &mut [Packet],
        pool: &mut Pool,
        hold: &mut Hold,
    ) -> usize {
        match run[0].verdict().verdict() {
            Some(Verdict::Reflect) => self.send(Exit { source, to: source, queue }, run, pool),
            Some(Verdict::Forward(to)) => {
                self.send(Exit { source, to: usize::from(to.0), queue }, run, pool)
            }
            Some(Verdict::Kernel) => {
                self.send_to_kernel(source, run, pool);
                0
            }
            Some(Verdict::Hold(key)) => {
                let held = hold.hold(key, queue, run);
                self.count(source, PortCounter::DropHold, run.len() - held);
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

    /// Sends a run by its exit, and shows it to an active observer. Returns the number of packets
    /// that the exit took.
    #[inline]
    fn send(&mut self, exit: Exit, run: &mut [Packet], pool: &mut Pool) -> usize {
        if self.is_observed && exit.to < self.ports.len() {
            return self.send_observed(exit, run, pool);
        }
        self.transmit(exit, run, pool).taken
    }

    #[cold]
    fn send_observed(&mut self, exit: Exit, run: &mut [Packet], pool: &mut Pool) -> usize {
        if self.exchange.as_ref().is_some_and(|exchange| exchange.hands_over(exit.to)) {
            // The lane that has the port observes the packets.
            return self.transmit(exit, run, pool).taken;
        }
        self.observe(|observer| observer.sending(PortId(exit.to as u16), run));
        let departure = self.transmit(exit, run, pool);
        self.observe(|observer| observer.sent(departure));
        departure.taken
    }

    #[inline(always)]
    fn transmit(&mut self, exit: Exit, run: &mut [Packet], pool: &mut Pool) -> Departure {
        let Exit { to, queue, .. } = exit;
        let Some(port) = self.ports.get_mut(to).filter(|port| !port.queues.is_empty()) else {
            return self.send_to_lane(exit, PortCounter::DropNoPort, run, pool);
        };
        let queues = port.queues.len();
        let exit = &mut *port.queues[if queue < queues { queue } else { queue % queues }];
        let fitting = make_transmittable(exit, run, pool);
        let (run, not_copied) = run.split_at_mut(fitting);
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
        // A driver that reports more packets than the run has must not end the lane.
        let taken = sent.taken.min(run.len());
        let packets = sent.packets.min(taken);
        port.counters.add(PortCounter::SentPackets, packets as u64);
        port.counters.add(PortCounter::SentBytes, sent.bytes);
        self.count(to, PortCounter::DropTransmitLength, taken - packets);
        self.count(to, PortCounter::DropTransmitFull, run.len() - taken);
        self.count(to, PortCounter::DropCopyNoFrame, not_copied.len());
        Departure { has_queue: true, fitting, taken, packets }
    }

    /// Passes a run to the lane that has a queue of the exit, or counts it as `without`.
    #[cold]
    fn send_to_lane(
        &mut self,
        exit: Exit,
        without: PortCounter,
        run: &mut [Packet],
        pool: &mut Pool,
    ) -> Departure {
        let Exit { source, to, .. } = exit;
        let exchange = self.exchange.as_mut();
        let Some(sent) = exchange.and_then(|exchange| exchange.hand_over(to, run, pool)) else {
            self.count(source, without, run.len());
            return Departure::NO_QUEUE;
        };
        self.count(source, PortCounter::DropTransmitLength, sent.taken - sent.packets);
        self.count(source, PortCounter::DropPassFull, run.len() - sent.taken);
        let (taken, packets) = (sent.taken, sent.packets);
        Departure { has_queue: true, fitting: run.len(), taken, packets }
    }

    fn send_to_kernel(&mut self, source: usize, run: &mut [Packet], pool: &mut Pool) {
        let port = &mut self.ports[source];
        let Some(path) = port.kernel.as_mut() else {
            let exit = Exit { source, to: source, queue: 0 };
            self.send_to_lane(exit, PortCounter::DropNoKernelPeer, run, pool);
            return;
        };
        let fitting = make_transmittable(&mut *path.queue, run, pool);
        let (run, not_copied) = run.split_at_mut(fitting);
        let (mut sent, mut over_budget) = (0, 0);
        let (within, beyond) = run.split_at_mut(self.kernel_left.min(run.len()));
        self.kernel_left -= within.len();
        let mut tried = within.len();
        if !within.is_empty() {
            sent += path.queue.transmit(within, pool).packets;
        }
        for packet in beyond {
            if self.control_left > 0 && is_control(packet.bytes()) {
                self.control_left -= 1;
                tried += 1;
                sent += path.queue.transmit(std::slice::from_mut(packet), pool).packets;
            } else {
                over_budget += 1;
            }
        }
        // A driver that reports more packets than it was passed must not end the lane.
        let sent = sent.min(tried);
        self.count(source, PortCounter::ToKernelPackets, sent);
        self.count(source, PortCounter::DropKernelFull, tried - sent);
        self.count(source, PortCounter::DropKernelBudget, over_budget);
        self.count(source, PortCounter::DropCopyNoFrame, not_copied.len());
    }
}

/// Moves dropped packets behind all others, which stay in order. Between packets of one exit each
/// of them would end a run, and a run costs as much as several packets.
#[inline(never)]
fn move_drops_last(packets: &mut [Packet]) {
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
