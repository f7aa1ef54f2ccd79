//! The life of a lane's ports outside of the packet path: start, layers, waiting, statistics and
//! closing.

use std::os::fd::BorrowedFd;

use fastlane_table::counters::PortCounters;

use super::lane_ports::{KernelPeer, LanePort, LanePorts, QueueSlot};
use crate::{Filter, LogicalPorts, Pool, Port, Queue, QueueChange, Statistics, TxMemory};

impl QueueSlot {
    fn new(
        queue: Box<dyn Queue>,
        port: usize,
        counters: &PortCounters,
        number: usize,
        pool: &Pool,
    ) -> Self {
        let region = match queue.tx_memory() {
            TxMemory::Any => None,
            TxMemory::Pool => Some(pool.region()),
            TxMemory::Region(region) => Some(region),
        };
        let counters = counters.clone();
        Self { queue, counters, region, port, number, has_received: false }
    }
}

/// Queues for a port, and memory for the slots of a lane that has them too.
pub(crate) struct InstalledQueues<'a> {
    /// Queues to install. Returns empty.
    pub(crate) queues: &'a mut Vec<Box<dyn Queue>>,
    /// Empty, with room for all queues of the lane. Returns empty.
    pub(crate) slots: &'a mut Vec<QueueSlot>,
}

impl LanePorts {
    /// Returns true if a port has a kernel peer, or the lane steers it.
    pub(crate) fn has_layers(&self) -> bool {
        !self.kernel_peers.is_empty() || self.ports.iter().any(|port| port.filter.is_some())
    }

    /// Creates the ports of a lane with this pool.
    pub(crate) fn new(ports: Vec<Port>, pool: &Pool) -> Self {
        let mut all = Self {
            queues: Vec::new(),
            kernel_peers: Vec::new(),
            ports: Vec::new(),
            counters: Vec::new(),
            losses: vec![Statistics::default(); ports.len()],
            past_losses: vec![Statistics::default(); ports.len()],
        };
        for (number, port) in ports.into_iter().enumerate() {
            let (first, count) = (all.queues.len(), port.queues.len());
            let queues = port.queues.into_iter().enumerate();
            all.queues.extend(
                queues.map(|(at, queue)| QueueSlot::new(queue, number, &port.counters, at, pool)),
            );
            let kernel_peer = port.kernel.map(|path| {
                let slot = QueueSlot::new(path.queue, number, &port.counters, 0, pool);
                all.kernel_peers.push(KernelPeer { slot, receives: path.receives });
                all.kernel_peers.len() - 1
            });
            let filter = port.filter;
            all.ports.push(LanePort { first, count, leaving: 0, kernel_peer, filter });
            all.counters.push(port.counters);
        }
        all
    }

    /// Gives logical ports the kernel peer of their carrier, where they share it.
    pub(crate) fn share_kernel_paths(&mut self, logical_ports: &dyn LogicalPorts) {
        for port in 0..self.ports.len() {
            let carrier = logical_ports.carrier(port);
            if let Some(carrier) = carrier.filter(|_| logical_ports.shares_kernel_path(port)) {
                self.ports[port].kernel_peer = self.ports[carrier].kernel_peer;
            }
        }
    }

    /// Sets the filter of a port that has none.
    pub(crate) fn set_default_filter(&mut self, port: usize, filter: impl Filter + 'static) {
        let port = &mut self.ports[port].filter;
        if port.is_none() {
            *port = Some(Box::new(filter));
        }
    }

    /// Returns true if the queues of a port that only receive have nothing to receive or to send.
    pub(crate) fn may_settle(&mut self, port: usize, pool: &mut Pool) -> bool {
        let LanePort { first, count, leaving, .. } = self.ports[port];
        let leaving = &mut self.queues[first + count..first + count + leaving];
        // A queue without an interrupt cannot tell that packets wait.
        leaving
            .iter_mut()
            .all(|slot| !slot.has_received && !slot.queue.flush(pool) && !slot.queue.arm())
    }

    /// Changes the queues of a port. `detach` takes each queue that is given up and returns the
    /// losses that it has counted.
    pub(crate) fn change_queues(
        &mut self,
        port: usize,
        change: QueueChange,
        installed: InstalledQueues<'_>,
        pool: &Pool,
        mut detach: impl FnMut(Box<dyn Queue>) -> Statistics,
    ) {
        let LanePort { first, count, leaving, .. } = self.ports[port];
        let InstalledQueues { queues, slots } = installed;
        let (added, counters) = (queues.len(), &self.counters[port]);
        let mut installed = queues
            .drain(..)
            .enumerate()
            .map(|(number, queue)| QueueSlot::new(queue, port, counters, number, pool));
        std::mem::swap(&mut self.queues, slots);
        for (at, slot) in slots.drain(..).enumerate() {
            if at == first {
                self.queues.extend(installed.by_ref());
            }
            let stays = slot.port != port
                || match change {
                    QueueChange::Replace => false,
                    QueueChange::Join => true,
                    QueueChange::Settle => at < first + count,
                    QueueChange::Withdraw => at >= first + count,
                };
            match stays {
                true => self.queues.push(slot),
                false => self.past_losses[port] += detach(slot.queue),
            }
        }
        self.queues.extend(installed); // of the last port, which had no queue
        let (exits, others) = match change {
            QueueChange::Replace => (added, 0),
            QueueChange::Join => (added, count + leaving),
            QueueChange::Settle => (added + count, 0),
            QueueChange::Withdraw => (added + leaving, 0),
        };
        (self.ports[port].count, self.ports[port].leaving) = (exits, others);
        for later in &mut self.ports[port + 1..] {
            later.first = later.first - (count + leaving) + exits + others;
        }
    }

    /// Adds losses of queues of a port that were replaced.
    pub(crate) fn add_past_losses(&mut self, port: usize, losses: Statistics) {
        self.past_losses[port] += losses;
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
        self.losses.copy_from_slice(&self.past_losses);
        let peers = self.kernel_peers.iter_mut().map(|peer| &mut peer.slot);
        for slot in self.queues.iter_mut().chain(peers) {
            self.losses[slot.port] += slot.queue.statistics();
        }
        for (losses, counters) in self.losses.iter().zip(&self.counters) {
            losses.store(counters);
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
