//! The conformance suite on veth, in both copy modes, and with queues that were taken over.

mod support;

use std::net::UdpSocket;

use fastlane_af_xdp::{Device, Mode, Obtained, Opened, Request, Settings, open_lane};
use fastlane_core::{METADATA_LENGTH, Pool, Queue};
use fastlane_testing::namespace::{self, Wire};
use fastlane_testing::{Addresses, LaneRig, Peer, Rig, Spec, conformance};
use support::keep::Keeper;
use support::{device, index_of, wire};

/// A veth pair in a network namespace of the test's own; the device under test has no address.
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
            true => (Mode::NativeCopy, Obtained::NativeCopy),
            false => (Mode::GenericCopy, Obtained::GenericCopy),
        };
        let settings =
            Settings { mode, virtual_device: true, ..Settings::new("ours", index_of("ours")) };
        let mut device = device(settings.clone());
        let lane = |lane| {
            let mut pool = spec.pool();
            let queues = (lane..spec.queues).step_by(spec.lanes).map(|queue| queue as u32);
            let queues = queues.collect();
            let requests = &mut [Request { device: &mut device, port: Spec::PORT, queues }];
            let opened = open_lane(&mut pool, requests).expect("the queues are free");
            (pool, opened)
        };
        let mut lanes: Vec<_> = (0..spec.lanes).map(lane).collect();
        if ADOPTED {
            (device, lanes) = taken_over(settings, device, lanes);
        }
        self.device = Some(device);
        let rig = |(pool, opened): (Pool, Vec<Opened>)| {
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

/// The same device and lanes, as if their process had been killed. Its own descriptors close.
fn taken_over(
    settings: Settings,
    device: Device,
    lanes: Vec<(Pool, Vec<Opened>)>,
) -> (Device, Vec<(Pool, Vec<Opened>)>) {
    let port = Spec::PORT;
    let keep = |(pool, opened): &(Pool, Vec<Opened>)| {
        let headroom = pool.data_offset() - METADATA_LENGTH;
        (Keeper::of(pool, &device, opened), pool.frame_size(), headroom)
    };
    let kept: Vec<_> = lanes.iter().map(keep).collect();
    drop((device, lanes));
    let mut device = kept[0].0.device(settings).expect("the device runs on");
    let adopt = |(kept, frame_size, headroom): &(Keeper, usize, usize)| {
        kept.lane(&mut device, port, kept.memory(), (*frame_size, *headroom)).expect("the lane")
    };
    let lanes = kept.iter().map(adopt).collect();
    (device, lanes)
}

conformance!(native_copy, Veth<true, false>);
conformance!(generic_copy, Veth<false, false>);
conformance!(native_copy_taken_over, Veth<true, true>);
conformance!(generic_copy_taken_over, Veth<false, true>);
