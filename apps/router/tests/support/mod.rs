//! Test lane with a router, two ports and a kernel path, all of them lists of frames.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::mirror::{FallbackReason, NextHop, ReturnRoute, RouteLookup};
use fastlane::mirror::{IngressInterface, ReversePath};
use fastlane::{App, PortId, Turn};
use fastlane_core::{KernelPath, Lane, LaneConfig, Pool, Port};
use fastlane_table::counters::Counters;
use fastlane_table::{EntryId, SharedMemory, Spec, State};
use fastlane_testing::lists::{Frames, lists};
use router::counts::Counts;
use router::{FlowHash, Outcome, Router, Routes};

pub(crate) const STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const NEXT: [u8; 6] = [2, 0, 0, 0, 0, 9];
pub(crate) const EXIT: [u8; 6] = [2, 0, 0, 0, 0, 8];

/// Interface indexes of the ports.
pub(crate) const LINKS: [u32; 2] = [10, 11];

/// Routes that a test sets.
#[derive(Clone, Debug)]
pub(crate) struct TestRoutes {
    pub(crate) answers: BTreeMap<IpAddr, RouteLookup>,
    pub(crate) entrance: IngressInterface,
    /// Routes back to sources that Linux must use itself.
    pub(crate) returns: BTreeMap<IpAddr, ReturnRoute>,
    pub(crate) own: Vec<IpAddr>,
    pub(crate) generation: Option<u64>,
}

impl TestRoutes {
    /// Creates a source without routes on an interface that forwards.
    pub(crate) fn new() -> Self {
        let entrance = IngressInterface {
            link: LINKS[0],
            mac: STATION,
            forwards4: true,
            forwards6: true,
            is_in_vrf: false,
            reverse_path: ReversePath::Any,
        };
        let (answers, returns) = (BTreeMap::new(), BTreeMap::new());
        Self { answers, entrance, returns, own: vec![], generation: None }
    }

    pub(crate) fn set(&mut self, to: &str, answer: RouteLookup) {
        self.answers.insert(to.parse().expect("an address"), answer);
    }

    /// Sets the route back to a source: an interface by which Linux must send, and the reason.
    pub(crate) fn set_return(&mut self, from: &str, link: u32, reason: FallbackReason) {
        let back = ReturnRoute { link: Some(link), reason: Some(reason), is_divided: false };
        self.returns.insert(from.parse().expect("an address"), back);
    }

    fn back(&self, from: impl Into<IpAddr> + Copy) -> ReturnRoute {
        let set = self.returns.get(&from.into()).copied();
        set.unwrap_or_else(|| self.answer(from).into())
    }

    fn answer(&self, to: impl Into<IpAddr>) -> RouteLookup {
        self.answers
            .get(&to.into())
            .copied()
            .unwrap_or(RouteLookup::Fallback(FallbackReason::NoRoute))
    }
}

/// Returns a next hop by a port with an MTU.
pub(crate) fn out_of(port: u16, mtu: u32) -> RouteLookup {
    let link = LINKS[usize::from(port)];
    RouteLookup::Forward(NextHop {
        port: PortId(port),
        source: EXIT,
        destination: NEXT,
        mtu,
        link,
        route: 40 + u32::from(port),
        is_divided: false,
    })
}

impl Routes for TestRoutes {
    fn ingress(&self, _: &Turn, port: PortId) -> Option<IngressInterface> {
        (port == PortId(0)).then_some(self.entrance)
    }

    fn ways4(&self, _: &Turn, to: &[Ipv4Addr], _: &[u32], answers: &mut [RouteLookup]) {
        for (answer, to) in answers.iter_mut().zip(to) {
            *answer = self.answer(*to);
        }
    }

    fn ways6(&self, _: &Turn, to: &[Ipv6Addr], _: &[u32], answers: &mut [RouteLookup]) {
        for (answer, to) in answers.iter_mut().zip(to) {
            *answer = self.answer(*to);
        }
    }

    fn returns4(&self, _: &Turn, from: &[Ipv4Addr], _: &[u32], returns: &mut [ReturnRoute]) {
        for (back, from) in returns.iter_mut().zip(from) {
            *back = self.back(*from);
        }
    }

    fn returns6(&self, _: &Turn, from: &[Ipv6Addr], _: &[u32], returns: &mut [ReturnRoute]) {
        for (back, from) in returns.iter_mut().zip(from) {
            *back = self.back(*from);
        }
    }

    fn generation(&self) -> Option<u64> {
        self.generation
    }

    fn is_own(&self, _: &Turn, address: IpAddr) -> bool {
        self.own.contains(&address)
    }
}

/// Results of a run: frames sent by each port, frames passed to Linux, and the counters that are
/// not zero.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) sent: [Vec<Vec<u8>>; 2],
    pub(crate) linux: Vec<Vec<u8>>,
    pub(crate) causes: BTreeMap<String, u64>,
    pub(crate) routes: BTreeMap<u32, [u64; 4]>,
}

/// Runs a router on frames that arrive at port 0.
pub(crate) fn route<A: App>(
    known: TestRoutes,
    frames: &[Vec<u8>],
    change: impl FnOnce(Router<TestRoutes>) -> A,
) -> Results {
    let [arriving, nothing, linux]: [Frames; 3] = Default::default();
    let sent: [Frames; 2] = Default::default();
    arriving.extend(frames);
    let counters = Counters::create(1, 2).expect("memory");
    let port = |number: u16, from: &Frames| Port {
        queues: vec![lists(PortId(number), from, &sent[usize::from(number)])],
        kernel: Some(KernelPath {
            queue: lists(PortId(number), &nothing, &linux),
            receives: false,
        }),
        filter: None,
        counters: counters.port(0, usize::from(number)),
    };
    let causes = state::<2>("causes", router::CAUSES);
    let routes = state::<4>("routes", 64);
    let counts = Counts::new(causes.lane(0), Some(routes.lane(0)));
    let router = change(Router::new(known, counts, FlowHash::random()));
    let memory = SharedMemory::create("router-test", 256 * 2048).expect("memory");
    let pool = Pool::new(memory, 2048, 192).expect("the frame size is allowed");
    let parts =
        LaneConfig::new(pool, vec![port(0, &arriving), port(1, &nothing)], counters.lane(0));
    let mut lane = Lane::new(router, LaneConfig { kernel_budget: 256, ..parts });
    while lane.turn() > 0 {}
    assert_eq!(lane.close(), 0, "all frames come back");
    let count = |(number, name)| (name, causes.read(EntryId(number))[0]);
    let used = |number| (number, routes.read(EntryId(number)));
    Results {
        sent: [sent[0].take(), sent[1].take()],
        linux: linux.take(),
        causes: router::names().map(count).filter(|(_, count)| *count > 0).collect(),
        routes: (0..64).map(used).filter(|(_, words)| words[0] > 0).collect(),
    }
}

/// Creates lane state of one lane.
pub(crate) fn state<const W: usize>(name: &str, capacity: usize) -> State<W> {
    let memory = Spec::state::<W>(name, capacity, 1).create().expect("memory");
    State::attach(&memory).expect("it is lane state")
}

/// Returns the counter name of an outcome.
pub(crate) fn name(cause: Outcome) -> String {
    router::names().find(|(number, _)| *number == cause as u32).expect("it has one").1
}
