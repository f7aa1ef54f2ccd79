//! PFCP sessions, published as the control plane does.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::sync::Arc;

use fastlane::PortId;
use fastlane_table::{
    ArrayReader, ArrayWriter, HashReader, Lpm4Reader, Lpm6Reader, Pending, SharedMemory, Spec,
    State,
};
use serde_json::{Value, json};
use upf::config::{Gtp, Settings};
use upf::datapath::{DROP_REASON_WORDS, LaneTables, Routes, Upf};
use upf::rules::Capacities;
use upf::rules::compile::Context;
use upf::rules::layout::TeidLayout;
use upf::rules::layout::nat_tables::{NAT_BLOCKS, NAT_PORTS, NAT_USERS, NatUser};
use upf::rules::layout::slices::{HOLD_BUDGETS, SLICE_COUNTERS, SLICE_WORDS};
use upf::rules::layout::table;
use upf::rules::publish::Published;
use upf::rules::{BoxedWriter, Private, Tables as Written};
use upf::session::{
    Actions, CpFSeid, Destination, Far, Filter, FlowDescription, Forwarding, Gate, LocalTunnel,
    Measure, OuterHeader, Pdr, Prefix, Qer, Rate, Removal, Reporting, ReportingTriggers, Session,
    SessionIndex, Source, Urr, UserAddress, Volume,
};

use crate::Result;
use crate::loops::lookup::workload::Random;
use crate::rivals::ffi::no_readers;

/// First of the remote ports that filters distinguish.
pub(crate) const FIRST_PORT: u16 = 10_000;

/// First inside port of the flows.
pub(crate) const FIRST_INSIDE: u16 = 40_000;

/// Flows of users.
#[derive(Clone, Copy, Debug)]
pub struct Flows {
    /// Number of sessions.
    pub sessions: u32,
    /// Number of inside ports of each.
    pub each: u16,
}

/// Rules of each session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// 2 PDRs, 2 FARs, a QER with a maximum bit rate, a URR with a threshold; IPv4 outer header.
    Simple,
    /// PDRs with SDF filters, 2 FARs, 3 QERs, 3 URRs; IPv6 outer header.
    Filtered(Filtered),
}

/// PDRs with SDF filters, and the packets that arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filtered {
    /// Number of PDRs per direction.
    pub pairs: u16,
    /// Number of filters of each PDR, each for another port of the remote end.
    pub filters: u16,
    /// True if each filter has a prefix of the remote end, too. There are 15 of them.
    pub has_prefixes: bool,
    /// Filter that the packets match.
    pub hit: Hit,
}

/// Filter that packets match, of all filters of their direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// Any one, at random.
    Any,
    /// The first one by precedence.
    First,
    /// The one in the middle.
    Middle,
    /// The last one.
    Last,
    /// None: a last PDR without filters matches.
    None,
}

impl Hit {
    const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::First => "the first",
            Self::Middle => "the middle one",
            Self::Last => "the last",
            Self::None => "none",
        }
    }
}

impl Shape {
    /// 8 PDRs with 4 filters each.
    pub const EIGHT: Self = Self::of(4, 4);
    /// 16 PDRs with 8 filters each.
    pub const SIXTEEN: Self = Self::of(8, 8);

    const fn of(pairs: u16, filters: u16) -> Self {
        Self::Filtered(Filtered { pairs, filters, has_prefixes: false, hit: Hit::Any })
    }

    /// Returns the same rules with other packets.
    #[must_use]
    pub const fn hitting(self, hit: Hit) -> Self {
        match self {
            Self::Simple => self,
            Self::Filtered(filtered) => Self::Filtered(Filtered { hit, ..filtered }),
        }
    }

    /// Returns the rules with a prefix of the remote end in each filter.
    #[must_use]
    pub const fn with_prefixes(self) -> Self {
        match self {
            Self::Simple => self,
            Self::Filtered(filtered) => Self::Filtered(Filtered { has_prefixes: true, ..filtered }),
        }
    }

