//! The cost of routing on a memory port, compared with swapping addresses.
//!
//! Linux has the routes, in a separate namespace, and the router looks them up in a mirror as the
//! program `router` does. Both contenders first write a new IPv4 header into each packet, in the
//! order of a list, so that a returning packet equals a new one.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fastlane::mirror::{IngressInterface, ReversePath, RouteLookup};
use fastlane::{PortId, Turn};
use fastlane_core::{App, Packet};
use fastlane_kernel::Interface;
use fastlane_mirror::{Follower, Mirror, MirrorSettings, ReturnRoute, TableId};
use fastlane_table::{ClassifierReader, ClassifierWriter, Readers, Spec, State};
use fastlane_wire::checksum::checksum;
use router::acl::compiled::{AccessList, Decision, entries};
use router::acl::text;
use router::counts::{Counts, ROUTE_WORDS};
use router::{FlowHash, Router, Routes};

use crate::Result;
use crate::device::memory_lane::{MemoryLane, macswap};
use crate::device::veth_pair::Veth;
use crate::loops::lookup::workload::{Random, Workload, routes};
use crate::slices::{Contender, Effort, Pairs, pair};

/// Number of next hops of the routes.
const HOPS: u32 = 16;
/// Maximum number of packets in a burst.
const BURST: usize = 32;
/// Length of a frame in bytes: Ethernet, IPv4, UDP.
const LENGTH: usize = 60;
/// Destination Ethernet address of the packets.
const STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Routes of Linux and their mirror.
pub struct Routed {
    workload: Workload,
    follower: Follower,
}

impl Routed {
    /// Adds `count` routes to Linux, in the namespace of the calling thread, and mirrors them.
    ///
    /// # Errors
    /// Returns an error if `ip` or the kernel refuses.
    pub fn new(veth: &Veth, count: usize) -> Result<Self> {
        Self::with(veth, count, false)
    }

    /// Adds routes like [`new`](Self::new), with a separate counter for each route.
    ///
    /// # Errors
    /// Returns the same errors as [`new`](Self::new).
    pub fn counted(veth: &Veth, count: usize) -> Result<Self> {
        Self::with(veth, count, true)
    }

    fn with(veth: &Veth, count: usize, count_routes: bool) -> Result<Self> {
        let (workload, name) = (routes(count), &veth.name);
        let mut text = format!("address add 10.255.0.1/24 dev {name}\n");
        for hop in 0..HOPS {
            let to = format!("10.255.0.{}", 2 + hop);
            let mac = format!("02:00:00:00:aa:{hop:02x}");
            writeln!(text, "neigh replace {to} lladdr {mac} dev {name} nud permanent")?;
        }
        let mut installed = 0;
        for (address, length, hop) in workload.routes().filter(|(to, ..)| !is_own(*to as u32)) {
            let address = Ipv4Addr::from_bits(address as u32);
            installed += 1;
            let via = 2 + hop % HOPS;
            writeln!(text, "route replace {address}/{length} via 10.255.0.{via}")?;
        }
        ip(&text)?;
        let link = Interface::query(name)?.index;
        let plain = MirrorSettings::new("bench");
        let groups = if count_routes { count + 1024 } else { plain.groups };
        let settings = MirrorSettings { routes4: count + 1024, groups, count_routes, ..plain };
        let readers = Arc::new(Readers::unknown());
        let follower = Follower::open(settings, &[(link, PortId(0))], &readers)?;
        let found = follower.statistics().occupancy.routes;
        if found < installed {
            return Err(format!("the mirror has {found} of {installed} routes").into());
        }
        Ok(Self { workload, follower })
    }

    fn lane(&self) -> Result<MirroredRoutes> {
        Ok(MirroredRoutes(Mirror::attach(self.follower.memories())?))
    }

