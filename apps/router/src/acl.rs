//! Access list: rules over addresses, protocol and ports.
//!
//! The slow half (`router acl`) compiles a list for a classifier, the table `acl`. A burst of
//! packets sees the old list or the new one, never a part of each. How often each rule was met is
//! lane state of the same table, under a number that belongs to the rule.

use std::net::IpAddr;

use fastlane::table::MeterProfile;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Outcome;

pub mod command;
pub mod compiled;
mod meter_text;
pub mod police;
mod slow;
pub mod text;

/// Values of [`Rule::family`] and [`Rule::action`].
pub(crate) mod word {
    pub(crate) const ANY: u8 = 0;
    pub(crate) const IPV4: u8 = 4;
    pub(crate) const IPV6: u8 = 6;
    pub(crate) const PERMIT: u8 = 1;
    pub(crate) const DROP: u8 = 2;
    /// Permits or drops by a meter.
    pub(crate) const POLICE: u8 = 3;
}

/// One rule. IPv4 addresses are in the first four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Rule {
    pub(crate) source: [u8; 16],
    pub(crate) source_mask: [u8; 16],
    pub(crate) destination: [u8; 16],
    pub(crate) destination_mask: [u8; 16],
    /// First and last port of each range.
    pub(crate) source_ports: [u16; 2],
    pub(crate) destination_ports: [u16; 2],
    /// Priority: the matching rule with the lowest decides.
    pub(crate) priority: u32,
    /// Counter index in the lane state.
    pub(crate) counter: u32,
    /// Value of the counter when the rule was created, which is subtracted.
    pub(crate) before: [u64; 2],
    pub(crate) family: u8,
    /// IP protocol, if `has_protocol`.
    pub(crate) protocol: u8,
    pub(crate) has_protocol: u8,
    pub(crate) action: u8,
    /// 1 if the meter considers the DSCP of packets.
    pub(crate) is_aware: u8,
    pub(crate) reserved: [u8; 3],
    /// Meter of a rule with `word::POLICE`: rates and bursts, and its index.
    pub(crate) profile: MeterProfile,
    pub(crate) meter: MeterId,
}

/// Meter of a rule: index of its words in the table `police`, and a number that no other rule had.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct MeterId {
    pub(crate) index: u32,
    pub(crate) reserved: u32,
    /// Words with another number are those of an earlier rule.
    pub(crate) epoch: u64,
}

/// A list of rules in order of priority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSet {
    /// Counter index for the next rule.
    pub(crate) next_counter: u32,
    /// Number of meters that rules have had so far.
    pub(crate) epochs: u64,
    /// Action for packets that match no rule: `word::DROP`; any other value permits.
    pub(crate) default: u8,
    pub(crate) rules: Vec<Rule>,
}

/// Fields of a packet that rules match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    family: u8,
    protocol: u8,
    source: u128,
    destination: u128,
    /// Source and destination port; `None` if unknown.
    ports: Option<[u16; 2]>,
}

impl Flow {
    /// Creates the match fields of a packet; `ports` is `None` if they are unknown.
    #[must_use]
    #[inline]
    pub fn new(source: IpAddr, destination: IpAddr, protocol: u8, ports: Option<[u16; 2]>) -> Self {
        let family = if source.is_ipv4() { word::IPV4 } else { word::IPV6 };
        Self { family, protocol, source: bits(source), destination: bits(destination), ports }
    }
}

/// Verdict of an access list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The packet may pass.
    Permit,
    /// The packet may pass if the meter of the rule says so.
    Police,
    /// The packet is dropped, also if the list cannot decide.
    Drop(Outcome),
}

#[inline]
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Result of matching a rule.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    No,
    Yes,
    /// Depends on the ports, which are unknown.
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
    /// Returns the rules in order of priority.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Sets the rules, in any order.
    pub(crate) fn set_rules(&mut self, mut rules: Vec<Rule>) -> Result<(), String> {
        rules.sort_by_key(|rule| rule.priority);
        let mut pairs = rules.windows(2);
        if let Some(pair) = pairs.find(|pair| pair[0].priority == pair[1].priority) {
            return Err(format!("priority {} is there twice; each has one rule", pair[0].priority));
        }
        self.rules = rules;
        Ok(())
    }

    /// Returns the verdict for a packet and the rule that decided, if any. A packet with unknown
    /// ports is dropped if rules with ports would decide differently; otherwise fragments would
    /// bypass the list. It goes through the rules one by one: the reference for the compiled list.
    #[must_use]
    pub fn decide(&self, flow: &Flow) -> (Action, Option<&Rule>) {
        let mut perhaps = None;
        let mut decided =
            (if self.default == word::DROP { word::DROP } else { word::PERMIT }, None);
        for rule in self.rules() {
            match rule.fit(flow) {
                Fit::No => {}
                // Two meters never decide alike.
                Fit::Maybe
                    if rule.action != word::POLICE
                        && perhaps.is_none_or(|before| before == rule.action) =>
                {
                    perhaps = Some(rule.action);
                }
                Fit::Maybe => return (Action::Drop(Outcome::AclNoPorts), None),
                Fit::Yes => {
                    decided = (rule.action, Some(rule));
                    break;
                }
            }
        }
        let (action, rule) = decided;
        match (perhaps, action) {
            (Some(other), _) if other != action => (Action::Drop(Outcome::AclNoPorts), None),
            (_, word::DROP) => (Action::Drop(Outcome::AclDrop), rule),
            (_, word::POLICE) => (Action::Police, rule),
            _ => (Action::Permit, rule),
        }
    }
}

#[cfg(test)]
mod tests;
