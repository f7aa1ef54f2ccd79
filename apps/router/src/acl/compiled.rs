//! Compiled access list, as lanes read it.
//!
//! A packet without known ports must not get past rules with ports, so the list asks more of it
//! than its first rule. Each entry of the classifier has a range of tags, and a packet is looked up
//! with:
//!
//! | tag | entries |
//! |---|---|
//! | `WITH_PORTS` | all, for a packet whose ports are known |
//! | `NO_PORTS` | those of rules that match no ports |
//! | `PERMITS`, `DROPS`, `POLICES` | those of rules that match ports, by action, with any ports |

use std::net::{Ipv4Addr, Ipv6Addr};

use fastlane::table::{
    ClassifierReader, Colour, CurrentRules, FlowAddress, FlowKey, FlowMatch, Guard, LaneState,
    MeterProfile, Prefix, RuleList,
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::police::{self, Arrival, Meter};
use super::{Action, MeterId, Rule, RuleSet, word};
use crate::Outcome;
use crate::counts;

const WITH_PORTS: u8 = 0;
const NO_PORTS: u8 = 1;
const PERMITS: u8 = 2;
const DROPS: u8 = 3;
const POLICES: u8 = 4;

/// Entry of the compiled list: the decision of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Decision {
    /// Position of the rule in the list.
    order: u32,
    /// Counter index in the lane state; `u32::MAX` for the default.
    counter: u32,
    action: u8,
    is_aware: u8,
    reserved: [u8; 6],
    /// Meter of a rule that polices, and the lane's share of its rates.
    meter: MeterId,
    profile: MeterProfile,
}

/// Header of the stored form of a list. Its rules follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Stored {
    next_counter: u32,
    default: u8,
    reserved: [u8; 3],
    epochs: u64,
}

impl RuleSet {
    /// Returns the form in which a list is stored in its table.
    pub(crate) fn store(&self) -> Vec<u8> {
        let Self { next_counter, default, epochs, .. } = *self;
        let header = Stored { next_counter, default, reserved: [0; 3], epochs };
        [header.as_bytes(), self.rules.as_bytes()].concat()
    }

    /// Reads the form in which a list is stored; anything else is an empty list.
    pub(crate) fn restore(stored: &[u8]) -> Self {
        let Ok((header, rest)) = Stored::read_from_prefix(stored) else { return Self::default() };
        let rules = rest.chunks_exact(size_of::<Rule>());
        let rules = rules.filter_map(|rule| Rule::read_from_bytes(rule).ok()).collect();
        let Stored { next_counter, default, epochs, .. } = header;
        Self { next_counter, epochs, default, rules }
    }

    /// Calls `replace` with the list as a classifier of `lanes` lanes has it.
    pub fn compile<T>(
        &self,
        lanes: usize,
        replace: impl FnOnce(&RuleList<'_, Decision>) -> T,
    ) -> T {
        let ipv4 = self.entries(lanes, word::IPV4, |bits| Ipv4Addr::from_bits((bits >> 96) as u32));
        let ipv6 = self.entries(lanes, word::IPV6, Ipv6Addr::from_bits);
        replace(&RuleList { ipv4: &ipv4, ipv6: &ipv6, source: &self.store() })
    }

    fn entries<A: FlowAddress>(
        &self,
        lanes: usize,
        family: u8,
        address: impl Fn(u128) -> A,
    ) -> Vec<(FlowMatch<A>, Decision)> {
        let mut entries = Vec::with_capacity(self.rules.len() + 1);
        for (rule, order) in self.rules.iter().zip(0..) {
            if rule.family != word::ANY && rule.family != family {
                continue;
            }
            let prefix = |address_: [u8; 16], mask: [u8; 16]| {
                let length = u128::from_be_bytes(mask).leading_ones() as u8;
                Prefix::new(address(u128::from_be_bytes(address_)), length.min(A::BITS))
            };
            let sides = prefix(rule.source, rule.source_mask)
                .zip(prefix(rule.destination, rule.destination_mask));
            let Some((source, destination)) = sides else { continue };
            let protocols = if rule.has_protocol == 1 { [rule.protocol; 2] } else { [0, u8::MAX] };
            let any = FlowMatch { source, destination, protocols, ..FlowMatch::any() };
            let decision = Decision {
                order,
                counter: rule.counter,
                action: rule.action,
                is_aware: rule.is_aware,
                reserved: [0; 6],
                meter: rule.meter,
                profile: rule.profile.share_of(lanes),
            };
            if rule.asks_for_ports() {
                let (source_ports, destination_ports) = (rule.source_ports, rule.destination_ports);
                let tags = [WITH_PORTS; 2];
                entries
                    .push((FlowMatch { source_ports, destination_ports, tags, ..any }, decision));
                let tag = match rule.action {
                    word::DROP => DROPS,
                    word::POLICE => POLICES,
                    _ => PERMITS,
                };
                entries.push((FlowMatch { tags: [tag; 2], ..any }, decision));
            } else {
                entries.push((FlowMatch { tags: [WITH_PORTS, NO_PORTS], ..any }, decision));
            }
        }
        if self.default == word::DROP {
            let decision = Decision {
                order: u32::MAX,
                counter: u32::MAX,
                action: word::DROP,
                ..Decision::new_zeroed()
            };
            let tags = [WITH_PORTS, NO_PORTS];
            entries.push((FlowMatch { tags, ..FlowMatch::any() }, decision));
        }
        entries
    }
}

/// Returns the number of entries of each family for a list of up to `rules` rules.
#[must_use]
pub fn entries(rules: usize) -> usize {
    2 * rules.max(LEAST_RULES) + 1
}

/// Number of rules for which there is always room.
const LEAST_RULES: usize = 256;

/// Access list as a lane reads it, with the counters of its rules.
#[derive(Clone, Debug)]
pub struct AccessList {
    classifier: ClassifierReader<Decision>,
    hits: LaneState<2>,
    meters: Option<LaneState<{ police::WORDS }>>,
}

impl AccessList {
    /// Creates an access list from a classifier; matches are counted in `hits`.
    #[must_use]
    pub fn new(classifier: ClassifierReader<Decision>, hits: LaneState<2>) -> Self {
        Self { classifier, hits, meters: None }
    }

