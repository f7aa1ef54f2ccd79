//! One queue of a device.

mod thread;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use fastlane_core::{
    Burst, Packet, PacketOwnership, Pool, Queue, RegionId, Sent, Statistics, TxMemory,
};

use crate::LaneMemory;
use crate::device::Port;
use crate::plugin::RawQueue;
use thread::Registration;

/// Empty packets that are kept at hand for what is copied into this memory.
const BLANKS: usize = 32;

/// A receive queue of a device and the transmit queue of the same number.
///
/// The first call registers the calling thread with DPDK, which gives it a cache of frames; all
/// later ones come from the same thread.
pub struct DpdkQueue {
    raw: RawQueue,
    home: RegionId,
    state: State,
    /// Empty packets; those before `next_blank` are taken.
    blanks: Burst,
    next_blank: usize,
    /// Frames to be freed.
    returned: Vec<u64>,
    interrupt: Option<Interrupt>,
    statistics: Statistics,
    tells_losses: bool,
    // Last, in this order: the device goes before its memory.
    port: Arc<Port>,
    _memory: LaneMemory,
}

/// What the next call has to look after first.
enum State {
    /// The thread is not known to DPDK.
    New,
    Runs(Registration),
    /// The interrupt is on.
    Armed(Registration),
    Closed,
}

/// What becomes readable when something arrives.
struct Interrupt {
    descriptor: OwnedFd,
    /// It counts, and is readable until it is read.
    counts: bool,
}

impl DpdkQueue {
    pub(crate) fn new(
        raw: RawQueue,
        memory: &LaneMemory,
        port: &Arc<Port>,
        tells_losses: bool,
        interrupt: Option<OwnedFd>,
    ) -> Self {
        Self {
            raw,
            home: memory.shared.home,
            state: State::New,
            blanks: Burst::new(BLANKS),
            next_blank: 0,
            returned: Vec::with_capacity(memory.frames()),
            interrupt: interrupt.map(Interrupt::new),
            statistics: Statistics::default(),
            tells_losses,
            port: Arc::clone(port),
            _memory: memory.clone(),
        }
    }

    /// Whether the queue can be used, after whatever had to be done first.
    #[inline]
    fn is_ready(&mut self) -> bool {
        matches!(self.state, State::Runs(_)) || self.make_ready()
    }

    #[cold]
    fn make_ready(&mut self) -> bool {
        self.state = match std::mem::replace(&mut self.state, State::Closed) {
            State::New => State::Runs(Registration::new(self.port.environment.plugin())),
            State::Armed(registration) => {
                self.raw.disarm();
                if let Some(interrupt) = &self.interrupt {
                    interrupt.clear();
                }
                State::Runs(registration)
            }
            other => other,
        };
        !matches!(self.state, State::Closed)
    }

    /// Frees the frames that the lane has released.
    #[inline]
    fn free_returned(&mut self, pool: &mut Pool) {
        pool.take_released(self.home, &mut self.returned);
        if !self.returned.is_empty() {
            self.port.environment.plugin().release(&mut self.returned);
        }
    }

    /// The device does not send this one as it is: makes it so that it does, or releases it. True
    /// when it is to be tried again.
    #[cold]
    fn mend(&self, packet: &mut Packet, pool: &mut Pool) -> bool {
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
        let count = self.raw.receive(burst);
        if count > 0 {
            pool.external_received(self.home, count);
        }
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let mut sent = Sent::default();
        if !self.is_ready() {
            return sent;
        }
        loop {
            let outcome = self.raw.transmit(&mut packets[sent.taken..]);
            let count = outcome.taken as usize;
            pool.external_sent(self.home, count);
            sent.taken += count;
            sent.packets += count;
            sent.bytes += outcome.bytes;
            if outcome.stopped == 0 {
                return sent;
            }
            // Each round takes a packet or completes its checksum, so this ends.
            if !self.mend(&mut packets[sent.taken], pool) {
                sent.taken += 1;
            }
        }
    }

    fn flush(&mut self, pool: &mut Pool) -> bool {
        self.free_returned(pool);
        false
    }

    fn tx_memory(&self) -> TxMemory {
        TxMemory::Region(self.home)
    }

    fn alloc_packet(&mut self, length: usize, pool: &mut Pool) -> Option<Packet> {
        if self.next_blank == self.blanks.len() {
            if !self.is_ready() {
                return None;
            }
            self.free_returned(pool);
            self.blanks.clear(pool);
            self.next_blank = 0;
            let count = self.raw.alloc_packets(&mut self.blanks);
            pool.external_received(self.home, count);
        }
        let mut packet = self.blanks.packets().get_mut(self.next_blank)?.take();
        self.next_blank += 1;
        if packet.append(length).is_some() {
            return Some(packet);
        }
        pool.release(&mut packet);
        None
    }

    fn arm(&mut self) -> bool {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Runs(registration) if self.interrupt.is_some() => {
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

    fn statistics(&mut self) -> Statistics {
        let own = self.raw.losses();
        self.statistics.receive_length = own.length;
        self.statistics.device_invalid = own.invalid;
        if self.tells_losses {
            let losses = self.port.losses();
            self.statistics.device_invalid += losses.receive_errors;
            self.statistics.device_full = losses.missed;
            self.statistics.transmit_error = losses.transmit_errors;
            self.statistics.device_no_frames = losses.no_frames;
        }
        self.statistics
    }

    fn close(&mut self, pool: &mut Pool) {
        self.blanks.clear(pool);
        self.next_blank = 0;
        self.free_returned(pool);
        self.interrupt = None;
        self.state = State::Closed;
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

    /// Makes it unreadable until the next arrival. It never waits.
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
