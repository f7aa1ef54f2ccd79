//! Test fixture: a session with its rules, blocks and counter slots as a lane sees them.

use fastlane::table::{LaneState, Spec, State};

use crate::config::nat_plan::NatPlan;
use crate::datapath::classify::*;
use crate::rules::compile::{Context, compile};
use crate::rules::layout::session_rules::{AddressPrefix, Block};
use crate::rules::layout::{TeidLayout, counter_slots};
use crate::session::{
    Actions, Destination, Far, Forwarding, Gate, LocalTunnel, Measure, Network, OuterHeader, Pdr,
    Prefix, Progress, Qer, Rate, Removal, Session, Source, Urr, UserAddress,
};

pub(super) struct RuleFixture {
    pub(super) session: Session,
    pub(super) rules: Rules,
    pub(super) blocks: Vec<Block>,
    pub(super) state: LaneState<WORDS>,
}

pub(super) fn context() -> Context {
    Context {
        shape: TeidLayout::of(1024),
        network: Network::of_data_networks(&[0, 1]),
        predefined: <_>::default(),
        held_packets: 64,
        held_ms: 60_000,
        nat: NatPlan::default(),
    }
}

pub(super) fn actions(words: &str) -> Actions {
    let has = |word| words.split(' ').any(|it| it == word);
    Actions {
        drop: has("drop"),
        forward: has("forward"),
        buffer: has("buffer"),
        notify: has("notify"),
        duplicate: has("duplicate"),
    }
}

pub(super) fn pdr(id: u16, source: Source, far: u32) -> Pdr {
    Pdr {
        id,
        precedence: 100,
        source,
        instance: None,
        tunnel: None,
        user: None,
        framed: Vec::new(),
        filters: Vec::new(),
        qfis: Vec::new(),
        removal: None,
        far,
        qers: Vec::new(),
        urrs: Vec::new(),
        predefined: Vec::new(),
    }
}

pub(super) fn far(id: u32, words: &str, destination: Destination, teid: Option<u32>) -> Far {
    let v4 = Some("192.0.2.1".parse().unwrap());
    let outer = teid.map(|teid| OuterHeader { teid: Some(teid), v4, v6: None, port: None });
    let forwarding =
        Forwarding { destination, instance: None, outer, marking: None, redirect: None };
    Far {
        id,
        actions: actions(words),
        forwarding: Some(forwarding),
        duplicating: Vec::new(),
        bar: None,
        end_markers: Vec::new(),
    }
}

pub(super) fn qer(id: u32, line: u32) -> Qer {
    Qer {
        id,
        correlation: None,
        uplink: Gate::Open,
        downlink: Gate::Open,
        maximum: Some(Rate { uplink: 1_000_000, downlink: 1_000_000 }),
        guaranteed: None,
        qfi: Some(9),
        reflective: false,
        paging_policy: None,
        window_ms: None,
        line,
    }
}

pub(super) fn urr(id: u32, line: u32) -> Urr {
    Urr {
        id,
        measure: Measure { volume: true, ..Measure::default() },
        progress: Progress { line, ..Progress::default() },
        ..Urr::default()
    }
}

pub(super) fn tunnel(teid: u32) -> LocalTunnel {
    LocalTunnel { teid, v4: None, v6: None, is_ours: true, choose_id: None }
}

/// Returns session 7 with two PDRs, two FARs, a QER and a URR.
pub(super) fn typical() -> Session {
    let mut session = crate::store::typical(7);
    session.id = SessionIndex(7);
    session.version = 5;
    session.discarded = 0;
    let user = Some(UserAddress { v4: Some([10, 0, 0, 1].into()), ..UserAddress::default() });
    let mut up = pdr(1, Source::Access, 1);
    up.tunnel = Some(tunnel(0x1007));
    up.removal = Some(Removal { description: 0, extension: true });
    let mut down = pdr(2, Source::Core, 2);
    for pdr in [&mut up, &mut down] {
        (pdr.user, pdr.qers, pdr.urrs) = (user, vec![1], vec![1]);
    }
    session.pdrs = vec![up, down];
    session.fars = vec![
        far(1, "forward", Destination::Core, None),
        far(2, "forward", Destination::Access, Some(0x55)),
    ];
    (session.qers, session.urrs) = (vec![qer(1, 7)], vec![urr(1, 7)]);
    session.bars = Vec::new();
    session
}

impl RuleFixture {
    pub(super) fn of(session: Session) -> Self {
        let memory = Spec::state::<WORDS>("state", 512, 0).create().unwrap();
        let state = State::attach(&memory).unwrap().lane(0);
        let empty = Self { session, rules: Rules::empty(0), blocks: Vec::new(), state };
        let session = empty.session.clone();
        empty.become_of(session)
    }

