//! A queue of a device, as a lane drives it.

use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::Duration;

use fastlane_core::{Burst, Packet, Partial, Pool, PortId, Queue, Sent, Statistics, now};
use fastlane_steer::{Program, ProgramError};
use fastlane_wire::checksum;

use crate::lent::Lent;
use crate::mapping::Descriptor;
use crate::socket::{Kick, Rings, Socket};
use crate::{Obtained, Settings};

/// Calls that one flush makes at most: the largest sensible ring at 32 frames a call.
const KICKS: usize = 64;
/// How long nothing is sent after the kernel said that the link is down, in nanoseconds.
const DOWN_PAUSE: u64 = 1_000_000;
/// A frame in more than one piece (XDP_PKT_CONTD): not asked for, so not expected.
const CONTINUED: u32 = 1;
/// Bytes of an Ethernet header: less is no frame.
const SHORTEST: usize = 14;
/// How often and how long a closing queue waits for what is on its way.
const DRAIN_STEPS: usize = 200;
const DRAIN_STEP: Duration = Duration::from_micros(100);

/// One queue of a device with its four rings, owned by one lane.
///
/// A lane's frame costs no copy here: received ones are the pool's, and those of the pool are sent from
/// where they lie. In the copy modes the kernel copies each once.
#[derive(Debug)]
pub struct XskQueue {
    /// `None` once it is closed.
    open: Option<Open>,
    lent: Lent,
    port: PortId,
    /// The most frames lent for receiving, and how many are.
    share: usize,
    receiving: usize,
    busy_polls: bool,
    need_wakeup: bool,
    zero_copy: bool,
    virtual_device: bool,
    /// When sending is tried again, while the link is down; else 0.
    down_until: u64,
    /// Descriptors that the kernel should not have written.
    strange: u64,
    losses: Statistics,
}

#[derive(Debug)]
struct Open {
    socket: Socket,
    rings: Rings,
}

/// What can be done with a packet.
enum Place {
    Descriptor(Descriptor),
    /// It can never be sent.
    Never,
    /// There is no frame to copy it into.
    NotNow,
}

impl XskQueue {
    pub(crate) fn new(
        socket: Socket,
        rings: Rings,
        pool: &Pool,
        port: PortId,
        settings: &Settings,
        mode: Obtained,
        share: usize,
    ) -> Self {
        Self {
            open: Some(Open { socket, rings }),
            lent: Lent::new(pool),
            port,
            share: share.min(settings.receive_ring as usize),
            receiving: 0,
            busy_polls: settings.busy_poll.is_some(),
            need_wakeup: settings.need_wakeup,
            zero_copy: mode == Obtained::ZeroCopy,
            virtual_device: settings.virtual_device,
            down_until: 0,
            strange: 0,
            losses: Statistics::default(),
        }
    }

    /// Lends the first frames, then lets the steering program send frames here.
    pub(crate) fn start(
        &mut self,
        program: &mut Program,
        queue: u32,
        pool: &mut Pool,
    ) -> Result<(), ProgramError> {
        self.refill(pool);
        match &self.open {
            Some(open) => program.insert_socket(queue, open.socket.as_fd()),
            None => Ok(()),
        }
    }

    /// Lends frames for receiving, up to the share, as far as the pool has them.
    #[inline]
    fn refill(&mut self, pool: &mut Pool) {
        let Some(open) = &mut self.open else { return };
        let fill = &mut open.rings.fill;
        let wanted = self.share.saturating_sub(self.receiving);
        let wanted = wanted.min(fill.free(wanted as u32) as usize);
        let mut lent = 0;
        while lent < wanted {
            let Some(frame) = pool.take() else { break };
            let Some(address) = self.lent.lend(pool, frame) else { break };
            fill.push(address);
            lent += 1;
        }
        if lent > 0 {
            self.receiving += lent;
            fill.submit();
        }
    }

    /// The packet that a descriptor speaks of.
    #[inline]
    fn packet(&mut self, descriptor: Descriptor, pool: &mut Pool) -> Option<Packet> {
        let frame = self.lent.reclaim(pool, descriptor.address)?;
        self.receiving = self.receiving.saturating_sub(1);
        if descriptor.options & CONTINUED != 0 {
            pool.give(frame);
            return None;
        }
        let offset = descriptor.address as usize & (pool.frame_size() - 1);
        let length = descriptor.length as usize;
        match pool.packet(frame, offset, length, self.port) {
            Ok(mut packet) => {
                if self.virtual_device {
                    let partial = checksum::find_partial(packet.bytes());
                    let partial = partial.map(|at| Partial { start: at.start, offset: at.offset });
                    packet.set_partial_checksum(partial);
                }
                Some(packet)
            }
            Err(frame) => {
                pool.give(frame);
                None
            }
        }
    }

    /// Takes a packet's frame out and lends it to the kernel for sending.
    #[inline]
    fn place(&mut self, packet: &mut Packet, pool: &mut Pool) -> Place {
        let length = packet.len();
        if length < SHORTEST || !packet.complete_checksum() {
            return Place::Never;
        }
        let (address, frame) = match pool.offset_of(packet) {
            Some(address) => (address, packet.take_frame()),
            None if length > pool.room() => return Place::Never,
            None => {
                let Some(mut copy) = copy(packet, pool) else { return Place::NotNow };
                pool.release(packet);
                let Some(address) = pool.offset_of(&copy) else { return Place::Never };
                (address, copy.take_frame())
            }
        };
        match frame.and_then(|frame| self.lent.lend(pool, frame)) {
            Some(_) => Place::Descriptor(Descriptor { address, length: length as u32, options: 0 }),
            None => Place::Never,
        }
    }

