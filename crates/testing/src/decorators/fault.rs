//! Fault injection: loss, duplication, reordering, corruption and stalls.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use fastlane_core::{
    Burst, LossReader, Packet, PacketOwnership, Pool, Queue, Sent, Statistics, TxMemory,
};

/// Probability of each fault, from 0 to 1. The sum is at most 1, because a packet meets one fault.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Loss of a packet.
    pub drop: f64,
    /// Duplication of a packet.
    pub duplicate: f64,
    /// Exchange of a packet with the next one.
    pub reorder: f64,
    /// Flip of one bit of a packet.
    pub corrupt: f64,
    /// Stall of the next eight calls. The probability is per call, not per packet.
    pub stall: f64,
}

/// Number of injected faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Packets lost.
    pub dropped: u64,
    /// Duplicated packets.
    pub duplicated: u64,
    /// Packets overtaken by the next one.
    pub reordered: u64,
    /// Packets with one bit flipped.
    pub corrupted: u64,
    /// Stalled calls.
    pub stalled: u64,
}

/// Duration of a stall in calls.
const STALL: u32 = 8;

/// A queue that injects faults and counts them. Equal seeds give equal faults. As on a wire, the
/// lane does not learn about faults of transmitted packets.
pub struct Fault {
    queue: Box<dyn Queue>,
    received: FaultyDirection,
    sent: FaultyDirection,
    scratch: Burst,
}

/// State of one direction.
struct FaultyDirection {
    faults: Faults,
    random: Random,
    account: Arc<Mutex<Account>>,
    stalled: u32,
    /// Packet that the next one will overtake.
    delayed: Option<Packet>,
    /// Packets to pass on.
    ready: VecDeque<Packet>,
}

impl Fault {
    /// Wraps `queue`, with faults for received and for transmitted packets.
    #[must_use]
    pub fn new(queue: Box<dyn Queue>, seed: u64, received: Faults, sent: Faults) -> Self {
        let direction = |faults, seed| FaultyDirection {
            faults,
            random: Random(seed),
            account: Arc::default(),
            stalled: 0,
            delayed: None,
            ready: VecDeque::new(),
        };
        let (received, sent) = (direction(received, seed), direction(sent, !seed));
        Self { queue, received, sent, scratch: Burst::new(32) }
    }

    /// Returns the counts of received and of transmitted packets, shared with the queue.
    #[must_use]
    pub fn accounts(&self) -> [Arc<Mutex<Account>>; 2] {
        [Arc::clone(&self.received.account), Arc::clone(&self.sent.account)]
    }

    /// Transmits ready packets as far as there is space.
    fn send_ready(&mut self, pool: &mut Pool) {
        let ready = self.sent.ready.make_contiguous();
        let taken = self.queue.transmit(ready, pool).taken;
        self.sent.ready.drain(..taken);
    }
}

impl FaultyDirection {
    /// Returns true if this call stalls.
    fn stalls(&mut self) -> bool {
        if self.stalled == 0 && self.random.fraction() < self.faults.stall {
            self.stalled = STALL;
        }
        let stalls = self.stalled > 0;
        self.stalled -= u32::from(stalls);
        self.account.lock().expect("no one panics with the lock").stalled += u64::from(stalls);
        stalls
    }

    /// Takes a packet and queues what remains of it after a fault.
    fn inject(&mut self, packet: &mut Packet, pool: &mut Pool) {
        let mut packet = packet.take();
        let mut account = self.account.lock().expect("no one panics with the lock");
        let Faults { drop, duplicate, reorder, corrupt, stall: _ } = self.faults;
        let sample = self.random.fraction();
        if sample < drop {
            account.dropped += 1;
            return pool.release(&mut packet);
        }
        if sample < drop + duplicate
            && let Some(copy) = copy(&packet, pool)
        {
            account.duplicated += 1;
            self.ready.push_back(copy);
        } else if (drop + duplicate..drop + duplicate + reorder).contains(&sample)
            && self.delayed.is_none()
        {
            account.reordered += 1;
            self.delayed = Some(packet);
            return;
        } else if (1.0 - corrupt..1.0).contains(&sample) {
            account.corrupted += 1;
            let bit = self.random.below(packet.len() * 8);
            if let Some(byte) = packet.bytes_mut().get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }
        self.ready.push_back(packet);
        self.ready.extend(self.delayed.take());
    }

    fn close(&mut self, pool: &mut Pool) {
        self.ready.extend(self.delayed.take());
        self.ready.iter_mut().for_each(|packet| pool.release(packet));
        self.ready.clear();
    }
}

fn copy(packet: &Packet, pool: &mut Pool) -> Option<Packet> {
    let frame = pool.take()?;
    match pool.packet(frame, pool.data_offset(), packet.len(), packet.port()) {
        Ok(mut copy) => {
            copy.bytes_mut().copy_from_slice(packet.bytes());
            copy.set_partial_checksum(packet.partial_checksum());
            Some(copy)
        }
        Err(frame) => {
            pool.give(frame);
            None
        }
    }
}

impl Queue for Fault {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        if self.received.stalls() {
            return;
        }
        if self.received.ready.is_empty() {
            self.queue.receive(&mut self.scratch, pool);
            for packet in self.scratch.packets() {
                self.received.inject(packet, pool);
            }
            if self.scratch.is_empty() {
                // No packet follows that could overtake it.
                self.received.ready.extend(self.received.delayed.take());
            }
            self.scratch.clear(pool);
        }
        while burst.room() > 0
            && let Some(packet) = self.received.ready.pop_front()
        {
            burst.push(packet).expect("there is room");
        }
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        self.send_ready(pool);
        if !self.sent.ready.is_empty() || self.sent.stalls() {
            return Sent::default();
        }
        let mut sent = Sent { taken: packets.len(), ..Sent::default() };
        for packet in packets {
            if packet.len() == 0 {
                pool.release(packet);
                continue;
            }
            sent.packets += 1;
            sent.bytes += packet.len() as u64;
            self.sent.inject(packet, pool);
        }
        self.send_ready(pool);
        sent
    }

    fn flush(&mut self, pool: &mut Pool) -> bool {
        self.sent.ready.extend(self.sent.delayed.take());
        self.send_ready(pool);
        self.queue.flush(pool) || !self.sent.ready.is_empty()
    }

    fn tx_memory(&self) -> TxMemory {
        self.queue.tx_memory()
    }

    fn alloc_packet(&mut self, length: usize, pool: &mut Pool) -> Option<Packet> {
        self.queue.alloc_packet(length, pool)
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        None // no descriptor signals delayed packets
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
        self.received.close(pool);
        self.sent.close(pool);
        self.queue.close(pool);
    }
}

/// Pseudo-random number generator (SplitMix64, Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number of at least 0 and less than 1.
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.next() % bound as u64) as usize }
    }
}
