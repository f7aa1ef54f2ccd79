//! Does to packets what networks do.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use fastlane_core::{Burst, Packet, PacketOwnership, Pool, Queue, Sent, Statistics, TxMemory};

/// How probable each fault is, from 0 to 1; together at most 1, since a packet meets one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// A packet is lost.
    pub drop: f64,
    /// A packet comes twice.
    pub duplicate: f64,
    /// A packet comes after the next one.
    pub reorder: f64,
    /// One bit of a packet is flipped.
    pub corrupt: f64,
    /// For each call, not for each packet: nothing passes in the next few calls.
    pub stall: f64,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Packets lost.
    pub dropped: u64,
    /// Packets that came twice.
    pub duplicated: u64,
    /// Packets that were overtaken.
    pub reordered: u64,
    /// Packets with one bit flipped.
    pub corrupted: u64,
    /// Calls in which nothing passed.
    pub stalled: u64,
}

/// Calls that a stall lasts.
const STALL: u32 = 8;

/// A queue that loses, doubles, reorders and damages packets and stalls, at random but in the same
/// way for the same seed, and accounts for it. Faults of packets to be sent are not told to the
/// lane, as on a wire.
pub struct Fault {
    queue: Box<dyn Queue>,
    received: Way,
    sent: Way,
    scratch: Burst,
}

/// One direction.
struct Way {
    faults: Faults,
    random: Random,
    account: Arc<Mutex<Account>>,
    stalled: u32,
    /// To be overtaken by the next packet.
    held: Option<Packet>,
    /// Ready to pass on.
    ready: VecDeque<Packet>,
}

impl Fault {
    /// Brings faults into what `queue` receives and into what it sends.
    #[must_use]
    pub fn new(queue: Box<dyn Queue>, seed: u64, received: Faults, sent: Faults) -> Self {
        let way = |faults, seed| Way {
            faults,
            random: Random(seed),
            account: Arc::default(),
            stalled: 0,
            held: None,
            ready: VecDeque::new(),
        };
        let (received, sent) = (way(received, seed), way(sent, !seed));
        Self { queue, received, sent, scratch: Burst::new(32) }
    }

    /// What was done to received packets, and to sent ones; shared with the queue.
    #[must_use]
    pub fn accounts(&self) -> [Arc<Mutex<Account>>; 2] {
        [Arc::clone(&self.received.account), Arc::clone(&self.sent.account)]
    }

    /// Passes on what is ready to be sent, as far as there is space.
    fn send_ready(&mut self, pool: &mut Pool) {
        let ready = self.sent.ready.make_contiguous();
        let taken = self.queue.transmit(ready, pool).taken;
        self.sent.ready.drain(..taken);
    }
}

impl Way {
    /// Whether nothing passes in this call.
    fn stalls(&mut self) -> bool {
        if self.stalled == 0 && self.random.fraction() < self.faults.stall {
            self.stalled = STALL;
        }
        let stalls = self.stalled > 0;
        self.stalled -= u32::from(stalls);
        self.account.lock().expect("no one panics with the lock").stalled += u64::from(stalls);
        stalls
    }

    /// Takes a packet in, and makes of it what shall be passed on.
    fn meet(&mut self, packet: &mut Packet, pool: &mut Pool) {
        let mut packet = packet.take();
        let mut account = self.account.lock().expect("no one panics with the lock");
        let Faults { drop, duplicate, reorder, corrupt, stall: _ } = self.faults;
        let fate = self.random.fraction();
        if fate < drop {
            account.dropped += 1;
            return pool.release(&mut packet);
        }
        if fate < drop + duplicate
            && let Some(copy) = copy(&packet, pool)
        {
            account.duplicated += 1;
            self.ready.push_back(copy);
        } else if (drop + duplicate..drop + duplicate + reorder).contains(&fate)
            && self.held.is_none()
        {
            account.reordered += 1;
            self.held = Some(packet);
            return;
        } else if (1.0 - corrupt..1.0).contains(&fate) {
            account.corrupted += 1;
            let bit = self.random.below(packet.len() * 8);
            if let Some(byte) = packet.bytes_mut().get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }
        self.ready.push_back(packet);
        self.ready.extend(self.held.take());
    }

    fn close(&mut self, pool: &mut Pool) {
        self.ready.extend(self.held.take());
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
                self.received.meet(packet, pool);
            }
            if self.scratch.is_empty() {
                // Nothing comes that could overtake it.
                self.received.ready.extend(self.received.held.take());
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
            self.sent.meet(packet, pool);
        }
        self.send_ready(pool);
        sent
    }

    fn flush(&mut self, pool: &mut Pool) -> bool {
        self.sent.ready.extend(self.sent.held.take());
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
        None // what is held back is announced by nothing
    }

    fn statistics(&mut self) -> Statistics {
        self.queue.statistics()
    }

    fn close(&mut self, pool: &mut Pool) {
        self.received.close(pool);
        self.sent.close(pool);
        self.queue.close(pool);
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014): enough for tests, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// At least 0 and less than 1.
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.next() % bound as u64) as usize }
    }
}
