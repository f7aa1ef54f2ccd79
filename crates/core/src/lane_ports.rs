//! Ports of a lane, as its turns use them.

use std::os::fd::BorrowedFd;

use fastlane_table::counters::{PortCounter, PortCounters};

use crate::copy::copy_into;
use crate::{Filter, Packet, Pool, Port, Queue, RegionId, Statistics, TxMemory};

/// Ports of a lane. Queues and kernel peers are in one flat array each, because every turn walks
/// over them, and what never changes about them is read once.
pub(crate) struct LanePorts {
    /// Queues of all ports, in the order of the ports.
    pub(crate) queues: Vec<QueueSlot>,
    /// Kernel peers of those ports that have one.
    pub(crate) kernel_peers: Vec<KernelPeer>,
    ports: Vec<LanePort>,
    /// Counters of each port.
    pub(crate) counters: Vec<PortCounters>,
    /// Losses of each port, while they are added up.
    losses: Vec<Statistics>,
}

/// Queue with its constants.
pub(crate) struct QueueSlot {
    pub(crate) queue: Box<dyn Queue>,
    /// Memory region that the queue transmits from, or `None` if it can transmit from any.
    pub(crate) region: Option<RegionId>,
    pub(crate) port: usize,
    /// Number of the queue among those of its port.
    pub(crate) number: usize,
}

/// Kernel peer with its constants.
pub(crate) struct KernelPeer {
    pub(crate) slot: QueueSlot,
    /// True if Linux also sends through it.
    pub(crate) receives: bool,
}

struct LanePort {
    /// Index of the first queue, and number of queues.
    first: usize,
    count: usize,
    kernel_peer: Option<usize>,
    filter: Option<Box<dyn Filter>>,
}

impl QueueSlot {
    fn new(queue: Box<dyn Queue>, port: usize, number: usize, pool: &Pool) -> Self {
        let region = match queue.tx_memory() {
            TxMemory::Any => None,
            TxMemory::Pool => Some(pool.region()),
            TxMemory::Region(region) => Some(region),
        };
        Self { queue, region, port, number }
    }

    /// Makes the packets of a run transmittable by the queue, if necessary by copying them into its
    /// memory. Returns the number of such packets from the front; the rest found no free frame
    /// there.
    #[inline]
    pub(crate) fn make_transmittable(&mut self, run: &mut [Packet], pool: &mut Pool) -> usize {
        let Some(region) = self.region else { return run.len() };
        // The packets of a run came from one queue, so they are of one region. The exception is an
        // application that made packets in this turn and swapped them with others.
        let differs = run.first().is_some_and(|first| first.region() != region);
        if differs || pool.is_mixed() {
            return copy_into(&mut *self.queue, region, run, pool);
        }
        run.len()
    }
}

impl LanePorts {
    /// Creates the ports of a lane with this pool.
    pub(crate) fn new(ports: Vec<Port>, pool: &Pool) -> Self {
        let mut all = Self {
            queues: Vec::new(),
            kernel_peers: Vec::new(),
            ports: Vec::new(),
            counters: Vec::new(),
            losses: vec![Statistics::default(); ports.len()],
        };
        for (number, port) in ports.into_iter().enumerate() {
            let (first, count) = (all.queues.len(), port.queues.len());
            let queues = port.queues.into_iter().enumerate();
            all.queues.extend(queues.map(|(at, queue)| QueueSlot::new(queue, number, at, pool)));
            let kernel_peer = port.kernel.map(|path| {
                let slot = QueueSlot::new(path.queue, number, 0, pool);
                all.kernel_peers.push(KernelPeer { slot, receives: path.receives });
                all.kernel_peers.len() - 1
            });
            all.ports.push(LanePort { first, count, kernel_peer, filter: port.filter });
            all.counters.push(port.counters);
        }
        all
    }

