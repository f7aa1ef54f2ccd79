//! An open queue: the work of each turn.

use std::thread;
use std::time::Duration;

use fastlane_core::{Burst, Custody, Packet, Partial, Pool, PortId, Sent, Statistics, now};
use fastlane_wire::checksum;

use crate::census::Census;
use crate::lent::Lent;
use crate::link::Link;
use crate::mapping::Descriptor;
use crate::socket::{Kick, Rings, Socket};
use crate::{Obtained, QueueDescription, Settings};

/// Calls that one flush makes at most: 2048 frames at 32 a call.
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

/// A bound socket with its rings and the account of its frames.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) socket: Socket,
    pub(crate) lent: Lent,
    rings: Rings,
    link: Link,
    port: PortId,
    pub(crate) description: QueueDescription,
    /// The most frames lent for receiving, and how many are: in the fill ring, in the device, in
    /// the receive ring. As it is at most the size of these rings, none of them is ever full.
    receive_share: usize,
    receiving: usize,
    /// The most frames lent for sending: a link that is down must not hold all frames of the lane.
    send_share: usize,
    longest_sent: usize,
    busy_polls: bool,
    need_wakeup: bool,
    zero_copy: bool,
    virtual_device: bool,
    /// When sending is tried again, while the link is down; else 0.
    down_until: u64,
    /// Frames that the device did not take.
    refused: u64,
    /// Frames that arrived and that nobody will see, because the queue closes.
    unread: u64,
    /// Descriptors that the kernel should not have written.
    strange: u64,
    losses: Statistics,
}

/// How many frames of its pool a queue may lend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    receive: usize,
    send: usize,
}

impl Share {
    /// Of a lane with so many queues.
    pub(crate) fn new(pool: &Pool, queues: usize) -> Self {
        let part = |part: usize| (pool.frames() / part / queues.max(1)).max(1);
        Self { receive: part(2), send: part(4) }
    }
}

/// What can be done with a packet.
enum Place {
    Descriptor(Descriptor),
    /// It can never be sent.
    Never,
    /// There is no frame to copy it into.
    NotNow,
}

impl Active {
    pub(crate) fn new(
        (socket, rings, link): (Socket, Rings, Link),
        pool: &Pool,
        (port, description): (PortId, QueueDescription),
        settings: &Settings,
        share: Share,
    ) -> Self {
        Self {
            socket,
            lent: Lent::new(pool),
            rings,
            longest_sent: link.longest_sent().unwrap_or(usize::MAX),
            link,
            port,
            description,
            receive_share: share.receive.min(settings.receive_ring as usize),
            receiving: 0,
            send_share: share.send,
            busy_polls: settings.busy_poll.is_some(),
            need_wakeup: settings.need_wakeup,
            zero_copy: description.mode == Obtained::ZeroCopy,
            virtual_device: settings.virtual_device,
            down_until: 0,
            refused: 0,
            unread: 0,
            strange: 0,
            losses: Statistics::default(),
        }
    }

    /// Takes over what a predecessor has lent to the kernel. Before anything else is done.
    pub(crate) fn inherit(&mut self, pool: &Pool, census: &Census) {
        debug_assert!(self.lent.is_of(pool) && self.lent.count() == 0);
        self.lent.inherit(&census.frames);
        self.receiving = census.receiving;
    }

    #[inline]
    pub(crate) fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        let room = u32::try_from(burst.room()).unwrap_or(u32::MAX);
        let count = self.rings.receive.available(room).min(room);
        for _ in 0..count {
            let Some(descriptor) = self.rings.receive.pop() else { break };
            match self.packet(descriptor, pool) {
                Some(packet) => {
                    if let Err(mut packet) = burst.push(packet) {
                        pool.release(&mut packet);
                    }
                }
                None => self.strange += 1,
            }
        }
        if count > 0 {
            self.rings.receive.release();
        }
        self.refill(pool);
        let starved = self.rings.fill.needs_wakeup() && self.rings.fill.pending() > 0;
        if starved || (self.busy_polls && count == 0) {
            self.socket.poke();
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
        match pool.packet(frame, offset, descriptor.length as usize, self.port) {
            Ok(mut packet) => {
                if self.virtual_device
                    && let Some(checksum::Partial { start, offset }) =
                        checksum::find_partial(packet.bytes())
                {
                    packet.set_partial_checksum(Some(Partial { start, offset }));
                }
                Some(packet)
            }
            Err(frame) => {
                pool.give(frame);
                None
            }
        }
    }

    /// Lends frames for receiving, up to the share, as far as the pool has them.
    #[inline]
    pub(crate) fn refill(&mut self, pool: &mut Pool) {
        let fill = &mut self.rings.fill;
        let wanted = self.receive_share.saturating_sub(self.receiving);
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

    #[inline]
    pub(crate) fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let mut sent = Sent::default();
        let wanted = packets.len().min(self.send_share.saturating_sub(self.sending()));
        let mut free = self.rings.transmit.free(wanted as u32).min(wanted as u32);
        for packet in packets {
            if free == 0 {
                break;
            }
            match self.place(packet, pool) {
                Place::Descriptor(descriptor) => {
                    self.rings.transmit.push(descriptor);
                    free -= 1;
                    sent.packets += 1;
                    sent.bytes += u64::from(descriptor.length);
                }
                Place::Never => pool.release(packet),
                Place::NotNow => break,
            }
            sent.taken += 1;
        }
        if sent.packets > 0 {
            self.rings.transmit.submit();
        }
        sent
    }