    /// Returns IPv4 headers to `count` routed destinations, in random order.
    fn headers(&self, count: usize) -> Vec<[u8; 20]> {
        let mut random = Random::new(0x6f75);
        let all: Vec<(u128, u32, u32)> = self.workload.routes().collect();
        let mut destinations = Vec::with_capacity(count);
        while destinations.len() < count {
            let (address, length, _) = all[random.below(all.len() as u64) as usize];
            let rest = (random.next() as u32).checked_shr(length).unwrap_or(0);
            let address = address as u32 | rest;
            if !is_own(address) {
                destinations.push(address);
            }
        }
        let list = 1 << 17;
        (0..list).map(|_| header(destinations[random.below(count as u64) as usize])).collect()
    }
}

/// Returns true for addresses of the next hops' network and of loopback, which are never routed.
fn is_own(address: u32) -> bool {
    matches!(address >> 24, 10 | 127)
}

fn header(destination: u32) -> [u8; 20] {
    let mut header = [0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 0, 0, 0, 0];
    header[16..].copy_from_slice(&destination.to_be_bytes());
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

/// Runs a batch of `ip` commands.
fn ip(text: &str) -> Result<()> {
    let mut child = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().ok_or("no pipe")?;
    std::io::Write::write_all(&mut input, text.as_bytes())?;
    drop(input);
    match child.wait()? {
        status if status.success() => Ok(()),
        status => Err(format!("ip -batch: {status}").into()),
    }
}

/// Routes of the mirror, for packets that arrive on another interface than their egress.
struct MirroredRoutes(Mirror);

impl Routes for MirroredRoutes {
    fn ingress(&self, _: &Turn, _: PortId) -> Option<IngressInterface> {
        let reverse_path = ReversePath::Any;
        Some(IngressInterface {
            link: 0,
            mac: STATION,
            forwards4: true,
            forwards6: true,
            is_in_vrf: false,
            reverse_path,
        })
    }

    fn ways4(&self, turn: &Turn, to: &[Ipv4Addr], flows: &[u32], answers: &mut [RouteLookup]) {
        self.0.route4_many(turn, to, flows, answers);
    }

    fn ways6(&self, turn: &Turn, to: &[Ipv6Addr], flows: &[u32], answers: &mut [RouteLookup]) {
        self.0.route6_many(turn, to, flows, answers);
    }

    fn returns4(&self, turn: &Turn, from: &[Ipv4Addr], flows: &[u32], back: &mut [ReturnRoute]) {
        self.0.return_routes(turn, TableId::default(), from, flows, back);
    }

    fn returns6(&self, turn: &Turn, from: &[Ipv6Addr], flows: &[u32], back: &mut [ReturnRoute]) {
        self.0.return_routes(turn, TableId::default(), from, flows, back);
    }

    fn generation(&self) -> Option<u64> {
        self.0.generation()
    }

    fn is_own(&self, turn: &Turn, address: IpAddr) -> bool {
        self.0.is_local(turn, address)
    }
}

/// Application that overwrites each packet with a new header before it is processed.
struct Renewed<'a, A> {
    app: A,
    headers: &'a [[u8; 20]],
    next: usize,
}

impl<A: App> App for Renewed<'_, A> {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        for packet in packets.iter_mut() {
            let bytes = packet.bytes_mut();
            bytes[..6].copy_from_slice(&STATION);
            bytes[12..14].copy_from_slice(&[8, 0]);
            bytes[14..34].copy_from_slice(&self.headers[self.next]);
            self.next = (self.next + 1) % self.headers.len();
        }
        self.app.process(packets, turn);
    }
}

