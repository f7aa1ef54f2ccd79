//! Conformance suite over a card that vfio-pci has. It is named by the environment variable
//! `FASTLANE_CARD`: its PCI address, a space, and the interface at the other end of its cable. The
//! stories in guests set it; the cases share the card, so they run one at a time.

mod support;

use std::sync::Arc;
use std::time::Duration;

use fastlane_core::Queue;
use fastlane_dpdk::{Device, DeviceSettings, Environment, HugePages};
use fastlane_testing::namespace::{self, Wire};
use fastlane_testing::{Addresses, LaneRig, Peer, Rig, Spec, conformance};
use support::{environment_of, lanes, open, queues, wait_for_link};

conformance!(cards, Card);

/// A card, with a raw socket on the interface at the other end of its cable.
struct Card {
    environment: Arc<Environment>,
    address: String,
    wire: String,
    peer: Wire,
    device: Option<Device>,
}

impl Rig for Card {
    // A frame on a cable has at least 60 octets before its frame check sequence.
    const SHORTEST: usize = 60;
    const QUEUES: usize = 2;
    // An emulated CPU is slow.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn open(_: &Spec) -> Option<Self> {
        let Ok(card) = std::env::var("FASTLANE_CARD") else {
            eprintln!("FASTLANE_CARD is not set: there is no card");
            return None;
        };
        let (address, wire) = card.split_once(' ').expect("an address and an interface");
        let environment = environment_of(HugePages::Required, &[address.to_owned()])?;
        namespace::quieten(wire);
        namespace::keep_order(wire);
        // The frames of the cases have addresses of their own.
        namespace::ip(&format!("link set {wire} up promisc on"));
        let peer = Wire::open(wire).expect("a raw socket");
        let (address, wire) = (address.to_owned(), wire.to_owned());
        Some(Self { environment, address, wire, peer, device: None })
    }

    fn lanes(&mut self, spec: &Spec) -> Vec<LaneRig> {
        self.device = None;
        let lanes = lanes(&self.environment, spec);
        let settings = DeviceSettings::new(&*self.address);
        let mut device = open(&self.environment, &settings, &lanes, spec.queues);
        wait_for_link(&device, true);
        namespace::wait_until_up(&self.wire);
        let rig = |(pool, _)| LaneRig { pool, queues: Vec::new(), kernel: None };
        let mut rigs: Vec<_> = lanes.into_iter().map(rig).collect();
        let count = rigs.len();
        for (number, queue) in queues(&mut device).into_iter().enumerate() {
            rigs[number % count].queues.push(Box::new(queue) as Box<dyn Queue>);
        }
        self.device = Some(device);
        rigs
    }

    fn peer(&mut self) -> &mut dyn Peer {
        &mut self.peer
    }

    fn addresses(&self) -> Addresses {
        let device = self.device.as_ref().map(Device::mac);
        Addresses { device: device.unwrap_or_default(), ..Addresses::default() }
    }
}