    /// Takes a packet's frame out and lends it to the kernel for sending.
    #[inline]
    fn place(&mut self, packet: &mut Packet, pool: &mut Pool) -> Place {
        let length = packet.len();
        if length < SHORTEST || length > self.longest_sent || !packet.complete_checksum() {
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

    /// True when another flush is needed soon.
    #[inline]
    pub(crate) fn flush(&mut self, pool: &mut Pool) -> bool {
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
            pending = self.kick(pending, pool);
        }
        // A driver without copies may return frames only when it is woken.
        if pending == 0 && self.zero_copy && self.rings.transmit.needs_wakeup() {
            self.socket.kick();
            self.reap(pool);
        }
        // While the link is down there is nothing to stay awake for; frames on their way are only
        // missed when there are too few to receive into.
        self.down_until == 0
            && (pending > 0 || (self.receiving < self.receive_share && self.sending() > 0))
    }

    /// Has the kernel send what is in the ring; returns how much is left.
    fn kick(&mut self, mut pending: u32, pool: &mut Pool) -> u32 {
        for _ in 0..KICKS {
            if self.need_wakeup && !self.rings.transmit.needs_wakeup() {
                break;
            }
            let answer = self.socket.kick();
            let before = pending;
            pending = self.rings.transmit.pending();
            self.reap(pool);
            match answer {
                Kick::Down => {
                    self.down_until = now() + DOWN_PAUSE;
                    break;
                }
                // NET_XMIT_DROP in __xsk_generic_xmit of the kernel's net/xdp/xsk.c.
                Kick::Busy if pending < before && !self.zero_copy => self.refused += 1,
                Kick::Done | Kick::Again | Kick::Busy => {}
            }
            // No progress: what is short comes back later, if not with the frames just reaped.
            if pending == 0 || pending == before {
                break;
            }
        }
        pending
    }

    /// Returns frames that have left to the pool.
    #[inline]
    fn reap(&mut self, pool: &mut Pool) {
        let mut any = false;
        while let Some(address) = self.rings.completion.pop() {
            any = true;
            match self.lent.reclaim(pool, address) {
                Some(frame) => pool.give(frame),
                None => self.strange += 1,
            }
        }
        if any {
            self.rings.completion.release();
        }
    }

    /// Frames that the kernel has for sending.
    #[inline]
    pub(crate) fn sending(&self) -> usize {
        self.lent.count().saturating_sub(self.receiving)
    }

    /// Whether the kernel said lately that the link is down.
    #[inline]
    pub(crate) fn is_down(&self) -> bool {
        self.down_until != 0 && now() < self.down_until
    }

    /// Reads the kernel's counts, and how long a frame may be: both change rarely.
    pub(crate) fn statistics(&mut self) -> Statistics {
        if let Some(longest) = self.link.longest_sent() {
            self.longest_sent = longest;
        }
        let Some(kernel) = self.socket.statistics() else { return self.losses };
        let no_frames = kernel.rx_fill_ring_empty_descs.unwrap_or(0);
        // In copy mode the kernel has lost the frame, and counts it as dropped as well.
        let no_frame = if self.zero_copy { 0 } else { no_frames };
        let invalid = kernel.rx_dropped.saturating_sub(no_frame) + kernel.rx_invalid_descs;
        self.losses = Statistics {
            no_frame,
            receive_length: 0,
            device_full: kernel.rx_ring_full.unwrap_or(0) + self.unread,
            device_invalid: invalid + self.strange,
            transmit_error: kernel.tx_invalid_descs + self.refused,
            device_no_frames: no_frames,
        };
        self.losses
    }

    /// Waits a little for what is on its way: the kernel may still read it, so it should leave
    /// before its frame is used again.
    pub(crate) fn drain(&mut self, pool: &mut Pool) {
        for _ in 0..DRAIN_STEPS {
            self.flush(pool);
            if self.sending() == 0 || self.is_down() {
                return;
            }
            thread::sleep(DRAIN_STEP);
        }
    }

    /// Counts as refused what the kernel has not even looked at: nobody will send it.
    pub(crate) fn give_up(&mut self) {
        self.refused += u64::from(self.rings.transmit.pending());
        self.unread = u64::from(self.rings.receive.available(u32::MAX));
    }

    /// Closes the socket, which also takes it out of the steering program's table; then no frame
    /// comes or goes any more, and all return to the pool.
    pub(crate) fn close(self, pool: &mut Pool) {
        let Self { socket, rings, mut lent, zero_copy, description, .. } = self;
        let QueueDescription { interface, queue, .. } = description;
        drop(socket);
        drop(rings);
        if zero_copy {
            Socket::await_release(pool, interface, queue);
        }
        lent.reclaim_all(pool);
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
