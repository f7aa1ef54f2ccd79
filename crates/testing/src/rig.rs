//! The traits that a driver implements for the conformance suite.

use std::net::UdpSocket;
use std::time::Duration;

use fastlane_core::{KernelPath, Pool, PortId, Queue};
use fastlane_table::SharedMemory;

use crate::Addresses;

/// Requirements of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Number of lanes. The suite turns all of them in the thread that opened them.
    pub lanes: usize,
    /// Number of queues of the device, a multiple of `lanes`.
    pub queues: usize,
    /// Number of frames in the pool of each lane.
    pub frames: usize,
    /// Size of a frame in bytes.
    pub frame_size: usize,
    /// Maximum number of packets in a burst.
    pub burst: usize,
    /// The port needs its path into Linux.
    pub kernel: bool,
}

impl Default for Spec {
    fn default() -> Self {
        Self { lanes: 1, queues: 1, frames: 4096, frame_size: 2048, burst: 32, kernel: false }
    }
}

impl Spec {
    /// ID of the port under test.
    pub const PORT: PortId = PortId(0);

    /// Creates a pool of the required size.
    ///
    /// # Panics
    /// When memory is exhausted.
    #[must_use]
    pub fn pool(&self) -> Pool {
        let memory = SharedMemory::create("conformance", self.frames * self.frame_size);
        let memory = memory.expect("memory for the frames of a test");
        Pool::new(memory, self.frame_size, 192).expect("the frame size is allowed")
    }
}

/// Part of the port under test in one lane.
pub struct LaneRig {
    /// Pool of the lane: [`Spec::pool`], unless the driver needs another one.
    pub pool: Pool,
    /// Queues of the port in this lane. Their packets have the port [`Spec::PORT`].
    pub queues: Vec<Box<dyn Queue>>,
    /// Path of the port into Linux, if [`Spec::kernel`] requires one and the driver has one.
    pub kernel: Option<KernelPath>,
}

/// The other end of a port.
pub trait Peer {
    /// Sends a frame to the port. Returns false if there is no space now.
    fn send(&mut self, frame: &[u8]) -> bool;

    /// Returns the next frame from the port. Waits for up to `within`.
    ///
    /// Frames that this side has sent are not returned. The frame starts at its Ethernet header;
    /// where the peer is a UDP socket, it is the payload of the datagram.
    fn receive(&mut self, within: Duration) -> Option<Vec<u8>>;
}

/// A driver under test: a device for one test, with a peer at its other end.
///
/// All calls come from one thread, which has entered the network namespace of the test, if any.
/// Dropping a rig removes the device.
pub trait Rig: Sized {
    /// The driver loses no frame, at any rate.
    const LOSSLESS: bool = false;
    /// Number of frames that the peer can send at once and leave unread without a loss. At least
    /// 32.
    const BURST: usize = 256;
    /// Length of the shortest frame that the peer can send, at least 14.
    const SHORTEST: usize = 14;
    /// Length of the longest frame at a [`Spec::frame_size`] of 2048, without frame check sequence.
    const LONGEST: usize = 1514;
    /// Time without progress after which a frame counts as lost: far longer than any device takes.
    const PATIENCE: Duration = Duration::from_secs(5);
    /// Maximum number of queues of the device. The case of several lanes uses up to four.
    const QUEUES: usize = 1;
    /// The port can be reopened in the same process.
    const REOPENS: bool = true;
    /// The port has a path into Linux: [`kernel`](Self::kernel) returns it.
    const HAS_KERNEL: bool = false;
    /// The peer has a [`socket`](Self::socket) whose device leaves checksums partial.
    const HAS_SOCKET: bool = false;
    /// The link can be taken down: [`set_link`](Self::set_link).
    const HAS_LINK: bool = false;
    /// The peer can be removed: [`remove_peer`](Self::remove_peer).
    const HAS_REMOVABLE_PEER: bool = false;

    /// Creates the device and its peer, but opens no queue. Returns `None` after
    /// [`skip`](crate::skip) if this machine cannot do that.
    fn open(spec: &Spec) -> Option<Self>;

    /// Opens the port and returns one entry per lane. It is called again, with the same `spec`,
    /// immediately after all queues of the first call were closed and dropped.
    fn lanes(&mut self, spec: &Spec) -> Vec<LaneRig>;

    /// Returns the peer.
    fn peer(&mut self) -> &mut dyn Peer;

    /// Returns Linux behind the port if [`Spec::kernel`] is set. Its `receive` returns packets that
    /// the application has labelled `Kernel`. Its `send` sends through the kernel peer of the port
    /// and returns false where Linux does not send through the lane.
    ///
    /// The frames to Linux are IPv4 UDP to [`DEVICE_IP`](crate::DEVICE_IP), port
    /// [`UDP_PORT`](crate::UDP_PORT), from [`STRANGER_IP`](crate::STRANGER_IP), so a socket bound
    /// to the interface receives them.
    fn kernel(&mut self) -> Option<&mut dyn Peer> {
        None
    }

    /// Returns the MAC addresses of frames from the peer to the port.
    fn addresses(&self) -> Addresses {
        Addresses::default()
    }

    /// Returns a socket of [`PEER_IP`](crate::PEER_IP), connected to
    /// [`DEVICE_IP`](crate::DEVICE_IP), port [`UDP_PORT`](crate::UDP_PORT), over the device, whose
    /// checksum offload is on. The port answers no ARP, so the peer needs a permanent neighbour
    /// entry.
    fn socket(&mut self) -> Option<UdpSocket> {
        None
    }

    /// Takes the device's link down or up.
    fn set_link(&mut self, up: bool) {
        let _ = up;
    }

    /// Removes the peer while the port runs. The peer is not used afterwards.
    fn remove_peer(&mut self) {}
}