    /// Returns the name used in results.
    #[must_use]
    pub fn name(self) -> String {
        let Self::Filtered(Filtered { pairs, filters, has_prefixes, hit }) = self else {
            return "2 PDRs".to_owned();
        };
        let prefixes = if has_prefixes { " with prefixes" } else { "" };
        let pdrs = 2 * pairs;
        let rules = format!("{pdrs} PDRs of {filters} filters{prefixes}");
        let name = format!("{rules}, 3 QERs, 3 URRs, IPv6 outside");
        match hit {
            Hit::Any => name,
            hit => format!("{name}, {} matches", hit.name()),
        }
    }

    /// Returns the remote ports of packets.
    pub(crate) const fn ports(self) -> Range<u16> {
        let Self::Filtered(Filtered { pairs, filters, hit, .. }) = self else {
            return FIRST_PORT..FIRST_PORT + 1;
        };
        let end = FIRST_PORT + pairs * filters;
        let middle = FIRST_PORT + pairs * filters / 2;
        match hit {
            Hit::Any => FIRST_PORT..end,
            Hit::First => FIRST_PORT..FIRST_PORT + 1,
            Hit::Middle => middle..middle + 1,
            Hit::Last => end - 1..end,
            Hit::None => end..end + 1,
        }
    }
}

/// UEs whose packets arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Users {
    /// Rules of their sessions.
    pub(crate) shape: Shape,
    /// Number of UEs.
    pub(crate) count: u32,
    /// Volume threshold of their URRs in octets.
    pub(crate) threshold: u64,
    teids: TeidLayout,
    /// True if NAT translates their packets.
    pub(crate) has_nat: bool,
}

impl Users {
    /// Creates UEs whose URRs never report.
    pub(crate) fn new(shape: Shape, count: u32) -> Self {
        let teids = TeidLayout::of(count as usize);
        Self { shape, count, threshold: 1 << 60, teids, has_nat: false }
    }

    /// Returns the TEID of a session.
    pub(crate) fn teid(self, session: u32) -> u32 {
        self.teids.teid(SessionIndex(session), 1)
    }

    /// Publishes the sessions, as the control plane does.
    pub(crate) fn publish(self, tables: Written, settings: &Settings) -> Result<Published> {
        let context = Context::new(settings).map_err(|(rule, error)| format!("{rule}: {error}"))?;
        let mut published = Published::open(tables, context);
        let instance = |name| settings.instance(name).ok_or("no such network instance");
        let instances = Instances { access: instance("access")?, core: instance("internet")? };
        for id in 0..self.count {
            let mut session = session(SessionIndex(id), self.shape, self.teids, instances);
            let threshold = Volume { total: Some(self.threshold), ..Volume::default() };
            session.urrs.iter_mut().for_each(|urr| urr.volume_threshold = Some(threshold));
            published.assign(None, &mut session)?;
            published.publish(None, &session)?;
        }
        Ok(published)
    }
}

/// Table of users whose packets NAT translates.
type NatUsers = BoxedWriter<ArrayWriter<NatUser>>;

/// Opens the table of users, with a fixed number for each in the place of the random one that
/// decides about its ports. So each run has the same mappings, and executes the same instructions.
fn nat_users_with_fixed_keys(memory: &Private, count: u32) -> Result<NatUsers> {
    let mut users: NatUsers = memory.array(NAT_USERS)?;
    let mut random = Random::new(0x6b65_7973);
    for session in 0..count as usize {
        if let Some(user) = users.get(session).copied() {
            users.set(session, &NatUser { key: random.next() as u32, ..user })?;
        }
    }
    Ok(users)
}

