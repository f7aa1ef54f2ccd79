//! Who may send what where: a list of rules over addresses, protocol and ports.
//!
//! A list is one immutable value behind one word of the table `acl` (a record), so a burst of
//! packets sees the old list or the new one, never a part of each. The slow half writes it (`router
//! acl`); how often each rule was met is lane state of the same table, under a number that belongs
//! to the rule.

use std::net::IpAddr;

use fastlane::Turn;
use fastlane::table::{LaneState, RecordReader};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::Cause;
use crate::counts;

pub mod command;
mod slow;
pub mod text;

/// The most rules of a list: they are gone through one by one.
pub const RULES: usize = 256;

/// [`Rule::family`], [`Rule::action`]: what the words mean.
pub(crate) mod word {
    pub(crate) const ANY: u8 = 0;
    pub(crate) const IPV4: u8 = 4;
    pub(crate) const IPV6: u8 = 6;
    pub(crate) const PERMIT: u8 = 1;
    pub(crate) const DROP: u8 = 2;
}

/// One rule. Of an IPv4 address only the first four octets count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Rule {
    pub(crate) source: [u8; 16],
    pub(crate) source_mask: [u8; 16],
    pub(crate) destination: [u8; 16],
    pub(crate) destination_mask: [u8; 16],
    /// The first and the last port of each range.
    pub(crate) source_ports: [u16; 2],
    pub(crate) destination_ports: [u16; 2],
    /// Its place among the rules: the lowest that fits decides.
    pub(crate) priority: u32,
    /// Its number in the lane state.
    pub(crate) counter: u32,
    /// What the lane state held under this number when the rule was made: not this rule's.
    pub(crate) before: [u64; 2],
    pub(crate) family: u8,
    /// The protocol, if `has_protocol`.
    pub(crate) protocol: u8,
    pub(crate) has_protocol: u8,
    pub(crate) action: u8,
    pub(crate) reserved: [u8; 4],
}

/// A list of rules, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RuleSet {
    pub(crate) count: u32,
    /// The number for the lane state that the next rule gets.
    pub(crate) next_counter: u32,
    /// What becomes of packets that no rule fits: `word::DROP`, else they are permitted.
    pub(crate) default: u8,
    pub(crate) reserved: [u8; 7],
    pub(crate) rules: [Rule; RULES],
}

/// What a list looks at in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    family: u8,
    protocol: u8,
    source: u128,
    destination: u128,
    /// `None`: not seen.
    ports: Option<[u16; 2]>,
}

impl Flow {
    /// Of a packet between these addresses; without `ports` they are not known.
    #[must_use]
    #[inline]
    pub fn new(source: IpAddr, destination: IpAddr, protocol: u8, ports: Option<[u16; 2]>) -> Self {
        let family = if source.is_ipv4() { word::IPV4 } else { word::IPV6 };
        Self { family, protocol, source: bits(source), destination: bits(destination), ports }
    }
}

/// What a list says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It may pass.
    Permit,
    /// It may not, or it cannot be said, so that it may not either.
    Drop(Cause),
}

#[inline]
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// How well a rule fits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    No,
    Yes,
    /// It depends on the ports, which are not known.
    Maybe,
}

impl Rule {
    #[inline]
    fn fit(&self, flow: &Flow) -> Fit {
        let covers = |prefix: [u8; 16], mask: [u8; 16], address: u128| {
            (u128::from_be_bytes(prefix) ^ address) & u128::from_be_bytes(mask) == 0
        };
        let fits = (self.family == word::ANY || self.family == flow.family)
            && (self.has_protocol == 0 || self.protocol == flow.protocol)
            && covers(self.source, self.source_mask, flow.source)
            && covers(self.destination, self.destination_mask, flow.destination);
        if !fits {
            return Fit::No;
        }
        if !self.asks_for_ports() {
            return Fit::Yes;
        }
        let within = |[first, last]: [u16; 2], port: u16| (first..=last).contains(&port);
        match flow.ports {
            None => Fit::Maybe,
            Some([source, destination]) => {
                match within(self.source_ports, source)
                    && within(self.destination_ports, destination)
                {
                    true => Fit::Yes,
                    false => Fit::No,
                }
            }
        }
    }

    #[inline]
    pub(crate) fn asks_for_ports(&self) -> bool {
        [self.source_ports, self.destination_ports] != [[0, u16::MAX]; 2]
    }
}

impl RuleSet {
    /// A list without rules, which permits everything.
    #[must_use]
    pub fn empty() -> Self {
        Self::new_zeroed()
    }

    /// The rules, the most important first.
    #[must_use]
    #[inline]
    pub fn rules(&self) -> &[Rule] {
        &self.rules[..(self.count as usize).min(RULES)]
    }

    /// Puts a rule at its place.
    pub(crate) fn insert(&mut self, rule: Rule) -> Result<(), String> {
        let place = self.rules().partition_point(|other| other.priority < rule.priority);
        if self.rules().get(place).is_some_and(|other| other.priority == rule.priority) {
            return Err(format!("priority {} is there twice; each has one rule", rule.priority));
        }
        let count = self.rules().len();
        if count == RULES {
            return Err(format!("there are more than {RULES} rules; join some"));
        }
        self.rules.copy_within(place..count, place + 1);
        self.rules[place] = rule;
        self.count += 1;
        Ok(())
    }

    /// What becomes of a packet, and the rule that decided, if one did. Where rules ask for ports
    /// that are not known and would not all decide alike, nobody knows: it is dropped, or whoever
    /// sends fragments would get past the list.
    #[must_use]
    #[inline]
    pub fn decide(&self, flow: &Flow) -> (Action, Option<&Rule>) {
        let mut perhaps = None;
        let mut decided = (self.default == word::DROP, None);
        for rule in self.rules() {
            let drops = rule.action == word::DROP;
            match rule.fit(flow) {
                Fit::No => {}
                Fit::Maybe if perhaps.is_none_or(|before| before == drops) => perhaps = Some(drops),
                Fit::Maybe => return (Action::Drop(Cause::AclNoPorts), None),
                Fit::Yes => {
                    decided = (drops, Some(rule));
                    break;
                }
            }
        }
        let (drops, rule) = decided;
        match perhaps {
            Some(other) if other != drops => (Action::Drop(Cause::AclNoPorts), None),
            _ if drops => (Action::Drop(Cause::AclDrop), rule),
            _ => (Action::Permit, rule),
        }
    }
}

/// The list as a lane reads it, and the counters of its rules.
#[derive(Clone, Debug)]
pub struct AccessList {
    record: RecordReader<RuleSet>,
    hits: LaneState<2>,
}

impl AccessList {
    /// The list in a record; how often a rule was met is counted in `hits`.
    #[must_use]
    pub fn new(record: RecordReader<RuleSet>, hits: LaneState<2>) -> Self {
        Self { record, hits }
    }

    /// The list as it is now; `None` while there is none.
    #[inline]
    pub(crate) fn rules<'t>(&'t self, turn: &'t Turn) -> Option<&'t RuleSet> {
        self.record.get(turn).filter(|rules| rules.count > 0 || rules.default == word::DROP)
    }

    #[inline]
    pub(crate) fn decide(&self, rules: &RuleSet, flow: &Flow, octets: u64) -> Action {
        let (action, rule) = rules.decide(flow);
        if let Some(rule) = rule {
            counts::add(&self.hits, rule.counter, 1, octets);
        }
        action
    }
}

#[cfg(test)]
mod tests;
