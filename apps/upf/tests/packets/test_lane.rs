//! Test fixture: a lane with a user plane, and ports that are lists of frames.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use fastlane::mirror::{FallbackReason, NextHop, RouteLookup};
use fastlane::mirror::{IngressInterface, ReversePath};
use fastlane::{Error, PortId, Turn};
use fastlane_core::{
    Filter, HoldBuffer, KernelPath, Lane, LaneConfig, Messages, Partial, Pool, Port,
};
use fastlane_hold::{HoldArea, HoldLimits};
use fastlane_table::counters::Counters;
use fastlane_table::messages::{Channel, Doorbells, size};
use fastlane_table::{
    ArrayReader, ArrayWriter, Doorbell, EntryId, HashReader, HashWriter, Lpm4Reader, Lpm6Reader,
    Pending, SharedMemory, Spec, State,
};
use fastlane_testing::lists::{Frames, lists};
use fastlane_testing::sleeping_lane;
use serde_json::json;
use upf::config::Settings;
use upf::datapath::{LaneTables, Routes, Upf};
use upf::rules::layout::TeidLayout;
use upf::rules::layout::drop_reason::{DROP_REASONS, DropReason, ENTRIES};
use upf::rules::layout::nat_tables::{NAT_BLOCKS, NAT_PORTS, NAT_USERS, NatBlock, NatUser};
use upf::rules::layout::session_rules::{Block, Rules, flag, forwarding};
use upf::rules::layout::slices::{
    GROUP_ENTRIES, HOLD_BUDGETS, HoldBudget, SLICE_COUNTERS, SLICE_WORDS,
};
use upf::rules::layout::table;
use upf::rules::layout::{SessionRef, TunnelKey, UeKey};
use upf::session::{InstanceId, SessionIndex};

use crate::SESSIONS;

/// Ethernet addresses of the ports and their neighbours.
pub(crate) const PORT_MAC: [[u8; 6]; 2] = [[2, 0, 0, 0, 3, 1], [2, 0, 0, 0, 6, 1]];
pub(crate) const NEIGHBOUR_MAC: [[u8; 6]; 2] = [[2, 0, 0, 0, 3, 9], [2, 0, 0, 0, 6, 9]];
/// Addresses of the ports in Linux.
pub(crate) const PORT_ADDRESS: [[&str; 2]; 2] =
    [["10.3.0.1", "fd03::1"], ["192.0.2.254", "2001:db8:7::fe"]];
/// Indices of ports.
pub(crate) const N3: u16 = 0;
pub(crate) const N6: u16 = 1;
/// Port between UEs.
pub(crate) const HAIRPIN: u16 = 2;
/// Network instances, by name.
pub(crate) const ACCESS: InstanceId = 0;
pub(crate) const INTERNET: InstanceId = 1;
/// Addresses and TEID of the gNB, and the local address.
pub(crate) const GNB: [u8; 4] = [10, 3, 0, 9];
pub(crate) const GNB_TEID: u32 = 0x0900;
pub(crate) const OUR: [u8; 4] = [10, 3, 0, 1];
/// Addresses of a UE and the data network.
pub(crate) const USER: [u8; 4] = [10, 45, 0, 5];
pub(crate) const SERVER: [u8; 4] = [192, 0, 2, 7];
/// Session of the UE.
pub(crate) const SESSION: SessionIndex = SessionIndex(261);

/// Returns the TEID of a session.
pub(crate) fn teid(session: SessionIndex) -> u32 {
    TeidLayout::of(SESSIONS).teid(session, 3)
}

/// Routes that a test sets; there are no others.
#[derive(Clone, Debug)]
pub(crate) struct TestRoutes {
    pub(crate) answers: BTreeMap<IpAddr, RouteLookup>,
    pub(crate) reverse_path: ReversePath,
    /// True if the ports have addresses in Linux.
    pub(crate) has_addresses: bool,
}

/// Returns a next hop by a port with an MTU.
pub(crate) fn out_of(port: u16, mtu: u32) -> RouteLookup {
    let at = usize::from(port);
    let (source, destination) = (PORT_MAC[at], NEIGHBOUR_MAC[at]);
    let (port, link, route, is_divided) = (PortId(port), 10 + u32::from(port), 1, false);
    RouteLookup::Forward(NextHop { port, source, destination, mtu, link, route, is_divided })
}

