//! Conformance suite on veth, in both copy modes, with opened and with adopted queues.

mod support;

use std::net::UdpSocket;

use fastlane_af_xdp::{BoundMode, Device, Mode, OpenRequest, OpenedQueue, Settings, open_lane};
use fastlane_core::{METADATA_LENGTH, Pool, Queue};
use fastlane_testing::namespace::{self, Wire};
use fastlane_testing::{Addresses, LaneRig, Peer, Rig, Spec, conformance};
use support::handover::{FrameLayout, Handover};
use support::{device, index_of, wire};

/// A veth pair in a private network namespace. The device under test has no address.
struct Veth<const NATIVE: bool, const ADOPTED: bool> {
    device: Option<Device>,
    peer: Wire,
    addresses: Addresses,
}

impl<const NATIVE: bool, const ADOPTED: bool> Rig for Veth<NATIVE, ADOPTED> {
    const QUEUES: usize = 4;
    const HAS_SOCKET: bool = true;
    const HAS_LINK: bool = true;
    const HAS_REMOVABLE_PEER: bool = true;

    fn open(spec: &Spec) -> Option<Self> {
        if !namespace::private("af-xdp") {
            return None;
        }
        let addresses = namespace::veth("ours", "peer", spec.queues);
        Some(Self { device: None, peer: wire("peer"), addresses })
    }

    fn lanes(&mut self, spec: &Spec) -> Vec<LaneRig> {
        self.device = None;
        let (mode, expected) = match NATIVE {
            true => (Mode::NativeCopy, BoundMode::NativeCopy),
            false => (Mode::GenericCopy, BoundMode::GenericCopy),
        };
        let settings =
            Settings { mode, virtual_device: true, ..Settings::new("ours", index_of("ours")) };
        let mut device = device(settings.clone());
        let lane = |lane| {
            let mut pool = spec.pool();
            let queues = (lane..spec.queues).step_by(spec.lanes).map(|queue| queue as u32);
            let queues = queues.collect();
            let requests = &mut [OpenRequest { device: &mut device, port: Spec::PORT, queues }];
            let opened = open_lane(&mut pool, requests).expect("the queues are free");
            (pool, opened)
        };
        let mut lanes: Vec<_> = (0..spec.lanes).map(lane).collect();
        if ADOPTED {
            (device, lanes) = adopted(settings, device, lanes);
        }
        self.device = Some(device);
        let rig = |(pool, opened): (Pool, Vec<OpenedQueue>)| {
            assert!(opened.iter().all(|queue| queue.mode == expected));
            let queues = opened.into_iter().map(|one| Box::new(one.handle) as Box<dyn Queue>);
            let queues = queues.collect();
            LaneRig { pool, queues, kernel: None }
        };
        lanes.into_iter().map(rig).collect()
    }

    fn peer(&mut self) -> &mut dyn Peer {
        &mut self.peer
    }

    fn addresses(&self) -> Addresses {
        self.addresses
    }

    fn socket(&mut self) -> Option<UdpSocket> {
        Some(namespace::socket("peer", self.addresses))
    }

    fn set_link(&mut self, up: bool) {
        namespace::set_link("ours", up);
    }

    fn remove_peer(&mut self) {
        namespace::ip("link delete peer");
    }
}

/// Returns the device and the lanes after a simulated kill and adoption. Closes the old
/// descriptors.
fn adopted(
    settings: Settings,
    device: Device,
    lanes: Vec<(Pool, Vec<OpenedQueue>)>,
) -> (Device, Vec<(Pool, Vec<OpenedQueue>)>) {
    let port = Spec::PORT;
    let keep = |(pool, opened): &(Pool, Vec<OpenedQueue>)| {
        let headroom = pool.data_offset() - METADATA_LENGTH;
        (Handover::of(pool, &device, opened), FrameLayout { size: pool.frame_size(), headroom })
    };
    let kept: Vec<_> = lanes.iter().map(keep).collect();
    drop((device, lanes));
    let mut device = kept[0].0.device(settings).expect("the device runs on");
    let adopt = |(kept, layout): (Handover, FrameLayout)| {
        kept.lane(&mut device, port, kept.memory(), layout).expect("the lane")
    };
    let lanes = kept.into_iter().map(adopt).collect();
    (device, lanes)
}

conformance!(native_copy, Veth<true, false>);
conformance!(generic_copy, Veth<false, false>);
conformance!(native_copy_adopted, Veth<true, true>);
conformance!(generic_copy_adopted, Veth<false, true>);
