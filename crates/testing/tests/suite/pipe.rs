//! The simplest correct port: two lists of frames.

use std::time::Duration;

use fastlane_core::Queue;
use fastlane_testing::lists::{Frames, lists};
use fastlane_testing::{LaneRig, Peer, Rig, Spec};

/// Frames to and from the lane.
#[derive(Clone)]
pub(crate) struct Pipe {
    inward: Frames,
    outward: Frames,
}

impl Default for Pipe {
    fn default() -> Self {
        let [inward, outward] = [300; 2].map(Frames::with_room_for);
        Self { inward, outward }
    }
}

impl Pipe {
    /// Returns the lane's end.
    pub(crate) fn queue(&self) -> Box<dyn Queue> {
        lists(Spec::PORT, &self.inward, &self.outward)
    }
}

impl Peer for Pipe {
    fn send(&mut self, frame: &[u8]) -> bool {
        self.inward.push(frame)
    }

    fn receive(&mut self, _: Duration) -> Option<Vec<u8>> {
        self.outward.pop()
    }
}

pub(crate) struct PipeRig(pub(crate) Vec<Pipe>, Ends);

/// Peer of all pipes. It sends round robin.
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
        pipes
            .map(|pipes| LaneRig {
                pool: spec.pool(),
                queues: pipes.iter().map(Pipe::queue).collect(),
                kernel: None,
            })
            .collect()
    }

    fn peer(&mut self) -> &mut dyn Peer {
        &mut self.1
    }
}