impl TestRoutes {
    /// Returns routes to the gNB, the server and another server, in both families.
    pub(crate) fn new() -> Self {
        let reverse_path = ReversePath::Any;
        let mut known = Self { answers: BTreeMap::new(), reverse_path, has_addresses: true };
        known.set("10.3.0.9", out_of(N3, 1500));
        known.set("fd03::9", out_of(N3, 1500));
        known.set("192.0.2.7", out_of(N6, 1500));
        known.set("2001:db8:7::7", out_of(N6, 1500));
        known.set("203.0.113.7", out_of(N6, 1500));
        known.set("2001:db8:113::7", out_of(N6, 1500));
        known
    }

    pub(crate) fn set(&mut self, to: &str, answer: RouteLookup) {
        self.answers.insert(to.parse().expect("an address"), answer);
    }
}

impl Routes for TestRoutes {
    fn ingress(&self, _: &Turn, port: PortId) -> Option<IngressInterface> {
        Some(IngressInterface {
            link: 10 + u32::from(port.0),
            mac: *PORT_MAC.get(usize::from(port.0))?,
            forwards4: true,
            forwards6: true,
            is_in_vrf: false,
            reverse_path: self.reverse_path,
        })
    }

    fn address(&self, _: &Turn, port: PortId, is_v6: bool) -> Option<IpAddr> {
        let [four, six] = PORT_ADDRESS.get(usize::from(port.0)).filter(|_| self.has_addresses)?;
        if is_v6 { six.parse().ok() } else { four.parse().ok() }
    }

    fn next_hop(&self, _: &Turn, _: Option<u32>, to: IpAddr, _: u32) -> RouteLookup {
        self.answers.get(&to).copied().unwrap_or(RouteLookup::Fallback(FallbackReason::NoRoute))
    }
}

/// Writers of the tables, and readers of the lane's counters.
pub(crate) struct TableAccess {
    pub(crate) rules: ArrayWriter<Rules>,
    pub(crate) blocks: ArrayWriter<Block>,
    pub(crate) users: HashWriter<UeKey, SessionRef>,
    pub(crate) tunnels: HashWriter<TunnelKey, SessionRef>,
    pub(crate) state: State<8>,
    pub(crate) events: Pending,
    pub(crate) nat_users: ArrayWriter<NatUser>,
    pub(crate) nat_blocks: ArrayWriter<NatBlock>,
    pub(crate) nat_ports: State<8>,
    pub(crate) slice_counters: State<SLICE_WORDS>,
    pub(crate) hold_budgets: ArrayWriter<HoldBudget>,
    drop_reasons: State<2>,
}

/// A user plane on a lane with its environment.
pub(crate) struct TestLane {
    pub(crate) tables: TableAccess,
    pub(crate) lane: Lane<Upf<TestRoutes>>,
    arriving: [Frames; 3],
    leaving: [Frames; 3],
    linux: Frames,
    slow: Channel,
    shown: u64,
}

