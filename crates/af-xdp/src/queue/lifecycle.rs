//! The life of a queue outside of the packet path: start, adoption, statistics and shutdown.

use std::thread;
use std::time::Duration;

use fastlane_core::{Pool, PoolLayout, Statistics};

use super::{BoundSocket, OpenQueue};
use crate::in_flight::{Chunks, FrameQuota, InFlight};
use crate::ring::Descriptor;
use crate::ring_scan::RingScan;
use crate::socket::Socket;
use crate::{BoundMode, QueueDescription, Settings};

/// Number of flushes of a closing queue that still has frames to transmit.
const DRAIN_STEPS: usize = 200;
/// Time between two of these flushes.
const DRAIN_STEP: Duration = Duration::from_micros(100);

impl OpenQueue {
    pub(crate) fn new(
        bound: BoundSocket,
        pool: &PoolLayout,
        settings: &Settings,
        quota: FrameQuota,
    ) -> Self {
        let BoundSocket { socket, rings, state, port, description } = bound;
        Self {
            socket,
            in_flight: InFlight::new(pool),
            chunks: Chunks::new(pool.frames(), pool.frame_size()),
            rings,
            state,
            port,
            description,
            receive_quota: quota.receive.min(settings.receive_ring as usize),
            receiving: 0,
            transmit_quota: quota.transmit,
            busy_polls: settings.busy_poll.is_some(),
            need_wakeup: settings.need_wakeup,
            zero_copy: description.mode == BoundMode::ZeroCopy,
            virtual_device: settings.virtual_device,
            down_until: 0,
            backlog: u32::MAX,
            refused: 0,
            unread: 0,
            invalid_descriptors: 0,
        }
    }

    /// Takes over the frames in flight of a predecessor. Must precede every other call.
    pub(crate) fn inherit(&mut self, pool: &Pool, scan: &RingScan) {
        debug_assert!(self.in_flight.is_of(pool) && self.in_flight.count() == 0);
        self.in_flight.inherit(&scan.frames);
        self.receiving = scan.receiving;
        scan.sending.iter().for_each(|address| self.chunks.lend(*address, 1));
    }

    /// Returns the losses that the kernel has not counted.
    pub(super) fn statistics(&self) -> Statistics {
        Statistics {
            device_full: self.unread,
            device_invalid: self.invalid_descriptors,
            transmit_error: self.refused,
            ..Statistics::default()
        }
    }

    /// Waits up to [`DRAIN_STEPS`] steps for frames in flight to be sent. The kernel may still read
    /// them, so they should leave before their memory is used again.
    pub(super) fn drain(&mut self, pool: &mut Pool) {
        for _ in 0..DRAIN_STEPS {
            self.flush(pool);
            if self.sending() == 0 || self.is_down() {
                return;
            }
            thread::sleep(DRAIN_STEP);
        }
    }

    /// Counts the frames that are still in the transmit and in the receive ring: closing the socket
    /// loses them.
    pub(super) fn count_abandoned(&mut self) {
        self.refused += self.rings.transmit.count_pending(Descriptor::ends_packet);
        self.unread = self.rings.receive.count_available(Descriptor::ends_packet);
    }

    /// Closes the socket, which also removes it from the steering program's map. Returns the
    /// account of the frames that were in flight. The kernel uses none of them afterwards, unless a
    /// zero-copy driver has not released the queue: then another socket on it cannot be bound.
    pub(super) fn disconnect(self) -> InFlight {
        let Self { socket, rings, in_flight, .. } = self;
        drop((socket, rings));
        in_flight
    }

    /// Closes the socket, which also removes it from the steering program's map, and returns all
    /// frames to the pool. The kernel uses none of them afterwards.
    pub(super) fn close(self, pool: &mut Pool) {
        let Self { socket, rings, mut in_flight, zero_copy, description, .. } = self;
        let QueueDescription { interface, queue, .. } = description;
        drop(socket);
        drop(rings);
        if zero_copy {
            Socket::await_release(&pool.layout(), interface, queue);
        }
        in_flight.reclaim_all(pool);
    }
}
