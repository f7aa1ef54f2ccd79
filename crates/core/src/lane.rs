//! Lanes: everything that belongs to one core.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use fastlane_table::counters::{LaneCounter, LaneCounters};

use crate::egress::{Egress, LanePorts};
use crate::hold::Resume;
use crate::idle::IdleState;
use crate::{
    App, Burst, Congestion, HoldBuffer, Idle, LogicalPorts, Messages, PacketObserver,
    PacketOwnership, Pool, Port, PortId, QueueSwap, Turn, now,
};

/// Period at which a lane asks its queues for their losses, in nanoseconds.
const STATISTICS_PERIOD: u64 = 100_000_000;
/// Number of turns with work between two looks at the clock for [`STATISTICS_PERIOD`].
const CLOCK_TURNS: u64 = 64;
/// Number of turns with work between two polls of the kernel peers, as long as Linux sends nothing:
/// some 40 microseconds with bursts of 32 from one port and 80 ns per packet.
const KERNEL_TURNS: u64 = 16;
/// Number of flushes, to get frames back, before the lane drops resumed packets.
const RESUME_ATTEMPTS: usize = 64;
/// Maximum number of packets that a stopped lane receives, because they arrived before. It exceeds
/// what the rings and sockets of its queues hold, and bounds the end of a lane with a port whose
/// arrivals never end.
const LAST_PACKETS: usize = 1 << 17;
/// Longest time that a closing lane tries to send what its ports still have, in nanoseconds.
const DRAIN: u64 = 500_000_000;

/// Parts and settings of a lane.
pub struct LaneConfig {
    /// Frame pool of all ports of the lane.
    pub pool: Pool,
    /// Entry for each configured port, in the order of their numbers.
    pub ports: Vec<Port>,
    /// Counters, which only this lane writes.
    pub counters: LaneCounters,
    /// Maximum number of packets in a burst, and of packets that the application makes in a turn.
    pub burst: usize,
    /// Maximum number of packets that a turn gives to Linux, besides a share for ARP and ICMP.
    pub kernel_budget: usize,
    /// Behaviour without work.
    pub idle: Idle,
    /// Messages to and from the slow path.
    pub messages: Option<Messages>,
    /// Buffer for packets labelled `Hold`. Without one they are dropped and counted.
    pub hold: Option<Box<dyn HoldBuffer>>,
    /// Ports without queues, which other ports carry.
    pub logical_ports: Option<Box<dyn LogicalPorts>>,
}

impl LaneConfig {
    /// Creates a configuration from the required parts. Everything else has its default; holding
    /// and messages are disabled.
    #[must_use]
    pub fn new(pool: Pool, ports: Vec<Port>, counters: LaneCounters) -> Self {
        Self {
            pool,
            ports,
            counters,
            burst: 32,
            kernel_budget: 32,
            idle: Idle::default(),
            messages: None,
            hold: None,
            logical_ports: None,
        }
    }
}

/// One thread's part of a network application: queues of the ports, an instance of the application,
/// a frame pool and counters. No two lanes write the same memory.
///
/// # Examples
/// ```
/// use fastlane_core::{Lane, LaneConfig, Packet, Pool, Port, PortId, Queue, Verdict};
/// use fastlane_local::memory::Memory;
/// use fastlane_table::SharedMemory;
/// use fastlane_table::counters::{Counters, PortCounter};
///
/// let counters = Counters::create(1, 1)?;
/// let mut pool = Pool::new(SharedMemory::create("frames", 64 * 2048)?, 2048, 192)?;
/// // A memory port with eight packets: what the application reflects arrives again.
/// let queue = Memory::filled(PortId(0), &mut pool, 8, &[0; 60])?;
/// let port = Port {
///     queues: vec![Box::new(queue)],
///     kernel: None,
///     filter: None,
///     counters: counters.port(0, 0),
/// };
/// let config = LaneConfig::new(pool, vec![port], counters.lane(0));
/// let mut lane = Lane::new(|_: &mut Packet| Verdict::Reflect, config);
/// assert_eq!(lane.turn(), 8);
/// assert_eq!(counters.port(0, 0).load(PortCounter::SentPackets), 8);
/// assert_eq!(lane.close(), 0, "every frame is back in the pool");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Lane<A> {
    app: A,
    egress: Egress,
    burst: Burst,
    /// Held packets that are shown again; empty between bursts.
    resumed: Burst,
    /// Arrivals of several ports; empty between bursts.
    mixed: Burst,
    turn: Turn,
    idle: IdleState,
    statistics_due: u64,
    phase: Phase,
    /// True if there is a layer around the lane that every turn looks at: an exchange, steering,
    /// kernel peers, messages, or a hold buffer that was used.
    has_lasting_layers: bool,
    /// True if there is one of these in this turn, or the observer is active. Without any, a turn
    /// does not look at each.
    has_layers: bool,
    /// Replacement of queues by the main thread.
    swap: Option<Arc<QueueSwap>>,
}

