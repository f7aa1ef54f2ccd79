//! Conformance suite over the interface of a card. It is named by the environment variable
//! `FASTLANE_CARD`, with a space and the interface at the other end of its cable, and ` zero-copy`
//! if the card must have that. The cases share the card, so they run one at a time.

mod support;

use std::time::Duration;

use fastlane_af_xdp::{Device, Mode, OpenRequest, Settings, open_lane};
use fastlane_core::Queue;
use fastlane_testing::namespace::{self, Wire};
use fastlane_testing::{LaneRig, Peer, Rig, Spec, conformance};
use support::{device, index_of};

conformance!(cards, Card);

/// A card in the best mode that its driver has or in zero-copy, and a raw socket at the other end
/// of its cable.
struct Card {
    interface: String,
    wire: String,
    mode: Mode,
    peer: Wire,
    device: Option<Device>,
}

impl Rig for Card {
    // A frame on a cable has at least 60 octets before its frame check sequence.
    const SHORTEST: usize = 60;
    // An emulated CPU is slow.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn open(_: &Spec) -> Option<Self> {
        let Ok(card) = std::env::var("FASTLANE_CARD") else {
            eprintln!("FASTLANE_CARD is not set: there is no card");
            return None;
        };
        let words: Vec<_> = card.split(' ').collect();
        let (interface, wire, mode) = match words[..] {
            [interface, wire] => (interface, wire, Mode::Auto),
            [interface, wire, "zero-copy"] => (interface, wire, Mode::ZeroCopy),
            _ => panic!("FASTLANE_CARD is not `INTERFACE INTERFACE [zero-copy]`: {card}"),
        };
        for interface in [interface, wire] {
            namespace::quieten(interface);
            // The frames of the cases have addresses of their own.
            namespace::ip(&format!("link set {interface} up promisc on"));
            namespace::wait_until_up(interface);
        }
        namespace::keep_order(wire);
        let peer = Wire::open(wire).expect("a raw socket");
        let (interface, wire) = (interface.to_owned(), wire.to_owned());
        Some(Self { interface, wire, mode, peer, device: None })
    }

    fn lanes(&mut self, spec: &Spec) -> Vec<LaneRig> {
        self.device = None;
        let settings = Settings {
            mode: self.mode,
            ..Settings::new(self.interface.as_str(), index_of(&self.interface))
        };
        let mut device = device(settings);
        let mut pool = spec.pool();
        let requests =
            &mut [OpenRequest { device: &mut device, port: Spec::PORT, queues: vec![0] }];
        let opened = open_lane(&mut pool, requests).expect("the queue is free");
        for queue in &opened {
            eprintln!("{}: {}", self.interface, queue.mode);
        }
        // Some drivers restart the device for a program.
        namespace::wait_until_up(&self.interface);
        namespace::wait_until_up(&self.wire);
        let queues = opened.into_iter().map(|one| Box::new(one.handle) as Box<dyn Queue>);
        self.device = Some(device);
        vec![LaneRig { pool, queues: queues.collect(), kernel: None }]
    }

    fn peer(&mut self) -> &mut dyn Peer {
        &mut self.peer
    }
}
