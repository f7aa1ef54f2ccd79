//! A rule, read for what it does to packets of connections that may be fast.

use std::fmt;

use fastlane_netlink::{attribute, attributes, text};

mod jump;
mod nft_set;
mod verdict_map;
mod volume;

pub(super) use jump::Jump;
pub(super) use nft_set::NftSets;
use nft_set::{TableSets, element_effect, object_effect};
pub(super) use verdict_map::SetName;
use volume::VolumeUse;

use crate::flows::FlowPolicy;

/// Attributes of a rule (`NFTA_RULE_*`).
const TABLE: u16 = 1;
const CHAIN: u16 = 2;
const HANDLE: u16 = 3;
const EXPRESSIONS: u16 = 4;
/// Attributes of an expression, and of data in it (`NFTA_EXPR_*`, `NFTA_DATA_*`).
const NAME: u16 = 1;
const DATA: u16 = 2;
const VALUE: u16 = 1;
const VERDICT: u16 = 2;
/// Attribute with the key of `ct` and `meta`, and those with the register that they set, if they
/// do.
const KEY: u16 = 2;
const META_SOURCE: u16 = 3;
const CT_SOURCE: u16 = 4;
const PAYLOAD_SOURCE: u16 = 5;
/// `NFTA_BITWISE_MASK`, `NFTA_CMP_OP` and `NFTA_CMP_DATA`, `NFTA_IMMEDIATE_DATA`.
const MASK: u16 = 4;
const OPERATION: u16 = 2;
const COMPARED: u16 = 3;
const IMMEDIATE: u16 = 2;
const NOT_EQUAL: u32 = 1;
/// `NFTA_LOOKUP_SET` and `NFTA_DYNSET_SET_NAME`.
const SET: u16 = 1;
/// `NFTA_LOOKUP_DREG`: the lookup is in a map; and `NFT_REG_VERDICT`: it is one of verdicts.
const MAPPED: u16 = 3;
const VERDICTS: u32 = 0;
/// `NFTA_DYNSET_EXPR` and `NFTA_DYNSET_EXPRESSIONS`: expressions of the elements that it adds.
const ELEMENT: u16 = 7;
const ELEMENTS: u16 = 10;
/// `NFTA_OBJREF_IMM_TYPE`, and `NFTA_OBJREF_SET_NAME`: the object is that of a map's element.
const OBJECT: u16 = 1;
const OBJECTS: u16 = 4;
/// `NFTA_EXTHDR_DREG`, `NFTA_EXTHDR_TYPE`, `NFTA_EXTHDR_OP` and `NFTA_EXTHDR_SREG`.
const OPTION_LOADED: u16 = 1;
const OPTION: u16 = 2;
const OPTION_OF: u16 = 6;
const OPTION_SOURCE: u16 = 7;
/// Value of the operation for TCP options: `NFT_EXTHDR_OP_TCPOPT`.
const OF_TCP: u32 = 1;
/// TCP options of packets with SYN alone: maximum segment size, window scale, SACK permitted.
const SYN_OPTIONS: [u8; 3] = [2, 3, 4];
/// Verdicts `NF_DROP`, `NF_ACCEPT` and `NFT_RETURN`.
const DROP: u32 = 0;
const ACCEPT: u32 = 1;
const RETURN: u32 = 5_u32.wrapping_neg();
/// Key `NFT_CT_STATE`.
const STATE: u32 = 0;
/// Keys of `meta`: `NFT_META_MARK`, which the routing rules decide about, and `NFT_META_NFTRACE`;
/// `NFT_META_PRANDOM`, and those of time.
const HARMLESS: [u32; 2] = [3, 12];
const RANDOM: u32 = 24;
const TIME: std::ops::RangeInclusive<u32> = 30..=32;
/// Bits of established and of new connections in a state of `ct`, of nftables and of xt_conntrack
/// alike.
pub(super) const ESTABLISHED: u32 = 1 << 1;
pub(super) const NEW: u32 = 1 << 3;
/// Expressions whose presence is enough.
const EFFECTS: [&str; 7] = ["limit", "log", "quota", "queue", "dup", "fwd", "numgen"];
/// Matches and targets of iptables-nft whose presence is enough.
const MATCHES: [&str; 8] =
    ["limit", "hashlimit", "quota", "statistic", "time", "connbytes", "recent", "rateest"];
