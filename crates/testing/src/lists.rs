//! Ports that are lists of frames, for tests that show a lane frames and look at what leaves it.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastlane_core::{Burst, Packet, Pool, PortId, Queue, Sent, Statistics};

/// Frames in the order in which they came; clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct Frames(Arc<Mutex<VecDeque<Vec<u8>>>>);

impl Frames {
    /// Adds frames at the end.
    pub fn extend(&self, frames: &[Vec<u8>]) {
        self.lock().extend(frames.iter().cloned());
    }

    /// Takes all out.
    #[must_use]
    pub fn take(&self) -> Vec<Vec<u8>> {
        self.lock().drain(..).collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A queue of a port that receives what is in one list and appends what it sends to another.
#[must_use]
pub fn lists(port: PortId, from: &Frames, to: &Frames) -> Box<dyn Queue> {
    Box::new(Lists { port, from: from.clone(), to: to.clone() })
}

struct Lists {
    port: PortId,
    from: Frames,
    to: Frames,
}

impl Queue for Lists {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        let mut from = self.from.lock();
        while burst.room() > 0 && !from.is_empty() {
            let Some(frame) = pool.take() else { return };
            let bytes = from.pop_front().expect("not empty");
            let packet = pool.packet(frame, pool.data_offset(), bytes.len(), self.port);
            let mut packet = packet.expect("it fits");
            packet.bytes_mut().copy_from_slice(&bytes);
            burst.push(packet).expect("there is room");
        }
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let (taken, mut bytes) = (packets.len(), 0);
        for packet in packets {
            bytes += packet.len() as u64;
            self.to.lock().push_back(packet.bytes().to_vec());
            pool.release(packet);
        }
        Sent { taken, packets: taken, bytes }
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
