//! Rings between lanes: a port, and the way by which lanes pass packets to each other.
//!
//! The sender lends its frames: the ring carries where a packet lies, the receiver copies it into a
//! frame of its own pool, and the sender takes its frame back once the ring says so. A frame never
//! changes its pool, and nothing is lost: full is full. A receiver that sleeps is woken.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use fastlane_core::{Burst, Packet, Pool, PortId, Queue, Sent, Statistics, TxMemory};

mod doorbell;
mod lane_ring;
mod lender;
mod spsc;

pub use doorbell::Doorbell;
pub use lane_ring::{LaneRingEnd, doorbells, lane_ring};

use lender::Lender;
use spsc::{Consumer, channel};

/// One end of a ring, the queue of one lane.
///
/// Cost: one copy of each packet, on the receiver's side.
#[derive(Debug)]
pub struct RingQueue {
    port: PortId,
    lender: Lender,
    consumer: Consumer,
    statistics: Statistics,
}

/// Both ends of a ring: the queues of `port_a` in one lane and of `port_b` in another (or in the
/// same). Each direction holds `capacity` packets, at least one.
///
/// When one end is closed, what it had not read yet comes back to the sender, which counts it as
/// `transmit_error`; from then on the other end takes nothing more.
///
/// # Errors
/// When the process may have no more descriptors: each end needs one, to be woken by.
pub fn pair(port_a: PortId, port_b: PortId, capacity: usize) -> io::Result<(RingQueue, RingQueue)> {
    let capacity = capacity.max(1);
    let (to_b, from_a) = channel(capacity, &Arc::new(Doorbell::new()?));
    let (to_a, from_b) = channel(capacity, &Arc::new(Doorbell::new()?));
    let end = |port, producer, consumer| {
        let (lender, statistics) = (Lender::new(producer), Statistics::default());
        RingQueue { port, lender, consumer, statistics }
    };
    Ok((end(port_a, to_b, from_b), end(port_b, to_a, from_a)))
}

impl RingQueue {
    /// Takes back the frames that the other end has read, and all when it is gone.
    #[inline]
    fn reap(&mut self, pool: &mut Pool) {
        // In this order: an end that closes reads nothing afterwards.
        let gone = self.lender.producer.is_consumer_gone();
        self.lender.reap(pool);
        if gone {
            self.take_all_back(pool);
        }
    }

    fn take_all_back(&mut self, pool: &mut Pool) {
        let lost = &mut self.statistics.transmit_error;
        self.lender.take_all_back(pool, |_| *lost += 1);
    }
}

impl Queue for RingQueue {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        self.consumer.awake();
        let wanted = burst.room().min(pool.free());
        if wanted == 0 {
            self.statistics.device_no_frames +=
                u64::from(burst.room() > 0 && self.consumer.has_packets());
            return;
        }
        let (port, statistics) = (self.port, &mut self.statistics);
        self.consumer.read(wanted, |passed| {
            let Some(frame) = pool.take() else { return };
            match pool.packet(frame, pool.data_offset(), passed.bytes.len(), port) {
                Ok(mut packet) => {
                    packet.bytes_mut().copy_from_slice(passed.bytes);
                    packet.set_partial_checksum(passed.partial);
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
        if self.lender.producer.space() < packets.len() {
            self.reap(pool);
        }
        if self.lender.is_gone() {
            return Sent::default();
        }
        let mut sent = Sent::default();
        for packet in packets {
            let length = packet.len();
            if length == 0 {
                pool.release(packet);
                sent.taken += 1;
                continue;
            }
            if !self.lender.lend(packet) {
                break;
            }
            sent.taken += 1;
            sent.packets += 1;
            sent.bytes += length as u64;
        }
        self.lender.publish();
        sent
    }

    fn flush(&mut self, pool: &mut Pool) -> bool {
        self.lender.tell();
        self.reap(pool);
        self.lender.is_short(pool)
    }

    fn tx_memory(&self) -> TxMemory {
        TxMemory::Any
    }

    fn arm(&mut self) -> bool {
        self.consumer.arm()
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        Some(self.consumer.event())
    }

    fn statistics(&mut self) -> Statistics {
        self.statistics
    }

    /// Waits, for the time of one burst's copies, should the other end be reading just then.
    fn close(&mut self, pool: &mut Pool) {
        self.consumer.close();
        self.lender.producer.close();
        self.take_all_back(pool);
    }
}

#[cfg(test)]
mod tests;
