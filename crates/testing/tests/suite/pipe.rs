//! The simplest port that is right: two lists of frames.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastlane_core::{Burst, Packet, Pool, Queue, Sent, Statistics};
use fastlane_testing::{LaneRig, Peer, Rig, Spec};

const CAPACITY: usize = 300;

/// Frames to the lane and from it.
type List = Arc<Mutex<VecDeque<Vec<u8>>>>;

#[derive(Clone, Default)]
pub(crate) struct Pipe {
    pub(crate) inward: List,
    pub(crate) outward: List,
}

impl Queue for Pipe {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        let mut inward = self.inward.lock().unwrap();
        while burst.room() > 0 && !inward.is_empty() {
            let Some(frame) = pool.take() else { return };
            let bytes = inward.pop_front().unwrap();
            let packet = pool.packet(frame, pool.data_offset(), bytes.len(), Spec::PORT);
            let mut packet = packet.unwrap();
            packet.bytes_mut().copy_from_slice(&bytes);
            burst.push(packet).unwrap();
        }
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let mut outward = self.outward.lock().unwrap();
        let mut sent = Sent::default();
        for packet in packets {
            if outward.len() == CAPACITY {
                break;
            }
            assert!(packet.complete_checksum());
            outward.push_back(packet.bytes().to_vec());
            sent.taken += 1;
            sent.packets += 1;
            sent.bytes += packet.len() as u64;
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

impl Peer for Pipe {
    fn send(&mut self, frame: &[u8]) -> bool {
        let mut inward = self.inward.lock().unwrap();
        let space = inward.len() < CAPACITY;
        if space {
            inward.push_back(frame.to_vec());
        }
        space
    }

    fn receive(&mut self, _: Duration) -> Option<Vec<u8>> {
        self.outward.lock().unwrap().pop_front()
    }
}

pub(crate) struct PipeRig(pub(crate) Vec<Pipe>, Ends);

/// The peer of all pipes.
pub(crate) struct Ends(Vec<Pipe>, usize);

impl Peer for Ends {
    fn send(&mut self, frame: &[u8]) -> bool {
        self.1 = (self.1 + 1) % self.0.len();
        self.0[self.1].send(frame)
    }

    fn receive(&mut self, within: Duration) -> Option<Vec<u8>> {
        self.0.iter_mut().find_map(|pipe| Peer::receive(pipe, within))
    }
}

impl Rig for PipeRig {
    const LOSSLESS: bool = true;
    const LONGEST: usize = 2048 - 64 - 192;
    const PATIENCE: Duration = Duration::from_millis(500);
    const QUEUES: usize = 4;

    fn open(spec: &Spec) -> Option<Self> {
        let pipes: Vec<_> = (0..spec.queues).map(|_| Pipe::default()).collect();
        Some(Self(pipes.clone(), Ends(pipes, 0)))
    }

    fn lanes(&mut self, spec: &Spec) -> Vec<LaneRig> {
        let pipes = self.0.chunks(spec.queues / spec.lanes);
        let queue = |pipe: &Pipe| -> Box<dyn Queue> { Box::new(pipe.clone()) };
        pipes
            .map(|pipes| LaneRig {
                pool: spec.pool(),
                queues: pipes.iter().map(queue).collect(),
                kernel: None,
            })
            .collect()
    }

    fn peer(&mut self) -> &mut dyn Peer {
        &mut self.1
    }
}
