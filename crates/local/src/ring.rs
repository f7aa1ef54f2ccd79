//! Rings between lanes: a port ([`RingQueue`]), and the [`lane_ring`] by which lanes exchange
//! packets.
//!
//! The sender lends its frames. The ring carries descriptors, the receiver copies each packet into
//! a frame of its own pool, and the sender takes its frames back when they were read. A frame never
//! changes its pool. A full ring takes no packets. A receiver that sleeps is woken.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use fastlane_core::{Burst, Packet, Pool, PortId, Queue, Sent, Statistics, TxMemory};

mod doorbell;
mod lane_ring;
mod lender;
mod spsc;

pub use doorbell::LaneDoorbell;
pub use lane_ring::{LaneRingEnd, doorbells, lane_ring};

use lender::Lender;
use spsc::{Consumer, channel};

/// One end of a ring port, the queue of one lane. Each packet costs one copy, in the receiving
/// lane.
#[derive(Debug)]
pub struct RingQueue {
    port: PortId,
    lender: Lender,
    consumer: Consumer,
    statistics: Statistics,
}

/// Creates a ring and returns both ends: the queues of `port_a` in one lane and of `port_b` in
/// another or the same. Each direction holds `capacity` packets, at least one.
///
/// When one end closes, packets that it has not read return to the sender, which counts them as
/// `transmit_error`. The other end takes no packets afterwards.
///
/// # Errors
/// Returns an error if the process has reached its limit of descriptors. Each end needs one for its
/// doorbell.
pub fn pair(port_a: PortId, port_b: PortId, capacity: usize) -> io::Result<(RingQueue, RingQueue)> {
    let capacity = capacity.max(1);
    let (to_b, from_a) = channel(capacity, &Arc::new(LaneDoorbell::new()?));
    let (to_a, from_b) = channel(capacity, &Arc::new(LaneDoorbell::new()?));
    let end = |port, producer, consumer| {
        let (lender, statistics) = (Lender::new(producer), Statistics::default());
        RingQueue { port, lender, consumer, statistics }
    };
    Ok((end(port_a, to_b, from_b), end(port_b, to_a, from_a)))
}

impl RingQueue {
    /// Takes back the frames that the other end has read, and all of them if it has closed.
    #[inline]
    fn reap(&mut self, pool: &mut Pool) {
        // The test comes first: an end that has closed reads nothing afterwards.
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
                        pool.release(&mut packet); // unreachable: the burst has room
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
        self.lender.ring();
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

    fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Closes the end. It waits while the other end copies a burst.
    fn close(&mut self, pool: &mut Pool) {
        self.consumer.close();
        self.lender.producer.close();
        self.take_all_back(pool);
    }
}

#[cfg(test)]
mod tests;