    /// Returns the number of ports.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.ports.len()
    }

    /// Returns the queue by which packets leave that arrived by queue `number` of their port: the
    /// one of the same number, modulo the number of queues. Returns `None` if the lane has no queue
    /// of the port.
    #[inline]
    pub(crate) fn exit(&mut self, port: usize, number: usize) -> Option<&mut QueueSlot> {
        let LanePort { first, count, .. } = *self.ports.get(port)?;
        // The division is slow, and ports have equally many queues as a rule.
        let number = if number < count { number } else { number.checked_rem(count)? };
        self.queues.get_mut(first + number)
    }

    /// Returns the kernel peer of a port.
    #[inline]
    pub(crate) fn kernel_peer(&mut self, port: usize) -> Option<&mut KernelPeer> {
        self.ports.get(port)?.kernel_peer.and_then(|at| self.kernel_peers.get_mut(at))
    }

    /// Returns the filter of a port that the lane steers.
    #[inline]
    pub(crate) fn filter(&mut self, port: usize) -> Option<&mut Box<dyn Filter>> {
        self.ports[port].filter.as_mut()
    }

    /// Sets the filter of a port that has none.
    pub(crate) fn set_default_filter(&mut self, port: usize, filter: impl Filter + 'static) {
        let port = &mut self.ports[port].filter;
        if port.is_none() {
            *port = Some(Box::new(filter));
        }
    }

    /// Adds to a counter of a port, unless `packets` is 0.
    #[inline]
    pub(crate) fn count(&self, port: usize, counter: PortCounter, packets: usize) {
        if packets > 0 {
            self.counters[port].add(counter, packets as u64);
        }
    }

    /// Flushes all queues. Returns true if one needs another flush.
    // Inlined into each turn: most queues have little to do, and a call would cost as much.
    #[inline(always)]
    pub(crate) fn flush(&mut self, pool: &mut Pool) -> bool {
        let mut pending = false;
        for slot in &mut self.queues {
            pending |= slot.queue.flush(pool);
        }
        for peer in &mut self.kernel_peers {
            pending |= peer.slot.queue.flush(pool);
        }
        pending
    }

    /// Prepares all queues for waiting. Returns true if packets have arrived at one.
    pub(crate) fn arm(&mut self) -> bool {
        let peers = self.kernel_peers.iter_mut().filter(|peer| peer.receives);
        let slots = self.queues.iter_mut().chain(peers.map(|peer| &mut peer.slot));
        slots.fold(false, |arrived, slot| arrived | slot.queue.arm())
    }

    /// Returns the descriptors of all queues that can receive from outside the lane; `None` stands
    /// for a queue that must be polled.
    pub(crate) fn interrupts(&self) -> impl Iterator<Item = Option<BorrowedFd<'_>>> {
        let peers = self.kernel_peers.iter().filter(|peer| peer.receives);
        let slots = self.queues.iter().chain(peers.map(|peer| &peer.slot));
        slots.filter(|slot| !slot.queue.is_loop()).map(|slot| slot.queue.interrupt())
    }

    /// Publishes the losses that the queues have counted.
    pub(crate) fn publish_statistics(&mut self) {
        self.losses.fill(Statistics::default());
        let peers = self.kernel_peers.iter_mut().map(|peer| &mut peer.slot);
        for slot in self.queues.iter_mut().chain(peers) {
            self.losses[slot.port] += slot.queue.statistics();
        }
        for (losses, counters) in self.losses.iter().zip(&self.counters) {
            counters.store(PortCounter::DropNoFrame, losses.no_frame);
            counters.store(PortCounter::DropReceiveLength, losses.receive_length);
            counters.store(PortCounter::DropDeviceFull, losses.device_full);
            counters.store(PortCounter::DropDeviceInvalid, losses.device_invalid);
            counters.store(PortCounter::DropTransmitError, losses.transmit_error);
            counters.store(PortCounter::DeviceNoFrames, losses.device_no_frames);
        }
    }

    /// Closes all queues. Those with memory of their own come last: the others may still have
    /// frames of it.
    pub(crate) fn close(&mut self, pool: &mut Pool) {
        for last in [false, true] {
            let peers = self.kernel_peers.iter_mut().map(|peer| &mut peer.slot);
            let slots = self.queues.iter_mut().chain(peers);
            let slots =
                slots.filter(|slot| matches!(slot.queue.tx_memory(), TxMemory::Region(_)) == last);
            slots.for_each(|slot| slot.queue.close(pool));
        }
    }
}
