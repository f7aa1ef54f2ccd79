//! Conformance suite over TAP and AF_PACKET.

mod support;

use std::net::UdpSocket;

use fastlane_core::{KernelPath, Queue};
use fastlane_kernel::af_packet::{AfPacketSettings, Device};
use fastlane_kernel::reentry::{self, Method, Reentry};
use fastlane_kernel::tap::{self, Tap, TapQueue, TapSettings};
use fastlane_steer::Rules;
use fastlane_testing::namespace::Wire;
use fastlane_testing::{LaneRig, Peer, Rig, Spec, conformance};
use support::packet_socket::{Datagrams, bound_udp};
use support::{DEVICE_MAC, Hosts, Namespace, PEER_MAC, interface, run, udp, wire};

conformance!(taps, TapRig);
conformance!(af_packets, AfPacketRig);

/// Destination of the suite's frames.
const KERNEL: &str = "0.0.0.0:40000";

/// Distributes queues and kernel paths over the lanes.
fn lane_rigs(
    spec: &Spec,
    queues: Vec<Box<dyn Queue>>,
    kernel: impl IntoIterator<Item = KernelPath>,
) -> Vec<LaneRig> {
    let mut kernel = kernel.into_iter();
    let mut rigs: Vec<_> = (0..spec.lanes)
        .map(|_| LaneRig { pool: spec.pool(), queues: Vec::new(), kernel: kernel.next() })
        .collect();
    for (number, queue) in queues.into_iter().enumerate() {
        rigs[number % spec.lanes].queues.push(queue);
    }
    rigs
}

fn connected(from: &str) -> UdpSocket {
    let socket = udp(from);
    socket.connect("192.0.2.1:40000").expect("a route");
    socket
}

/// TAP port. Linux in its namespace is the peer; the kernel peer of the port is another TAP in a
/// namespace of its own.
struct TapRig {
    peer_side: Namespace,
    kernel_side: Namespace,
    peer: Option<Wire>,
    kernel: Option<Both>,
}

/// Linux behind a kernel peer: receives by a socket, sends through its stack.
struct Both {
    datagrams: Datagrams,
    wire: Wire,
}

impl Peer for Both {
    fn send(&mut self, frame: &[u8]) -> bool {
        self.wire.send(frame)
    }

    fn receive(&mut self, within: std::time::Duration) -> Option<Vec<u8>> {
        self.datagrams.receive(within)
    }
}

/// MTU with which a packet fits a frame of 2048 bytes.
const TAP_MTU: u32 = 2048 - 64 - 192 - 14;

fn open_tap(name: &str, mac: [u8; 6], address: [u8; 4], queues: usize) -> Tap {
    let settings = TapSettings {
        name: Some(name.to_owned()),
        mac: Some(mac),
        mtu: Some(TAP_MTU),
        queues,
        quiet: true,
        addresses: vec![(address.into(), 24)],
        ..TapSettings::default()
    };
    tap::open(settings).expect("a TAP device")
}

impl Rig for TapRig {
    /// Longest frame that a TAP device sends into a pool frame.
    const LONGEST: usize = 14 + TAP_MTU as usize;
    const QUEUES: usize = 4;
    const HAS_KERNEL: bool = true;
    const HAS_SOCKET: bool = true;
    const HAS_LINK: bool = true;

    fn open(_: &Spec) -> Option<Self> {
        let kernel_side = Namespace::new()?;
        let peer_side = Namespace::new()?;
        Some(Self { peer_side, kernel_side, peer: None, kernel: None })
    }