/// Compares the CPU time per packet of the router with that of macswap, for `destinations`
/// destinations.
///
/// # Errors
/// Returns an error if there is not enough memory or a packet is not forwarded.
pub fn compare(routed: &Routed, destinations: usize, effort: Effort) -> Result<Pairs> {
    let headers = routed.headers(destinations);
    let mut pairs = Pairs::default();
    for _ in 0..effort.pairs {
        let causes = State::attach(&Spec::state::<2>("causes", router::CAUSES, 1).create()?)?;
        let counts = Counts::new(causes.lane(0), None);
        let router = Router::new(routed.lane()?, counts, FlowHash::random());
        let renewed = |app| Renewed { app, headers: &headers, next: 0 };
        let mut ours = MemoryLane::new(renewed(router), BURST, LENGTH)?;
        let swap = Renewed { app: macswap, headers: &headers, next: 0 };
        let mut rival = MemoryLane::new(swap, BURST, LENGTH)?;
        let warm_up = effort.slice / 5;
        ours.run(warm_up)?;
        rival.run(warm_up)?;
        pair(&mut pairs, effort.slice, &mut ours, &mut rival)?;
        let others = router::names().filter(|(number, _)| *number > 0);
        for (number, name) in others {
            let [packets, _] = causes.read(fastlane_table::EntryId(number));
            if packets > 0 {
                return Err(format!("{packets} packets were not forwarded: {name}").into());
            }
        }
    }
    Ok(pairs)
}

/// Additional work of a router.
#[derive(Clone, Copy, Debug)]
pub enum Extra {
    /// Evaluate an access list with this number of rules, none of which matches.
    Rules(usize),
    /// Count packets by route; the routes must be [`Routed::counted`].
    Counts,
}

/// Compares the CPU time per packet of the router with additional work with that of the plain
/// router.
///
/// # Errors
/// Returns an error if there is not enough memory.
pub fn compare_with(
    routed: &Routed,
    extra: Extra,
    destinations: usize,
    effort: Effort,
) -> Result<Pairs> {
    let headers = routed.headers(destinations);
    let mut pairs = Pairs::default();
    for _ in 0..effort.pairs {
        let more = router(routed, Some(extra))?;
        let mut ours =
            MemoryLane::new(Renewed { app: more, headers: &headers, next: 0 }, BURST, LENGTH)?;
        let plain = router(routed, None)?;
        let mut rival =
            MemoryLane::new(Renewed { app: plain, headers: &headers, next: 0 }, BURST, LENGTH)?;
        let warm_up = effort.slice / 5;
        ours.run(warm_up)?;
        rival.run(warm_up)?;
        pair(&mut pairs, effort.slice, &mut ours, &mut rival)?;
    }
    Ok(pairs)
}

fn router(routed: &Routed, extra: Option<Extra>) -> Result<Router<MirroredRoutes>> {
    let causes = State::attach(&Spec::state::<2>("causes", router::CAUSES, 1).create()?)?.lane(0);
    let asked = routed.lane()?;
    let numbers = asked.0.route_numbers();
    let routes = match extra {
        Some(Extra::Counts) => {
            let memory = Spec::state::<ROUTE_WORDS>("routes", numbers, 1).create()?;
            Some(State::attach(&memory)?.lane(0))
        }
        _ => None,
    };
    let router = Router::new(asked, Counts::new(causes, routes), FlowHash::random());
    let Some(Extra::Rules(count)) = extra else { return Ok(router) };
    let hits = State::attach(&Spec::state::<2>("acl", 512, 1).create()?)?.lane(0);
    let lines = (0..count).map(|rule| format!("{rule} drop udp to 10.0.{rule}.0/24 port 53\n"));
    let memory = Spec::classifier::<Decision>("acl", entries(512)).create()?;
    let mut writer = ClassifierWriter::attach(&memory, &Arc::new(Readers::unknown()))?;
    text::rule_set(&lines.collect::<String>())?.compile(1, |list| writer.replace(list))?;
    Ok(router.with_access_list(AccessList::new(ClassifierReader::attach(&memory)?, hits)))
}

/// Returns the effort with slices of at most 250 ms, because there are many points.
#[must_use]
pub fn effort(effort: Effort) -> Effort {
    Effort { slice: effort.slice.min(Duration::from_millis(250)), ..effort }
}
