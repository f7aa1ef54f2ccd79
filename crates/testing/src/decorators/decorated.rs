//! Rigs with decorated queues.

use std::marker::PhantomData;
use std::net::UdpSocket;
use std::time::Duration;

use fastlane_core::Queue;

use super::{Note, Noting};
use crate::{Addresses, LaneRig, Peer, Rig, Spec};

/// A decorator without settings.
pub trait Decorate {
    /// Wraps a queue.
    fn decorate(queue: Box<dyn Queue>) -> Box<dyn Queue>;
}

impl<N: Note> Decorate for Noting<N> {
    fn decorate(queue: Box<dyn Queue>) -> Box<dyn Queue> {
        Box::new(Self::new(queue))
    }
}

/// The rig `R` with queues decorated by `D`. It passes the suite if both are correct.
pub struct Decorated<R, D>(R, PhantomData<D>);

impl<R: Rig, D: Decorate> Rig for Decorated<R, D> {
    const LOSSLESS: bool = R::LOSSLESS;
    const BURST: usize = R::BURST;
    const SHORTEST: usize = R::SHORTEST;
    const LONGEST: usize = R::LONGEST;
    const PATIENCE: Duration = R::PATIENCE;
    const QUEUES: usize = R::QUEUES;
    const HAS_KERNEL: bool = R::HAS_KERNEL;
    const HAS_SOCKET: bool = R::HAS_SOCKET;
    const HAS_LINK: bool = R::HAS_LINK;
    const HAS_REMOVABLE_PEER: bool = R::HAS_REMOVABLE_PEER;

    fn open(spec: &Spec) -> Option<Self> {
        R::open(spec).map(|rig| Self(rig, PhantomData))
    }

    fn lanes(&mut self, spec: &Spec) -> Vec<LaneRig> {
        let mut lanes = self.0.lanes(spec);
        for lane in &mut lanes {
            let queues = std::mem::take(&mut lane.queues);
            lane.queues = queues.into_iter().map(D::decorate).collect();
        }
        lanes
    }

    fn peer(&mut self) -> &mut dyn Peer {
        self.0.peer()
    }

    fn kernel(&mut self) -> Option<&mut dyn Peer> {
        self.0.kernel()
    }

    fn addresses(&self) -> Addresses {
        self.0.addresses()
    }

    fn socket(&mut self) -> Option<UdpSocket> {
        self.0.socket()
    }

    fn set_link(&mut self, up: bool) {
        self.0.set_link(up);
    }

    fn remove_peer(&mut self) {
        self.0.remove_peer();
    }
}
