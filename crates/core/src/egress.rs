//! Egress: the queues of a lane, and the verdicts of a burst, carried out run by run.
//!
//! A received burst passes [`Egress::dispatch_received`]. If it is one run that leaves by a queue
//! of the lane, [`Egress::send_burst`] passes it to
//! [`Queue::transmit_run`](crate::Queue::transmit_run). Otherwise it is split into runs, and
//! [`Egress::send`] passes each to its exit, which is one of the queues in [`LanePorts`] that the
//! lane also receives from, or to the carrier of a logical port. [`Egress::dispatch`] is for
//! resumed packets and for packets of other lanes.

use fastlane_table::counters::PortCounter;

use crate::exchange::Exchange;
use crate::hold::Hold;
use crate::observer::{Departure, PacketObserver};
use crate::packet::{is_one_run, same_run};
use crate::{Burst, Congestion, LogicalPorts, Packet, Pool, PortId, Sent, Verdict};

mod kernel_path;
mod kernel_share;
mod lane_ports;
mod lifecycle;
mod logical_exit;
mod runs;

use kernel_share::KernelShare;
use lane_ports::KernelPeer;
pub(crate) use lane_ports::{LanePorts, QueueSlot};
pub(crate) use lifecycle::InstalledQueues;
use runs::move_drops_last;

/// Queues of a lane as exits, and the packets that this turn may still give to Linux.
pub(crate) struct Egress {
    pub(crate) ports: LanePorts,
    pub(crate) observer: Option<Box<dyn PacketObserver>>,
    /// True if the observer is active in this turn.
    is_observed: bool,
    /// Exchange with other lanes, if packets change lanes.
    pub(crate) exchange: Option<Box<dyn Exchange>>,
    /// Ports that others carry.
    logical_ports: Option<Box<dyn LogicalPorts>>,
    /// Packets per turn for Linux, and in addition for control protocols.
    budget: (usize, usize),
    kernel_share: KernelShare,
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
    pub(crate) fn new(
        ports: LanePorts,
        budget: usize,
        logical_ports: Option<Box<dyn LogicalPorts>>,
    ) -> Self {
        Self {
            ports,
            observer: None,
            is_observed: false,
            exchange: None,
            logical_ports,
            budget: (budget, (budget / 4).max(1)),
            kernel_share: KernelShare::new(budget),
            kernel_left: 0,
            control_left: 0,
            linux_sends: false,
        }
    }

    /// Returns true if there is a layer that [`flush_layers`](Self::flush_layers) calls, or
    /// steering. An observer is one only in turns in which it is active.
    pub(crate) fn has_layers(&self) -> bool {
        self.exchange.is_some() || self.logical_ports.is_some() || self.ports.has_layers()
    }

    /// Flushes the kernel peers and the exchange. Returns true if one needs another flush.
    #[inline]
    pub(crate) fn flush_layers(&mut self, pool: &mut Pool) -> bool {
        let mut pending = false;
        for peer in &mut self.ports.kernel_peers {
            pending |= peer.slot.queue.flush(pool);
        }
        if let Some(exchange) = &mut self.exchange {
            pending |= exchange.flush(pool);
        }
        pending
    }

    /// Begins a turn of the observer. Returns true if it is active in this turn.
    #[inline]
    pub(crate) fn begin_observer(&mut self) -> bool {
        self.is_observed = self.observer.as_mut().is_some_and(|it| it.begin_turn());
        self.is_observed
    }

    /// Begins a turn of the layers.
    #[inline]
    pub(crate) fn begin(&mut self) {
        (self.kernel_left, self.control_left) = (self.kernel_share.next(), self.budget.1);
    }

