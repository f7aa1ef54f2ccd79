//! A queue of a device: receives into, and transmits from, the frames of its lane's pool.
//!
//! [`XskQueue`] is the handle that a lane drives; [`OpenQueue`] is the socket with its rings and
//! the account of its frames, until the queue is closed.

mod lifecycle;

use std::os::fd::{AsFd, BorrowedFd};

use fastlane_core::{
    Burst, Congestion, LossReader, Packet, PacketOwnership, Partial, Pool, PortId, Queue, Sent,
    Statistics, now,
};
use fastlane_wire::checksum;

use crate::in_flight::{Chunks, InFlight};
use crate::kernel_state::KernelState;
use crate::ring::{self, Descriptor, Rings, TxWakeup};
use crate::socket::Socket;
use crate::steering::Steering;
use crate::{Error, QueueDescription};

/// Maximum number of wake-ups in one flush: enough for 2048 frames at 32 per call.
const MAX_WAKEUPS: usize = 64;
/// Time without transmit wake-ups after the kernel reported that the link is down, in nanoseconds.
const DOWN_PAUSE: u64 = 1_000_000;
/// Length of an Ethernet header in bytes, the minimum that is transmitted.
const MIN_LENGTH: usize = 14;

/// One queue of a device with its four rings, owned by one lane.
///
/// Frames of the lane's pool are not copied by this driver: the pool is the UMEM. In the copy modes
/// the kernel copies each frame once per direction. Packets of other memory are copied into a frame
/// of the pool.
///
/// Calls with another pool than the one that the queue was opened with have no effect.
#[derive(Debug)]
pub struct XskQueue {
    /// `None` once the queue is closed.
    open: Option<OpenQueue>,
    /// Losses that the queue had counted when it was closed.
    losses: Statistics,
    kernel_losses: LossReader,
    /// Frames that were in flight when the queue was disconnected.
    left: Option<InFlight>,
}

impl XskQueue {
    pub(crate) fn new(open: OpenQueue) -> Self {
        let kernel_losses = open.state.losses().clone();
        Self { open: Some(open), losses: Statistics::default(), kernel_losses, left: None }
    }

    /// Returns what a successor needs to take over the queue: its description and its socket.
    /// `None` once the queue is closed.
    #[must_use]
    pub fn handover(&self) -> Option<(QueueDescription, BorrowedFd<'_>)> {
        self.open.as_ref().map(|open| (open.description, open.socket.as_fd()))
    }

    /// Fills the fill ring, then lets the steering program redirect frames to the socket.
    pub(crate) fn start(
        &mut self,
        steering: &mut dyn Steering,
        queue: u32,
        pool: &mut Pool,
    ) -> Result<(), Error> {
        let Some(open) = self.with(pool) else { return Ok(()) };
        open.refill(pool);
        steering.insert_socket(queue, open.socket.as_fd())
    }

    #[inline]
    fn with(&mut self, pool: &Pool) -> Option<&mut OpenQueue> {
        self.open.as_mut().filter(|open| open.in_flight.is_of(pool))
    }
}

impl Queue for XskQueue {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        if let Some(open) = self.with(pool) {
            open.receive(burst, pool);
        }
    }

    /// Returns the congestion: three quarters of the frames for receiving wait to be read. A lane
    /// that was without a CPU finds as many, but they become fewer.
    fn congestion(&mut self) -> Congestion {
        self.open.as_mut().map_or(Congestion::None, OpenQueue::congestion)
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        self.with(pool).map_or(Sent::default(), |open| open.transmit(packets, pool))
    }

    fn flush(&mut self, pool: &mut Pool) -> bool {
        self.with(pool).is_some_and(|open| open.flush(pool))
    }

    /// Returns true if frames wait in the receive ring. Its socket is an interrupt as it is.
    fn arm(&mut self) -> bool {
        self.open.as_ref().is_some_and(|open| open.rings.receive.pending() > 0)
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.open.as_ref().map(|open| open.socket.as_fd())
    }

    fn statistics(&self) -> Statistics {
        self.open.as_ref().map_or(self.losses, OpenQueue::statistics)
    }

    fn loss_reader(&self) -> Option<LossReader> {
        Some(self.kernel_losses.clone())
    }

    fn disconnect(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        open.count_abandoned();
        self.losses = open.statistics();
        self.kernel_losses.end();
        self.left = Some(open.disconnect());
    }

    fn close(&mut self, pool: &mut Pool) {
        if let Some(left) = self.left.as_mut().filter(|left| left.is_of(pool)) {
            return left.reclaim_all(pool);
        }
        if self.with(pool).is_none() {
            return;
        }
        let Some(mut open) = self.open.take() else { return };
        open.drain(pool);
        open.count_abandoned();
        self.losses = open.statistics();
        self.kernel_losses.end();
        open.close(pool);
    }
}