    /// Polices packets with these meters. Without them every packet of a `police` rule is dropped.
    #[must_use]
    pub fn with_meters(self, meters: LaneState<{ police::WORDS }>) -> Self {
        Self { meters: Some(meters), ..self }
    }

    /// Returns the current list, for the packets of a batch.
    #[inline]
    pub(crate) fn current<'t, G: AsRef<Guard>>(
        &'t self,
        turn: &'t G,
    ) -> CurrentRules<'t, Decision> {
        self.classifier.current(turn)
    }

    /// Decides about a packet for which a lookup in `rules` found `decision`, and counts it. `now`
    /// is asked only if the packet is metered.
    #[inline]
    pub(crate) fn decide<A: FlowAddress>(
        &self,
        rules: &CurrentRules<'_, Decision>,
        key: &FlowKey<A>,
        decision: Option<&Decision>,
        packet: Arrival,
        now: impl FnOnce() -> u64,
    ) -> Action {
        if key.tag == NO_PORTS && depends_on_ports(rules, key, decision) {
            return Action::Drop(Outcome::AclNoPorts);
        }
        let Some(decision) = decision else { return Action::Permit };
        counts::add(&self.hits, decision.counter, 1, packet.octets);
        match decision.action {
            word::DROP => Action::Drop(Outcome::AclDrop),
            word::POLICE => match self.colour(decision, packet, now()) {
                Colour::Green | Colour::Yellow => Action::Police,
                Colour::Red => Action::Drop(Outcome::AclPolice),
            },
            _ => Action::Permit,
        }
    }

    fn colour(&self, decision: &Decision, packet: Arrival, now: u64) -> Colour {
        let Some(meters) = &self.meters else { return Colour::Red };
        let is_aware = decision.is_aware == 1;
        let meter = Meter { id: decision.meter, profile: decision.profile, is_aware };
        meter.meter(meters, packet, now)
    }
}

/// Returns true if rules with ports would decide differently about a packet whose ports are
/// unknown.
fn depends_on_ports<A: FlowAddress>(
    rules: &CurrentRules<'_, Decision>,
    key: &FlowKey<A>,
    decision: Option<&Decision>,
) -> bool {
    let order = decision.map_or(u32::MAX, |decision| decision.order);
    let action = decision.map_or(word::PERMIT, |decision| decision.action);
    let [permits, drops, polices] = [PERMITS, DROPS, POLICES].map(|tag| {
        let first = rules.lookup(&FlowKey { tag, ..*key });
        first.is_some_and(|first| first.order < order)
    });
    // Two meters never decide alike.
    polices || permits && (drops || action != word::PERMIT) || drops && action != word::DROP
}

/// Returns the key of a packet; `ports` is `None` if they are unknown.
#[inline(always)]
pub(crate) fn key<A: FlowAddress>(
    source: A,
    destination: A,
    protocol: u8,
    ports: Option<[u16; 2]>,
) -> FlowKey<A> {
    let tag = if ports.is_some() { WITH_PORTS } else { NO_PORTS };
    let [source_port, destination_port] = ports.unwrap_or_default();
    FlowKey { source, destination, source_port, destination_port, protocol, tag }
}
