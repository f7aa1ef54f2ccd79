//! Lane rings: the pair of rings between two lanes that exchange packets.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use fastlane_core::{Burst, METADATA_LENGTH, Packet, PacketOwnership, Pool, PortId, Sent};

use super::doorbell::LaneDoorbell;
use super::lender::Lender;
use super::spsc::{Consumer, channel};

/// One lane's end of a pair of rings to another lane.
///
/// Each packet costs one copy, in the receiving lane. A lane that does not read holds at most
/// `capacity` frames of each other lane.
#[derive(Debug)]
pub struct LaneRingEnd {
    lender: Lender,
    consumer: Consumer,
    /// Length of the longest packet that fits a frame of the other lane.
    longest: usize,
    /// Number of packets that the other lane had passed at the last
    /// [`mark`](fastlane_sharding::LaneRing::mark).
    mark: usize,
}

/// Creates the rings between two lanes with these doorbells and returns the end of each. Each
/// direction holds `capacity` packets, at least one. Frames have `frame_size` bytes in both lanes.
#[must_use]
pub fn lane_ring(
    doorbells: [&Arc<LaneDoorbell>; 2],
    capacity: usize,
    frame_size: usize,
) -> [LaneRingEnd; 2] {
    let capacity = capacity.max(1);
    let (to_second, from_first) = channel(capacity, doorbells[1]);
    let (to_first, from_second) = channel(capacity, doorbells[0]);
    let longest = frame_size - METADATA_LENGTH;
    let end = |producer, consumer| LaneRingEnd {
        lender: Lender::new(producer),
        consumer,
        longest,
        mark: 0,
    };
    [end(to_second, from_second), end(to_first, from_first)]
}

/// Creates a doorbell for each of `lanes` lanes.
///
/// # Errors
/// Returns an error if the process has reached its limit of descriptors.
pub fn doorbells(lanes: usize) -> io::Result<Vec<Arc<LaneDoorbell>>> {
    (0..lanes).map(|_| LaneDoorbell::new().map(Arc::new)).collect()
}

impl fastlane_sharding::LaneRing for LaneRingEnd {
    #[inline]
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        self.consumer.awake();
        let wanted = burst.room().min(pool.free());
        if wanted == 0 || !self.consumer.has_packets() {
            return;
        }
        self.consumer.read(wanted, |passed| {
            let length = passed.bytes.len();
            // Prepended headers can leave less headroom here.
            let offset = pool.data_offset().min(pool.frame_size().saturating_sub(length));
            let Some(frame) = pool.take() else { return };
            match pool.packet(frame, offset, length, passed.port) {
                Ok(mut packet) => {
                    packet.bytes_mut().copy_from_slice(passed.bytes);
                    packet.set_partial_checksum(passed.partial);
                    packet.set_raw_verdict(passed.verdict);
                    packet.set_labelled(passed.labelled);
                    if let Err(mut packet) = burst.push(packet) {
                        pool.release(&mut packet); // unreachable: the burst has room
                    }
                }
                Err(frame) => pool.give(frame), // unreachable: the sender checks the length
            }
        });
    }

    #[inline]
    fn pass(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        if self.lender.producer.space() < packets.len() {
            self.lender.reap(pool);
        }
        let mut sent = Sent::default();
        if self.lender.is_gone() {
            return sent;
        }
        for packet in packets {
            let length = packet.len();
            if length == 0 || length > self.longest {
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
        sent
    }

    #[inline]
    fn publish(&mut self) -> bool {
        self.lender.publish();
        self.lender.must_ring()
    }

    #[inline]
    fn wake(&mut self) {
        self.lender.wake();
    }

    #[inline]
    fn reclaim(&mut self, pool: &mut Pool) -> bool {
        self.lender.reap(pool);
        self.lender.is_short(pool)
    }

    fn arm(&mut self) -> bool {
        self.consumer.arm()
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        Some(self.consumer.event())
    }

    fn mark(&mut self) {
        self.mark = self.consumer.produced();
    }

    fn has_reached_mark(&self) -> bool {
        self.consumer.has_passed(self.mark)
    }

    fn is_lending(&self) -> bool {
        self.lender.is_lending()
    }

    fn close(&mut self, pool: &mut Pool, lost: &mut dyn FnMut(PortId)) {
        self.consumer.close();
        self.lender.producer.close();
        self.lender.take_all_back(pool, |packet| lost(packet.port()));
    }
}
