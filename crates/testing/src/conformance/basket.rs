//! The suite's own second port.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use fastlane_core::{Burst, Pool, PortId, Queue, Sent, Statistics};

/// What lies in a basket.
#[derive(Default)]
pub(super) struct Contents {
    /// Frames that the lane will receive.
    pub(super) arrivals: VecDeque<Vec<u8>>,
    /// Frames that the lane has sent.
    pub(super) sent: VecDeque<Vec<u8>>,
}

/// A port whose other end is the test itself.
pub(super) struct Basket {
    port: PortId,
    contents: Arc<Mutex<Contents>>,
}

impl Basket {
    pub(super) fn new(port: PortId, contents: &Arc<Mutex<Contents>>) -> Self {
        Self { port, contents: Arc::clone(contents) }
    }
}

impl Queue for Basket {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        let arrivals = &mut self.contents.lock().unwrap().arrivals;
        while burst.room() > 0 && pool.free() > 0 {
            let Some(arrival) = arrivals.pop_front() else { return };
            let frame = pool.take().expect("the pool has a free one");
            let packet = pool.packet(frame, pool.data_offset(), arrival.len(), self.port);
            let mut packet = packet.expect("the suite's frames fit");
            packet.bytes_mut().copy_from_slice(&arrival);
            burst.push(packet).expect("the burst has room");
        }
    }

    fn transmit(&mut self, packets: &mut [fastlane_core::Packet], pool: &mut Pool) -> Sent {
        let mut sent = Sent { taken: packets.len(), ..Sent::default() };
        for packet in packets {
            if packet.len() > 0 && packet.complete_checksum() {
                sent.packets += 1;
                sent.bytes += packet.len() as u64;
                self.contents.lock().unwrap().sent.push_back(packet.bytes().to_vec());
            }
            pool.release(packet);
        }
        sent
    }

    fn flush(&mut self, _: &mut Pool) -> bool {
        false
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn statistics(&mut self) -> Statistics {
        Statistics::default()
    }

    fn close(&mut self, _: &mut Pool) {}
}
