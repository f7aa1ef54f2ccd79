//! Configuration that the rules of all sessions depend on.

use std::collections::BTreeMap;

use crate::config::nat_plan::NatPlan;
use crate::config::{Predefined, Settings};
use crate::rules::layout::TeidLayout;
use crate::rules::layout::session_rules::{LAYOUT, VERSION};
use crate::session::{FlowDescription, FlowError, Network, Session};

/// A predefined rule with parsed flow descriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredefinedRule {
    /// Precedence; the lowest value is evaluated first.
    pub precedence: u32,
    /// Flow descriptions, one of which must match if there are any.
    pub flows: Vec<FlowDescription>,
    /// True if its packets are dropped.
    pub drop: bool,
    /// QoS flow that downlink packets are marked with.
    pub qfi: Option<u8>,
}

/// Configuration that rules depend on.
#[derive(Clone, Debug)]
pub struct Context {
    /// Layout of TEIDs.
    pub shape: TeidLayout,
    /// Network instances and interfaces.
    pub network: Network,
    /// Predefined rules by name.
    pub predefined: BTreeMap<String, PredefinedRule>,
    /// Maximum number of held packets of a session, unless its BAR has a lower limit.
    pub held_packets: u32,
    /// Maximum hold time in ms, unless the control plane function sets another one.
    pub held_ms: u64,
    /// NAT of N6.
    pub nat: NatPlan,
}

impl Context {
    /// Creates the context of a configuration.
    ///
    /// # Errors
    /// Returns the name of a predefined rule with an invalid flow description, and the error.
    pub fn new(settings: &Settings) -> Result<Self, (String, FlowError)> {
        let read = |(name, rule): (&String, &Predefined)| {
            let rule = PredefinedRule::new(rule).map_err(|error| (name.clone(), error))?;
            Ok((name.clone(), rule))
        };
        Ok(Self {
            shape: TeidLayout::of(settings.session_room() as usize),
            network: settings.network(),
            predefined: settings.predefined.iter().map(read).collect::<Result<_, _>>()?,
            held_packets: settings.limits.held_packets,
            held_ms: settings.limits.held_ms,
            nat: NatPlan::new(settings),
        })
    }

    /// Returns a hash of the context and the layout of rules. If it changes, sessions are compiled
    /// anew.
    #[must_use]
    pub fn fingerprint(&self) -> u32 {
        // FNV-1a over the debug text, which is the same on every machine.
        let text = format!("{LAYOUT} {VERSION} {self:?}");
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
        (hash ^ hash >> 32) as u32
    }

    /// Returns the maximum number of held packets of a session and their time in ms, by a BAR.
    pub(super) fn hold(&self, session: &Session, bar: Option<u8>) -> (u16, u32) {
        let bar = bar.and_then(|id| session.bars.iter().find(|bar| bar.id == id));
        let packets = bar.and_then(|bar| bar.packets).unwrap_or(self.held_packets);
        let packets = packets.min(self.held_packets);
        let ms = bar.and_then(|bar| bar.duration_ms).unwrap_or(self.held_ms);
        (u16::try_from(packets).unwrap_or(u16::MAX), u32::try_from(ms).unwrap_or(u32::MAX))
    }
}

impl PredefinedRule {
    fn new(rule: &Predefined) -> Result<Self, FlowError> {
        let flows = rule.flows.iter().map(|flow| FlowDescription::parse(flow));
        let flows = flows.collect::<Result<_, _>>()?;
        let Predefined { precedence, drop, qfi, .. } = *rule;
        Ok(Self { precedence, flows, drop, qfi })
    }
}