/// Phase of a lane.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The lane has no exchange with others.
    Alone,
    /// A turn begins with packets of other lanes.
    Exchanging,
    /// The lane no longer reads tables, so a turn does nothing.
    Closed,
}

/// Has the compiler move the branch that calls it out of line, so that what a plain turn runs lies
/// in one piece (docs/why/0019).
#[cold]
#[inline]
fn outline() {}

impl<A: App> Lane<A> {
    /// Creates a lane. It allocates all memory that the lane uses.
    pub fn new(app: A, config: LaneConfig) -> Self {
        let LaneConfig { pool, ports, counters, burst, kernel_budget, idle, .. } = config;
        let LaneConfig { messages, hold, logical_ports, .. } = config;
        counters.publish(LaneCounter::PoolFrames, pool.frames() as u64);
        // An earlier lane may have used these counters. The fence is that of `rest`.
        counters.publish(LaneCounter::Asleep, 0);
        counters.publish(LaneCounter::Ended, 0);
        fence(Ordering::SeqCst);
        let mut ports = LanePorts::new(ports, &pool);
        if let Some(logical_ports) = &logical_ports {
            ports.share_kernel_paths(&**logical_ports);
        }
        let mut lane = Self {
            app,
            burst: Burst::new(burst),
            resumed: Burst::new(burst),
            mixed: Burst::new(if logical_ports.is_some() { burst } else { 0 }),
            turn: Turn::new(pool, burst, counters, messages, hold),
            egress: Egress::new(ports, kernel_budget, logical_ports),
            idle: IdleState::new(idle, None),
            statistics_due: 0,
            phase: Phase::Alone,
            has_lasting_layers: true,
            has_layers: true,
            swap: None,
        };
        lane.update_layers();
        lane
    }

    /// Runs one turn: receives, shows the packets to the application, carries out its verdicts,
    /// sends everything and publishes counters. Returns the amount of work; with 0 the lane may
    /// rest. Does nothing after [`close`](Self::close).
    pub fn turn(&mut self) -> usize {
        self.turn.begin();
        let mut work = 0;
        if self.egress.observer.is_some() {
            self.has_layers = self.egress.begin_observer() || self.has_lasting_layers;
        }
        if self.has_layers {
            outline();
            let Some(begun) = self.begin_layers() else { return 0 };
            work = begun;
        }
        let mut slot = 0;
        while let Some(received) = self.receive(slot) {
            work += received;
            slot += 1;
        }
        if self.has_layers {
            outline();
            let is_due = work == 0 || self.turn.number().is_multiple_of(KERNEL_TURNS);
            work += self.egress.relay_from_kernel(is_due, &mut self.burst, &mut self.turn.pool);
        }
        self.app.turn(&mut self.turn);
        work += self.resume();
        work += self.turn.outbox.len();
        if !self.turn.outbox.is_empty() {
            outline();
            let Turn { outbox, pool, hold, .. } = &mut self.turn;
            self.egress.dispatch_uncounted(0, outbox, pool, hold);
        }
        work += usize::from(self.flush());
        work += usize::from(self.turn.is_awake());
        // A lane that never sleeps or has work reads the clock rarely: it costs 25 ns.
        if work == 0 || self.turn.number() % CLOCK_TURNS == 1 {
            work += usize::from(self.publish_if_due(work == 0));
        }
        if self.has_layers {
            outline();
            self.turn.end_turn();
        } else if self.turn.hold.was_used() {
            self.begin_holding();
        }
        self.turn.counters.publish(LaneCounter::Turn, self.turn.number());
        work
    }