    /// Notes packets that were received in this turn by a queue, and its congestion.
    #[inline]
    pub(crate) fn note_arrivals(&mut self, count: usize, congestion: Congestion) {
        self.kernel_share.note_arrivals(count, congestion);
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

    /// Marks the packets that steering claims, on a port that the lane steers. Returns false on all
    /// others.
    #[inline]
    pub(crate) fn steer(&mut self, port: usize, packets: &mut [Packet]) -> bool {
        let Some(filter) = self.ports.filter(port) else { return false };
        if filter.claims_all() {
            packets.iter_mut().for_each(Packet::set_claimed);
            return true;
        }
        let claimed = filter.claim_burst(packets);
        let counters = &self.ports.counters[port];
        counters.add(PortCounter::SteerClaimed, claimed);
        counters.add(PortCounter::SteerPassed, packets.len() as u64 - claimed);
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
        if self.ports.kernel_peers.is_empty() || !(is_due || self.linux_sends) {
            return 0;
        }
        let mut count = 0;
        for peer in 0..self.ports.kernel_peers.len() {
            if self.ports.kernel_peers[peer].receives {
                count += self.relay(peer, burst, pool);
            }
        }
        self.linux_sends = count > 0;
        count
    }

    /// Carries out the verdicts of a burst that came by the queue of this number. Dropped packets
    /// come last.
    pub(crate) fn dispatch(
        &mut self,
        queue: usize,
        burst: &mut Burst,
        pool: &mut Pool,
        hold: &mut Hold,
    ) {
        let packets = burst.packets();
        let taken = match is_one_run(packets) {
            true => self.dispatch_run::<true>(queue, packets, pool, hold),
            false => self.dispatch_runs(queue, packets, pool, hold),
        };
        Self::clear(burst, taken, pool);
    }

    /// Does the work of [`dispatch`](Self::dispatch) for a burst that was received by the queue in
    /// `slot`. Inlined into each turn.
    #[inline(always)]
    pub(crate) fn dispatch_received(
        &mut self,
        slot: usize,
        burst: &mut Burst,
        pool: &mut Pool,
        hold: &mut Hold,
    ) {
        // Most bursts are one run, and checking that is faster than searching the end of each run.
        let taken = if !is_one_run(burst.packets()) {
            self.dispatch_runs(self.ports.queues[slot].number, burst.packets(), pool, hold)
        } else if self.reflect(slot, burst, pool) || self.forward(slot, burst, pool) {
            return;
        } else {
            let queue = self.ports.queues[slot].number;
            self.dispatch_run::<true>(queue, burst.packets(), pool, hold)
        };
        Self::clear(burst, taken, pool);
    }

    /// Empties a burst of which at least `taken` packets were taken, and releases the others.
    #[inline]
    fn clear(burst: &mut Burst, taken: usize, pool: &mut Pool) {
        match taken == burst.len() {
            true => burst.clear_taken(),
            false => burst.clear(pool),
        }
    }

    /// Sends a burst that is one run, if it is labelled `Reflect` and came by the queue `at`, and
    /// empties it. This is the commonest case, and needs no search for the exit. Returns false if
    /// the run is another or needs more than that.
    #[inline(always)]
    fn reflect(&mut self, at: usize, burst: &mut Burst, pool: &mut Pool) -> bool {
        let Some(slot) = self.ports.queues.get(at) else { return false };
        let Some(first) = burst.packets().first() else { return false };
        let is_back = first.verdict().is_reflect() && usize::from(first.port().0) == slot.port;
        is_back && self.send_burst(at, None, burst, pool)
    }

    /// Does the same for a burst that leaves by another queue of this lane than `at`, by which it
    /// came.
    #[inline]
    fn forward(&mut self, at: usize, burst: &mut Burst, pool: &mut Pool) -> bool {
        let run = &*burst.packets();
        let Some(first) = run.first() else { return false };
        let source = self.source(run);
        let Some((to, counter)) = first.verdict().exit(source) else { return false };
        let exit = self.ports.exit_slot(to, self.ports.queues[at].number);
        exit.is_some_and(|exit| self.send_burst(exit, Some((source, counter)), burst, pool))
    }

    /// Sends a burst that is one run by the queue `exit`, and empties it. Counts the verdict as
    /// that of another port, or else as `Reflect`. Returns false if the run needs more than that.
    #[inline(always)]
    fn send_burst(
        &mut self,
        exit: usize,
        verdict: Option<(usize, PortCounter)>,
        burst: &mut Burst,
        pool: &mut Pool,
    ) -> bool {
        let slot = &mut self.ports.queues[exit];
        if self.is_observed || slot.must_copy(burst.packets(), pool) {
            return false;
        }
        let count = burst.len();
        match verdict {
            Some((source, counter)) => self.ports.counters[source].add(counter, count as u64),
            None => slot.counters.add(PortCounter::VerdictReflect, count as u64),
        }
        let sent = slot.queue.transmit_run(burst.run(), pool);
        if sent.taken == count && sent.packets == count {
            slot.counters.add_sent(count as u64, sent.bytes);
            burst.clear_taken();
        } else {
            self.send_rest(exit, burst, count, sent, pool);
        }
        true
    }

    /// Tries to transmit what the queue `exit` has not taken of `count` packets, counts what does
    /// not leave, and empties the burst.
    // By `LanePorts::exit` it would be another queue while this one leaves.
    #[inline(never)]
    fn send_rest(
        &mut self,
        exit: usize,
        burst: &mut Burst,
        count: usize,
        mut sent: Sent,
        pool: &mut Pool,
    ) {
        let slot = &mut self.ports.queues[exit];
        let port = slot.port;
        if sent.taken < burst.len() {
            sent = slot.retry(burst.packets(), sent, pool);
        }
        self.ports.count_sent(port, count, sent);
        burst.clear(pool);
    }

    /// Carries out the verdicts of several runs. Returns a lower bound of the packets that were
    /// taken.
    #[inline(never)]
    fn dispatch_runs(
        &mut self,
        queue: usize,
        packets: &mut [Packet],
        pool: &mut Pool,
        hold: &mut Hold,
    ) -> usize {
        move_drops_last(packets);
        let runs = packets.chunk_by_mut(same_run);
        runs.map(|run| self.dispatch_run::<true>(queue, run, pool, hold)).sum()
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
        for run in burst.packets().chunk_by_mut(same_run) {
            if run[0].verdict().verdict().is_none() {
                self.ports.count(self.source(run), PortCounter::DropBadVerdict, run.len());
            }
            self.dispatch_run::<false>(queue, run, pool, hold);
        }
        burst.clear(pool);
    }

    /// Counts the verdict of a run that passes
    /// [`dispatch_uncounted`](Self::dispatch_uncounted), unless the verdict has no meaning.
    pub(crate) fn count_verdict(&self, run: &[Packet]) {
        if let Some(verdict) = run[0].verdict().verdict() {
            self.ports.count(self.source(run), verdict.counter(), run.len());
        }
    }

    /// Returns the port of arrival of a run, or the first port if the packet names one that does
    /// not exist.
    #[inline]
    fn source(&self, run: &[Packet]) -> usize {
        let port = usize::from(run[0].port().0);
        if port < self.ports.len() { port } else { 0 }
    }

    /// Counts the verdict of a run, if `COUNTED`, and carries it out. Returns a lower bound of the
    /// packets that were taken.
    // Inlined into the path of a burst that is one run.
    #[inline(always)]
    fn dispatch_run<const COUNTED: bool>(
        &mut self,
        queue: usize,
        run: &mut [Packet],
        pool: &mut Pool,
        hold: &mut Hold,
    ) -> usize {
        let Some(first) = run.first() else { return 0 };
        let source = self.source(run);
        let Some((to, counter)) = first.verdict().exit(source) else {
            let exit = Exit { source, to: source, queue };
            return self.dispatch_other::<COUNTED>(exit, run, pool, hold);
        };
        if COUNTED {
            self.ports.counters[source].add(counter, run.len() as u64);
        }
        self.send(Exit { source, to, queue }, run, pool)
    }

    /// Carries out a verdict by which no packet leaves by a port.
    #[inline(never)]
    fn dispatch_other<const COUNTED: bool>(
        &mut self,
        exit: Exit,
        run: &mut [Packet],
        pool: &mut Pool,
        hold: &mut Hold,
    ) -> usize {
        let verdict = run[0].verdict().verdict();
        if COUNTED {
            let counter = verdict.map_or(PortCounter::DropBadVerdict, Verdict::counter);
            self.ports.count(exit.source, counter, run.len());
        }
        match verdict {
            Some(Verdict::Kernel) => self.send_to_kernel(exit.source, run, pool),
            Some(Verdict::Hold(key)) => {
                let held = hold.hold(key, exit.queue, run);
                self.ports.count(exit.source, PortCounter::DropHold, run.len() - held);
            }
            _ => {}
        }
        0
    }

    /// Sends a run by its exit, and shows it to an active observer. Returns the number of packets
    /// that the exit took.
    #[inline]
    fn send(&mut self, exit: Exit, run: &mut [Packet], pool: &mut Pool) -> usize {
        if self.is_observed {
            return self.send_observed(exit, run, pool);
        }
        self.transmit(exit, run, pool, |departure| departure.taken)
    }

    #[cold]
    fn send_observed(&mut self, exit: Exit, run: &mut [Packet], pool: &mut Pool) -> usize {
        let has_port = exit.to < self.ports.len();
        if !has_port || self.exchange.as_ref().is_some_and(|it| it.hands_over(exit.to)) {
            // There is no such port, or the lane that has it observes the packets.
            return self.transmit(exit, run, pool, |departure| departure.taken);
        }
        self.observe(|observer| observer.sending(PortId(exit.to as u16), run));
        let departure = self.transmit(exit, run, pool, |departure| departure);
        self.observe(|observer| observer.sent(departure));
        departure.taken
    }

    /// Transmits a run and returns `of` the result.
    // The result is read on each path by itself: on the common one it then needs no memory.
    #[inline(always)]
    fn transmit<R>(
        &mut self,
        exit: Exit,
        run: &mut [Packet],
        pool: &mut Pool,
        of: impl Fn(Departure) -> R,
    ) -> R {
        let Some(slot) = self.ports.exit(exit.to, exit.queue) else {
            return of(self.send_without_queue(exit, run, pool));
        };
        if slot.must_copy(run, pool) {
            return of(self.transmit_copies(exit, run, pool));
        }
        let count = run.len();
        let sent = slot.queue.transmit(run, pool);
        if sent.taken == count && sent.packets == count {
            slot.counters.add_sent(count as u64, sent.bytes);
            let (fitting, taken, packets) = (count, count, count);
            return of(Departure { has_queue: true, fitting, taken, packets });
        }
        of(self.transmit_rest(exit, run, count, sent, pool))
    }

    /// Transmits a run after copying it into memory of its exit.
    #[inline(never)]
    fn transmit_copies(&mut self, exit: Exit, run: &mut [Packet], pool: &mut Pool) -> Departure {
        let Some(slot) = self.ports.exit(exit.to, exit.queue) else {
            return Departure::NO_QUEUE; // unreachable: the caller has found it
        };
        let fitting = slot.make_transmittable(run, pool);
        let sent = slot.queue.transmit(&mut run[..fitting], pool);
        self.transmit_rest(exit, run, fitting, sent, pool)
    }

    /// Tries to transmit what the queue has not taken of the first `fitting` packets, and counts
    /// what does not leave.
    #[inline(never)]
    fn transmit_rest(
        &mut self,
        exit: Exit,
        run: &mut [Packet],
        fitting: usize,
        mut sent: Sent,
        pool: &mut Pool,
    ) -> Departure {
        let (run, not_copied) = run.split_at_mut(fitting);
        if sent.taken < run.len()
            && let Some(slot) = self.ports.exit(exit.to, exit.queue)
        {
            sent = slot.retry(run, sent, pool);
        }
        self.ports.count(exit.to, PortCounter::DropCopyNoFrame, not_copied.len());
        self.ports.count_sent(exit.to, run.len(), sent)
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
            self.ports.count(source, without, run.len());
            return Departure::NO_QUEUE;
        };
        self.ports.count(source, PortCounter::DropTransmitLength, sent.taken - sent.packets);
        self.ports.count(source, PortCounter::DropPassFull, run.len() - sent.taken);
        let (taken, packets) = (sent.taken, sent.packets);
        Departure { has_queue: true, fitting: run.len(), taken, packets }
    }
}