/// A bound socket with its rings, its identity and its state in the kernel.
#[derive(Debug)]
pub(crate) struct BoundSocket {
    pub(crate) socket: Socket,
    pub(crate) rings: Rings,
    pub(crate) state: KernelState,
    pub(crate) port: PortId,
    pub(crate) description: QueueDescription,
}

/// A bound socket with its rings and the account of its frames.
#[derive(Debug)]
pub(crate) struct OpenQueue {
    socket: Socket,
    in_flight: InFlight,
    chunks: Chunks,
    rings: Rings,
    state: KernelState,
    port: PortId,
    description: QueueDescription,
    /// Maximum number of frames in flight for receiving. It is at most the size of the fill and of
    /// the receive ring, so neither of them is ever full.
    receive_quota: usize,
    /// Frames in flight for receiving: in the fill ring, in the device, in the receive ring.
    receiving: usize,
    /// Maximum number of frames in flight for transmitting: a link that is down must not hold all
    /// frames of the lane.
    transmit_quota: usize,
    busy_polls: bool,
    need_wakeup: bool,
    zero_copy: bool,
    virtual_device: bool,
    /// Time of the next transmit wake-up while the link is down, otherwise 0.
    down_until: u64,
    /// Frames that waited to be read after the last burst that was full; `u32::MAX` after one that
    /// was not.
    backlog: u32,
    /// Frames that the device refused.
    refused: u64,
    /// Frames in the receive ring when the queue was closed.
    unread: u64,
    /// Descriptors and completions that the kernel should not have written.
    invalid_descriptors: u64,
}

/// Result of preparing one packet for the transmit ring.
enum TxOutcome {
    /// The frame is lent; `count` descriptors are to be written.
    Lent { address: u64, length: usize, count: u32 },
    /// The packet can never be sent.
    Never,
    /// The ring has too few free slots, or the pool no free frame to copy the packet into.
    NotNow,
}

