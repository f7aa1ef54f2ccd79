//! The conformance suite on veth, in both copy modes.

mod support;

use std::net::UdpSocket;

use fastlane_af_xdp::{Device, Mode, Obtained, Request, Settings, open_lane};
use fastlane_core::Queue;
use fastlane_testing::namespace::{self, Wire};
use fastlane_testing::{Addresses, LaneRig, Peer, Rig, Spec, conformance};
use support::{device, index_of, wire};

/// A veth pair in a network namespace of the test's own; the device under test has no address.
struct Veth<const NATIVE: bool> {
    device: Option<Device>,
    peer: Wire,
    addresses: Addresses,
}

impl<const NATIVE: bool> Rig for Veth<NATIVE> {
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
        let device = self.device.insert(device(settings));
        let lane = |lane| {
            let mut pool = spec.pool();
            let queues = (lane..spec.queues).step_by(spec.lanes).map(|queue| queue as u32);
            let queues = queues.collect();
            let requests = &mut [Request { device: &mut *device, port: Spec::PORT, queues }];
            let opened = open_lane(&mut pool, requests).expect("the queues are free");
            assert!(opened.iter().all(|queue| queue.mode == expected));
            let queues = opened.into_iter().map(|one| Box::new(one.handle) as Box<dyn Queue>);
            let queues = queues.collect();
            LaneRig { pool, queues, kernel: None }
        };
        (0..spec.lanes).map(lane).collect()
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

conformance!(native_copy, Veth<true>);
conformance!(generic_copy, Veth<false>);
