//! Recording of packets that pass a queue.

use std::fmt::Display;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use fastlane_core::{Burst, LossReader, Packet, Pool, Queue, Sent, Statistics, TxMemory};

use super::Direction;

/// Record of a packet.
pub trait Note: Send + 'static {
    /// Creates the record of a packet that passes.
    fn of(direction: Direction, packet: &Packet) -> Self;
}

/// A queue that records every packet that it has received or taken for transmission, including
/// those that it could not transmit afterwards.
pub struct Noting<N> {
    queue: Box<dyn Queue>,
    notes: Arc<Mutex<Vec<N>>>,
    tell: Option<fn(&N)>,
}

impl<N: Note> Noting<N> {
    /// Wraps `queue`.
    #[must_use]
    pub fn new(queue: Box<dyn Queue>) -> Self {
        Self { queue, notes: Arc::default(), tell: None }
    }

    /// Returns the records so far, in order, shared with the queue.
    ///
    /// The queue holds the lock only while it records a burst.
    #[must_use]
    pub fn notes(&self) -> Arc<Mutex<Vec<N>>> {
        Arc::clone(&self.notes)
    }

    fn note(&self, notes: impl IntoIterator<Item = N>) {
        let mut all = self.notes.lock().expect("no one panics with the lock");
        for note in notes {
            if let Some(tell) = self.tell {
                tell(&note);
            }
            all.push(note);
        }
    }
}

impl<N: Note + Display> Noting<N> {
    /// Prints each record to standard error, too.
    #[must_use]
    pub fn printing(self) -> Self {
        Self { tell: Some(|note| eprintln!("{note}")), ..self }
    }
}

impl<N: Note> Queue for Noting<N> {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        let before = burst.len();
        self.queue.receive(burst, pool);
        let packets = burst.packets()[before..].iter();
        self.note(packets.map(|packet| N::of(Direction::Received, packet)));
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let notes: Vec<_> = packets.iter().map(|packet| N::of(Direction::Sent, packet)).collect();
        let sent = self.queue.transmit(packets, pool);
        self.note(notes.into_iter().take(sent.taken));
        sent
    }

    fn flush(&mut self, pool: &mut Pool) -> bool {
        self.queue.flush(pool)
    }

    fn tx_memory(&self) -> TxMemory {
        self.queue.tx_memory()
    }

    fn alloc_packet(&mut self, length: usize, pool: &mut Pool) -> Option<Packet> {
        self.queue.alloc_packet(length, pool)
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

    fn statistics(&self) -> Statistics {
        self.queue.statistics()
    }

    fn loss_reader(&self) -> Option<LossReader> {
        self.queue.loss_reader()
    }

    fn end_arrivals(&mut self) {
        self.queue.end_arrivals();
    }

    fn close(&mut self, pool: &mut Pool) {
        self.queue.close(pool);
    }
}
