//! One AF_PACKET socket as a queue.

use std::os::fd::{AsFd, BorrowedFd};

use fastlane_core::{Burst, Packet, Partial, Pool, PortId, Queue, Sent, Statistics, now};
use rustix::io::Errno;

use super::ring::{Received, Rings};
use super::socket::Socket;
use crate::interface::Interface;
use crate::virtio;

/// Where a VLAN tag stands in a frame, and its octets.
const TAG_PLACE: usize = 12;
const TAG: usize = 4;
/// How long requests wait for a device that takes nothing, in nanoseconds, until they are dropped.
const PATIENCE: u64 = 10_000_000;

/// One AF_PACKET socket on an interface. Each frame is one copy in each direction; a burst is one
/// system call at most.
#[derive(Debug)]
pub struct AfPacketQueue {
    /// `None` once closed. The rings come first: they are unmapped before the socket is closed.
    open: Option<(Rings, Socket)>,
    port: PortId,
    /// The longest frame that the interface sends, without a VLAN tag.
    longest: usize,
    /// The next slot of the receive ring.
    receive: u32,
    /// The next slot of the transmit ring, and the first of those that wait to be sent.
    transmit: u32,
    waiting: u32,
    /// Since when the kernel has taken nothing of what waits.
    stuck: Option<u64>,
    statistics: Statistics,
}

impl AfPacketQueue {
    pub(super) fn new(socket: Socket, rings: Rings, interface: &Interface) -> Self {
        Self {
            longest: interface.mtu as usize + 14,
            open: Some((rings, socket)),
            port: PortId(0),
            receive: 0,
            transmit: 0,
            waiting: 0,
            stuck: None,
            statistics: Statistics::default(),
        }
    }

    pub(super) fn with_port(self, port: PortId) -> Self {
        Self { port, ..self }
    }

    /// Counts the requests that wait as not sent, and takes them back.
    fn withdraw(&mut self) {
        let Some((rings, _)) = &mut self.open else { return };
        let count = self.transmit.wrapping_sub(self.waiting);
        for place in 0..count {
            rings.withdraw(self.waiting.wrapping_add(place));
        }
        // The kernel goes on with the first one that it has not taken, so we do too.
        self.transmit = self.waiting;
        self.stuck = None;
        self.statistics.transmit_error += u64::from(count);
    }
}

impl Queue for AfPacketQueue {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        let Some((rings, _)) = &mut self.open else { return };
        // Bounded also when all that arrives is lost. Without a free frame the ring keeps the packet.
        for _ in 0..burst.room().min(pool.free()) {
            let Some(received) = rings.received(self.receive) else { return };
            match copy(&received, pool, self.port) {
                Some(packet) => {
                    if let Err(mut packet) = burst.push(packet) {
                        pool.release(&mut packet); // not reached: there was room
                    }
                }
                None => self.statistics.receive_length += 1,
            }
            rings.give_back(self.receive);
            self.receive = self.receive.wrapping_add(1);
        }
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let mut sent = Sent::default();
        let Some((rings, _)) = &mut self.open else { return sent };
        let room = rings.transmit_room();
        for packet in packets {
            let longest = self.longest + if is_tagged(packet.bytes()) { TAG } else { 0 };
            let longest = longest.min(room);
            let header = virtio::header_of(packet);
            if let Some(header) = header.filter(|_| packet.len() <= longest) {
                if !rings.is_free(self.transmit) {
                    break;
                }
                rings.request(self.transmit, header, packet.bytes());
                self.transmit = self.transmit.wrapping_add(1);
                sent.packets += 1;
                sent.bytes += packet.len() as u64;
            }
            pool.release(packet);
            sent.taken += 1;
        }
        sent
    }

    fn flush(&mut self, _: &mut Pool) -> bool {
        let Some((rings, socket)) = &mut self.open else { return false };
        if self.waiting == self.transmit {
            return false;
        }
        let kicked = socket.kick();
        let before = self.waiting;
        while self.waiting != self.transmit && !rings.is_waiting(self.waiting) {
            self.waiting = self.waiting.wrapping_add(1);
        }
        if self.waiting == self.transmit {
            self.stuck = None;
            return false;
        }
        match kicked {
            Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => {
                let progress = before != self.waiting;
                let since = *self.stuck.filter(|_| !progress).get_or_insert_with(now);
                self.stuck = Some(since);
                if !progress && now().saturating_sub(since) > PATIENCE {
                    self.withdraw();
                }
            }
            // The interface is down or gone.
            Err(_) => self.withdraw(),
        }
        self.waiting != self.transmit
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.open.as_ref().map(|(_, socket)| socket.as_fd())
    }

    fn statistics(&mut self) -> Statistics {
        if let Some((_, socket)) = &self.open {
            self.statistics.device_full += socket.take_drops();
            socket.clear_error();
        }
        self.statistics
    }

    fn close(&mut self, _: &mut Pool) {
        self.withdraw();
        self.open = None;
    }
}

/// The packet that arrived, in a frame of the pool and with its VLAN tag in place; `None` when the
/// kernel did not capture all of it or it does not fit. There must be a free frame.
#[inline]
fn copy(received: &Received<'_>, pool: &mut Pool, port: PortId) -> Option<Packet> {
    let bytes = received.bytes;
    let added = if received.tag.is_some() { TAG } else { 0 };
    if !received.whole || bytes.len() < TAG_PLACE || bytes.len() + added > pool.room() {
        return None;
    }
    let frame = pool.take()?;
    let mut packet = match pool.packet(frame, pool.data_offset(), bytes.len() + added, port) {
        Ok(packet) => packet,
        Err(frame) => {
            pool.give(frame);
            return None;
        }
    };
    let partial = virtio::partial_checksum(&received.virtio);
    match received.tag {
        None => {
            packet.bytes_mut().copy_from_slice(bytes);
            packet.set_partial_checksum(partial);
        }
        Some(tag) => {
            let (addresses, rest) = bytes.split_at(TAG_PLACE);
            let place = packet.bytes_mut();
            place[..TAG_PLACE].copy_from_slice(addresses);
            place[TAG_PLACE..TAG_PLACE + TAG].copy_from_slice(&tag);
            place[TAG_PLACE + TAG..].copy_from_slice(rest);
            let moved = |partial: Partial| Partial {
                start: partial.start.saturating_add(TAG as u16),
                ..partial
            };
            packet.set_partial_checksum(partial.map(moved));
        }
    }
    Some(packet)
}

/// Whether the frame begins with a VLAN tag: then it may be longer by as much.
#[inline]
fn is_tagged(frame: &[u8]) -> bool {
    matches!(frame.get(TAG_PLACE..TAG_PLACE + 2), Some([0x81, 0x00] | [0x88, 0xa8]))
}
