//! Ports that are lists of frames, for tests that show a lane frames and look at what leaves it.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastlane_core::{Burst, Packet, Pool, PortId, Queue, Sent, Statistics};

/// Frames in the order in which they came; clones are the same list.
#[derive(Clone, Debug)]
pub struct Frames {
    list: Arc<Mutex<VecDeque<Vec<u8>>>>,
    room: usize,
}

impl Default for Frames {
    /// A list with room for any number of frames.
    fn default() -> Self {
        Self::with_room_for(usize::MAX)
    }
}

impl Frames {
    /// A list that has room for so many frames.
    #[must_use]
    pub fn with_room_for(room: usize) -> Self {
        Self { list: Arc::default(), room }
    }

    /// Adds a frame at the end; false when there is no room.
    #[must_use]
    pub fn push(&self, frame: &[u8]) -> bool {
        let mut list = self.lock();
        let has_room = list.len() < self.room;
        if has_room {
            list.push_back(frame.to_vec());
        }
        has_room
    }

    /// Adds frames at the end.
    ///
    /// # Panics
    /// When there is no room.
    pub fn extend(&self, frames: &[Vec<u8>]) {
        frames.iter().for_each(|frame| assert!(self.push(frame), "no room"));
    }

    /// Takes the first one out.
    #[must_use]
    pub fn pop(&self) -> Option<Vec<u8>> {
        self.lock().pop_front()
    }

    /// Takes all out.
    #[must_use]
    pub fn take(&self) -> Vec<Vec<u8>> {
        self.lock().drain(..).collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Vec<u8>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A queue of a port that receives what is in one list and appends what it sends to another, for as
/// long as there is room. Checksums are complete then; what has none to be completed, or no bytes,
/// is lost.
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
        let mut sent = Sent::default();
        let mut to = self.to.lock();
        for packet in packets {
            if to.len() == self.to.room {
                break;
            }
            sent.taken += 1;
            if packet.len() > 0 && packet.complete_checksum() {
                sent.packets += 1;
                sent.bytes += packet.len() as u64;
                to.push_back(packet.bytes().to_vec());
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
