//! Ports backed by lists of frames, for tests of lanes and applications.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastlane_core::{Burst, Packet, Partial, Pool, PortId, Queue, Sent, Statistics};

/// A FIFO of frames. Clones share it.
#[derive(Clone, Debug)]
pub struct Frames {
    list: Arc<Mutex<VecDeque<Vec<u8>>>>,
    partial: Arc<Mutex<Option<Partial>>>,
    room: usize,
}

impl Default for Frames {
    /// Creates an unbounded list.
    fn default() -> Self {
        Self::with_room_for(usize::MAX)
    }
}

impl Frames {
    /// Creates a list of up to `room` frames.
    #[must_use]
    pub fn with_room_for(room: usize) -> Self {
        Self { list: Arc::default(), partial: Arc::default(), room }
    }

    /// Appends a frame. Returns false if the list is full.
    #[must_use]
    pub fn push(&self, frame: &[u8]) -> bool {
        let mut list = self.lock();
        let has_room = list.len() < self.room;
        if has_room {
            list.push_back(frame.to_vec());
        }
        has_room
    }

    /// Appends frames.
    ///
    /// # Panics
    /// When the list is full.
    pub fn extend(&self, frames: &[Vec<u8>]) {
        frames.iter().for_each(|frame| assert!(self.push(frame), "the list is full"));
    }

    /// Leaves a checksum of the frames that are received from now on to the device, as the kernel
    /// does with those of its own programs.
    pub fn leave_checksum(&self, partial: Option<Partial>) {
        *self.partial.lock().unwrap_or_else(PoisonError::into_inner) = partial;
    }

    /// Removes and returns the first frame.
    #[must_use]
    pub fn pop(&self) -> Option<Vec<u8>> {
        self.lock().pop_front()
    }

    /// Removes and returns all frames.
    #[must_use]
    pub fn take(&self) -> Vec<Vec<u8>> {
        self.lock().drain(..).collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Vec<u8>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates a queue that receives from one list and transmits to another. It completes partial
/// checksums and drops packets without bytes or with an invalid partial checksum.
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
        let partial = *self.from.partial.lock().unwrap_or_else(PoisonError::into_inner);
        let mut from = self.from.lock();
        while burst.room() > 0 && !from.is_empty() {
            let Some(frame) = pool.take() else { return };
            let bytes = from.pop_front().expect("not empty");
            let packet = pool.packet(frame, pool.data_offset(), bytes.len(), self.port);
            let mut packet = packet.expect("the frame fits");
            packet.bytes_mut().copy_from_slice(&bytes);
            packet.set_partial_checksum(partial);
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

    fn statistics(&self) -> Statistics {
        Statistics::default()
    }

    fn close(&mut self, _: &mut Pool) {}
}