/// Creates tables with their writers.
pub(crate) fn tables() -> (LaneTables, TableAccess) {
    let readers = sleeping_lane();
    let make = |spec: Spec| spec.create().expect("memory");
    let rules = make(Spec::array::<Rules>(table::RULES, SESSIONS));
    let blocks = make(Spec::array::<Block>(table::BLOCKS, 64));
    let tunnels = make(Spec::hash::<TunnelKey, SessionRef>(table::TUNNELS, 64));
    let users = make(Spec::hash::<UeKey, SessionRef>(table::USERS, 2 * SESSIONS));
    let framed4 = make(Spec::lpm4(table::FRAMED4, 64));
    let framed6 = make(Spec::lpm6(table::FRAMED6, 64));
    let framed = make(Spec::array::<upf::rules::layout::Framed>(table::FRAMED, 64));
    let state = make(Spec::state::<8>(table::STATE, 2 * SESSIONS, 0));
    let events = make(Spec::pending(table::EVENTS, SESSIONS, 1));
    let drop_reasons = make(Spec::state::<2>(table::CAUSES, ENTRIES, 1));
    let slice_counters = make(Spec::state::<SLICE_WORDS>(SLICE_COUNTERS, GROUP_ENTRIES, 1));
    let budgets = make(Spec::array::<HoldBudget>(HOLD_BUDGETS, GROUP_ENTRIES + 1024));
    let nat_users = make(Spec::array::<NatUser>(NAT_USERS, SESSIONS));
    let nat_blocks = make(Spec::array::<NatBlock>(NAT_BLOCKS, 4096));
    let nat_ports = make(Spec::state::<8>(NAT_PORTS, 32_768, 0));
    let state_of = |memory| State::<8>::attach(memory).expect("state");
    let causes_of = |memory| State::<2>::attach(memory).expect("state");
    let slice_counters = State::<SLICE_WORDS>::attach(&slice_counters).expect("state");
    let lane_tables = LaneTables {
        rules: ArrayReader::attach(&rules).expect("rules"),
        blocks: ArrayReader::attach(&blocks).expect("blocks"),
        tunnels: HashReader::attach(&tunnels).expect("tunnels"),
        users: HashReader::attach(&users).expect("users"),
        framed4: Lpm4Reader::attach(&framed4).expect("framed"),
        framed6: Lpm6Reader::attach(&framed6).expect("framed"),
        framed: ArrayReader::attach(&framed).expect("framed"),
        state: state_of(&state).lane(0),
        events: Pending::attach(&events).expect("events").lane(0),
        drop_reasons: causes_of(&drop_reasons).lane(0),
        slice_counters: slice_counters.lane(0),
        hold_budgets: ArrayReader::attach(&budgets).expect("budgets"),
        nat_users: ArrayReader::attach(&nat_users).expect("users"),
        nat_blocks: ArrayReader::attach(&nat_blocks).expect("blocks"),
        nat_ports: state_of(&nat_ports).lane(0),
    };
    let tables = TableAccess {
        rules: ArrayWriter::attach(&rules, &readers).expect("rules"),
        blocks: ArrayWriter::attach(&blocks, &readers).expect("blocks"),
        users: HashWriter::attach(&users, &readers).expect("users"),
        tunnels: HashWriter::attach(&tunnels, &readers).expect("tunnels"),
        state: state_of(&state),
        events: Pending::attach(&events).expect("events"),
        slice_counters,
        hold_budgets: ArrayWriter::attach(&budgets, &readers).expect("budgets"),
        nat_users: ArrayWriter::attach(&nat_users, &readers).expect("users"),
        nat_blocks: ArrayWriter::attach(&nat_blocks, &readers).expect("blocks"),
        nat_ports: state_of(&nat_ports),
        drop_reasons: causes_of(&drop_reasons),
    };
    (lane_tables, tables)
}

fn messages() -> (Messages, Channel) {
    let memory = Arc::new(SharedMemory::create("upf-messages", size(1, 65_536)).expect("memory"));
    let bell = || Doorbell::create().expect("an eventfd");
    let (lane, slow) = (bell(), bell());
    let bells = || Doorbells {
        lane: lane.try_clone().expect("a descriptor"),
        slow: slow.try_clone().expect("a descriptor"),
    };
    let channel = Channel::create(&memory, 0, 65_536, bells()).expect("it fits");
    let slow = Channel::attach_slow(&memory, 0, bells()).expect("it was made");
    (Messages::new(channel, 0), slow)
}

/// Returns the settings, which a test modifies.
pub(crate) fn settings() -> serde_json::Value {
    json!({
        "node-id": "10.4.0.1",
        "n4": { "addresses": ["10.4.0.1"] },
        "interfaces": {
            "n3": { "port": "n3", "role": "n3", "network-instances": ["access"],
                    "addresses": ["10.3.0.1", "fd03::1"] },
            "n6": { "port": "n6", "role": "n6", "network-instances": ["internet"] },
        },
        "pools": [
            { "network-instance": "internet", "prefix": "10.45.0.0/16" },
            { "network-instance": "internet", "prefix": "2001:db8:45::/48" },
        ],
        "sessions": SESSIONS,
        "gtp": { "quiet-s": 0 },
    })
}

/// EtherType of frames that steering leaves to Linux (IEEE 802, local experimental).
pub(crate) const OTHERS: [u8; 2] = [0x88, 0xB5];

