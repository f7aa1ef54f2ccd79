//! Conformance suite over DPDK's virtual devices: rings and memif always; those over Linux
//! interfaces if the environment variable `FASTLANE_SOAK` is set.

mod support;

use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fastlane_core::{KernelPath, Pool, Queue};
use fastlane_dpdk::{Device, DeviceSettings, Environment, LaneMemory};
use fastlane_kernel::tap::{self, TapSettings};
use fastlane_testing::namespace::{self, Linux, Wire};
use fastlane_testing::{LaneRig, Peer, Rig, Spec, conformance};
use support::{DpdkPeer, environment, lanes, open, queues, unique, wait_for_link};

conformance!(rings, RingRig);
conformance!(memifs, MemifRig);
conformance!(taps, LinuxRig<Tap>);
conformance!(af_packets, LinuxRig<AfPacket>);
conformance!(af_xdps, LinuxRig<AfXdp>);

/// Assigns the queues of a device to the lanes in turn.
fn lane_rigs(lanes: Vec<(Pool, LaneMemory)>, device: &mut Device) -> Vec<LaneRig> {
    let mut rigs: Vec<_> = lanes
        .into_iter()
        .map(|(pool, _)| LaneRig { pool, queues: Vec::new(), kernel: None })
        .collect();
    let count = rigs.len();
    for (number, queue) in queues(device).into_iter().enumerate() {
        rigs[number % count].queues.push(Box::new(queue) as Box<dyn Queue>);
    }
    rigs
}

/// Two ports over crossed rings, without copies. The kernel peer is a TAP in a namespace of the
/// test.
struct RingRig {
    environment: Arc<Environment>,
    peer: Option<DpdkPeer>,
    device: Option<Device>,
    kernel: Option<Linux>,
}

impl Rig for RingRig {
    const LOSSLESS: bool = true;
    const QUEUES: usize = 4;
    const HAS_KERNEL: bool = true;

    fn open(spec: &Spec) -> Option<Self> {
        let environment = environment()?;
        if spec.kernel && !namespace::private("dpdk") {
            return None;
        }
        Some(Self { environment, peer: None, device: None, kernel: None })
    }

    fn lanes(&mut self, spec: &Spec) -> Vec<LaneRig> {
        (self.peer, self.device) = (None, None);
        let name = format!("pair{}", unique());
        let [ours, theirs] = self
            .environment
            .ring_pair(&name, spec.queues as u16, 1024)
            .unwrap_or_else(|error| panic!("{error}"));
        let lanes = lanes(&self.environment, spec);
        let mut device = open(&self.environment, &DeviceSettings::new(ours), &lanes, spec.queues);
        let theirs = DeviceSettings::new(theirs);
        self.peer = Some(DpdkPeer::open(&self.environment, &theirs, spec.queues));
        let mut rigs = lane_rigs(lanes, &mut device);
        if spec.kernel {
            let (name, mac) = (Some("linux".to_owned()), Some(self.addresses().device));
            let tap = TapSettings { name, mac, queues: spec.lanes, ..TapSettings::default() };
            let tap = tap::open(tap).expect("a TAP device");
            for (rig, queue) in rigs.iter_mut().zip(tap.queues) {
                let queue = Box::new(queue.with_port(Spec::PORT));
                rig.kernel = Some(KernelPath { queue, receives: true });
            }
            self.kernel = Some(namespace::linux("linux"));
        }
        self.device = Some(device);
        rigs
    }

    fn peer(&mut self) -> &mut dyn Peer {
        self.peer.as_mut().expect("the port is open")
    }

    fn kernel(&mut self) -> Option<&mut dyn Peer> {
        self.kernel.as_mut().map(|kernel| kernel as &mut dyn Peer)
    }
}

/// A memif interface whose peer is another one in the same process.
struct MemifRig {
    environment: Arc<Environment>,
    socket: PathBuf,
    peer: Option<DpdkPeer>,
    device: Option<Device>,
}

impl MemifRig {
    fn settings(&self, role: &str) -> DeviceSettings {
        let (number, socket) = (unique(), self.socket.display());
        DeviceSettings::new(format!(
            "net_memif{number},role={role},id=0,socket={socket},socket-abstract=no,bsize=2048,\
             rsize=10"
        ))
    }
}

impl Rig for MemifRig {
    const LOSSLESS: bool = true;
    const QUEUES: usize = 4;

    fn open(_: &Spec) -> Option<Self> {
        let environment = environment()?;
        let name = format!("fastlane-{}-{}.memif", std::process::id(), unique());
        let socket = std::env::temp_dir().join(name);
        Some(Self { environment, socket, peer: None, device: None })
    }