impl OpenQueue {
    #[inline]
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        let room = u32::try_from(burst.room()).unwrap_or(u32::MAX);
        let count = self.rings.receive.available(room).min(room);
        if count < room {
            self.backlog = u32::MAX;
        }
        for _ in 0..count {
            let Some(descriptor) = self.rings.receive.pop() else { break };
            if let Some(next) = self.rings.receive.peek() {
                pool.prefetch(next.address);
            }
            match self.packet(descriptor, pool) {
                Some(packet) => {
                    if let Err(mut packet) = burst.push(packet) {
                        pool.release(&mut packet);
                    }
                }
                None => self.invalid_descriptors += 1,
            }
        }
        if count > 0 {
            self.rings.receive.release();
        }
        self.refill(pool);
        let starved = self.rings.fill.needs_wakeup() && self.rings.fill.pending() > 0;
        if starved || (self.busy_polls && count == 0) {
            ring::wake_rx(&self.socket);
        }
    }

    #[inline]
    fn congestion(&mut self) -> Congestion {
        let waiting = self.rings.receive.pending();
        let before = std::mem::replace(&mut self.backlog, waiting);
        match (4 * waiting as usize >= self.receive_quota, waiting >= before) {
            (false, _) => Congestion::None,
            (true, false) => Congestion::Falling,
            (true, true) => Congestion::Rising,
        }
    }

    /// Returns the packet of a receive descriptor and of those that continue it, or `None` if a
    /// descriptor is invalid.
    #[inline]
    fn packet(&mut self, descriptor: Descriptor, pool: &mut Pool) -> Option<Packet> {
        let mut packet = self.chunk(descriptor, pool);
        if !descriptor.ends_packet() {
            packet = self.join(packet, pool);
        }
        if self.virtual_device
            && let Some(packet) = &mut packet
        {
            mark_partial_checksum(packet);
        }
        packet
    }

    /// Returns what one descriptor names as a packet, or `None` if the descriptor is invalid.
    #[inline]
    fn chunk(&mut self, descriptor: Descriptor, pool: &mut Pool) -> Option<Packet> {
        let frame = self.in_flight.reclaim(pool, descriptor.address)?;
        self.receiving = self.receiving.saturating_sub(1);
        let offset = descriptor.address as usize & (pool.frame_size() - 1);
        let packet = pool.packet(frame, offset, descriptor.length as usize, self.port);
        packet.map_err(|frame| pool.give(frame)).ok()
    }

    /// Copies the chunks that follow behind the first one, into its frame. Returns `None` if they
    /// do not fit or a descriptor is invalid. The kernel publishes all descriptors of a packet at
    /// once (`xsk_flush` in net/xdp/xsk.c).
    #[cold]
    fn join(&mut self, mut whole: Option<Packet>, pool: &mut Pool) -> Option<Packet> {
        loop {
            let descriptor = self.rings.receive.pop();
            let part = descriptor.and_then(|descriptor| self.chunk(descriptor, pool));
            let tail = match (&mut whole, &part) {
                (Some(whole), Some(part)) => whole.append(part.len()),
                _ => None,
            };
            let is_joined = match (tail, &part) {
                (Some(tail), Some(part)) => {
                    tail.copy_from_slice(part.bytes());
                    true
                }
                _ => false,
            };
            part.into_iter().for_each(|mut part| pool.release(&mut part));
            if !is_joined && let Some(mut whole) = whole.take() {
                pool.release(&mut whole);
            }
            if descriptor.is_none_or(|descriptor| descriptor.ends_packet()) {
                return whole;
            }
        }
    }

    /// Puts free frames of the pool into the fill ring, up to the quota.
    #[inline]
    pub(crate) fn refill(&mut self, pool: &mut Pool) {
        let fill = &mut self.rings.fill;
        let wanted = self.receive_quota.saturating_sub(self.receiving);
        let wanted = wanted.min(fill.free(wanted as u32) as usize);
        let mut lent = 0;
        while lent < wanted {
            let Some(frame) = pool.take() else { break };
            let Some(address) = self.in_flight.lend(pool, frame) else { break };
            fill.push(address);
            lent += 1;
        }
        if lent > 0 {
            self.receiving += lent;
            fill.submit();
        }
    }

    #[inline]
    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let mut sent = Sent::default();
        let mut quota = packets.len().min(self.transmit_quota.saturating_sub(self.sending()));
        let mut free = self.rings.transmit.free((quota * self.chunks.per_frame()) as u32);
        for packet in packets {
            if quota == 0 {
                break;
            }
            match self.lend_packet(packet, pool, free) {
                TxOutcome::Lent { address, length, count } => {
                    for descriptor in self.chunks.descriptors(address, length) {
                        self.rings.transmit.push(descriptor);
                    }
                    quota -= 1;
                    free -= count;
                    sent.packets += 1;
                    sent.bytes += length as u64;
                }
                TxOutcome::Never => pool.release(packet),
                TxOutcome::NotNow => break,
            }
            sent.taken += 1;
        }
        if sent.packets > 0 {
            self.rings.transmit.submit();
        }
        sent
    }

    /// Moves a packet's frame to the frames in flight, if its descriptors fit into `free` slots.
    #[inline]
    fn lend_packet(&mut self, packet: &mut Packet, pool: &mut Pool, free: u32) -> TxOutcome {
        let length = packet.len();
        if length < MIN_LENGTH || length > self.state.max_length() || !packet.complete_checksum() {
            return TxOutcome::Never;
        }
        let own = pool.offset_of(packet);
        if own.is_none() && length > pool.room() {
            return TxOutcome::Never;
        }
        let count = self.chunks.spanned(own.unwrap_or(pool.data_offset() as u64), length);
        if count > free {
            return TxOutcome::NotNow;
        }
        let (address, frame) = match own {
            Some(address) => (address, packet.take_frame()),
            None => {
                let Some(mut copy) = copy(packet, pool) else { return TxOutcome::NotNow };
                pool.release(packet);
                let Some(address) = pool.offset_of(&copy) else { return TxOutcome::Never };
                (address, copy.take_frame())
            }
        };
        match frame.and_then(|frame| self.in_flight.lend(pool, frame)) {
            Some(_) => {
                self.chunks.lend(address, count);
                TxOutcome::Lent { address, length, count }
            }
            None => TxOutcome::Never,
        }
    }

    /// Wakes the kernel if the transmit ring is not empty, and returns sent frames to the pool.
    /// Returns true if another flush is needed soon.
    #[inline]
    fn flush(&mut self, pool: &mut Pool) -> bool {
        if self.sending() == 0 {
            return false;
        }
        self.reap(pool);
        let mut pending = self.rings.transmit.pending();
        if pending > 0 {
            if self.is_down() {
                return false;
            }
            self.down_until = 0;
            pending = self.wake_tx(pending, pool);
        }
        // A zero-copy driver may complete frames only when it is woken.
        if pending == 0 && self.zero_copy && self.rings.transmit.needs_wakeup() {
            ring::wake_tx(&self.socket);
            self.reap(pool);
        }
        // While the link is down, another flush achieves nothing. Frames in flight are only missed
        // when too few are left for receiving.
        self.down_until == 0
            && (pending > 0 || (self.receiving < self.receive_quota && self.sending() > 0))
    }

    /// Makes the kernel send the frames of the transmit ring; returns how many are left there.
    fn wake_tx(&mut self, mut pending: u32, pool: &mut Pool) -> u32 {
        for _ in 0..MAX_WAKEUPS {
            if self.need_wakeup && !self.rings.transmit.needs_wakeup() {
                break;
            }
            let result = ring::wake_tx(&self.socket);
            let before = pending;
            pending = self.rings.transmit.pending();
            self.reap(pool);
            match result {
                TxWakeup::Down => {
                    self.down_until = now() + DOWN_PAUSE;
                    break;
                }
                // NET_XMIT_DROP in __xsk_generic_xmit of the kernel's net/xdp/xsk.c.
                TxWakeup::Busy if pending < before && !self.zero_copy => self.refused += 1,
                TxWakeup::Done | TxWakeup::Again | TxWakeup::Busy => {}
            }
            // Without progress a resource of the kernel is exhausted; a later flush tries again.
            if pending == 0 || pending == before {
                break;
            }
        }
        pending
    }

    /// Returns the frames of the completion ring to the pool.
    #[inline]
    fn reap(&mut self, pool: &mut Pool) {
        let mut any = false;
        while let Some(address) = self.rings.completion.pop() {
            any = true;
            if !self.chunks.complete(address) {
                continue;
            }
            match self.in_flight.reclaim(pool, address) {
                Some(frame) => pool.give(frame),
                None => self.invalid_descriptors += 1,
            }
        }
        if any {
            self.rings.completion.release();
        }
    }

    /// Returns the number of frames in flight for transmitting.
    #[inline]
    fn sending(&self) -> usize {
        self.in_flight.count().saturating_sub(self.receiving)
    }

    /// Returns true if the kernel reported within [`DOWN_PAUSE`] that the link is down.
    #[inline]
    fn is_down(&self) -> bool {
        self.down_until != 0 && now() < self.down_until
    }
}

/// Marks a partial checksum. A sender on the same machine leaves the rest to the device, and a
/// virtual device does not add it.
#[inline]
fn mark_partial_checksum(packet: &mut Packet) {
    if let Some(checksum::Partial { start, offset }) = checksum::find_partial(packet.bytes()) {
        packet.set_partial_checksum(Some(Partial { start, offset }));
    }
}

/// Copies a packet into a new frame of `pool`; returns `None` if no frame is free.
fn copy(packet: &Packet, pool: &mut Pool) -> Option<Packet> {
    let frame = pool.take()?;
    match pool.packet(frame, pool.data_offset(), packet.len(), packet.port()) {
        Ok(mut copy) => {
            copy.bytes_mut().copy_from_slice(packet.bytes());
            Some(copy)
        }
        Err(frame) => {
            pool.give(frame);
            None
        }
    }
}
