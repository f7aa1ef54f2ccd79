//! Replacement of queues in all lanes: requests that wait for their lane, and the interrupts that
//! wake it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use fastlane_core::{DetachedQueue, PoolLayout, Queue, QueueChange, QueueSwap, SwapResult};
use fastlane_table::Doorbell;
use rustix::event::epoll;

/// Replacement of queues in one lane, shared by the lane and the main thread.
#[derive(Clone, Debug)]
pub(crate) struct LaneSwap {
    pub(crate) swap: Arc<QueueSwap>,
    /// Epoll instance of the lane's interrupts; `None` if the kernel refused one.
    pub(crate) interrupts: Option<Arc<OwnedFd>>,
    /// Wakes the lane as long as a request is open.
    doorbell: Option<Arc<Doorbell>>,
}

impl LaneSwap {
    /// Creates it for a lane that does not run yet.
    fn new(lane: usize) -> Self {
        let instance = epoll::create(epoll::CreateFlags::CLOEXEC).inspect_err(|error| {
            tracing::warn!(
                "lane {lane}: cannot wait for interrupts ({error}); it sleeps for short periods \
                 instead; raise `ulimit -n`"
            );
        });
        let interrupts = instance.ok().map(Arc::new);
        // Without a doorbell the lane looks for requests ten times a second when it is idle.
        let doorbell = interrupts.as_ref().and_then(|instance| {
            let doorbell = Doorbell::create().ok()?;
            watch(instance, doorbell.as_fd()).ok()?;
            Some(Arc::new(doorbell))
        });
        Self { swap: Arc::default(), interrupts, doorbell }
    }

    fn begin(&self, Request { port, change, installed, retired }: Request) {
        self.swap.request(port, change, installed, retired);
        self.doorbell.iter().for_each(|doorbell| doorbell.ring());
    }

    /// Returns the result of the request, once the lane has carried it out.
    fn result(&self) -> Option<SwapResult> {
        let result = self.swap.result()?;
        if let Some(doorbell) = &self.doorbell {
            doorbell.drain();
        }
        Some(result)
    }
}

/// A request that waits for its lane.
struct Request {
    port: usize,
    change: QueueChange,
    installed: Vec<Box<dyn Queue>>,
    retired: Vec<DetachedQueue>,
}

/// Requests of one lane.
struct LaneRequests {
    lane: LaneSwap,
    waiting: VecDeque<Request>,
    /// Port of the request that the lane has.
    current: Option<usize>,
}

/// Requests of all lanes.
pub(crate) struct LaneSwaps {
    lanes: Vec<LaneRequests>,
    layouts: Vec<PoolLayout>,
}

impl LaneSwaps {
    /// Creates the swaps of lanes that do not run yet, with the layouts of their pools.
    pub(crate) fn new(layouts: Vec<PoolLayout>) -> Self {
        let lanes = (0..layouts.len()).map(|lane| LaneRequests {
            lane: LaneSwap::new(lane),
            waiting: VecDeque::new(),
            current: None,
        });
        Self { lanes: lanes.collect(), layouts }
    }

    /// Returns the layout of the pool of each lane.
    pub(crate) fn layouts(&self) -> &[PoolLayout] {
        &self.layouts
    }

    /// Returns the swap of each lane.
    pub(crate) fn of_lanes(&self) -> Vec<LaneSwap> {
        self.lanes.iter().map(|lane| lane.lane.clone()).collect()
    }

    /// Requests that a lane closes the queues `retired`, and changes those of a port.
    pub(crate) fn request(
        &mut self,
        lane: usize,
        port: usize,
        change: QueueChange,
        installed: Vec<Box<dyn Queue>>,
        retired: Vec<DetachedQueue>,
    ) {
        self.lanes[lane].waiting.push_back(Request { port, change, installed, retired });
    }

    /// Lets queues leave a lane with what they still have.
    pub(crate) fn hurry(&self, lane: usize) {
        self.lanes[lane].lane.swap.hurry();
    }

    /// Returns true if a request is open.
    pub(crate) fn is_busy(&self) -> bool {
        self.lanes.iter().any(|lane| lane.current.is_some() || !lane.waiting.is_empty())
    }

    /// Returns true if a request for a port is open.
    pub(crate) fn has_requests(&self, port: usize) -> bool {
        let is_of = |request: &Request| request.port == port;
        self.lanes.iter().any(|lane| lane.current == Some(port) || lane.waiting.iter().any(is_of))
    }

    /// Passes waiting requests to lanes that have none. Returns the results, each with the index of
    /// its lane.
    pub(crate) fn step(&mut self) -> Vec<(usize, SwapResult)> {
        let mut results = Vec::new();
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            if let Some(result) = lane.lane.result() {
                lane.current = None;
                results.push((index, result));
            }
            if lane.lane.swap.is_free()
                && let Some(request) = lane.waiting.pop_front()
            {
                request.installed.iter().for_each(|queue| lane.watch(&**queue));
                lane.current = Some(request.port);
                lane.lane.begin(request);
            }
        }
        results
    }

    /// Disconnects a queue that a lane has given up. Its interrupt no longer wakes the lane.
    pub(crate) fn disconnect(&self, lane: usize, queue: &mut DetachedQueue) {
        let interrupts = self.lanes[lane].lane.interrupts.as_ref();
        if let Some((instance, interrupt)) = interrupts.zip(queue.queue().interrupt()) {
            // An error means that it was not watched.
            let _ = epoll::delete(&**instance, interrupt);
        }
        queue.disconnect();
    }

    /// Leaves a queue to its lane, which closes it when it ends.
    pub(crate) fn leave(&self, lane: usize, queue: DetachedQueue) {
        self.lanes[lane].lane.swap.leave(vec![queue]);
    }

    /// Leaves the queues of all waiting requests to their lanes.
    pub(crate) fn end(&mut self) {
        for lane in &mut self.lanes {
            for request in lane.waiting.drain(..) {
                lane.lane.swap.leave(request.retired);
            }
        }
    }
}

impl LaneRequests {
    /// Lets the interrupt of a queue wake the lane.
    fn watch(&self, queue: &dyn Queue) {
        // A lane with a queue that has none does not wait for interrupts.
        let interrupts = self.lane.interrupts.as_ref().zip(queue.interrupt());
        let Some((instance, interrupt)) = interrupts else { return };
        if let Err(error) = watch(instance, interrupt) {
            tracing::warn!(
                "a reopened queue does not wake its lane ({error}), which looks at it ten times a \
                 second when idle; write `\"idle\": \"busy\"`"
            );
        }
    }
}

/// Adds a descriptor to the interrupts of a lane.
fn watch(instance: &OwnedFd, interrupt: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let data = epoll::EventData::new_u64(u64::MAX);
    epoll::add(instance, interrupt, data, epoll::EventFlags::IN)
}
