//! The conformance suite on veth, in both copy modes.

mod support;

use std::net::UdpSocket;
use std::time::Duration;

use fastlane_af_xdp::{Device, Mode, Obtained, Request, Settings, open_lane};
use fastlane_core::Queue;
use fastlane_testing::{
    Addresses, DEVICE_IP, LaneRig, PEER_IP, Rig, Spec, UDP_PORT, conformance, skip,
};
use support::{Peer, device, index_of, ip, pair, unshare};

/// A veth pair in a network namespace of the test's own; the device under test has no address.
struct Veth<const NATIVE: bool> {
    device: Option<Device>,
    peer: Peer,
}

impl<const NATIVE: bool> Rig for Veth<NATIVE> {
    const QUEUES: usize = 4;
    const HAS_SOCKET: bool = true;
    const HAS_LINK: bool = true;
    const HAS_REMOVABLE_PEER: bool = true;

    fn open(spec: &Spec) -> Option<Self> {
        if let Err(error) = unshare() {
            skip("af-xdp", &format!("no network namespace: {error}"));
            return None;
        }
        pair("ours", "peer", spec.queues as u32);
        ip("link set ours address 02:00:00:00:00:01");
        ip("link set peer address 02:00:00:00:00:02");
        let [a, b, c, d] = PEER_IP;
        ip(&format!("address add {a}.{b}.{c}.{d}/24 dev peer"));
        let [a, b, c, d] = DEVICE_IP;
        ip(&format!(
            "neighbour replace {a}.{b}.{c}.{d} dev peer lladdr 02:00:00:00:00:01 nud permanent"
        ));
        Some(Self { device: None, peer: Peer::new("peer") })
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

    fn peer(&mut self) -> &mut dyn fastlane_testing::Peer {
        &mut self.peer
    }

    fn addresses(&self) -> Addresses {
        Addresses::default()
    }

    fn socket(&mut self) -> Option<UdpSocket> {
        let socket = UdpSocket::bind((std::net::Ipv4Addr::from(PEER_IP), 0)).ok()?;
        socket.connect((std::net::Ipv4Addr::from(DEVICE_IP), UDP_PORT)).ok()?;
        Some(socket)
    }

    fn set_link(&mut self, up: bool) {
        ip(if up { "link set ours up" } else { "link set ours down" });
    }

    fn remove_peer(&mut self) {
        ip("link delete peer");
    }
}

impl fastlane_testing::Peer for Peer {
    fn send(&mut self, frame: &[u8]) -> bool {
        Peer::send(self, frame)
    }

    fn receive(&mut self, within: Duration) -> Option<Vec<u8>> {
        Peer::receive(self).or_else(|| {
            self.wait(within);
            Peer::receive(self)
        })
    }
}

conformance!(native_copy, Veth<true>);
conformance!(generic_copy, Veth<false>);