/// Sessions in the tables.
pub struct Sessions {
    pub(crate) shape: Shape,
    pub(crate) count: u32,
    threshold: u64,
    teids: TeidLayout,
    settings: Settings,
    memory: Private,
    /// Users whose packets NAT translates.
    nat_users: NatUsers,
    /// Keeps the tables unchanged.
    _published: Published,
}

impl Sessions {
    /// Publishes `count` sessions.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub fn new(count: u32, shape: Shape) -> Result<Self> {
        Self::new_with(count, shape, false)
    }

    /// Publishes `count` sessions, whose users NAT translates if `has_nat` is true.
    pub(crate) fn new_with(count: u32, shape: Shape, has_nat: bool) -> Result<Self> {
        Self::of(Users { has_nat, ..Users::new(shape, count) }, 1)
    }

    /// Returns the user of a session if NAT translates its packets.
    pub(crate) fn nat_user(&self, session: u32) -> Option<NatUser> {
        self.nat_users.get(session as usize).copied()
    }

    /// Returns the slots of external ports.
    pub(crate) fn nat_ports(&self) -> Result<State<8>> {
        Ok(self.memory.state(NAT_PORTS)?)
    }

    /// Publishes the sessions of these UEs for `lanes` lanes.
    pub(crate) fn of(users: Users, lanes: usize) -> Result<Self> {
        let settings: Settings = serde_json::from_value(settings(users, ["wire"; 2]))?;
        let mut capacities = Capacities::of(&settings);
        if let Shape::Filtered(Filtered { pairs, .. }) = users.shape {
            capacities.blocks = capacities.complex * 3 * usize::from(pairs);
        }
        let memory = Private::new(capacities, Arc::new(no_readers()));
        // As in an application, each lane has its own copy of these tables.
        memory.memory(table::CAUSES, |most| {
            Spec::state::<DROP_REASON_WORDS>("causes", most, lanes)
        })?;
        memory.memory(SLICE_COUNTERS, |most| {
            Spec::state::<SLICE_WORDS>(SLICE_COUNTERS, most, lanes)
        })?;
        memory.memory(table::EVENTS, |most| Spec::pending("events", most, lanes))?;
        let _published = users.publish(Written::private(&memory)?, &settings)?;
        let nat_users = nat_users_with_fixed_keys(&memory, users.count)?;
        let Users { shape, count, threshold, teids, .. } = users;
        Ok(Self { shape, count, threshold, teids, settings, memory, nat_users, _published })
    }

    /// Returns the UEs of the sessions.
    pub(crate) fn users(&self) -> Users {
        let Self { shape, count, threshold, teids, .. } = *self;
        Users { shape, count, threshold, teids, has_nat: false }
    }

    /// Returns a TEID that this session had in another generation.
    pub(crate) fn stale_teid(&self, session: u32, generation: u32) -> u32 {
        self.teids.teid(SessionIndex(session), generation)
    }

    /// Sets the GTP-U messages, and their rates, that user planes created from now on send.
    pub fn answer(&mut self, gtp: Gtp) {
        self.settings.gtp = gtp;
    }

    /// Returns the memory of an existing table.
    pub(crate) fn table(&self, name: &str) -> Result<Arc<SharedMemory>> {
        let made = |_| Spec::record::<u64>("not reached: the table is made");
        Ok(self.memory.memory(name, made)?)
    }

    /// Returns the packet counts of all lanes by outcome.
    pub(crate) fn causes(&self) -> Result<State<DROP_REASON_WORDS>> {
        let causes = self.memory.state::<DROP_REASON_WORDS>(table::CAUSES)?;
        Ok(causes)
    }

    /// Creates a user plane on these tables.
    pub(crate) fn user_plane<R: Routes>(&self, routes: R) -> Result<Upf<R>> {
        self.user_plane_of(0, routes)
    }

    /// Creates the user plane of a lane.
    pub(crate) fn user_plane_of<R: Routes>(&self, lane: usize, routes: R) -> Result<Upf<R>> {
        let tables = LaneTables {
            rules: ArrayReader::attach(&self.table(table::RULES)?)?,
            blocks: ArrayReader::attach(&self.table(table::BLOCKS)?)?,
            tunnels: HashReader::attach(&self.table(table::TUNNELS)?)?,
            users: HashReader::attach(&self.table(table::USERS)?)?,
            framed4: Lpm4Reader::attach(&self.table(table::FRAMED4)?)?,
            framed6: Lpm6Reader::attach(&self.table(table::FRAMED6)?)?,
            framed: ArrayReader::attach(&self.table(table::FRAMED)?)?,
            state: State::attach(&self.table(table::STATE)?)?.lane(lane),
            events: Pending::attach(&self.table(table::EVENTS)?)?.lane(lane),
            drop_reasons: self.causes()?.lane(lane),
            slice_counters: self.memory.state(SLICE_COUNTERS)?.lane(lane),
            hold_budgets: ArrayReader::attach(&self.table(HOLD_BUDGETS)?)?,
            nat_users: ArrayReader::attach(&self.table(NAT_USERS)?)?,
            nat_blocks: ArrayReader::attach(&self.table(NAT_BLOCKS)?)?,
            nat_ports: self.memory.state(NAT_PORTS)?.lane(lane),
        };
        Ok(Upf::new(&self.settings, 1, tables, routes, |_| Ok(PortId(0)))?)
    }
}

