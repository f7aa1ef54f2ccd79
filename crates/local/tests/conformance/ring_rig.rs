//! Conformance of the ring port. The peer has the other end, with a pool of its own.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fastlane_core::{Burst, Pool, PortId, Queue};
use fastlane_local::ring::{self, RingQueue};
use fastlane_testing::{LaneRig, Peer, Rig, Spec};

const CAPACITY: usize = 256;

pub(crate) struct RingRig {
    peer: RingPeer,
}

/// Peer with the other ends of all rings of the port.
struct RingPeer {
    ends: Vec<RingQueue>,
    pool: Pool,
    burst: Burst,
    received: VecDeque<Vec<u8>>,
    next: usize,
}

impl RingPeer {
    fn close(&mut self) {
        self.ends.iter_mut().for_each(|end| end.close(&mut self.pool));
        self.ends.clear();
        assert_eq!(self.pool.free(), self.pool.frames(), "the peer's frames");
    }
}

impl Peer for RingPeer {
    fn send(&mut self, frame: &[u8]) -> bool {
        self.next = (self.next + 1) % self.ends.len();
        let end = &mut self.ends[self.next];
        end.flush(&mut self.pool);
        let Some(place) = self.pool.take() else { return false };
        let offset = self.pool.data_offset();
        let mut packet = self.pool.packet(place, offset, frame.len(), PortId(9)).unwrap();
        packet.bytes_mut().copy_from_slice(frame);
        let sent = end.transmit(std::slice::from_mut(&mut packet), &mut self.pool);
        self.pool.release(&mut packet);
        sent.packets == 1
    }

    fn receive(&mut self, within: Duration) -> Option<Vec<u8>> {
        let end = Instant::now() + within;
        loop {
            for ring in &mut self.ends {
                ring.receive(&mut self.burst, &mut self.pool);
                let packets = self.burst.packets().iter();
                self.received.extend(packets.map(|packet| packet.bytes().to_vec()));
                self.burst.clear(&mut self.pool);
            }
            if !self.received.is_empty() || Instant::now() >= end {
                return self.received.pop_front();
            }
            std::thread::yield_now();
        }
    }
}

impl Rig for RingRig {
    const LOSSLESS: bool = true;
    const LONGEST: usize = 2048 - 64 - 192;
    const QUEUES: usize = 4;
    const HAS_REMOVABLE_PEER: bool = true;

    fn open(_: &Spec) -> Option<Self> {
        // The peer's frames are large enough for any packet of the lane.
        let pool = Spec { frame_size: 4096, frames: 2048, ..Spec::default() }.pool();
        let (burst, received) = (Burst::new(32), VecDeque::new());
        Some(Self { peer: RingPeer { ends: Vec::new(), pool, burst, received, next: 0 } })
    }

    fn lanes(&mut self, spec: &Spec) -> Vec<LaneRig> {
        self.peer.close();
        let lane = |_| {
            let mut queues: Vec<Box<dyn Queue>> = Vec::new();
            for _ in 0..spec.queues / spec.lanes {
                let (port, peer) = ring::pair(Spec::PORT, PortId(9), CAPACITY).unwrap();
                queues.push(Box::new(port));
                self.peer.ends.push(peer);
            }
            LaneRig { pool: spec.pool(), queues, kernel: None }
        };
        (0..spec.lanes).map(lane).collect()
    }

    fn peer(&mut self) -> &mut dyn Peer {
        &mut self.peer
    }

    fn remove_peer(&mut self) {
        self.peer.close();
    }
}