/// Claims all frames except [`OTHERS`].
struct ButOthers;

impl Filter for ButOthers {
    fn claims(&mut self, frame: &[u8]) -> bool {
        frame.get(12..14) != Some(&OTHERS)
    }
}

impl TestLane {
    /// Creates a lane with these routes and settings.
    pub(crate) fn new(known: TestRoutes, settings: serde_json::Value) -> Self {
        let (lane_tables, access) = tables();
        Self::on(known, settings, lane_tables, access)
    }

    /// Creates a lane with these routes, settings and tables.
    pub(crate) fn on(
        known: TestRoutes,
        settings: serde_json::Value,
        lane_tables: LaneTables,
        tables: TableAccess,
    ) -> Self {
        let mut settings: Settings = serde_json::from_value(settings).expect("settings");
        settings.hairpin = Some("user-to-user".to_owned());
        let upf = Upf::new(&settings, 3, lane_tables, known, |name| match name {
            "n3" => Ok(PortId(N3)),
            "n6" => Ok(PortId(N6)),
            "user-to-user" => Ok(PortId(HAIRPIN)),
            other => Err(Error::Value {
                path: "ports".to_owned(),
                what: format!("there is no {other}"),
                meant: None,
            }),
        });
        let upf = upf.expect("the settings are right");
        let [arriving, leaving]: [[Frames; 3]; 2] = Default::default();
        let [nothing, linux]: [Frames; 2] = Default::default();
        let counters = Counters::create(1, 3).expect("memory");
        let port = |number: u16| Port {
            queues: vec![lists(
                PortId(number),
                &arriving[usize::from(number)],
                &leaving[usize::from(number)],
            )],
            kernel: Some(KernelPath {
                queue: lists(PortId(number), &nothing, &linux),
                receives: false,
            }),
            filter: Some(Box::new(ButOthers)),
            counters: counters.port(0, usize::from(number)),
        };
        let memory = SharedMemory::create("upf-test", 512 * 4096).expect("memory");
        let pool = Pool::new(memory, 4096, 192).expect("the frame size is allowed");
        let parts =
            LaneConfig::new(pool, vec![port(N3), port(N6), port(HAIRPIN)], counters.lane(0));
        let limits = HoldLimits { packets: 64, per_key: 32 };
        let hold = Some(Box::new(HoldArea::new(limits, 4096)) as Box<dyn HoldBuffer>);
        let parts = LaneConfig { kernel_budget: 256, hold, ..parts };
        let (messages, slow) = messages();
        let lane = Lane::new(upf, LaneConfig { messages: Some(messages), ..parts });
        Self { tables, lane, arriving, leaving, linux, slow, shown: 0 }
    }

    /// Creates a lane with a session of a UE.
    pub(crate) fn with_user() -> Self {
        let mut world = Self::new(TestRoutes::new(), settings());
        world.publish(&simple(1));
        world
    }

    /// Publishes the session's rules and addresses.
    pub(crate) fn publish(&mut self, rules: &Rules) {
        self.tables.rules.set(SESSION.0 as usize, rules).expect("there is room");
        let user = SessionRef::to(SESSION);
        let v4 = UeKey::v4(INTERNET, USER.into());
        let v6 = UeKey::v6(INTERNET, "2001:db8:45:5::1".parse().expect("an address"));
        for key in [v4, v6] {
            self.tables.users.insert(&key, &user).expect("there is room");
        }
    }

    /// Assigns an address to a session with these rules.
    pub(crate) fn publish_other(&mut self, session: SessionIndex, address: [u8; 4], rules: &Rules) {
        self.tables.rules.set(session.0 as usize, rules).expect("there is room");
        let key = UeKey::v4(INTERNET, v4(address));
        self.tables.users.insert(&key, &SessionRef::to(session)).expect("there is room");
    }

    /// Passes packets between UEs to the receiving lane; returns their number.
    pub(crate) fn pass(&mut self) -> usize {
        let between = self.left(HAIRPIN);
        self.show(HAIRPIN, &between);
        between.len()
    }

    /// Passes frames that arrive on a port.
    pub(crate) fn show(&mut self, port: u16, frames: &[Vec<u8>]) {
        self.shown += frames.len() as u64;
        self.arriving[usize::from(port)].extend(frames);
        for _ in 0..4 + frames.len() / 16 {
            self.lane.turn();
        }
    }

