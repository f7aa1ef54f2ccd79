//! What compiling needs to know besides the session.

use std::collections::BTreeMap;

use crate::config::{Predefined, Role, Settings};
use crate::rules::layout::identifier::TeidShape;
use crate::session::{FlowDescription, FlowError, InstanceId, Session};

/// A predefined rule, its flow descriptions read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredefinedRule {
    /// The lowest value is looked at first.
    pub precedence: u32,
    /// If there are any, one of them must match.
    pub flows: Vec<FlowDescription>,
    /// Whether its packets are dropped.
    pub drop: bool,
    /// The QoS flow that downlink packets are marked with.
    pub qfi: Option<u8>,
}

/// What compiling needs to know besides the session.
#[derive(Clone, Debug)]
pub struct Context {
    /// Which tunnels say whose they are.
    pub shape: TeidShape,
    /// The network instances that packets arrive in as they are: where users without a named one
    /// are found.
    pub core: Vec<InstanceId>,
    /// Predefined rules by name.
    pub predefined: BTreeMap<String, PredefinedRule>,
    /// The most packets held for a session, unless its BAR says fewer.
    pub held_packets: u32,
    /// For how long, in ms, unless the control plane says something else.
    pub held_ms: u64,
}

impl Context {
    /// Of a configuration.
    ///
    /// # Errors
    /// When a flow description of a predefined rule is none; with the rule's name.
    pub fn new(settings: &Settings) -> Result<Self, (String, FlowError)> {
        let n6 = settings.interfaces.values().filter(|it| it.role == Role::N6);
        let mut core: Vec<InstanceId> =
            n6.filter_map(|it| settings.instance(&it.network_instance)).collect();
        core.sort_unstable();
        core.dedup();
        let read = |(name, rule): (&String, &Predefined)| {
            let rule = PredefinedRule::new(rule).map_err(|error| (name.clone(), error))?;
            Ok((name.clone(), rule))
        };
        Ok(Self {
            shape: TeidShape::of(settings.sessions as usize),
            core,
            predefined: settings.predefined.iter().map(read).collect::<Result<_, _>>()?,
            held_packets: settings.limits.held_packets,
            held_ms: settings.limits.held_ms,
        })
    }

    /// A number of what it says: with another one sessions are compiled anew.
    #[must_use]
    pub fn fingerprint(&self) -> u32 {
        // FNV-1a; what is written is the same wherever this program runs.
        let text = format!("{self:?}");
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
        (hash ^ hash >> 32) as u32
    }

    /// How many packets of a session are held, and for how long in ms, by a BAR.
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
