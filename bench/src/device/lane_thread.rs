//! A lane in its own thread, behind memif, that runs turns only while it is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastlane_core::{App, Idle, Lane, LaneConfig, Pool, Port, PortId};
use fastlane_memif::{Address, Link, MemifSettings, Role};
use fastlane_table::SharedMemory;
use fastlane_table::counters::{Counters, LaneCounter, PortCounter};

use crate::device::cpu_time::{other_core, pin, undisturbed};
use crate::device::memif_server::{Listed, Socket};
use crate::slices::thread_cpu;
use crate::{Error, Result};

/// CPU of the sender; the lane is on another core.
pub const SENDER_CPU: usize = 0;
/// Number of frames of the lane's pool, and size of each in bytes.
const FRAMES: usize = 1024;
const FRAME_SIZE: usize = 2048;
const HEADROOM: usize = 192;
/// Number of turns between two checks of the stop flag and of the clock: few, because they must
/// take less than [`PAUSE`].
const TURNS: u64 = 2;
/// Time that these turns do not take, whatever is in them: a lane that takes longer was stopped by
/// the kernel or by the host of the machine.
pub const PAUSE: Duration = Duration::from_micros(50);
/// Timeout of steps that normally complete at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// Activity of a lane during a measurement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turned {
    /// CPU time, in nanoseconds.
    pub cpu: u64,
    /// Elapsed time, in nanoseconds.
    pub time: u64,
    /// Number of turns.
    pub turns: u64,
    /// Number of turns that processed packets.
    pub busy: u64,
    /// Number of times that the lane was stopped in its turns for at least [`PAUSE`].
    pub pauses: u64,
}

/// Clock that a lane shares with its sender, and the time at which the lane last read it.
#[derive(Debug)]
#[repr(align(128))]
pub struct Heartbeat {
    start: Instant,
    last: AtomicU64,
}

impl Heartbeat {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), last: AtomicU64::new(0) }
    }

    /// Returns the time since the start, in nanoseconds.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Returns the time of the last two turns of the lane, in nanoseconds.
    #[inline]
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// Publishes the time of the last two turns.
    #[inline]
    pub(crate) fn beat(&self, now: u64) {
        self.last.store(now, Ordering::Relaxed);
    }
}

/// Lane and the client that sends frames to it.
pub struct Station {
    /// Client that sends frames.
    pub client: Listed,
    /// Counters of the lane.
    pub counters: Counters,
    /// Clock of the lane.
    pub heartbeat: Arc<Heartbeat>,
    active: Arc<AtomicBool>,
    /// Dropped before the thread is joined: the thread ends when the channel closes.
    orders: Option<Sender<()>>,
    done: Receiver<Turned>,
    thread: Option<JoinHandle<usize>>,
    _link: Link,
    _socket: Socket,
}