/// Returns the gNB's TEID of a session.
pub(crate) fn far_teid(session: u32) -> u32 {
    0x1000_0000 + session
}

/// Returns the UE address of a session.
pub(crate) fn user(session: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0b00_0000 + 1 + session)
}

/// Returns the object `app` of a configuration with the ports of N3 and of N6.
pub(crate) fn settings(users: Users, [access, core]: [&str; 2]) -> Value {
    let complex = if users.shape == Shape::Simple { 1 } else { users.count };
    let mut settings = json!({
        "node-id": "10.255.0.1",
        "n4": { "addresses": ["10.255.0.1"] },
        "interfaces": {
            "n3": { "port": access, "role": "n3", "network-instances": ["access"],
                    "addresses": ["10.255.0.1", "fd00::1"] },
            "n6": { "port": core, "role": "n6", "network-instances": ["internet"] }
        },
        "pools": [{ "network-instance": "internet", "prefix": "11.0.0.0/8" }],
        "sessions": users.count,
        "limits": { "complex-sessions": complex }
    });
    if users.has_nat {
        // 64 addresses with 252 blocks each.
        settings["interfaces"]["n6"]["nat"] = json!({
            "addresses": ["203.0.113.0/26"], "inside": ["11.0.0.0/8"], "log": "/dev/null"
        });
    }
    settings
}

/// Network instances of N3 and N6, as numbers.
#[derive(Clone, Copy)]
struct Instances {
    access: u16,
    core: u16,
}

