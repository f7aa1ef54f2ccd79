//! A queue of a device, as a lane drives it.

mod lcore;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use fastlane_core::{
    Burst, LossReader, Packet, PacketOwnership, Pool, Queue, RegionId, Run, Sent, Statistics,
    TxMemory,
};

use crate::LaneMemory;
use crate::ethdev::EthPort;
use crate::plugin::{RawQueue, SendResult};
use lcore::Registration;

/// Number of empty packets allocated ahead, for packets that are copied into this memory.
const SPARE_PACKETS: usize = 32;

/// A receive queue of a device, and the transmit queue of the same number.
///
/// The first call registers the calling thread with DPDK, which gives it a cache of frames. All
/// later calls must come from the same thread.
pub struct DpdkQueue {
    raw: RawQueue,
    region: RegionId,
    state: State,
    /// Empty packets; those before `next_spare` are used.
    spare_packets: Burst,
    next_spare: usize,
    /// Number of received frames less that of sent ones, since the pool was told last. A lane that
    /// sends what it receives need not tell it in every turn.
    in_use: isize,
    /// Frames to be freed.
    returned: Vec<u64>,
    interrupt: Option<Interrupt>,
    /// Reader of the losses of the device; the first queue of a device has it.
    losses: Option<LossReader>,
    // Dropped last, in this order: the device must be closed before its memory is freed.
    port: Arc<EthPort>,
    _memory: LaneMemory,
}

/// State of the queue, which decides what the next call does first.
enum State {
    /// The thread is not registered with DPDK yet.
    New,
    Registered(Registration),
    /// The interrupt is enabled.
    Armed(Registration),
    Closed,
}

/// Descriptor that becomes readable when packets arrive.
struct Interrupt {
    descriptor: OwnedFd,
    /// True for an eventfd, which stays readable until it is read.
    counts: bool,
}

/// Creates the reader of the losses of a device.
fn loss_reader(port: &Arc<EthPort>) -> LossReader {
    let port = Arc::clone(port);
    LossReader::new(move || {
        let losses = port.losses()?;
        Some(Statistics {
            device_invalid: losses.receive_errors,
            device_full: losses.missed,
            transmit_error: losses.transmit_errors,
            device_no_frames: losses.no_frames,
            ..Statistics::default()
        })
    })
}

impl DpdkQueue {
    pub(crate) fn new(
        raw: RawQueue,
        memory: &LaneMemory,
        port: &Arc<EthPort>,
        reports_losses: bool,
        interrupt: Option<OwnedFd>,
    ) -> Self {
        Self {
            raw,
            region: memory.shared.region,
            state: State::New,
            spare_packets: Burst::new(SPARE_PACKETS),
            next_spare: 0,
            in_use: 0,
            returned: Vec::with_capacity(memory.frames()),
            interrupt: interrupt.map(Interrupt::new),
            losses: reports_losses.then(|| loss_reader(port)),
            port: Arc::clone(port),
            _memory: memory.clone(),
        }
    }

    /// Returns true if the queue can be used. Registers the thread or disarms the interrupt first,
    /// if needed.
    #[inline]
    fn is_ready(&mut self) -> bool {
        matches!(self.state, State::Registered(_)) || self.make_ready()
    }

    #[cold]
    #[inline(never)]
    fn make_ready(&mut self) -> bool {
        self.state = match std::mem::replace(&mut self.state, State::Closed) {
            State::New => State::Registered(Registration::new(self.port.environment.plugin())),
            State::Armed(registration) => {
                self.raw.disarm();
                if let Some(interrupt) = &self.interrupt {
                    interrupt.clear();
                }
                State::Registered(registration)
            }
            other => other,
        };
        !matches!(self.state, State::Closed)
    }

    /// Frees the frames that the lane has released.
    #[inline]
    fn free_returned(&mut self, pool: &mut Pool) {
        if pool.has_released() {
            self.free_released(pool);
        }
    }

    /// Frees the frames that the lane has released, and tells the pool the number of frames that
    /// have become packets, or are packets no longer.
    #[inline(never)]
    fn update_pool(&mut self, pool: &mut Pool) {
        self.free_returned(pool);
        let count = std::mem::take(&mut self.in_use);
        match count > 0 {
            true => pool.external_received(self.region, count.unsigned_abs()),
            false => pool.external_sent(self.region, count.unsigned_abs()),
        }
    }

    #[inline(never)]
    fn free_released(&mut self, pool: &mut Pool) {
        pool.take_released(self.region, &mut self.returned);
        if !self.returned.is_empty() {
            self.port.environment.plugin().release(&mut self.returned);
        }
    }

    /// Notes that frames have left, and returns the result as that of a lane.
    #[inline(always)]
    fn note_sent(&mut self, result: &SendResult) -> Sent {
        let count = result.taken as usize;
        self.in_use -= count.cast_signed();
        Sent { taken: count, packets: count, bytes: result.bytes }
    }

