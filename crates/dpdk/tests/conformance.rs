//! The conformance suite over DPDK's virtual devices.

mod support;

use std::sync::Arc;

use fastlane_core::{Pool, Queue};
use fastlane_dpdk::{Device, DeviceSettings, Environment, LaneMemory};
use fastlane_testing::{LaneRig, Peer, Rig, Spec, conformance};
use support::{DpdkPeer, environment, lanes, open, queues, unique, wait_for_link};

conformance!(rings, RingRig);
conformance!(memifs, MemifRig);

/// Deals the queues of a device to the lanes in turn.
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

/// Two ports over crossed rings: what one sends the other receives, without a copy.
struct RingRig {
    environment: Arc<Environment>,
    peer: Option<DpdkPeer>,
    device: Option<Device>,
}

impl Rig for RingRig {
    const LOSSLESS: bool = true;
    const QUEUES: usize = 4;

    fn open(_: &Spec) -> Option<Self> {
        Some(Self { environment: environment()?, peer: None, device: None })
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
        let rigs = lane_rigs(lanes, &mut device);
        self.device = Some(device);
        rigs
    }

    fn peer(&mut self) -> &mut dyn Peer {
        self.peer.as_mut().expect("the port is open")
    }
}

/// A shared-memory interface; the peer is another one, in the same process.
struct MemifRig {
    environment: Arc<Environment>,
    socket: std::path::PathBuf,
    peer: Option<DpdkPeer>,
    device: Option<Device>,
}

impl MemifRig {
    fn settings(&self, role: &str) -> DeviceSettings {
        let (number, socket) = (unique(), self.socket.display());
        DeviceSettings::new(format!(
            "net_memif{number},role={role},id=0,socket={socket},socket-abstract=no,bsize=2048,rsize=10"
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
        // The peer's driver unmaps from a thread of its own when the other side goes: nobody may
        // use it then, so it goes first.
        self.peer = None;
        self.device = None;
        let lanes = lanes(&self.environment, spec);
        let mut device = open(&self.environment, &self.settings("server"), &lanes, spec.queues);
        let client = self.settings("client");
        let mut peer = DpdkPeer::open(&self.environment, &client, spec.queues);
        wait_for_link(&device, true);
        wait_for_link(&peer.device, true);
        // The client's first look gives the server its first buffers.
        assert!(peer.receive(std::time::Duration::ZERO).is_none());
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