    /// Returns frames that have left to the pool.
    #[inline]
    fn reap(&mut self, pool: &mut Pool) {
        let Some(open) = &mut self.open else { return };
        let completion = &mut open.rings.completion;
        let mut any = false;
        while let Some(address) = completion.pop() {
            any = true;
            match self.lent.reclaim(pool, address) {
                Some(frame) => pool.give(frame),
                None => self.strange += 1,
            }
        }
        if any {
            completion.release();
        }
    }

    /// Has the kernel send what is in the ring; returns how much is left.
    fn kick(&mut self, mut pending: u32, pool: &mut Pool) -> u32 {
        for _ in 0..KICKS {
            let Some(open) = &mut self.open else { return 0 };
            if self.need_wakeup && !open.rings.transmit.needs_wakeup() {
                break;
            }
            let answer = open.socket.kick();
            let before = pending;
            pending = open.rings.transmit.pending();
            self.reap(pool);
            match answer {
                Kick::Down => {
                    self.down_until = now() + DOWN_PAUSE;
                    break;
                }
                // No progress: what is short comes back later, if not with the frames just reaped.
                _ if pending == 0 || pending == before => break,
                Kick::Done | Kick::Again => {}
            }
        }
        pending
    }

    /// Frames that the kernel has for sending.
    #[inline]
    fn sending(&self) -> usize {
        self.lent.count().saturating_sub(self.receiving)
    }

    fn read_losses(&mut self) {
        let Some(kernel) = self.open.as_ref().and_then(|open| open.socket.statistics()) else {
            return;
        };
        let no_frames = kernel.rx_fill_ring_empty_descs.unwrap_or(0);
        // In copy mode the kernel has lost the frame, and counts it as dropped as well.
        let no_frame = if self.zero_copy { 0 } else { no_frames };
        self.losses = Statistics {
            no_frame,
            receive_length: 0,
            device_full: kernel.rx_ring_full.unwrap_or(0),
            device_invalid: kernel.rx_dropped.saturating_sub(no_frame)
                + kernel.rx_invalid_descs
                + self.strange,
            transmit_error: kernel.tx_invalid_descs,
            device_no_frames: no_frames,
        };
    }
}

/// The packet in a frame of this pool.
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

impl Queue for XskQueue {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        let room = u32::try_from(burst.room()).unwrap_or(u32::MAX);
        let Some(open) = &mut self.open else { return };
        let count = open.rings.receive.available(room).min(room);
        for _ in 0..count {
            let Some(open) = &mut self.open else { return };
            let Some(descriptor) = open.rings.receive.pop() else { break };
            match self.packet(descriptor, pool) {
                Some(packet) => {
                    if let Err(mut packet) = burst.push(packet) {
                        pool.release(&mut packet);
                    }
                }
                None => self.strange += 1,
            }
        }
        if count > 0
            && let Some(open) = &mut self.open
        {
            open.rings.receive.release();
        }
        self.refill(pool);
        let Some(open) = &mut self.open else { return };
        let starved = open.rings.fill.needs_wakeup() && open.rings.fill.pending() > 0;
        if starved || (self.busy_polls && count == 0) {
            open.socket.poke();
        }
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let mut sent = Sent::default();
        let Some(open) = &mut self.open else { return sent };
        let wanted = u32::try_from(packets.len()).unwrap_or(u32::MAX);
        let mut free = open.rings.transmit.free(wanted);
        for packet in packets {
            if free == 0 {
                break;
            }
            match self.place(packet, pool) {
                Place::Descriptor(descriptor) => {
                    let Some(open) = &mut self.open else { break };
                    open.rings.transmit.push(descriptor);
                    free -= 1;
                    sent.packets += 1;
                    sent.bytes += u64::from(descriptor.length);
                }
                Place::Never => pool.release(packet),
                Place::NotNow => break,
            }
            sent.taken += 1;
        }
        if sent.packets > 0
            && let Some(open) = &mut self.open
        {
            open.rings.transmit.submit();
        }
        sent
    }

    fn flush(&mut self, pool: &mut Pool) -> bool {
        if self.sending() == 0 {
            return false;
        }
        self.reap(pool);
        let Some(open) = &mut self.open else { return false };
        let mut pending = open.rings.transmit.pending();
        if pending > 0 {
            if self.down_until != 0 && now() < self.down_until {
                return false;
            }
            self.down_until = 0;
            pending = self.kick(pending, pool);
        }
        // While the link is down there is nothing to stay awake for; what is on its way is only
        // missed when there are too few frames to receive into.
        self.down_until == 0 && (pending > 0 || (self.receiving < self.share && self.sending() > 0))
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.open.as_ref().map(|open| open.socket.as_fd())
    }

    fn statistics(&mut self) -> Statistics {
        self.read_losses();
        self.losses
    }

    fn close(&mut self, pool: &mut Pool) {
        if !self.lent.is_of(pool) {
            return;
        }
        // A frame on its way may still be read by the kernel: it should leave before it is used again.
        for _ in 0..DRAIN_STEPS {
            self.flush(pool);
            if self.sending() == 0 || self.down_until != 0 {
                break;
            }
            thread::sleep(DRAIN_STEP);
        }
        self.read_losses();
        // Closing the socket also takes it out of the steering program's table.
        self.open = None;
        self.receiving = 0;
        self.lent.reclaim_all(pool);
    }
}
