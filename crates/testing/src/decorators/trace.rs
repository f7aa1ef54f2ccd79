//! Says what passes.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use fastlane_core::{Burst, Packet, Pool, PortId, Queue, RawVerdict, Sent, Statistics, Takes};

use super::Direction;

/// One packet that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Which way.
    pub direction: Direction,
    /// Where it came from.
    pub port: PortId,
    /// Its length in bytes.
    pub length: usize,
    /// Its label when it passed.
    pub verdict: RawVerdict,
    /// As much of the Ethernet header as there was; zeros behind.
    pub ethernet: [u8; 14],
}

impl Event {
    fn new(direction: Direction, packet: &Packet) -> Self {
        let mut ethernet = [0; 14];
        let length = packet.len().min(14);
        ethernet[..length].copy_from_slice(&packet.bytes()[..length]);
        let (port, verdict) = (packet.port(), packet.verdict());
        Self { direction, port, length: packet.len(), verdict, ethernet }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = |at: usize| {
            self.ethernet[at..at + 6].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>()
        };
        let ethertype = u16::from_be_bytes([self.ethernet[12], self.ethernet[13]]);
        write!(
            f,
            "port {} {:?} {} > {} {ethertype:#06x} {} bytes",
            self.port.0,
            self.direction,
            address(6).join(":"),
            address(0).join(":"),
            self.length
        )
    }
}

/// A queue that notes every packet it received or took for sending.
pub struct Trace {
    queue: Box<dyn Queue>,
    events: Arc<Mutex<Vec<Event>>>,
    prints: bool,
}

impl Trace {
    /// Notes what passes `queue`.
    #[must_use]
    pub fn new(queue: Box<dyn Queue>) -> Self {
        Self { queue, events: Arc::default(), prints: false }
    }

    /// Prints to standard error, too.
    #[must_use]
    pub fn printing(self) -> Self {
        Self { prints: true, ..self }
    }

    /// What has passed so far, in order; shared with the tracer.
    #[must_use]
    pub fn events(&self) -> Arc<Mutex<Vec<Event>>> {
        Arc::clone(&self.events)
    }

    fn note(&self, events: impl Iterator<Item = Event>) {
        let mut all = self.events.lock().expect("no one panics with the lock");
        for event in events {
            if self.prints {
                eprintln!("{event}");
            }
            all.push(event);
        }
    }
}

impl Queue for Trace {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        let before = burst.len();
        self.queue.receive(burst, pool);
        let packets = burst.packets()[before..].iter();
        self.note(packets.map(|packet| Event::new(Direction::Received, packet)));
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let events: Vec<_> =
            packets.iter().map(|packet| Event::new(Direction::Sent, packet)).collect();
        let sent = self.queue.transmit(packets, pool);
        self.note(events.into_iter().take(sent.taken));
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