    fn lanes(&mut self, spec: &Spec) -> Vec<LaneRig> {
        let boxed = |queue: TapQueue| Box::new(queue.with_port(Spec::PORT)) as Box<dyn Queue>;
        let tap = open_tap("wire", PEER_MAC, [192, 0, 2, 2], spec.queues);
        run("ip link set wire arp on txqueuelen 1000");
        run("ip neighbour add 192.0.2.1 lladdr 02:00:00:00:00:01 dev wire");
        self.peer = Some(wire("wire"));
        let mut paths = Vec::new();
        if spec.kernel {
            self.kernel_side.enter();
            let tap = open_tap("linux", DEVICE_MAC, [192, 0, 2, 1], spec.lanes);
            let datagrams = Datagrams(bound_udp(KERNEL, "linux"));
            self.kernel = Some(Both { datagrams, wire: wire("linux") });
            self.peer_side.enter();
            paths.extend(tap.queues.into_iter().map(boxed));
        }
        let kernel = paths.into_iter().map(|queue| KernelPath { queue, receives: true });
        lane_rigs(spec, tap.queues.into_iter().map(boxed).collect(), kernel)
    }

    fn peer(&mut self) -> &mut dyn Peer {
        self.peer.as_mut().expect("the port is open")
    }

    fn kernel(&mut self) -> Option<&mut dyn Peer> {
        self.kernel.as_mut().map(|kernel| kernel as &mut dyn Peer)
    }

    fn socket(&mut self) -> Option<UdpSocket> {
        Some(connected("192.0.2.2:0"))
    }

    fn set_link(&mut self, up: bool) {
        run(if up { "ip link set wire up" } else { "ip link set wire down" });
    }
}

/// AF_PACKET port on a veth whose other end is another host.
struct AfPacketRig {
    hosts: Hosts,
    peer: Wire,
    device: Option<Device>,
    reentry: Option<Reentry>,
    kernel: Option<Datagrams>,
}

/// Mark of frames that re-enter.
const MARK: u32 = 0x464c;

impl Rig for AfPacketRig {
    const QUEUES: usize = 4;
    const HAS_KERNEL: bool = true;
    const HAS_SOCKET: bool = true;
    const HAS_LINK: bool = true;
    const HAS_REMOVABLE_PEER: bool = true;

    fn open(_: &Spec) -> Option<Self> {
        let hosts = Hosts::new("")?;
        let peer = hosts.at_peer(|| wire("p0"));
        Some(Self { hosts, peer, device: None, reentry: None, kernel: None })
    }

    fn lanes(&mut self, spec: &Spec) -> Vec<LaneRig> {
        let interface = interface("d0");
        let settings = AfPacketSettings {
            queues: spec.queues,
            mark: MARK,
            ..AfPacketSettings::new(interface.clone())
        };
        // The one before goes first: its program would claim frames that nobody takes.
        self.device = None;
        let mut device = Device::open(&settings, &Rules::default()).expect("an AF_PACKET port");
        let queues = (0..spec.queues)
            .map(|number| device.queue(Spec::PORT, number).expect("one for each number"))
            .map(|queue| Box::new(queue) as Box<dyn Queue>)
            .collect();
        self.device = Some(device);
        let mut back = Vec::new();
        if spec.kernel {
            let (reentry, queues) =
                reentry::open(&interface, Method::Redirect { mark: MARK }, spec.lanes)
                    .expect("a way back");
            (self.reentry, back) = (Some(reentry), queues);
            self.kernel = Some(Datagrams(bound_udp(KERNEL, "d0")));
        }
        let path = |queue| KernelPath { queue: Box::new(queue), receives: false };
        lane_rigs(spec, queues, back.into_iter().map(path))
    }

    fn peer(&mut self) -> &mut dyn Peer {
        &mut self.peer
    }

    fn kernel(&mut self) -> Option<&mut dyn Peer> {
        self.kernel.as_mut().map(|kernel| kernel as &mut dyn Peer)
    }

    fn socket(&mut self) -> Option<UdpSocket> {
        Some(self.hosts.at_peer(|| connected("192.0.2.2:0")))
    }

    fn set_link(&mut self, up: bool) {
        run(if up { "ip link set d0 up" } else { "ip link set d0 down" });
    }

    fn remove_peer(&mut self) {
        self.hosts.at_peer(|| run("ip link delete p0"));
    }
}