const TARGETS: [&str; 11] = [
    "LOG",
    "NFLOG",
    "NFQUEUE",
    "DSCP",
    "TOS",
    "TTL",
    "HL",
    "CLASSIFY",
    "TEE",
    "ECN",
    "TCPOPTSTRIP",
];
/// Offsets of flags, inverted flags and states in `struct xt_conntrack_mtinfo3`.
const CONNTRACK_FLAGS: usize = 146;
const CONNTRACK_INVERTED: usize = 148;
const CONNTRACK_STATES: usize = 150;

/// Rule that acts on each packet of connections that may be fast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerPacketRule {
    /// Expression that does.
    pub what: String,
    /// Table and chain of the rule.
    pub place: ChainName,
    /// Number of the rule, as `nft -a list ruleset` shows it.
    pub handle: u64,
}

impl fmt::Display for PerPacketRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, place: ChainName { table, chain, .. }, handle } = self;
        write!(f, "`{what}` in rule {handle} of chain `{chain}`, table `{table}`")
    }
}

/// Name of a chain with its table and family (`NFPROTO_*`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChainName {
    /// Family of the table.
    pub family: u8,
    /// Name of the table.
    pub table: String,
    /// Name of the chain.
    pub chain: String,
}

/// A rule, as far as packets of connections that may be fast are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NftRule {
    pub(super) place: ChainName,
    pub(super) handle: u64,
    /// Expression that acts on each packet.
    pub(super) effect: Option<String>,
    /// True if it drops packets.
    pub(super) drops: bool,
    /// True if their packets do not match.
    pub(super) is_for_others: bool,
    /// True if it accepts all of their packets.
    pub(super) accepts_all: bool,
    /// True if all of their packets match.
    pub(super) is_for_all: bool,
    /// Chains to which it leads.
    pub(super) jumps: Vec<Jump>,
    /// True if the way returns to the rule that has led to the chain.
    pub(super) returns: bool,
    /// Map of verdicts of which the elements are unknown.
    pub(super) unknown_map: Option<String>,
}

impl NftRule {
    /// Parses the attributes of a rule that may refer to these sets; `None` if its place is
    /// missing. `policy` says which connections may be fast.
    pub(super) fn read(
        family: u8,
        rule: &[u8],
        sets: &NftSets,
        policy: &FlowPolicy,
    ) -> Option<Self> {
        let fast = if policy.one_way { ESTABLISHED | NEW } else { ESTABLISHED };
        let name = |kind| attribute(rule, kind).map(text);
        let place = ChainName { family, table: name(TABLE)?, chain: name(CHAIN)? };
        let handle = attribute(rule, HANDLE).and_then(|it| it.first_chunk().copied());
        let sets = sets.of_table(family, &place.table);
        let (mut reading, mut volume) =
            (Reading { sets, fast, ..Reading::default() }, VolumeUse::default());
        let list = attribute(rule, EXPRESSIONS).unwrap_or_default();
        for (_, expression) in attributes(list) {
            let name = attribute(expression, NAME).map(text).unwrap_or_default();
            let data = attribute(expression, DATA).unwrap_or_default();
            reading.take(&name, data);
            volume.take(&name, data, policy);
        }
        if volume.acts() {
            reading.effect("ct bytes, packets or avgpkt");
        }
        Some(Self {
            place,
            handle: handle.map_or(0, u64::from_be_bytes),
            is_for_others: reading.states.is_some_and(|states| states & fast == 0),
            accepts_all: reading.is_for(reading.accepted) && reading.effect.is_none(),
            is_for_all: reading.is_for(u32::MAX) && !reading.leads_some,
            jumps: reading.jumps,
            returns: reading.returns,
            unknown_map: reading.unknown_map,
            drops: reading.drops,
            effect: reading.effect,
        })
    }
}

