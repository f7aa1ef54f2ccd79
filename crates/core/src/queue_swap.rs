//! Replacement of a port's queues while the lane runs.
//!
//! The main thread [requests](QueueSwap::request) a replacement. The lane looks for requests when
//! it looks at the clock, exchanges the queues by moves, and hands the old ones back. It neither
//! waits nor allocates: the vectors come from the main thread with enough capacity, and nobody else
//! holds the lock while a request is open.
//!
//! Queues take the place of others at once ([`QueueChange::Replace`]), or in two steps: they
//! [join](QueueChange::Join) them, and the others [leave](QueueChange::Settle) once everything that
//! arrived at them was received. So no packet is lost between two queues.
//!
//! The life of a queue that is replaced: the lane detaches it; the main thread
//! [disconnects](Queue::disconnect) it, which may wait; the lane [closes](Queue::close) it, which
//! returns its frames to the pool; the main thread drops it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::egress::{InstalledQueues, LanePorts, QueueSlot};
use crate::{Pool, Queue, QueueChange, Statistics};

/// No request is open.
const FREE: u8 = 0;
/// The main thread has made a request.
const REQUESTED: u8 = 1;
/// The lane has exchanged the queues in this turn. The next one receives with the new queues, which
/// then have frames to receive into.
const EXCHANGED: u8 = 2;
/// The main thread can take the result.
const DONE: u8 = 3;

/// Replacement of queues in one lane: at most one request at a time.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use fastlane_core::{Lane, LaneConfig, Packet, Pool, Port, PortId, Verdict};
/// use fastlane_core::{QueueChange, QueueSwap};
/// use fastlane_local::memory::Memory;
/// use fastlane_table::SharedMemory;
/// use fastlane_table::counters::Counters;
///
/// let counters = Counters::create(1, 1)?;
/// let mut pool = Pool::new(SharedMemory::create("frames", 64 * 2048)?, 2048, 192)?;
/// let queue = Memory::filled(PortId(0), &mut pool, 8, &[0; 60])?;
/// let port = Port {
///     queues: vec![Box::new(queue)],
///     kernel: None,
///     filter: None,
///     counters: counters.port(0, 0),
/// };
/// let config = LaneConfig::new(pool, vec![port], counters.lane(0));
/// let mut lane = Lane::new(|_: &mut Packet| Verdict::Drop, config);
/// let swap = Arc::new(QueueSwap::default());
/// lane.swap_queues_by(Arc::clone(&swap));
///
/// // In the main thread: the port loses its queues.
/// swap.request(0, QueueChange::Replace, vec![], vec![]);
/// let mut result = swap.result();
/// while result.is_none() {
///     lane.turn();
///     result = swap.result();
/// }
/// let mut detached = result.expect("the lane has answered").detached;
/// detached[0].disconnect();
/// swap.request(0, QueueChange::Replace, vec![], detached); // their frames return to the pool
/// while swap.result().is_none() {
///     lane.turn();
/// }
/// assert_eq!(lane.close(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct QueueSwap {
    state: AtomicU8,
    /// True if queues leave with what they have.
    is_urgent: AtomicBool,
    /// Number of queues of the lane, which the lane writes.
    queues: AtomicUsize,
    content: Mutex<Content>,
}

/// Request and result. The lane has it while a request is open, the main thread otherwise.
#[derive(Default)]
struct Content {
    port: usize,
    change: QueueChange,
    installed: Vec<Box<dyn Queue>>,
    detached: Vec<DetachedQueue>,
    retired: Vec<DetachedQueue>,
    /// Memory for the slots of the lane.
    slots: Vec<QueueSlot>,
}

/// Result of a replacement.
pub struct SwapResult {
    /// Number of the port.
    pub port: usize,
    /// Queues that the lane had.
    pub detached: Vec<DetachedQueue>,
}

/// Queue that a lane has given up. Its frames are still out of the pool.
pub struct DetachedQueue {
    port: usize,
    queue: Box<dyn Queue>,
    /// Losses of the queue that the lane has added to the port's.
    counted: Statistics,
}

impl DetachedQueue {
    /// Closes what the queue has open. May wait.
    pub fn disconnect(&mut self) {
        self.queue.disconnect();
    }

    /// Returns the queue.
    #[must_use]
    pub fn queue(&self) -> &dyn Queue {
        &*self.queue
    }

