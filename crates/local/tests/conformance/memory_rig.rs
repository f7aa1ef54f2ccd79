//! Conformance of the memory port, with an adapter: its packets do not leave the lane.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastlane_core::{Burst, Packet, Pool, PortId, Queue, Sent, Statistics};
use fastlane_local::memory::Memory;
use fastlane_testing::{LaneRig, Peer, Rig, Spec};

/// Frames between the peer and the two loops.
#[derive(Default)]
struct Ends {
    inward: VecDeque<Vec<u8>>,
    outward: VecDeque<Vec<u8>>,
}

/// Two loops as one port: packets of the peer pass the first, packets of the lane the second.
struct Loops {
    inward: Memory,
    outward: Memory,
    ends: Arc<Mutex<Ends>>,
    burst: Burst,
}

const CAPACITY: usize = 512;

impl Queue for Loops {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        let arrivals = &mut self.ends.lock().unwrap().inward;
        while pool.free() > 0 && !arrivals.is_empty() {
            let frame = pool.take().unwrap();
            let packet = pool.packet(frame, pool.data_offset(), arrivals[0].len(), PortId(9));
            let mut packet = packet.unwrap();
            packet.bytes_mut().copy_from_slice(&arrivals[0]);
            if self.inward.transmit(std::slice::from_mut(&mut packet), pool).taken == 0 {
                pool.release(&mut packet);
                break;
            }
            arrivals.pop_front();
        }
        self.inward.receive(burst, pool);
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        self.outward.transmit(packets, pool)
    }

    fn flush(&mut self, pool: &mut Pool) -> bool {
        let ends = &mut self.ends.lock().unwrap();
        loop {
            self.outward.receive(&mut self.burst, pool);
            if self.burst.is_empty() {
                return false;
            }
            for packet in self.burst.packets() {
                assert!(packet.complete_checksum());
                ends.outward.push_back(packet.bytes().to_vec());
            }
            self.burst.clear(pool);
        }
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn statistics(&self) -> Statistics {
        Statistics::default()
    }

    fn close(&mut self, pool: &mut Pool) {
        self.inward.close(pool);
        self.outward.close(pool);
    }
}

pub(crate) struct LoopRig {
    peer: LoopPeer,
}

struct LoopPeer(Arc<Mutex<Ends>>);

impl Peer for LoopPeer {
    fn send(&mut self, frame: &[u8]) -> bool {
        let inward = &mut self.0.lock().unwrap().inward;
        let space = inward.len() < CAPACITY;
        if space {
            inward.push_back(frame.to_vec());
        }
        space
    }

    fn receive(&mut self, _: Duration) -> Option<Vec<u8>> {
        self.0.lock().unwrap().outward.pop_front()
    }
}

impl Rig for LoopRig {
    const LOSSLESS: bool = true;
    const LONGEST: usize = 2048 - 64 - 192;

    fn open(_: &Spec) -> Option<Self> {
        Some(Self { peer: LoopPeer(Arc::default()) })
    }

    fn lanes(&mut self, spec: &Spec) -> Vec<LaneRig> {
        let ends = Arc::clone(&self.peer.0);
        let inward = Memory::new(Spec::PORT, CAPACITY);
        let outward = Memory::new(Spec::PORT, CAPACITY);
        let loops = Loops { inward, outward, ends, burst: Burst::new(32) };
        vec![LaneRig { pool: spec.pool(), queues: vec![Box::new(loops)], kernel: None }]
    }

    fn peer(&mut self) -> &mut dyn Peer {
        &mut self.peer
    }
}
