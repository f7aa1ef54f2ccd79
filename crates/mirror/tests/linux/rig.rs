//! Test bench: a network namespace with two ports, a follower and a mirror.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastlane_core::PortId;
use fastlane_mirror::{
    FallbackReason, Follower, KeepAlive, Mirror, MirrorSettings, NextHop, ReturnRoute, RouteLookup,
    TableId,
};
use fastlane_table::{Guard, Readers};
use fastlane_testing::namespace;

pub(crate) use fastlane_testing::namespace::ip;

/// Ethernet addresses of the routers.
pub(crate) const ROUTERS: [[u8; 6]; 3] =
    [[2, 0, 0, 0, 0, 0x12], [2, 0, 0, 0, 0, 0x13], [2, 0, 0, 0, 0, 0x22]];

pub(crate) struct Rig {
    pub(crate) follower: Follower,
    pub(crate) mirror: Mirror,
    pub(crate) guard: Guard,
}

/// Creates the ports `d0` and `d1`: 10.0.1.1/24 with the routers .2 and .3, 10.0.2.1/24 with the
/// router .2, and the same for IPv6 in 2001:db8:1::/64 and 2001:db8:2::/64.
#[must_use]
pub(crate) fn namespace(test: &str) -> bool {
    if !namespace::private(test) {
        return false;
    }
    for number in [1, 2] {
        let (device, peer) = (format!("d{}", number - 1), format!("p{}", number - 1));
        ip(&format!("link add {device} type veth peer name {peer}"));
        for interface in [&device, &peer] {
            namespace::quieten(interface);
            ip(&format!("link set {interface} up"));
        }
        namespace::wait_until_up(&device);
        ip(&format!("address add 10.0.{number}.1/24 dev {device}"));
        ip(&format!("address add 2001:db8:{number}::1/64 dev {device} nodad"));
    }
    neighbours();
    true
}

pub(crate) fn neighbours() {
    for (device, host, mac) in [("d0", "1", 12), ("d0", "1", 13), ("d1", "2", 22)] {
        let last = mac % 10;
        let lladdr = format!("lladdr 02:00:00:00:00:{mac} nud permanent dev {device}");
        ip(&format!("neighbour replace 10.0.{host}.{last} {lladdr}"));
        ip(&format!("neighbour replace 2001:db8:{host}::{last} {lladdr}"));
    }
}

pub(crate) fn index(interface: &str) -> u32 {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    rustix::net::netdevice::name_to_index(&socket, interface).unwrap()
}

pub(crate) fn ports() -> [(u32, PortId); 2] {
    [(index("d0"), PortId(0)), (index("d1"), PortId(1))]
}

pub(crate) fn settings() -> MirrorSettings {
    MirrorSettings { keep_alive: KeepAlive::Off, ..MirrorSettings::new("test") }
}

impl Rig {
    pub(crate) fn new(test: &str) -> Option<Self> {
        namespace(test).then(|| Self::open(settings()))
    }

    /// Opens a follower in the current namespace.
    pub(crate) fn open(settings: MirrorSettings) -> Self {
        // SAFETY: as of the guard below.
        let readers = Arc::new(unsafe { Readers::none() });
        let follower = Follower::open(settings, &ports(), &readers).unwrap();
        let mirror = Mirror::attach(follower.memories()).unwrap();
        // SAFETY: the writer is in this thread and does not write while a lookup lasts.
        let guard = unsafe { Guard::new() };
        Self { follower, mirror, guard }
    }

    /// Follows until the tables are current, including changes without events.
    pub(crate) fn settle(&mut self) {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            self.follower.step().unwrap();
            if self.follower.is_current() {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
            assert!(Instant::now() < end, "{:?}", self.follower.statistics());
        }
    }

    /// Runs `ip` and follows.
    pub(crate) fn ip(&mut self, arguments: &str) {
        ip(arguments);
        self.settle();
    }

    pub(crate) fn look(&self, destination: &str) -> RouteLookup {
        self.look_with(destination, 0)
    }

    pub(crate) fn look_with(&self, destination: &str, hash: u32) -> RouteLookup {
        let lookup = match destination.parse().unwrap() {
            IpAddr::V4(address) => self.mirror.route4(&self.guard, address, hash),
            IpAddr::V6(address) => self.mirror.route6(&self.guard, address, hash),
        };
        let back = self.look_back(destination, hash);
        match lookup {
            RouteLookup::Forward(hop) => {
                assert_eq!((back.link, back.reason), (Some(hop.link), None), "{destination}");
            }
            // The neighbour of an on-link route is not looked up.
            RouteLookup::Fallback(FallbackReason::NoNeighbour) => {
                assert!(back.usable_link().is_some(), "{destination}: {back:?}");
            }
            RouteLookup::Fallback(reason) => assert_eq!(back.reason, Some(reason), "{destination}"),
        }
        lookup
    }

    /// Looks up the route back to a source.
    pub(crate) fn look_back(&self, source: &str, hash: u32) -> ReturnRoute {
        let (table, mut found) = (TableId::default(), [ReturnRoute::UNKNOWN]);
        let found_in = &mut found;
        match source.parse().unwrap() {
            IpAddr::V4(it) => {
                self.mirror.return_routes(&self.guard, table, &[it], &[hash], found_in)
            }
            IpAddr::V6(it) => {
                self.mirror.return_routes(&self.guard, table, &[it], &[hash], found_in)
            }
        }
        found[0]
    }

    #[track_caller]
    pub(crate) fn forward(&self, destination: &str) -> NextHop {
        match self.look(destination) {
            RouteLookup::Forward(next_hop) => next_hop,
            RouteLookup::Fallback(reason) => panic!("{destination}: {reason:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn asks(&self, destination: &str) -> FallbackReason {
        match self.look(destination) {
            RouteLookup::Forward(next_hop) => panic!("{destination}: {next_hop:?}"),
            RouteLookup::Fallback(reason) => reason,
        }
    }
}