    /// Continues with the rest of a run, behind `sent`, of which the device cannot send the first
    /// packet as it is.
    #[cold]
    #[inline(never)]
    fn transmit_fixed(&mut self, mut sent: Sent, rest: &mut [Packet], pool: &mut Pool) -> Sent {
        let mut at = 0;
        loop {
            // Each iteration takes a packet or completes its checksum, so the loop ends.
            let released = usize::from(!self.fix_or_release(&mut rest[at], pool));
            let result = self.raw.transmit(&mut rest[at + released..]);
            let count = result.taken as usize;
            self.in_use -= count.cast_signed();
            at += released + count;
            sent.taken += released + count;
            sent.packets += count;
            sent.bytes += result.bytes;
            if result.stopped == 0 {
                return sent;
            }
        }
    }

    /// Handles a packet that the device cannot send as it is. Completes its partial checksum and
    /// returns true, so that it is tried again; otherwise releases it and returns false.
    #[cold]
    fn fix_or_release(&self, packet: &mut Packet, pool: &mut Pool) -> bool {
        let completed = packet.partial_checksum().is_some() && packet.complete_checksum();
        if !completed {
            pool.release(packet);
        }
        completed
    }
}

impl Queue for DpdkQueue {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        if !self.is_ready() {
            return;
        }
        self.free_returned(pool);
        self.in_use += self.raw.receive(burst).cast_signed();
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        if !self.is_ready() {
            return Sent::default();
        }
        let result = self.raw.transmit(packets);
        let sent = self.note_sent(&result);
        match result.stopped {
            0 => sent,
            _ => self.transmit_fixed(sent, &mut packets[sent.taken..], pool),
        }
    }

    fn transmit_run(&mut self, mut run: Run<'_>, pool: &mut Pool) -> Sent {
        if !self.is_ready() {
            return Sent::default();
        }
        let result = self.raw.transmit_run(&mut run);
        let sent = self.note_sent(&result);
        match result.stopped {
            0 => sent,
            _ => self.transmit_fixed(sent, &mut run[sent.taken..], pool),
        }
    }

    fn flush(&mut self, pool: &mut Pool) -> bool {
        if pool.has_released() || self.in_use != 0 {
            self.update_pool(pool);
        }
        false
    }

    fn tx_memory(&self) -> TxMemory {
        TxMemory::Region(self.region)
    }

    fn alloc_packet(&mut self, length: usize, pool: &mut Pool) -> Option<Packet> {
        if self.next_spare == self.spare_packets.len() {
            if !self.is_ready() {
                return None;
            }
            self.free_returned(pool);
            self.spare_packets.clear(pool);
            self.next_spare = 0;
            let count = self.raw.alloc_packets(&mut self.spare_packets);
            pool.external_received(self.region, count);
        }
        let mut packet = self.spare_packets.packets().get_mut(self.next_spare)?.take();
        self.next_spare += 1;
        if packet.append(length).is_some() {
            return Some(packet);
        }
        pool.release(&mut packet);
        None
    }

    fn arm(&mut self) -> bool {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Registered(registration) if self.interrupt.is_some() => {
                self.state = State::Armed(registration);
                self.raw.arm()
            }
            other => {
                self.state = other;
                false
            }
        }
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.interrupt.as_ref().map(|interrupt| interrupt.descriptor.as_fd())
    }

    fn statistics(&self) -> Statistics {
        let own = self.raw.losses();
        Statistics {
            receive_length: own.length,
            device_invalid: own.invalid,
            ..Statistics::default()
        }
    }

    fn loss_reader(&self) -> Option<LossReader> {
        self.losses.clone()
    }

    fn disconnect(&mut self) {
        // The last look at the device, which may wait; the lane's `close` then does not.
        if let Some(losses) = &self.losses {
            losses.end();
        }
    }

    fn close(&mut self, pool: &mut Pool) {
        self.spare_packets.clear(pool);
        self.next_spare = 0;
        self.update_pool(pool);
        self.interrupt = None;
        self.state = State::Closed;
        if let Some(losses) = &self.losses {
            losses.end();
        }
    }
}

impl Interrupt {
    fn new(descriptor: OwnedFd) -> Self {
        let counts = rustix::fs::readlink(
            format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&descriptor)),
            Vec::new(),
        );
        let counts = counts.is_ok_and(|target| target.to_bytes() == b"anon_inode:[eventfd]");
        Self { descriptor, counts }
    }

    /// Resets an eventfd until the next arrival. Does not block.
    fn clear(&self) {
        if !self.counts {
            return;
        }
        let mut polled =
            [rustix::event::PollFd::new(&self.descriptor, rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        if rustix::event::poll(&mut polled, Some(&now)) == Ok(1) {
            let _ = rustix::io::read(&self.descriptor, &mut [0; 8]);
        }
    }
}

impl std::fmt::Debug for DpdkQueue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("DpdkQueue").field("port", &self.port).finish_non_exhaustive()
    }
}
