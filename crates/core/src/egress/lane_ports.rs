//! Ports of a lane: its queues and kernel peers, with what never changes about them.

use fastlane_table::counters::{PortCounter, PortCounters};

use crate::observer::Departure;
use crate::{Filter, Packet, Pool, Queue, RegionId, Sent, Statistics};

/// Ports of a lane. Queues and kernel peers are in one flat array each, because every turn walks
/// over them, and what never changes about them is read once.
pub(crate) struct LanePorts {
    /// Queues of all ports, in the order of the ports.
    pub(crate) queues: Vec<QueueSlot>,
    /// Kernel peers of those ports that have one.
    pub(crate) kernel_peers: Vec<KernelPeer>,
    pub(super) ports: Vec<LanePort>,
    /// Counters of each port.
    pub(crate) counters: Vec<PortCounters>,
    /// Losses of each port, while they are added up.
    pub(super) losses: Vec<Statistics>,
    /// Losses that queues of each port had counted when they were replaced.
    pub(super) past_losses: Vec<Statistics>,
}

/// Queue with its constants.
pub(crate) struct QueueSlot {
    pub(crate) queue: Box<dyn Queue>,
    /// Counters of the port.
    pub(crate) counters: PortCounters,
    /// Memory region that the queue transmits from, or `None` if it can transmit from any.
    pub(crate) region: Option<RegionId>,
    pub(crate) port: usize,
    /// Number of the queue among those of its port.
    pub(crate) number: usize,
    /// True if the last look at the queue found packets.
    pub(crate) has_received: bool,
}

impl QueueSlot {
    /// Returns true if the queue cannot transmit some packets of a run from where they are.
    #[inline]
    pub(super) fn must_copy(&self, run: &[Packet], pool: &Pool) -> bool {
        let Some(region) = self.region else { return false };
        // The packets of a run came from one queue, so they are of one region. The exception is an
        // application that made packets in this turn and swapped them with others.
        run.first().is_some_and(|first| first.region() != region) || pool.is_mixed()
    }
}

/// Kernel peer with its constants.
pub(crate) struct KernelPeer {
    pub(crate) slot: QueueSlot,
    /// True if Linux also sends through it.
    pub(crate) receives: bool,
}

/// Port of a lane, without its queues.
pub(super) struct LanePort {
    /// Index of the first queue, and number of queues by which packets leave.
    pub(super) first: usize,
    pub(super) count: usize,
    /// Number of the queues behind them, which only receive.
    pub(super) leaving: usize,
    pub(super) kernel_peer: Option<usize>,
    pub(super) filter: Option<Box<dyn Filter>>,
}

impl QueueSlot {
    /// Flushes the queue and tries to transmit the packets of a run that it has not taken.
    pub(super) fn retry(&mut self, run: &mut [Packet], sent: Sent, pool: &mut Pool) -> Sent {
        self.queue.flush(pool);
        let more = self.queue.transmit(&mut run[sent.taken..], pool);
        Sent {
            taken: sent.taken + more.taken,
            packets: sent.packets + more.packets,
            bytes: sent.bytes + more.bytes,
        }
    }
}

impl LanePorts {
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
        let at = self.exit_slot(port, number)?;
        self.queues.get_mut(at)
    }

    /// Returns the index in `queues` of what [`exit`](Self::exit) returns.
    #[inline]
    pub(crate) fn exit_slot(&self, port: usize, number: usize) -> Option<usize> {
        let LanePort { first, count, .. } = *self.ports.get(port)?;
        // The division is slow, and ports have equally many queues as a rule.
        let number = if number < count { number } else { number.checked_rem(count)? };
        Some(first + number)
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

    /// Adds to a counter of a port, unless `packets` is 0.
    #[inline]
    pub(crate) fn count(&self, port: usize, counter: PortCounter, packets: usize) {
        if packets > 0 {
            self.counters[port].add(counter, packets as u64);
        }
    }

    /// Counts what a queue has done with `count` packets that leave by a port.
    pub(super) fn count_sent(&self, port: usize, count: usize, sent: Sent) -> Departure {
        // A driver that reports more packets than it was passed must not end the lane.
        let taken = sent.taken.min(count);
        let packets = sent.packets.min(taken);
        self.counters[port].add_sent(packets as u64, sent.bytes);
        self.count(port, PortCounter::DropTransmitLength, taken - packets);
        self.count(port, PortCounter::DropTransmitFull, count - taken);
        Departure { has_queue: true, fitting: count, taken, packets }
    }

    /// Ends the arrivals of all queues.
    pub(crate) fn end_arrivals(&mut self) {
        self.queues.iter_mut().for_each(|slot| slot.queue.end_arrivals());
    }

    /// Flushes all queues. Returns true if one needs another flush.
    // Inlined into each turn: most queues have little to do, and a call would cost as much.
    #[inline(always)]
    pub(crate) fn flush(&mut self, pool: &mut Pool) -> bool {
        let mut pending = false;
        for slot in &mut self.queues {
            pending |= slot.queue.flush(pool);
        }
        pending
    }
}