/// Expressions of a rule so far.
#[derive(Clone, Debug, Default)]
struct Reading<'a> {
    /// Sets of the table of the rule.
    sets: TableSets<'a>,
    /// States of connections that may be fast.
    fast: u32,
    effect: Option<String>,
    /// States of connections for which it is, if it looks at nothing but them.
    states: Option<u32>,
    /// The last expression loaded the state of the connection.
    is_state: bool,
    /// Mask of the state that was loaded.
    mask: Option<u32>,
    /// It matches more than states.
    has_other_matches: bool,
    /// Map of verdicts of which the elements are unknown.
    unknown_map: Option<String>,
    jumps: Vec<Jump>,
    /// Packets of some states only go that way.
    leads_some: bool,
    returns: bool,
    /// States of connections whose packets it accepts.
    accepted: u32,
    drops: bool,
}

impl Reading<'_> {
    fn take(&mut self, name: &str, data: &[u8]) {
        let key = || attribute(data, KEY).and_then(be32);
        let (was_state, mask) = (std::mem::take(&mut self.is_state), self.mask.take());
        match name {
            "ct" if attribute(data, CT_SOURCE).is_some() => {}
            "ct" => self.is_state = key() == Some(STATE),
            "bitwise" if was_state => {
                self.mask =
                    attribute(data, MASK).and_then(|it| attribute(it, VALUE)).and_then(ne32);
            }
            "bitwise" | "counter" | "last" => {}
            "cmp" => self.compare(mask, data),
            "lookup" => {
                if attribute(data, MAPPED).and_then(be32) == Some(VERDICTS) {
                    self.look_up_verdict(data, was_state);
                } else {
                    self.has_other_matches = true;
                }
                self.look_up(data);
            }
            "dynset" => {
                self.has_other_matches = true;
                self.update(data);
            }
            "immediate" => {
                let verdict = attribute(data, IMMEDIATE).and_then(|it| attribute(it, VERDICT));
                self.jumps.extend(verdict.and_then(Jump::read));
                let verdict = verdict.and_then(|it| attribute(it, 1)).and_then(be32);
                self.accepted |= if verdict == Some(ACCEPT) { u32::MAX } else { 0 };
                self.drops |= verdict == Some(DROP);
                self.returns |= verdict == Some(RETURN);
            }
            "meta" if attribute(data, META_SOURCE).is_some() => {
                if key().is_none_or(|key| !HARMLESS.contains(&key)) {
                    self.effect("meta set");
                }
            }
            "meta" => {
                self.has_other_matches = true;
                if key().is_some_and(|key| TIME.contains(&key) || key == RANDOM) {
                    self.effect("meta time, day, hour or random");
                }
            }
            "payload" if attribute(data, PAYLOAD_SOURCE).is_some() => self.effect("payload set"),
            "exthdr" => {
                self.has_other_matches = true;
                self.change_option(data);
            }
            "objref" => self.refer(data),
            "match" => self.xtables(data, &MATCHES),
            "target" => self.xtables(data, &TARGETS),
            _ if is_effect(name) => self.effect(name),
            _ => self.has_other_matches = true,
        }
    }

    fn effect(&mut self, what: &str) {
        self.effect.get_or_insert_with(|| what.to_owned());
    }

    /// Takes the lookup of each packet in a set, which evaluates the expressions of the element.
    fn look_up(&mut self, data: &[u8]) {
        let set = attribute(data, SET).map(text).unwrap_or_default();
        if let Some(effect) = self.sets.of_set(&set) {
            self.effect(effect);
        }
    }

    /// Takes the lookup of the state of the connection, or of something else, in a map of verdicts.
    fn look_up_verdict(&mut self, data: &[u8], is_state: bool) {
        let name = attribute(data, SET).map(text).unwrap_or_default();
        self.has_other_matches |= !is_state;
        let Some(map) = self.sets.of_verdicts(&name) else {
            (self.has_other_matches, self.unknown_map) = (true, Some(name));
            return;
        };
        if !is_state {
            self.jumps.extend(map.jumps().cloned());
            return;
        }
        self.states = Some(map.states() & self.states.unwrap_or(u32::MAX));
        self.accepted |= map.accepted();
        let before = self.jumps.len();
        self.jumps.extend(map.jumps_of(self.fast).cloned());
        self.leads_some |= self.jumps.len() > before;
    }

    /// Takes the update of a set. The rule has expressions for its elements unless the set has.
    fn update(&mut self, data: &[u8]) {
        if let Some(expression) = element_effect(data, ELEMENT, ELEMENTS) {
            let set = attribute(data, SET).map(text).unwrap_or_default();
            self.effect(&format!("{expression} of set {set}"));
        }
        self.look_up(data);
    }

    /// Takes a reference to an object, or to a map of objects.
    fn refer(&mut self, data: &[u8]) {
        if let Some(map) = attribute(data, OBJECTS).map(text) {
            self.has_other_matches = true;
            if let Some(effect) = self.sets.of_map(&map) {
                self.effect(&effect);
            }
        } else if let Some(kind) = attribute(data, OBJECT).and_then(be32).and_then(object_effect) {
            self.effect(&format!("{kind} name"));
        }
    }

    /// Takes an expression for headers and options, and notes a TCP option that it sets or
    /// removes. Removal (`reset tcp option`) has no register.
    fn change_option(&mut self, data: &[u8]) {
        let is_of_tcp = attribute(data, OPTION_OF).and_then(be32) == Some(OF_TCP);
        let option = attribute(data, OPTION).and_then(<[u8]>::first);
        if option.is_some_and(|option| SYN_OPTIONS.contains(option)) {
            return;
        }
        if attribute(data, OPTION_SOURCE).is_some() {
            self.effect("tcp option set");
        } else if is_of_tcp && attribute(data, OPTION_LOADED).is_none() {
            self.effect("reset tcp option");
        }
    }

    /// Takes a comparison; `mask` is that of a state of which any bit must be set.
    fn compare(&mut self, mask: Option<u32>, data: &[u8]) {
        let operation = attribute(data, OPERATION).and_then(be32);
        let value = attribute(data, COMPARED).and_then(|it| attribute(it, VALUE)).and_then(ne32);
        match mask {
            Some(mask) if (operation, value) == (Some(NOT_EQUAL), Some(0)) => {
                self.states = Some(mask & self.states.unwrap_or(u32::MAX));
            }
            _ => self.has_other_matches = true,
        }
    }

    /// Takes a match or target of iptables.
    fn xtables(&mut self, data: &[u8], effects: &[&str]) {
        const NAME: u16 = 1;
        const INFO: u16 = 3;
        let name = attribute(data, NAME).map(text).unwrap_or_default();
        let info = attribute(data, INFO).unwrap_or_default();
        let half = |at: usize| {
            info.get(at..).and_then(|it| it.first_chunk()).map(|it| u16::from_ne_bytes(*it))
        };
        if effects.contains(&name.as_str()) {
            self.effect(&name);
        } else if name == "conntrack"
            && (half(CONNTRACK_FLAGS), half(CONNTRACK_INVERTED)) == (Some(1), Some(0))
        {
            self.states = half(CONNTRACK_STATES).map(u32::from);
        } else {
            self.has_other_matches = true;
        }
    }

    /// Returns true if packets of all fast connections match, of those with these states.
    fn is_for(&self, states: u32) -> bool {
        let matched = states & self.states.unwrap_or(u32::MAX);
        matched & self.fast == self.fast && !self.has_other_matches
    }
}

/// Returns true if the presence of this expression is enough.
fn is_effect(name: &str) -> bool {
    EFFECTS.contains(&name)
}

/// Reads a number in network order, as nftables has them outside of registers.
pub(super) fn be32(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// Reads a number in the order of this machine, as registers have it.
fn ne32(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests;
