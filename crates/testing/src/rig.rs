//! What a driver brings to the conformance suite.

use std::net::UdpSocket;
use std::time::Duration;

use fastlane_core::{KernelPath, Pool, PortId, Queue};
use fastlane_table::SharedMemory;

use crate::Addresses;

/// What a case needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Lanes; the suite turns all of them from the thread that opened them.
    pub lanes: usize,
    /// Queues of the device, spread over the lanes in turn; a multiple of `lanes`.
    pub queues: usize,
    /// Frames in the pool of each lane.
    pub frames: usize,
    /// Bytes in a frame.
    pub frame_size: usize,
    /// The most packets in a burst.
    pub burst: usize,
    /// Whether the port needs its way into Linux.
    pub kernel: bool,
}

impl Default for Spec {
    fn default() -> Self {
        Self { lanes: 1, queues: 1, frames: 4096, frame_size: 2048, burst: 32, kernel: false }
    }
}

impl Spec {
    /// The number of the port under test.
    pub const PORT: PortId = PortId(0);

    /// A pool as the case wants it.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    pub fn pool(&self) -> Pool {
        let memory = SharedMemory::create("conformance", self.frames * self.frame_size);
        let memory = memory.expect("memory for the frames of a test");
        Pool::new(memory, self.frame_size, 192).expect("the frame size is allowed")
    }
}

/// The part of one lane in the port under test.
pub struct LaneRig {
    /// The lane's pool: [`Spec::pool`], unless the driver needs another.
    pub pool: Pool,
    /// The port's queues that this lane owns. Their packets come from [`Spec::PORT`].
    pub queues: Vec<Box<dyn Queue>>,
    /// The port's way into Linux, if [`Spec::kernel`] asks for it and there is one.
    pub kernel: Option<KernelPath>,
}

/// Whoever is at the other end of a port.
pub trait Peer {
    /// Puts a frame on the way to the port; false when there is no space now.
    fn send(&mut self, frame: &[u8]) -> bool;

    /// The next frame that came from the port; waits for it no longer than `within`.
    ///
    /// Frames that the peer's own side sent are not among them. A frame comes back whole, from its
    /// Ethernet header on, or as the payload of its datagram where the peer is a socket.
    fn receive(&mut self, within: Duration) -> Option<Vec<u8>>;
}

/// A driver under test: a device of its own for each test, with a peer at its other end.
///
/// Everything is called from one thread, in which the test made its network namespace, if it has
/// one. A rig removes what it made when it is dropped.
pub trait Rig: Sized {
    /// Nothing may be lost, at any speed.
    const LOSSLESS: bool = false;
    /// How many frames the peer can send at once, and can leave unread, without any being lost. At
    /// least 32.
    const BURST: usize = 256;
    /// The shortest frame that the peer can send, at least 14: an Ethernet header.
    const SHORTEST: usize = 14;
    /// The longest frame that passes with a [`Spec::frame_size`] of 2048, without check sequence.
    const LONGEST: usize = 1514;
    /// How long nothing may happen before a frame counts as lost: far longer than any device takes.
    const PATIENCE: Duration = Duration::from_secs(5);
    /// Queues that the device can have: the case of several lanes takes up to four.
    const QUEUES: usize = 1;
    /// The port can be opened again in the same process.
    const REOPENS: bool = true;
    /// There is a way into Linux: [`kernel`](Self::kernel) answers when the case asks for it.
    const HAS_KERNEL: bool = false;
    /// The peer's [`socket`](Self::socket) leaves checksums partial.
    const HAS_SOCKET: bool = false;
    /// The link can be taken down: [`set_link`](Self::set_link).
    const HAS_LINK: bool = false;
    /// The peer can go away: [`remove_peer`](Self::remove_peer).
    const HAS_REMOVABLE_PEER: bool = false;

    /// Makes the device and its peer, but opens no queue. `None` after [`skip`](crate::skip) when
    /// this machine cannot.
    fn open(spec: &Spec) -> Option<Self>;

    /// Opens the port: an entry for each of `spec.lanes`. Called again, with the same `spec`, at
    /// once after all queues of the first call were closed and dropped.
    fn lanes(&mut self, spec: &Spec) -> Vec<LaneRig>;

    /// The peer.
    fn peer(&mut self) -> &mut dyn Peer;

    /// Linux behind the port, when [`Spec::kernel`] was asked for: its `receive` returns what the
    /// application labelled `Kernel`. Its `send` sends as Linux, through the kernel peer of the
    /// port; false where Linux does not send through the lane.
    ///
    /// The frames for it are IPv4 UDP to [`DEVICE_IP`](crate::DEVICE_IP), port
    /// [`UDP_PORT`](crate::UDP_PORT), from [`STRANGER_IP`](crate::STRANGER_IP), so a socket bound
    /// to the interface will do.
    fn kernel(&mut self) -> Option<&mut dyn Peer> {
        None
    }

    /// The addresses that frames from the peer to the port carry.
    fn addresses(&self) -> Addresses {
        Addresses::default()
    }

    /// A socket of [`PEER_IP`](crate::PEER_IP), connected to [`DEVICE_IP`](crate::DEVICE_IP), port
    /// [`UDP_PORT`](crate::UDP_PORT), by way of the device, whose checksum offload is on. No ARP is
    /// answered, so the peer needs a permanent neighbour entry.
    fn socket(&mut self) -> Option<UdpSocket> {
        None
    }

    /// Takes the device's link down or up.
    fn set_link(&mut self, up: bool) {
        let _ = up;
    }

    /// Removes the peer while the port runs. It is not asked for anything afterwards.
    fn remove_peer(&mut self) {}
}
