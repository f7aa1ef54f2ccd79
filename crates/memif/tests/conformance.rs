//! Conformance suite over memif with a memif peer.

mod support;

use fastlane_core::Queue;
use fastlane_memif::{Link, MemifSettings, Role};
use fastlane_testing::{LaneRig, Peer, Rig, Spec, conformance};
use support::{End, directory, other, settings, until};
use tempfile::TempDir;

conformance!(server, MemifRig<Server>);
conformance!(client, MemifRig<Client>);
conformance!(chained, MemifRig<Chained>);

/// Parameters of a rig.
trait Variant {
    const ROLE: Role;
    /// Octets of a buffer of the client.
    const BUFFER: usize = 2048;
}

/// The port under test is the server.
struct Server;
/// The port under test is the client.
struct Client;
/// Frames take several buffers.
struct Chained;

impl Variant for Server {
    const ROLE: Role = Role::Server;
}

impl Variant for Client {
    const ROLE: Role = Role::Client;
}

impl Variant for Chained {
    const ROLE: Role = Role::Server;
    const BUFFER: usize = 128;
}

struct MemifRig<K: Variant> {
    directory: TempDir,
    link: Option<Link>,
    peer: Option<End>,
    kind: std::marker::PhantomData<K>,
}

impl<K: Variant> MemifRig<K> {
    fn settings(&self, role: Role, queues: usize) -> MemifSettings {
        let slots = 256 * (2048 / K::BUFFER);
        let settings = settings(&self.directory, role);
        MemifSettings { queues, buffer_size: K::BUFFER, ring_size: slots, ..settings }
    }
}

impl<K: Variant> Rig for MemifRig<K> {
    const LOSSLESS: bool = true;
    const LONGEST: usize = 2048 - 64 - 192;
    const QUEUES: usize = 4;
    const HAS_REMOVABLE_PEER: bool = true;

    fn open(_: &Spec) -> Option<Self> {
        let kind = std::marker::PhantomData;
        Some(Self { directory: directory(), link: None, peer: None, kind })
    }

    fn lanes(&mut self, spec: &Spec) -> Vec<LaneRig> {
        self.link = None;
        if let Some(mut peer) = self.peer.take() {
            peer.close();
        }
        let settings = self.settings(K::ROLE, spec.queues);
        let (link, queues) = fastlane_memif::open(settings, Spec::PORT).expect("a port");
        let mut peer = End::open(self.settings(other(K::ROLE), spec.queues));
        until("a connection", || link.state().connected);
        peer.connect();
        (self.link, self.peer) = (Some(link), Some(peer));
        let lane = |_| LaneRig { pool: spec.pool(), queues: Vec::new(), kernel: None };
        let mut lanes: Vec<_> = (0..spec.lanes).map(lane).collect();
        for (number, queue) in queues.into_iter().enumerate() {
            let queue: Box<dyn Queue> = Box::new(queue);
            lanes[number % spec.lanes].queues.push(queue);
        }
        lanes
    }

    fn peer(&mut self) -> &mut dyn Peer {
        self.peer.as_mut().expect("the port is open")
    }

    fn remove_peer(&mut self) {
        self.peer = None;
        // What a port sends before it has noticed is in the ring, and the peer's to read.
        let link = self.link.as_ref().expect("the port is open");
        until("the end of the connection", || !link.state().connected);
    }
}