    /// Replaces the rules; the counters stay.
    pub(super) fn become_of(self, session: Session) -> Self {
        let mut compiled = compile(&session, &context()).unwrap();
        let indices: Vec<u32> = (0..compiled.blocks.len() as u32).collect();
        compiled.link(&indices);
        let (rules, blocks) = (compiled.rules, compiled.blocks);
        Self { session, rules, blocks, ..self }
    }

    /// Compiles the session into blocks by adding a network behind the UE.
    pub(super) fn in_blocks(self) -> Self {
        let mut session = self.session.clone();
        let network = Prefix::new([172, 16, 0, 0].into(), 24).unwrap();
        session.pdrs.iter_mut().for_each(|pdr| pdr.framed.push(network));
        self.become_of(session)
    }

    /// Returns the classifier of the session's packets.
    pub(super) fn classifier<'t>(
        &'t self,
        blocks: &'t [Block],
        now: u64,
    ) -> Classifier<'t, 't, &'t [Block]> {
        let Self { rules, state, .. } = self;
        Classifier { rules, session: self.session.id, blocks, state, now }
    }

    pub(super) fn decide(&self, fields: &PacketFields, now: u64) -> Decision<'_> {
        let id = self.session.id;
        let classifier = self.classifier(&self.blocks, now);
        let before = self.words(id.0);
        let decision = classifier.decide(fields);
        if self.rules.has_blocks()
            && let Some(short) = classifier.decide_by_block(fields)
        {
            let ForwardDecision { path, direction, charge } = short;
            let found = (Action::Forward(path), direction, charge, 0);
            let expected = (decision.action, decision.direction, decision.charge, decision.events);
            assert_eq!(found, expected, "the short path decides as the long one");
        }
        if !matches!(decision.action, Action::Forward(_)) {
            return decision;
        }
        assert_eq!(self.words(id.0)[..7], before[..7], "it has not left yet");
        let check = classifier.passes(decision.charge);
        if let Some(reason) = check.refused {
            let ChargeResult { pdr, events, slot, .. } = check;
            return Decision { action: Action::Drop(reason), pdr, events, slot, ..decision };
        }
        assert_eq!(self.words(id.0)[..7], before[..7], "nor has it been charged");
        let charged = classifier.charge(decision.charge);
        assert_eq!(charged.refused, None);
        let all = [charged, check, decision.into()];
        let events = all.iter().fold(0, |events, it| events | it.events);
        let slot = all.iter().find(|it| it.events != 0).map_or(0, |it| it.slot);
        Decision { events, slot, ..decision }
    }

    /// Returns true if a packet finds the session. The simple form does not compare an address that
    /// the lookup has matched.
    pub(super) fn finds(&self, fields: &PacketFields) -> bool {
        if self.rules.has_blocks() || fields.tunnel.is_some() {
            return true;
        }
        let is_core = |pdr: &&Pdr| matches!(pdr.source, Source::Core | Source::SgiLan);
        let of_core = |pdr: &&Pdr| is_core(pdr) && pdr.tunnel.is_none();
        let (family, bits) = (fields.family, fields.destination);
        let mut pdrs = self.session.pdrs.iter().filter(of_core);
        pdrs.all(|pdr| {
            let user = pdr.user.unwrap_or_default();
            let v4 = user.v4.map(|it| AddressPrefix::new(it.into(), 32));
            let v6 = user.v6.map(|(it, length)| AddressPrefix::new(it.into(), length));
            let framed = pdr.framed.iter().map(|it| AddressPrefix::new(it.address, it.length));
            let mut all = v4.into_iter().chain(v6).chain(framed).peekable();
            all.peek().is_none() || all.any(|it| it.holds(family, bits))
        })
    }

    pub(super) fn words(&self, line: u32) -> [u64; WORDS] {
        let words = self.state.at(fastlane::table::EntryId(line));
        std::array::from_fn(|word| words.get(word))
    }

    pub(super) fn counters(&self, line: u32) -> [u64; 4] {
        let words = self.words(line);
        [
            counter_slots::UPLINK_OCTETS,
            counter_slots::UPLINK_PACKETS,
            counter_slots::DOWNLINK_OCTETS,
            counter_slots::DOWNLINK_PACKETS,
        ]
        .map(|word| words[word])
    }

    pub(super) fn uplink(&self) -> PacketFields {
        PacketFields {
            tunnel: Some(0x1007),
            instance: 0,
            qfi: Some(9),
            family: 4,
            source: 0x0A00_0001 << 96,
            destination: 0x0808_0808 << 96,
            protocol: 17,
            tos: 0,
            ports: Ports::Known(1000, 53),
            spi: None,
            flow_label: 0,
            length: 100,
        }
    }

    pub(super) fn downlink(&self) -> PacketFields {
        let PacketFields { source, destination, .. } = self.uplink();
        PacketFields { tunnel: None, source: destination, destination: source, ..self.uplink() }
    }
}
