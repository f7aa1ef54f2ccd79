//! A port between two lanes.
//!
//! The sender lends its frames: the ring carries where a packet lies, the receiver copies it into a
//! frame of its own pool, and the sender takes its frame back once the ring says so. A frame never
//! changes its pool, and nothing is lost: full is full.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use fastlane_core::{Burst, Custody, Packet, Pool, PortId, Queue, Sent, Statistics, Takes};

mod channel;

use channel::{Consumer, Producer, channel};

/// One end of a ring, the queue of one lane.
///
/// Cost: one copy of each packet, on the receiver's side. It has no interrupt.
#[derive(Debug)]
pub struct RingQueue {
    port: PortId,
    producer: Producer,
    consumer: Consumer,
    /// Packets that the other end may be reading, in the order of the ring.
    lent: VecDeque<Packet>,
    statistics: Statistics,
}

/// Both ends of a ring: the queues of `port_a` in one lane and of `port_b` in another (or in the
/// same). Each direction holds `capacity` packets, at least one.
///
/// When one end is closed, what it had not read yet comes back to the sender, which counts it as
/// `transmit_error`; from then on the other end takes nothing more.
#[must_use]
pub fn pair(port_a: PortId, port_b: PortId, capacity: usize) -> (RingQueue, RingQueue) {
    let capacity = capacity.max(1);
    let (to_b, from_a) = channel(capacity);
    let (to_a, from_b) = channel(capacity);
    let end = |port, producer, consumer| {
        let lent = VecDeque::with_capacity(capacity);
        RingQueue { port, producer, consumer, lent, statistics: Statistics::default() }
    };
    (end(port_a, to_b, from_b), end(port_b, to_a, from_a))
}

impl RingQueue {
    /// Takes back the frames that the other end has read, and all when it is gone.
    #[inline]
    fn reap(&mut self, pool: &mut Pool) {
        // In this order: an end that closes reads nothing afterwards.
        let gone = self.producer.is_consumer_gone();
        let unread = self.producer.unread();
        for mut packet in self.lent.drain(..self.lent.len() - unread) {
            pool.release(&mut packet);
        }
        if gone && !self.lent.is_empty() {
            self.statistics.transmit_error += self.lent.len() as u64;
            self.take_all_back(pool);
        }
    }

    fn take_all_back(&mut self, pool: &mut Pool) {
        for packet in &mut self.lent {
            pool.release(packet);
        }
        self.lent.clear();
        self.producer.forget();
    }
}

impl Queue for RingQueue {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        let wanted = burst.room().min(pool.free());
        if wanted == 0 {
            self.statistics.device_no_frames +=
                u64::from(burst.room() > 0 && self.consumer.has_packets());
            return;
        }
        let (port, statistics) = (self.port, &mut self.statistics);
        self.consumer.read(wanted, |bytes, partial| {
            let Some(frame) = pool.take() else { return };
            match pool.packet(frame, pool.data_offset(), bytes.len(), port) {
                Ok(mut packet) => {
                    packet.bytes_mut().copy_from_slice(bytes);
                    packet.set_partial_checksum(partial);
                    if let Err(mut packet) = burst.push(packet) {
                        pool.release(&mut packet); // not reached: there was room
                    }
                }
                Err(frame) => {
                    statistics.receive_length += 1;
                    pool.give(frame);
                }
            }
        });
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        if self.producer.space() < packets.len() {
            self.reap(pool);
        }
        if self.producer.is_closed() || self.producer.is_consumer_gone() {
            return Sent::default();
        }
        let mut sent = Sent::default();
        for packet in packets {
            if packet.len() == 0 {
                pool.release(packet);
                sent.taken += 1;
                continue;
            }
            if !self.producer.push(packet) {
                break;
            }
            sent.taken += 1;
            sent.packets += 1;
            sent.bytes += packet.len() as u64;
            // Not longer than the ring that was allocated: it had space.
            self.lent.push_back(packet.take());
        }
        self.producer.publish();
        sent
    }

    fn flush(&mut self, pool: &mut Pool) -> bool {
        if !self.lent.is_empty() {
            self.reap(pool);
        }
        !self.lent.is_empty()
    }

    fn takes(&self) -> Takes {
        Takes::Any
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn statistics(&mut self) -> Statistics {
        self.statistics
    }

    /// Waits, for the time of one burst's copies, should the other end be reading just then.
    fn close(&mut self, pool: &mut Pool) {
        self.consumer.close();
        self.producer.close();
        self.reap(pool);
        self.statistics.transmit_error += self.lent.len() as u64;
        self.take_all_back(pool);
    }
}

#[cfg(test)]
mod tests;