    /// Begins a turn of the layers around the lane. Returns the amount of work, or `None` if the
    /// lane is closed.
    #[inline]
    fn begin_layers(&mut self) -> Option<usize> {
        self.egress.begin();
        match self.phase {
            Phase::Alone => Some(self.resume()),
            Phase::Exchanging => Some(self.resume() + self.serve()),
            Phase::Closed => None,
        }
    }

    /// Determines whether each turn must look at each layer.
    fn update_layers(&mut self) {
        let turn = &self.turn;
        self.has_lasting_layers = self.phase != Phase::Alone
            || self.egress.has_layers()
            || turn.hold.was_used()
            || turn.messages.is_some();
        self.has_layers = self.has_lasting_layers;
    }

    /// Ends the first turn in which a packet was held. From now on, holding is a layer.
    #[cold]
    fn begin_holding(&mut self) {
        self.update_layers();
        self.turn.end_turn();
    }

    /// Runs turns until `stop` is set, which an application does by [`Turn::end`], and closes the
    /// lane. Returns the number of frames that did not return to the pool: anything but 0 is a
    /// defect of a driver.
    pub fn run(&mut self, stop: &AtomicBool) -> usize {
        self.run_turns(stop);
        self.close()
    }

    /// Runs turns until `stop` is set, as [`run`](Self::run), but leaves the lane open: what claims
    /// frames for its queues can end first. [`close`](Self::close) must follow.
    pub fn run_turns(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let work = self.turn();
            if work > 0 {
                self.turn.counters.add(LaneCounter::BusyTurns, 1);
                self.idle.end_period(work);
            } else {
                self.rest();
            }
            if self.turn.has_ended() {
                stop.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Ends the arrivals of all queues and runs turns until one has no work, unless the application
    /// has ended itself. Packets that arrived before are received by them, for a bounded time.
    pub fn run_last_turns(&mut self) {
        if self.turn.has_ended() {
            return;
        }
        self.egress.ports.end_arrivals();
        let end = now() + DRAIN;
        for _ in 0..LAST_PACKETS.div_ceil(self.burst.room().max(1)) {
            if self.turn() == 0 || now() > end {
                return;
            }
        }
    }

    /// Returns the descriptors that wake the lane: the interrupts of its queues, its messages and
    /// its exchange. Returns `None` if a queue has no interrupt, so that the lane must poll.
    #[must_use]
    pub fn interrupts(&self) -> Option<Vec<BorrowedFd<'_>>> {
        let messages = self.turn.messages.as_ref().map(|messages| Some(messages.interrupt()));
        let exchange = self.egress.exchange.as_ref().map(|exchange| exchange.interrupt());
        self.egress.ports.interrupts().chain(messages).chain(exchange).collect()
    }

    /// Makes the lane wait on an epoll instance that watches all of
    /// [`interrupts`](Self::interrupts).
    pub fn wait_on(&mut self, epoll: OwnedFd, idle: Idle) {
        self.idle = IdleState::new(idle, Some(epoll));
    }

    /// Lets another thread replace queues of the lane.
    pub fn swap_queues_by(&mut self, swap: Arc<QueueSwap>) {
        swap.begin(&self.egress.ports);
        self.swap = Some(swap);
    }

    /// Attaches an observer, such as a capture, in place of any other.
    pub fn observe(&mut self, observer: Box<dyn PacketObserver>) {
        self.egress.observer = Some(observer);
        self.update_layers();
    }

    /// Returns the lane's counters. Its thread sets [`LaneCounter::Thread`] and
    /// [`LaneCounter::Cpu`].
    #[must_use]
    pub fn counters(&self) -> &LaneCounters {
        &self.turn.counters
    }

    /// Returns the application.
    pub fn app(&mut self) -> &mut A {
        &mut self.app
    }

    /// Receives a burst from a queue, shows it to the application and carries out its verdicts.
    /// Returns the amount of work, or `None` behind the last queue.
    #[inline(always)]
    fn receive(&mut self, at: usize) -> Option<usize> {
        let slot = self.egress.ports.queues.get_mut(at)?;
        slot.queue.receive(&mut self.burst, &mut self.turn.pool);
        let count = self.burst.len();
        slot.has_received = count > 0;
        if count == 0 {
            outline();
            return Some(0);
        }
        if self.has_layers {
            outline();
            let is_full = self.burst.room() == 0;
            let congestion = if is_full { slot.queue.congestion() } else { Congestion::None };
            self.egress.note_arrivals(count, congestion);
            self.show_arrivals(at);
        } else {
            slot.counters.add_received(count as u64, self.burst.bytes());
            self.label(false);
        }
        let resumed = self.resume();
        let (pool, hold) = (&mut self.turn.pool, &mut self.turn.hold);
        self.egress.dispatch_received(at, &mut self.burst, pool, hold);
        Some(count + resumed)
    }

    /// Shows the burst, which was received by a queue, port by port.
    #[inline]
    fn show_arrivals(&mut self, at: usize) {
        let port = self.egress.ports.queues[at].port;
        if self.egress.decapsulate(port, self.burst.packets()) {
            self.show_logical(at);
        } else {
            self.show(port);
        }
    }

    /// Counts the burst as arrivals at a port, runs the application on it, and shows it to an
    /// active observer.
    #[inline]
    fn show(&mut self, port: usize) {
        let received = self.burst.len() as u64;
        self.egress.ports.counters[port].add_received(received, self.burst.bytes());
        let steered = self.egress.steer(port, self.burst.packets());
        if steered && self.egress.exchange.is_some() {
            self.distribute(port);
        }
        if self.egress.is_observed() {
            return self.label_observed(port, steered);
        }
        self.label(steered);
    }

    #[cold]
    fn label_observed(&mut self, port: usize, steered: bool) {
        let port = PortId(port as u16);
        self.egress.observe(|observer| observer.received(port, self.burst.packets()));
        self.label(steered);
        self.egress.observe(|observer| observer.labelled(self.burst.packets()));
    }

    /// Shows the burst to the application; of a steered one only the claimed packets.
    #[inline]
    fn label(&mut self, steered: bool) {
        self.turn.begin_burst();
        let packets = self.burst.packets();
        if !steered {
            return self.app.process(packets, &mut self.turn);
        }
        for run in packets.chunk_by_mut(|one, other| one.is_claimed() == other.is_claimed()) {
            if run[0].is_claimed() {
                self.app.process(run, &mut self.turn);
            }
        }
    }

    /// Shows packets that the application has resumed since the last call. Returns their number.
    #[inline]
    fn resume(&mut self) -> usize {
        if self.turn.hold.has_requests() { self.show_resumed() } else { 0 }
    }

    #[cold]
    fn show_resumed(&mut self) -> usize {
        let (mut shown, mut attempts) = (0, 0);
        self.turn.hold.begin_round();
        loop {
            match self.turn.hold.next_burst(&mut self.resumed, &mut self.turn.pool) {
                Resume::Done => return shown,
                Resume::NoFrame if attempts < RESUME_ATTEMPTS => {
                    attempts += 1;
                    self.flush();
                }
                Resume::NoFrame => {
                    let dropped = self.turn.hold.drop_next() as u64;
                    self.turn.counters.add(LaneCounter::DropResumeNoFrame, dropped);
                }
                Resume::Burst(queue) => {
                    attempts = 0;
                    shown += self.resumed.len();
                    let count = self.resumed.len() as u64;
                    self.turn.counters.add(LaneCounter::ResumedPackets, count);
                    self.turn.begin_burst();
                    self.app.process(self.resumed.packets(), &mut self.turn);
                    let (pool, hold) = (&mut self.turn.pool, &mut self.turn.hold);
                    self.egress.dispatch(queue, &mut self.resumed, pool, hold);
                }
            }
        }
    }

    /// Flushes all queues and the exchange. Returns true if one needs another flush.
    #[inline(always)]
    fn flush(&mut self) -> bool {
        let mut pending = self.egress.ports.flush(&mut self.turn.pool);
        if self.has_layers {
            pending |= self.egress.flush_layers(&mut self.turn.pool);
        }
        pending
    }

    /// Rests as the idle policy says.
    fn rest(&mut self) {
        let Some(sleep) = self.idle.decide(self.turn.next_deadline()) else {
            return std::hint::spin_loop();
        };
        if sleep.is_wait() && self.arm() {
            return;
        }
        let counters = &self.turn.counters;
        let before = now();
        counters.publish(LaneCounter::Asleep, 1);
        let after = self.idle.sleep(sleep);
        counters.publish(LaneCounter::Asleep, 0);
        // A writer that saw the lane asleep has written before the lane's reads from here on.
        fence(Ordering::SeqCst);
        counters.add(LaneCounter::Sleeps, 1);
        counters.add(LaneCounter::SleptNanoseconds, after - before);
        if let Some(messages) = &mut self.turn.messages {
            messages.end_wait();
        }
    }

    /// Prepares all queues for waiting. Returns true if the lane must not wait.
    fn arm(&mut self) -> bool {
        let mut arrived = self.egress.ports.arm();
        if let Some(exchange) = &mut self.egress.exchange {
            arrived |= exchange.arm();
        }
        let Some(messages) = &mut self.turn.messages else { return arrived };
        arrived || !messages.begin_wait()
    }

    /// Publishes statistics if their period has passed, in a turn that may read the clock, and
    /// replaces queues if the main thread requests it. Returns true if another turn must follow.
    #[inline(never)]
    fn publish_if_due(&mut self, is_idle: bool) -> bool {
        let rests = is_idle && !self.idle.is_busy();
        let reads_clock = rests || self.turn.number() % CLOCK_TURNS == 1;
        if reads_clock && self.turn.now() >= self.statistics_due {
            self.publish_statistics();
        }
        let Some(swap) = self.swap.as_ref().filter(|swap| swap.is_due()) else { return false };
        self.statistics_due = 0; // losses of queues that leave are published with the next look
        let follows = swap.serve(&mut self.egress.ports, &mut self.turn.pool);
        self.idle.set_must_poll(self.egress.ports.interrupts().any(|it| it.is_none()));
        follows
    }

    fn publish_statistics(&mut self) {
        self.statistics_due = self.turn.now() + STATISTICS_PERIOD;
        let free = self.turn.pool.free() as u64;
        self.turn.counters.publish(LaneCounter::PoolFree, free);
        self.egress.ports.publish_statistics();
        if let Some(exchange) = &mut self.egress.exchange {
            exchange.publish(&self.turn.counters);
        }
    }

    /// Sends what the ports still have, for a bounded time, closes them and takes all frames back.
    /// Returns the number of missing frames. The lane runs no turns afterwards, so writers of
    /// tables no longer wait for it.
    pub fn close(&mut self) -> usize {
        if self.egress.exchange.is_some() {
            self.leave();
        }
        let end = now() + DRAIN;
        while self.flush() && now() < end {
            std::hint::spin_loop();
        }
        self.publish_statistics(); // before the devices are closed
        let missing = self.close_exchange();
        if let Some(swap) = &self.swap {
            swap.close(&mut self.egress.ports, &mut self.turn.pool);
        }
        self.egress.ports.close(&mut self.turn.pool);
        self.publish_statistics(); // with the losses of closing
        self.turn.drop_held();
        self.phase = Phase::Closed;
        self.update_layers();
        self.turn.counters.publish(LaneCounter::Ended, 1);
        self.turn.pool.missing() + missing
    }
}

mod carrying;
mod exchanging;
#[cfg(test)]
mod tests;