    /// Returns the frames to the pool. Returns the losses that were not counted before.
    fn close(&mut self, pool: &mut Pool) -> Statistics {
        self.queue.close(pool);
        let now = self.queue.statistics();
        let losses = now.since(&self.counted);
        self.counted = now;
        losses
    }
}

impl QueueSwap {
    /// Returns true if no request is open and no result waits.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.state.load(Ordering::Acquire) == FREE
    }

    /// Requests that the lane closes the disconnected queues `retired`, and then changes the queues
    /// of a port. The main thread calls it, when the swap [is free](Self::is_free).
    pub fn request(
        &self,
        port: usize,
        change: QueueChange,
        installed: Vec<Box<dyn Queue>>,
        retired: Vec<DetachedQueue>,
    ) {
        let mut content = self.content();
        let room = self.queues.load(Ordering::Relaxed) + installed.len();
        (content.port, content.change) = (port, change);
        self.is_urgent.store(false, Ordering::Relaxed);
        content.detached.reserve(room);
        content.slots.reserve(room);
        content.installed.extend(installed);
        content.retired.extend(retired);
        drop(content);
        self.state.store(REQUESTED, Ordering::Release);
    }

    /// Lets queues leave with what they still have to receive or to send, which is lost.
    pub fn hurry(&self) {
        self.is_urgent.store(true, Ordering::Relaxed);
    }

    /// Leaves disconnected queues to the lane for its [close](crate::Lane::close), whatever request
    /// is open.
    pub fn leave(&self, retired: Vec<DetachedQueue>) {
        self.content().retired.extend(retired);
    }

    /// Returns the result of the request once the lane has carried it out, and drops the retired
    /// queues.
    pub fn result(&self) -> Option<SwapResult> {
        if self.state.load(Ordering::Acquire) != DONE {
            return None;
        }
        let content = std::mem::take(&mut *self.content());
        self.state.store(FREE, Ordering::Release);
        Some(SwapResult { port: content.port, detached: content.detached })
    }

    /// Sets the number of queues of the lane.
    pub(crate) fn begin(&self, ports: &LanePorts) {
        self.queues.store(ports.queues.len(), Ordering::Relaxed);
    }

    /// Returns true if the lane has something to do. Costs one load.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        matches!(self.state.load(Ordering::Relaxed), REQUESTED | EXCHANGED)
    }

    /// Carries out a request in the lane, or publishes the result of one. Returns true if the lane
    /// must run another turn before it rests.
    #[cold]
    pub(crate) fn serve(&self, ports: &mut LanePorts, pool: &mut Pool) -> bool {
        if self.state.load(Ordering::Acquire) == EXCHANGED {
            self.state.store(DONE, Ordering::Release);
            return false;
        }
        // Only `leave` can hold the lock now; the next look finds it free.
        let Ok(mut content) = self.content.try_lock() else { return true };
        let content = &mut *content;
        if content.change == QueueChange::Settle
            && !self.is_urgent.load(Ordering::Relaxed)
            && !ports.may_settle(content.port, pool)
        {
            return true;
        }
        for retired in &mut content.retired {
            let losses = retired.close(pool);
            ports.add_past_losses(retired.port, losses);
        }
        let (installed, slots) = (&mut content.installed, &mut content.slots);
        let (port, change) = (content.port, content.change);
        let detached = &mut content.detached;
        let installed = InstalledQueues { queues: installed, slots };
        ports.change_queues(port, change, installed, pool, |queue| {
            let counted = queue.statistics();
            detached.push(DetachedQueue { port, queue, counted });
            counted
        });
        self.begin(ports);
        self.state.store(EXCHANGED, Ordering::Release);
        true
    }

    /// Closes all queues that are neither the lane's nor the main thread's. The lane calls it when
    /// it closes, and may wait then.
    pub(crate) fn close(&self, ports: &mut LanePorts, pool: &mut Pool) {
        let mut content = self.content();
        let Content { installed, detached, retired, .. } = &mut *content;
        installed.iter_mut().for_each(|queue| queue.close(pool));
        for queue in detached.iter_mut().chain(retired) {
            queue.disconnect();
            let losses = queue.close(pool);
            ports.add_past_losses(queue.port, losses);
        }
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for QueueSwap {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("QueueSwap").field("state", &self.state).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