    fn lanes(&mut self, spec: &Spec) -> Vec<LaneRig> {
        // The peer's driver unmaps memory in its own thread when the other side disconnects, even
        // if it is in use. So the peer is closed first.
        self.peer = None;
        self.device = None;
        let lanes = lanes(&self.environment, spec);
        let mut device = open(&self.environment, &self.settings("server"), &lanes, spec.queues);
        let client = self.settings("client");
        let mut peer = DpdkPeer::open(&self.environment, &client, spec.queues);
        wait_for_link(&device, true);
        wait_for_link(&peer.device, true);
        // The client's first poll offers buffers to the server.
        assert!(peer.receive(Duration::ZERO).is_none());
        let rigs = lane_rigs(lanes, &mut device);
        (self.peer, self.device) = (Some(peer), Some(device));
        rigs
    }

    fn peer(&mut self) -> &mut dyn Peer {
        self.peer.as_mut().expect("the port is open")
    }
}

impl Drop for MemifRig {
    fn drop(&mut self) {
        (self.peer, self.device) = (None, None);
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// A virtual device over a Linux interface.
trait LinuxDevice {
    /// Returns the device of this number, with its arguments.
    fn device(number: usize, queues: usize) -> String;
    /// Returns the interface of the peer.
    fn wire(number: usize) -> String;
    /// Creates the interface of the device, in the thread's namespace.
    fn prepare(queues: usize);
    /// True if the driver closes its sockets.
    const REOPENS: bool = true;
    /// Maximum number of queues.
    const QUEUES: usize = 2;
}

struct Tap;

impl LinuxDevice for Tap {
    fn device(number: usize, _: usize) -> String {
        format!("net_tap{number},iface={}", Self::wire(number))
    }

    fn wire(number: usize) -> String {
        format!("wire{number}")
    }

    fn prepare(_: usize) {}
}

struct AfPacket;

impl LinuxDevice for AfPacket {
    fn device(number: usize, queues: usize) -> String {
        format!("net_af_packet{number},iface=d0,qpairs={queues},qdisc_bypass=1")
    }

    fn wire(_: usize) -> String {
        "p0".to_owned()
    }

    fn prepare(queues: usize) {
        namespace::veth("d0", "p0", queues);
    }
}

struct AfXdp;

impl LinuxDevice for AfXdp {
    /// net_af_xdp of DPDK 22.11 keeps its socket open, and with it the queue, until the process
    /// ends.
    const REOPENS: bool = false;
    /// net_af_xdp counts combined channels, and a veth has separate ones.
    const QUEUES: usize = 1;

    fn device(number: usize, queues: usize) -> String {
        format!("net_af_xdp{number},iface=d0,start_queue=0,queue_count={queues},force_copy=1")
    }

    fn wire(_: usize) -> String {
        "p0".to_owned()
    }

    fn prepare(queues: usize) {
        namespace::veth("d0", "p0", queues);
    }
}

/// A virtual device in a private namespace, with a raw socket as the peer.
struct LinuxRig<K> {
    environment: Arc<Environment>,
    peer: Option<Wire>,
    device: Option<Device>,
    kind: PhantomData<K>,
}

impl<K: LinuxDevice> Rig for LinuxRig<K> {
    const REOPENS: bool = K::REOPENS;
    const QUEUES: usize = K::QUEUES;

    fn open(spec: &Spec) -> Option<Self> {
        if std::env::var_os("FASTLANE_SOAK").is_none() {
            eprintln!("FASTLANE_SOAK is not set: rings and memif are enough");
            return None;
        }
        let environment = environment()?;
        if !namespace::private("dpdk") {
            return None;
        }
        K::prepare(spec.queues);
        Some(Self { environment, peer: None, device: None, kind: PhantomData })
    }

    fn lanes(&mut self, spec: &Spec) -> Vec<LaneRig> {
        (self.peer, self.device) = (None, None);
        let lanes = lanes(&self.environment, spec);
        let number = unique();
        let settings = DeviceSettings::new(K::device(number, spec.queues));
        let mut device = open(&self.environment, &settings, &lanes, spec.queues);
        let wire = K::wire(number);
        namespace::quieten(&wire);
        self.peer = Some(Wire::open(&wire).expect("a wire"));
        let rigs = lane_rigs(lanes, &mut device);
        self.device = Some(device);
        rigs
    }

    fn peer(&mut self) -> &mut dyn Peer {
        self.peer.as_mut().expect("the port is open")
    }
}
