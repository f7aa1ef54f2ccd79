//! Queue of an AF_PACKET socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use fastlane_core::{
    Burst, LossReader, Packet, Partial, Pool, PortId, Queue, Sent, Statistics, TxMemory,
};
use rustix::io::Errno;

use super::ring::{Received, Ring};
use super::socket::{BATCH, Socket};
use crate::virtio;

/// Offset and length of a VLAN tag in a frame, in bytes.
const TAG_PLACE: usize = 12;
const TAG: usize = 4;

/// Queue of one AF_PACKET socket. Each frame is copied once in each direction; receiving needs no
/// system call, sending one for a burst.
#[derive(Debug)]
pub struct AfPacketQueue {
    /// `None` after closing. The ring comes first: it is unmapped before the socket is closed.
    open: Option<(Ring, Socket)>,
    port: PortId,
    /// Position of the next slot in the ring.
    next: u32,
    statistics: Statistics,
    losses: LossReader,
}

impl AfPacketQueue {
    /// Creates a queue.
    ///
    /// # Errors
    /// The kernel's answer to the duplication of the socket's descriptor.
    pub(super) fn new(socket: Socket, ring: Ring) -> io::Result<Self> {
        let losses = loss_reader(socket.duplicate()?);
        let statistics = Statistics::default();
        Ok(Self { open: Some((ring, socket)), port: PortId(0), next: 0, statistics, losses })
    }

    pub(super) fn with_port(self, port: PortId) -> Self {
        Self { port, ..self }
    }
}

impl Queue for AfPacketQueue {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        let Some((ring, _)) = &mut self.open else { return };
        // Bounded also when all that arrives is lost. Without a free frame the ring keeps the
        // packet.
        for _ in 0..burst.room().min(pool.free()) {
            let Some(received) = ring.received(self.next) else { return };
            match copy(&received, pool, self.port) {
                Some(packet) => {
                    if let Err(mut packet) = burst.push(packet) {
                        pool.release(&mut packet); // not reached: there was room
                    }
                }
                None => self.statistics.receive_length += 1,
            }
            ring.give_back(self.next);
            self.next = self.next.wrapping_add(1);
        }
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let mut sent = Sent::default();
        let mut was_down = false;
        let Some((_, socket)) = &self.open else { return sent };
        while let Some(rest) = packets.get_mut(sent.taken..).filter(|rest| !rest.is_empty()) {
            let mut headers = [[0; virtio::LENGTH]; BATCH];
            let ready = prepare(rest, &mut headers);
            let result = match ready {
                0 => Err(Errno::INVAL),
                _ => socket.send(&rest[..ready], &headers[..ready]),
            };
            let count = match result {
                Ok(count) => count.min(ready),
                // The device is full, or has no carrier.
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => break,
                // The first is longer than the interface's MTU, or not a frame.
                Err(Errno::MSGSIZE | Errno::INVAL) => {
                    pool.release(&mut rest[0]);
                    sent.taken += 1;
                    continue;
                }
                // The socket remembers that the link was down, and says so once when it is up.
                Err(Errno::NETDOWN) if !was_down => {
                    was_down = true;
                    continue;
                }
                // The interface is down or gone: it would say so for each. Or Linux has no memory.
                Err(_) => {
                    self.statistics.transmit_error += ready as u64;
                    ready
                }
            };
            for packet in &mut rest[..count] {
                sent.bytes += packet.len() as u64;
                pool.release(packet);
            }
            sent.packets += count;
            sent.taken += count;
        }
        sent
    }

    fn flush(&mut self, _: &mut Pool) -> bool {
        false // `transmit` has sent it
    }

    fn tx_memory(&self) -> TxMemory {
        TxMemory::Any
    }

    /// Returns true if a frame waits in the ring. The socket is an interrupt as it is.
    fn arm(&mut self) -> bool {
        self.open.as_ref().is_some_and(|(ring, _)| ring.has_received(self.next))
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.open.as_ref().map(|(_, socket)| socket.as_fd())
    }

    fn statistics(&self) -> Statistics {
        self.statistics
    }

    fn loss_reader(&self) -> Option<LossReader> {
        Some(self.losses.clone())
    }

    fn close(&mut self, _: &mut Pool) {
        self.disconnect(); // it holds no frames of the pool
    }

    fn disconnect(&mut self) {
        let Some((mut ring, _socket)) = self.open.take() else { return };
        self.losses.end();
        // What has arrived and nobody will see is lost.
        while ring.received(self.next).is_some() {
            self.statistics.device_full += 1;
            ring.give_back(self.next);
            self.next = self.next.wrapping_add(1);
        }
    }
}

/// Creates the reader of the frames for which the ring had no space. It also clears a pending error
/// of the socket (the interface went down), so that the error wakes no lane again.
fn loss_reader(socket: Socket) -> LossReader {
    let mut device_full = 0;
    LossReader::new(move || {
        device_full += socket.take_drops();
        socket.clear_error();
        Some(Statistics { device_full, ..Statistics::default() })
    })
}

/// Prepares the headers of packets up to the first that cannot be sent; returns their number.
#[inline]
fn prepare(packets: &mut [Packet], headers: &mut [[u8; virtio::LENGTH]; BATCH]) -> usize {
    let mut ready = 0;
    for (packet, header) in packets.iter_mut().zip(headers) {
        let Some(made) = virtio::header_of(packet) else { break };
        *header = made;
        ready += 1;
    }
    ready
}

/// Copies a received frame into a pool frame and restores its VLAN tag. Returns `None` if the
/// kernel truncated it or it does not fit. The pool must have a free frame.
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
