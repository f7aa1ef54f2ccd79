//! The world of one core.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use fastlane_table::counters::{LaneCounter, LaneCounters, PortCounter, PortCounters};

use crate::capture::CaptureMailbox;
use crate::egress::Egress;
use crate::idle::Rest;
use crate::{
    App, Burst, HoldLimits, Idle, Messages, PacketOwnership, Pool, Port, Queue, Statistics, Turn,
    TxMemory, now,
};

/// How often a lane asks its queues for their losses, in nanoseconds.
const STATISTICS_PERIOD: u64 = 100_000_000;
/// A lane with work looks only every so many turns whether its queues are to be asked.
const CLOCK_TURNS: u64 = 64;
/// A lane with work looks only every so many turns whether Linux sends through its kernel peers, as
/// long as it does not: with bursts of 32 from one port, and 80 ns for a packet, some 40 µs.
const KERNEL_TURNS: u64 = 16;
/// How long a closing lane tries to send what its ports still hold, in nanoseconds.
const DRAIN: u64 = 500_000_000;

/// What a lane is made of.
pub struct LaneConfig {
    /// The frames of all its ports.
    pub pool: Pool,
    /// An entry for each configured port, in the order of their numbers.
    pub ports: Vec<Port>,
    /// Written by this lane only.
    pub counters: LaneCounters,
    /// The most packets shown to the application at once, and the most that it may make in a turn.
    pub burst: usize,
    /// The most packets that a turn gives to Linux, besides a share for ARP and ICMP.
    pub kernel_budget: usize,
    /// What to do when nothing arrives.
    pub idle: Idle,
    /// The way to the slow path and back.
    pub messages: Option<Messages>,
    /// What packets labelled `Hold` are kept in.
    pub hold: HoldLimits,
}

impl LaneConfig {
    /// Those that there must be; the rest is as in a configuration that does not name it, with
    /// nothing that can be held and no messages.
    #[must_use]
    pub fn new(pool: Pool, ports: Vec<Port>, counters: LaneCounters) -> Self {
        let (idle, messages, hold) = (Idle::default(), None, HoldLimits::default());
        Self { pool, ports, counters, burst: 32, kernel_budget: 32, idle, messages, hold }
    }
}

/// One thread's part of a network application: queues of the ports, an instance of the application,
/// a pool of frames, counters. Lanes share nothing that they both write.
pub struct Lane<A> {
    app: A,
    egress: Egress,
    burst: Burst,
    /// Packets that were held and are shown again; empty between bursts.
    resumed: Burst,
    turn: Turn,
    rest: Rest,
    statistics_due: u64,
    way: Way,
}

/// How a turn begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Alone,
    /// With what other lanes have passed.
    WithOthers,
    /// Not at all: the lane has said that it reads tables no more.
    Closed,
}

impl<A: App> Lane<A> {
    /// Puts a lane together. All its memory is allocated here.
    pub fn new(app: A, parts: LaneConfig) -> Self {
        let LaneConfig { pool, ports, counters, burst, kernel_budget, idle, messages, hold } =
            parts;
        counters.publish(LaneCounter::PoolFrames, pool.frames() as u64);
        // Another lane may have had the counters before. The fence is as after sleep: see `rest`.
        counters.publish(LaneCounter::Asleep, 0);
        counters.publish(LaneCounter::Ended, 0);
        fence(Ordering::SeqCst);
        Self {
            app,
            burst: Burst::new(burst),
            resumed: Burst::new(burst),
            turn: Turn::new(pool, burst, counters, messages, hold),
            egress: Egress::new(ports, kernel_budget, burst),
            rest: Rest::new(idle, None),
            statistics_due: 0,
            way: Way::Alone,
        }
    }

    /// One turn: receive, show to the application, carry out its verdicts, send everything,
    /// publish. Returns how much there was to do; 0 means that the lane may rest. Nothing is done
    /// when the lane was [closed](Self::close).
    pub fn turn(&mut self) -> usize {
        self.turn.begin();
        self.egress.begin();
        let mut work = match self.way {
            Way::Alone => self.resume(),
            Way::WithOthers => self.resume() + self.serve(),
            Way::Closed => return 0,
        };
        for port in 0..self.egress.ports.len() {
            for queue in 0..self.egress.ports[port].queues.len() {
                let (burst, pool) = (&mut self.burst, &mut self.turn.pool);
                let count = self.egress.receive(port, queue, burst, pool);
                if count > 0 {
                    work += count;
                    self.show(port);
                    work += self.resume();
                    let (pool, hold) = (&mut self.turn.pool, &mut self.turn.hold);
                    self.egress.dispatch(queue, &mut self.burst, pool, hold);
                }
            }
        }
        let is_due = work == 0 || self.turn.number().is_multiple_of(KERNEL_TURNS);
        work += self.egress.relay_from_kernel(is_due, &mut self.burst, &mut self.turn.pool);
        self.app.turn(&mut self.turn);
        work += self.resume();
        work += self.turn.outbox.len();
        if !self.turn.outbox.is_empty() {
            let Turn { outbox, pool, hold, .. } = &mut self.turn;
            self.egress.dispatch_uncounted(0, outbox, pool, hold);
        }
        work += usize::from(self.flush());
        work += usize::from(self.turn.is_awake());
        self.look_at_the_clock(work == 0);
        self.turn.end_turn();
        self.turn.counters.publish(LaneCounter::Turn, self.turn.number());
        work
    }

