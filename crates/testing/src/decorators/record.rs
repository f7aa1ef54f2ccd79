//! Keeps every frame.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use fastlane_core::{Burst, Packet, Pool, Queue, Sent, Statistics, Takes};

use super::Direction;

/// A frame that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Which way.
    pub direction: Direction,
    /// From the Ethernet header on.
    pub frame: Vec<u8>,
}

/// A queue that keeps a copy of every frame that it received or took for sending. (One that it took
/// and then could not send is among them.)
pub struct Record {
    queue: Box<dyn Queue>,
    frames: Arc<Mutex<Vec<Recorded>>>,
}

impl Record {
    /// Records what passes `queue`.
    #[must_use]
    pub fn new(queue: Box<dyn Queue>) -> Self {
        Self { queue, frames: Arc::default() }
    }

    /// What has passed so far, in order; shared with the recorder.
    ///
    /// Its lock is held only while a burst is noted.
    #[must_use]
    pub fn frames(&self) -> Arc<Mutex<Vec<Recorded>>> {
        Arc::clone(&self.frames)
    }

    fn note(&self, direction: Direction, frames: impl IntoIterator<Item = Vec<u8>>) {
        let frames = frames.into_iter().map(|frame| Recorded { direction, frame });
        self.frames.lock().expect("no one panics with the lock").extend(frames);
    }
}

fn copy(packet: &Packet) -> Vec<u8> {
    packet.bytes().to_vec()
}

impl Queue for Record {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        let before = burst.len();
        self.queue.receive(burst, pool);
        self.note(Direction::Received, burst.packets()[before..].iter().map(copy));
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let frames: Vec<_> = packets.iter().map(copy).collect();
        let sent = self.queue.transmit(packets, pool);
        self.note(Direction::Sent, frames.into_iter().take(sent.taken));
        sent
    }

    fn flush(&mut self, pool: &mut Pool) -> bool {
        self.queue.flush(pool)
    }

    fn takes(&self) -> Takes {
        self.queue.takes()
    }

    fn blank(&mut self, length: usize, pool: &mut Pool) -> Option<Packet> {
        self.queue.blank(length, pool)
    }

    fn arm(&mut self) -> bool {
        self.queue.arm()
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.queue.interrupt()
    }

    fn is_loop(&self) -> bool {
        self.queue.is_loop()
    }

    fn statistics(&mut self) -> Statistics {
        self.queue.statistics()
    }

    fn close(&mut self, pool: &mut Pool) {
        self.queue.close(pool);
    }
}