    /// Leaves a checksum of the frames that arrive at a port to the device.
    pub(crate) fn leave_checksum(&mut self, port: u16, partial: Option<Partial>) {
        self.arriving[usize::from(port)].leave_checksum(partial);
    }

    /// Returns the frames that left by a port.
    pub(crate) fn left(&mut self, port: u16) -> Vec<Vec<u8>> {
        self.leaving[usize::from(port)].take()
    }

    /// Returns the frames passed to Linux.
    pub(crate) fn linux(&mut self) -> Vec<Vec<u8>> {
        self.linux.take()
    }

    /// Returns the number of packets counted under a reason.
    pub(crate) fn count(&self, cause: DropReason) -> u64 {
        self.tables.drop_reasons.read(EntryId(cause as u32))[0]
    }

    /// Returns all reasons with a count.
    pub(crate) fn drop_reasons(&self) -> BTreeMap<&'static str, u64> {
        let all = DROP_REASONS.iter().map(|cause| (cause.name(), self.count(*cause)));
        all.filter(|(_, count)| *count > 0).collect()
    }

    /// Returns the session's counters: uplink octets and packets, downlink octets and packets.
    pub(crate) fn usage(&self) -> [u64; 4] {
        self.usage_of(SESSION)
    }

    /// Returns the counters of another session.
    pub(crate) fn usage_of(&self, session: SessionIndex) -> [u64; 4] {
        let [a, b, c, d, ..] = self.tables.state.read(EntryId(session.0));
        [a, b, c, d]
    }

    /// Sends a message to the lane.
    pub(crate) fn send_message(&mut self, kind: u32, body: &[u8]) {
        assert!(self.slow.sender.send(kind, body));
        self.slow.sender.publish();
        for _ in 0..3 {
            self.lane.turn();
        }
    }

    /// Returns the messages of the lane: kinds and octets.
    pub(crate) fn heard(&mut self) -> Vec<(u32, Vec<u8>)> {
        let mut all = vec![];
        while let Ok(Some(message)) = self.slow.receiver.receive() {
            all.push((message.kind, message.body.to_vec()));
        }
        all
    }

    /// Checks that each packet has exactly one outcome, resumed packets apart.
    pub(crate) fn check(&mut self) {
        self.check_causes();
        assert_eq!(self.lane.close(), 0, "all frames come back");
    }

    /// Checks the same while the lane continues.
    pub(crate) fn check_causes(&self) {
        let own = DROP_REASONS.iter().filter(|cause| !cause.is_additional());
        let sum: u64 = own.map(|cause| self.count(*cause)).sum();
        assert_eq!(sum, self.shown, "{:?}", self.drop_reasons());
    }
}

/// Returns rules of a version that forward everything of a UE.
pub(crate) fn simple(version: u64) -> Rules {
    let mut rules = Rules::empty(version);
    let (up, down) = (&mut rules.uplink, &mut rules.downlink);
    up.ue4 = u32::from_be_bytes(USER);
    up.ue6 = 0x2001_0db8_0045_0005;
    up.common.flags = flag::PRESENT | flag::TUNNEL | flag::UE4 | flag::UE6 | flag::COUNT;
    up.common.tunnel = teid(SESSION);
    up.common.pdr = 1;
    up.common.forwarding.what = forwarding::REMOVE | 1; // to the core
    up.common.forwarding.instance = INTERNET;
    down.common.flags = flag::PRESENT | flag::COUNT;
    down.common.pdr = 2;
    down.common.forwarding.what = forwarding::GTPU; // to the access network
    down.common.forwarding.instance = ACCESS;
    down.common.forwarding.peer = GNB;
    down.common.forwarding.teid = GNB_TEID;
    down.common.forwarding.quality = 1 + 9;
    rules
}

/// Returns an address of the UE's IPv6 prefix.
pub(crate) fn ue6() -> Ipv6Addr {
    "2001:db8:45:5::1".parse().expect("an address")
}

/// Parses an IPv4 address.
pub(crate) fn v4(octets: [u8; 4]) -> Ipv4Addr {
    octets.into()
}