fn session(id: SessionIndex, shape: Shape, teids: TeidLayout, instances: Instances) -> Session {
    let Instances { access, core } = instances;
    let (pdrs, meters) = match shape {
        Shape::Simple => (1, 1),
        Shape::Filtered(Filtered { pairs, hit, .. }) => (pairs + u16::from(hit == Hit::None), 3),
    };
    let numbers: Vec<u32> = (1..=meters).collect();
    let six = shape != Shape::Simple;
    let both = (0..pdrs).flat_map(|flow| [(flow, Source::Access), (flow, Source::Core)]);
    let pdr = |(flow, source): (u16, Source)| {
        let is_up = source == Source::Access;
        let v4 = (!six).then_some(Ipv4Addr::new(10, 255, 0, 1));
        let v6 = six.then(|| "fd00::1".parse().ok()).flatten();
        let tunnel =
            LocalTunnel { teid: teids.teid(id, 1), v4, v6, is_ours: true, choose_id: None };
        let removal = Removal { description: u8::from(six), extension: false };
        Pdr {
            id: 1 + 2 * flow + u16::from(!is_up),
            precedence: 100 + u32::from(flow),
            source,
            instance: Some(if is_up { access } else { core }),
            tunnel: is_up.then_some(tunnel),
            user: Some(UserAddress { v4: Some(user(id.0)), v6: None, is_ours: true }),
            framed: vec![],
            filters: filters(shape, flow),
            qfis: vec![],
            removal: is_up.then_some(removal),
            far: if is_up { 1 } else { 2 },
            qers: numbers.clone(),
            urrs: numbers.clone(),
            predefined: vec![],
        }
    };
    Session {
        id,
        seid: 1 << 32 | u64::from(id.0),
        cp_fseid: CpFSeid { seid: id.0.into(), address: IpAddr::V4(Ipv4Addr::LOCALHOST) },
        version: 1,
        generation: 1,
        pdn_type: 1,
        pdrs: both.map(pdr).collect(),
        fars: vec![far(1, core, None), far(2, access, Some(outer(id, six)))],
        qers: numbers.iter().map(|id| qer(*id)).collect(),
        urrs: numbers.iter().map(|id| urr(*id)).collect(),
        peer: 0,
        discarded: 0,
        is_deleted: false,
        established: 0,
        supi: None,
        network: None,
        s_nssai: None,
        inactivity_s: None,
        fq_csids: vec![],
        bars: vec![],
        reporting: Reporting::default(),
    }
}

/// Returns the filters of a PDR; none for the one behind all others.
fn filters(shape: Shape, flow: u16) -> Vec<Filter> {
    let Shape::Filtered(Filtered { pairs, filters, has_prefixes, .. }) = shape else {
        return Vec::new();
    };
    let numbers = flow * filters..(flow + 1) * filters;
    let flow_of = |number: u16| FlowDescription {
        protocol: Some(17),
        remote: prefix(number).filter(|_| has_prefixes),
        remote_ports: vec![(FIRST_PORT + number, FIRST_PORT + number)],
        ..FlowDescription::default()
    };
    let filter = |number| Filter { flow: Some(flow_of(number)), ..Filter::default() };
    numbers.filter(|_| flow < pairs).map(filter).collect()
}

/// Returns one of the 15 prefixes that contain the remote ends of packets.
fn prefix(number: u16) -> Option<Prefix> {
    Prefix::new(IpAddr::V4(Ipv4Addr::new(198, 18, 0, 0)), 1 + (number % 15) as u8)
}

fn outer(id: SessionIndex, six: bool) -> OuterHeader {
    let v4 = (!six).then_some(Ipv4Addr::new(10, 255, 0, 3));
    let v6 = six.then(|| "fd00::3".parse().ok()).flatten();
    OuterHeader { teid: Some(far_teid(id.0)), v4, v6, port: None }
}

fn far(id: u32, instance: u16, outer: Option<OuterHeader>) -> Far {
    let destination = if outer.is_some() { Destination::Access } else { Destination::Core };
    let forwarding =
        Forwarding { destination, instance: Some(instance), outer, marking: None, redirect: None };
    Far {
        id,
        actions: Actions { forward: true, ..Actions::default() },
        forwarding: Some(forwarding),
        ..Far::default()
    }
}

fn qer(id: u32) -> Qer {
    // The rate is above the rate of a lane: packets are metered and pass.
    let maximum = Rate { uplink: 1_000_000_000, downlink: 1_000_000_000 };
    Qer {
        id,
        uplink: Gate::Open,
        downlink: Gate::Open,
        maximum: Some(maximum),
        qfi: (id == 1).then_some(9),
        ..Qer::default()
    }
}

fn urr(id: u32) -> Urr {
    Urr {
        id,
        measure: Measure { volume: true, ..Measure::default() },
        triggers: ReportingTriggers::VOLTH,
        ..Urr::default()
    }
}