impl Station {
    /// Starts a lane with this application, to which these frames can be sent, at most 126 octets
    /// each, over rings of `1 << log2_places` slots.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory or memif does not connect.
    pub fn start<A: App + Send + 'static>(
        app: A,
        frames: &[Vec<u8>],
        log2_places: u8,
    ) -> Result<Self> {
        let socket = Socket::new();
        let settings = MemifSettings::new(Address::Path(socket.0.clone()), Role::Server);
        let (link, mut queues) = fastlane_memif::open(settings, PortId(0))?;
        let memory = SharedMemory::create("bench-lane", FRAMES * FRAME_SIZE)?;
        // As the framework does for each pool.
        memory.populate()?;
        let pool = Pool::new(memory, FRAME_SIZE, HEADROOM)?;
        let counters = Counters::create(1, 1)?;
        let ports = vec![Port {
            queues: vec![Box::new(queues.pop().ok_or("no queue")?)],
            kernel: None,
            filter: None,
            counters: counters.port(0, 0),
        }];
        let parts = LaneConfig {
            kernel_budget: 64,
            idle: Idle::Busy,
            ..LaneConfig::new(pool, ports, counters.lane(0))
        };
        let (active, (orders, inbox), (outbox, done)) =
            (Arc::new(AtomicBool::new(false)), channel(), channel());
        let (turning, heartbeat) = (Arc::clone(&active), Arc::new(Heartbeat::new()));
        let beating = Arc::clone(&heartbeat);
        let thread = std::thread::spawn(move || {
            let mut lane = Lane::new(app, parts);
            serve(&mut lane, &turning, &beating, inbox, &outbox);
            lane.close()
        });
        let client = Listed::connect(&socket.0, frames, log2_places)?;
        Ok(Self {
            client,
            counters,
            heartbeat,
            active,
            orders: Some(orders),
            done,
            thread: Some(thread),
            _link: link,
            _socket: socket,
        })
    }

    /// Returns a counter of the port.
    pub fn count(&self, counter: PortCounter) -> u64 {
        self.counters.port(0, 0).load(counter)
    }

    /// Waits until the lane has completed more than `more` further turns.
    ///
    /// # Errors
    /// Returns an error if the lane runs no turns.
    pub fn turns(&self, more: u64) -> Result<()> {
        let number = || self.counters.lane(0).load(LaneCounter::Turn);
        let before = number();
        wait("turns of the lane", || Ok(number() > before + more))
    }

    /// Runs `body` while the lane runs turns. Returns its result and the lane's activity.
    ///
    /// # Errors
    /// Returns the error of `body`, or an error if the lane has ended.
    pub fn during<T>(&mut self, body: impl FnOnce(&mut Self) -> Result<T>) -> Result<(T, Turned)> {
        let ended = || Error::from("the lane has ended");
        self.active.store(true, Ordering::Relaxed);
        self.orders.as_ref().ok_or_else(ended)?.send(()).map_err(|_| ended())?;
        let result = body(self);
        self.active.store(false, Ordering::Relaxed);
        let turned = self.done.recv_timeout(PATIENCE).map_err(|_| ended())?;
        Ok((result?, turned))
    }

    /// Ends the lane.
    ///
    /// # Errors
    /// Returns an error if a frame of its pool did not come back.
    pub fn end(mut self) -> Result<()> {
        match self.join() {
            0 => Ok(()),
            lost => Err(format!("{lost} frames of the lane's pool did not come back").into()),
        }
    }

    fn join(&mut self) -> usize {
        self.active.store(false, Ordering::Relaxed);
        self.orders = None;
        let ended = self.thread.take().map_or(Ok(0), JoinHandle::join);
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.join();
        }
    }
}

fn serve<A: App>(
    lane: &mut Lane<A>,
    active: &AtomicBool,
    heartbeat: &Heartbeat,
    orders: Receiver<()>,
    done: &Sender<Turned>,
) {
    pin(other_core(SENDER_CPU));
    for () in orders {
        let (begun, before) = (Instant::now(), thread_cpu());
        let mut turned = undisturbed(|| turn(lane, active, heartbeat));
        turned.cpu = thread_cpu() - before;
        turned.time = begun.elapsed().as_nanos() as u64;
        if done.send(turned).is_err() {
            break;
        }
    }
}

fn turn<A: App>(lane: &mut Lane<A>, active: &AtomicBool, heartbeat: &Heartbeat) -> Turned {
    let mut turned = Turned::default();
    let mut last = heartbeat.now();
    while active.load(Ordering::Relaxed) {
        for _ in 0..TURNS {
            turned.busy += u64::from(lane.turn() > 0);
        }
        turned.turns += TURNS;
        let now = heartbeat.now();
        heartbeat.beat(now);
        turned.pauses += u64::from(now - last >= PAUSE.as_nanos() as u64);
        last = now;
    }
    turned
}

/// Waits until `is_so` returns true.
///
/// # Errors
/// Returns an error that names `what` if it takes too long.
pub fn wait(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !is_so()? {
        if Instant::now() > end {
            return Err(format!("timeout: {what}").into());
        }
        std::hint::spin_loop();
    }
    Ok(())
}