    /// Turns until `stop` is set, by whomever (the application does it by [`Turn::end`]), then
    /// returns all frames and ends. The number that it returns is that of the frames that did not
    /// come back: 0, or something is wrong.
    pub fn run(&mut self, stop: &AtomicBool) -> usize {
        while !stop.load(Ordering::Relaxed) {
            if self.turn() > 0 {
                self.turn.counters.add(LaneCounter::BusyTurns, 1);
                self.rest.reset();
            } else {
                self.rest();
            }
            if self.turn.has_ended() {
                stop.store(true, Ordering::Relaxed);
            }
        }
        self.close()
    }

    /// What must be watched for the lane to be woken by arrivals: the interrupts of all its queues
    /// and of its messages, or `None` when a queue has none, so that the lane can only look from
    /// time to time.
    #[must_use]
    pub fn interrupts(&self) -> Option<Vec<BorrowedFd<'_>>> {
        let queues = self.egress.ports.iter().flat_map(|port| {
            let kernel = port.kernel.as_ref().filter(|path| path.receives);
            let kernel = kernel.map(|path| path.queue.as_ref());
            port.queues.iter().map(AsRef::as_ref).chain(kernel)
        });
        let messages = self.turn.messages.as_ref().map(|messages| Some(messages.interrupt()));
        let passages = self.egress.exchange.as_ref().map(|exchange| exchange.interrupt());
        let queues = queues.filter(|queue| !queue.is_loop());
        queues.map(Queue::interrupt).chain(messages).chain(passages).collect()
    }

    /// Lets the lane wait on an epoll instance that watches all of
    /// [`interrupts`](Self::interrupts).
    pub fn wait_on(&mut self, epoll: OwnedFd, idle: Idle) {
        self.rest = Rest::new(idle, Some(epoll));
    }

    /// Lets the lane be told to capture. Until then it cannot.
    pub fn listen(&mut self, captures: Arc<CaptureMailbox>) {
        self.egress.recorder.listen(captures);
    }

    /// The lane's counters; [`LaneCounter::Thread`] and [`LaneCounter::Cpu`] are for its thread to
    /// set.
    #[must_use]
    pub fn counters(&self) -> &LaneCounters {
        &self.turn.counters
    }

    /// The application.
    pub fn app(&mut self) -> &mut A {
        &mut self.app
    }

    /// Has the burst labelled, and copied if it is looked on.
    #[inline]
    fn show(&mut self, port: usize) {
        let sorted = self.egress.steer(port, self.burst.packets());
        if sorted && self.egress.exchange.is_some() {
            self.sort(port);
        }
        if self.egress.recorder.is_on() {
            return self.label_recorded(port, sorted);
        }
        self.label(sorted);
    }

    #[cold]
    fn label_recorded(&mut self, port: usize, sorted: bool) {
        self.egress.recorder.arrived(port, self.burst.packets());
        self.label(sorted);
        self.egress.recorder.labelled(self.burst.packets());
    }

    /// Shows the burst to the application, or of one that is sorted what is the application's.
    #[inline]
    fn label(&mut self, sorted: bool) {
        self.turn.begin_burst();
        let packets = self.burst.packets();
        if !sorted {
            return self.app.process(packets, &mut self.turn);
        }
        for run in packets.chunk_by_mut(|one, other| one.is_claimed() == other.is_claimed()) {
            if run[0].is_claimed() {
                self.app.process(run, &mut self.turn);
            }
        }
    }

    // Inlined into each turn: most queues have little to do here, and a call would cost as much.
    #[inline(always)]
    fn flush(&mut self) -> bool {
        let mut pending = false;
        for port in &mut self.egress.ports {
            for queue in &mut port.queues {
                pending |= queue.flush(&mut self.turn.pool);
            }
            if let Some(path) = &mut port.kernel {
                pending |= path.queue.flush(&mut self.turn.pool);
            }
        }
        if let Some(exchange) = &mut self.egress.exchange {
            pending |= exchange.flush(&mut self.turn.pool);
        }
        pending
    }

    fn rest(&mut self) {
        let Some(sleep) = self.rest.decide(self.turn.next_deadline()) else {
            return std::hint::spin_loop();
        };
        if sleep.is_wait() && self.arm() {
            return;
        }
        let counters = &self.turn.counters;
        let before = now();
        counters.publish(LaneCounter::Asleep, 1);
        self.rest.sleep(sleep);
        counters.publish(LaneCounter::Asleep, 0);
        // Whoever still saw the lane asleep has written before what the lane reads from here on.
        fence(Ordering::SeqCst);
        counters.add(LaneCounter::Sleeps, 1);
        counters.add(LaneCounter::SleptNanoseconds, now() - before);
        if let Some(messages) = &mut self.turn.messages {
            messages.end_wait();
        }
    }

    /// Tells all queues that the lane will wait; true when it should not.
    fn arm(&mut self) -> bool {
        let mut arrived = false;
        for port in &mut self.egress.ports {
            let kernel = port.kernel.as_mut().filter(|path| path.receives);
            let kernel = kernel.map(|path| &mut path.queue);
            for queue in port.queues.iter_mut().chain(kernel) {
                arrived |= queue.arm();
            }
        }
        if let Some(exchange) = &mut self.egress.exchange {
            arrived |= exchange.arm();
        }
        let Some(messages) = &mut self.turn.messages else { return arrived };
        arrived || !messages.begin_wait()
    }

    #[inline]
    fn look_at_the_clock(&mut self, is_idle: bool) {
        // Who never sleeps, or has work, looks only now and then: 25 ns a turn.
        let rests = is_idle && !self.rest.is_busy();
        let looks = rests || self.turn.number() % CLOCK_TURNS == 1;
        if looks && self.turn.now() >= self.statistics_due {
            self.publish_statistics();
        }
    }

    fn publish_statistics(&mut self) {
        self.statistics_due = self.turn.now() + STATISTICS_PERIOD;
        let free = self.turn.pool.free() as u64;
        self.turn.counters.publish(LaneCounter::PoolFree, free);
        for port in &mut self.egress.ports {
            let kernel = port.kernel.as_mut().map(|path| &mut path.queue);
            let total =
                port.queues.iter_mut().chain(kernel).fold(Statistics::default(), |total, queue| {
                    let queue = queue.statistics();
                    Statistics {
                        no_frame: total.no_frame + queue.no_frame,
                        receive_length: total.receive_length + queue.receive_length,
                        device_full: total.device_full + queue.device_full,
                        device_invalid: total.device_invalid + queue.device_invalid,
                        transmit_error: total.transmit_error + queue.transmit_error,
                        device_no_frames: total.device_no_frames + queue.device_no_frames,
                    }
                });
            publish(&port.counters, total);
        }
        if let Some(exchange) = &mut self.egress.exchange {
            exchange.publish(&self.turn.counters);
        }
    }

    /// Sends what the ports still hold, for a bounded time, closes them and takes all frames back.
    /// There are no turns after that: from now on memory of tables is used again without asking
    /// this lane.
    pub fn close(&mut self) -> usize {
        if self.egress.exchange.is_some() {
            self.leave();
        }
        let end = now() + DRAIN;
        while self.flush() && now() < end {
            std::hint::spin_loop();
        }
        self.publish_statistics(); // while the devices can still be asked
        let parked = self.close_exchange();
        let pool = &mut self.turn.pool;
        // Those with memory of their own go last: the others may still hold frames of it.
        for last in [false, true] {
            for port in &mut self.egress.ports {
                let kernel = port.kernel.as_mut().map(|path| &mut path.queue);
                let queues = port.queues.iter_mut().chain(kernel);
                queues
                    .filter(|queue| matches!(queue.tx_memory(), TxMemory::Region(_)) == last)
                    .for_each(|queue| queue.close(pool));
            }
        }
        self.publish_statistics(); // with what closing has lost
        self.turn.drop_held();
        self.way = Way::Closed;
        self.turn.counters.publish(LaneCounter::Ended, 1);
        self.turn.pool.missing() + parked
    }
}

fn publish(counters: &PortCounters, losses: Statistics) {
    counters.store(PortCounter::DropNoFrame, losses.no_frame);
    counters.store(PortCounter::DropReceiveLength, losses.receive_length);
    counters.store(PortCounter::DropDeviceFull, losses.device_full);
    counters.store(PortCounter::DropDeviceInvalid, losses.device_invalid);
    counters.store(PortCounter::DropTransmitError, losses.transmit_error);
    counters.store(PortCounter::DeviceNoFrames, losses.device_no_frames);
}

mod passing;
mod resume;
#[cfg(test)]
mod tests;
