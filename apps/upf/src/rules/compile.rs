//! Rule compiler: turns a PFCP session into the values that lanes read.
//!
//! [`compile`] takes a session and returns [`Compiled`]: its [`Rules`], its blocks, and the keys by
//! which its packets find it. It is total: every session yields rules or an error that names the
//! rule at fault. A PDR that no packet can reach (for example from the access network without a
//! tunnel) is left out.
//!
//! A session may have more UE addresses than one IPv4 address and one /64, and networks behind the
//! UE. If it has any, uplink packets must have one of them as their source, whatever PDR they
//! match.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::layout::session_rules::{Block, Rules, forwarding};
use super::layout::{TeidLayout, TunnelKey, UeKey};
use crate::config::{Predefined, Role, Settings};
use crate::session::{
    FarId, FlowDescription, FlowError, InstanceId, Pdr, PdrId, Prefix, QerId, Session, Source,
    UrrId,
};

mod block_packer;
mod rule_entry;
mod simple_form;

/// A network behind a UE, or UE addresses that a [`UeKey`] cannot express.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FramedRoute {
    /// Network instance.
    pub instance: InstanceId,
    /// First address.
    pub address: IpAddr,
    /// Prefix length in bits.
    pub length: u8,
}

/// Compiled session, as it is published.
#[derive(Clone, Debug, PartialEq)]
pub struct Compiled {
    /// Entry of the rules table. Whoever places the blocks sets its `block` and their `next`.
    pub rules: Rules,
    /// Blocks in the order of evaluation.
    pub blocks: Vec<Block>,
    /// UE addresses, each once.
    pub users: Vec<UeKey>,
    /// Tunnels whose TEID does not contain the session index, each once.
    pub tunnels: Vec<TunnelKey>,
    /// Networks behind the UE, each once.
    pub framed: Vec<FramedRoute>,
}

/// Reason why a session cannot be compiled. Nothing of it is published then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// A PDR refers to a missing FAR.
    #[error("PDR {pdr} refers to FAR {far}, which does not exist; create it with the PDR")]
    NoFar {
        /// Rule ID of the PDR.
        pdr: PdrId,
        /// Rule ID of the FAR.
        far: FarId,
    },
    /// A PDR refers to a missing QER.
    #[error("PDR {pdr} refers to QER {qer}, which does not exist; create it with the PDR")]
    NoQer {
        /// Rule ID of the PDR.
        pdr: PdrId,
        /// Rule ID of the QER.
        qer: QerId,
    },
    /// A PDR refers to a missing URR.
    #[error("PDR {pdr} refers to URR {urr}, which does not exist; create it with the PDR")]
    NoUrr {
        /// Rule ID of the PDR.
        pdr: PdrId,
        /// Rule ID of the URR.
        urr: UrrId,
    },
    /// A PDR activates a predefined rule that is not configured.
    #[error(
        "PDR {pdr} activates a predefined rule that is not configured; add it to `app.predefined`"
    )]
    NoPredefined {
        /// Rule ID of the PDR.
        pdr: PdrId,
    },
    /// A FAR has an outer header that cannot be built.
    #[error(
        "FAR {far} adds an outer header without an address, or without a TEID or port; use \
         GTP-U/UDP/IP with a TEID and an address, or UDP/IP with a port and an address"
    )]
    OuterHeader {
        /// Rule ID of the FAR.
        far: FarId,
    },
    /// A FAR redirects to a URL that is too long.
    #[error(
        "FAR {far} redirects to a URL of more than {most} octets; use a shorter one",
        most = rule_entry::MAX_URL
    )]
    Redirect {
        /// Rule ID of the FAR.
        far: FarId,
    },
    /// A PDR refers to more than a block can hold.
    #[error("PDR {pdr} refers to more QERs, URRs and paths than a lane supports; reduce them")]
    TooMuch {
        /// Rule ID of the PDR.
        pdr: PdrId,
    },
    /// The session needs more blocks than a lane reads.
    #[error("the session has more PDRs and filters than a lane supports; reduce them")]
    TooLong,
}

impl CompileError {
    /// Returns the PDR at fault, if any.
    #[must_use]
    pub const fn pdr(self) -> Option<PdrId> {
        match self {
            Self::NoFar { pdr, .. }
            | Self::NoQer { pdr, .. }
            | Self::NoUrr { pdr, .. }
            | Self::NoPredefined { pdr }
            | Self::TooMuch { pdr } => Some(pdr),
            _ => None,
        }
    }

    /// Returns the FAR at fault, if any.
    #[must_use]
    pub const fn far(self) -> Option<FarId> {
        match self {
            Self::OuterHeader { far } | Self::Redirect { far } => Some(far),
            _ => None,
        }
    }
}

/// Compiles a session.
///
/// URRs and QERs must have their counter slots (`Published::assign`).
///
/// # Errors
/// If a rule refers to a missing one, or cannot be carried out.
pub fn compile(session: &Session, context: &Context) -> Result<Compiled, CompileError> {
    let entries = rule_entry::entries(session, context)?;
    let keys = keys(session, context);
    let (rules, blocks) = match simple_form::rules(session, &entries) {
        Some(rules) => (rules, Vec::new()),
        None => block_packer::blocks(session, &entries)?,
    };
    let rules = with_marker(session, rules);
    let LookupKeys { users, tunnels, framed } = keys;
    Ok(Compiled { rules, blocks, users, tunnels, framed })
}

/// Adds the newest end marker that is due, and the version before which held packets are discarded.
fn with_marker(session: &Session, mut rules: Rules) -> Rules {
    rules.cold.discarded = session.discarded as u32;
    let markers = session.fars.iter().filter_map(|far| far.end_marker);
    let Some(marker) = markers.max_by_key(|marker| marker.version) else { return rules };
    let (v4, v6) = (marker.to.v4.map(|it| it.to_ipv6_mapped()), marker.to.v6);
    let (Some(peer), Some(teid)) = (v4.or(v6), marker.to.teid) else { return rules };
    rules.cold.marker_peer = peer.octets();
    rules.cold.marker_teid = teid;
    rules.cold.marker_version = marker.version as u32;
    rules.cold.marker_instance = marker.instance.unwrap_or(forwarding::NO_INSTANCE);
    rules
}

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
    /// Network instances of N6, in which UEs without a named one are found.
    pub core: Vec<InstanceId>,
    /// Predefined rules by name.
    pub predefined: BTreeMap<String, PredefinedRule>,
    /// Maximum number of held packets of a session, unless its BAR has a lower limit.
    pub held_packets: u32,
    /// Maximum hold time in ms, unless the control plane function sets another one.
    pub held_ms: u64,
}

impl Context {
    /// Creates the context of a configuration.
    ///
    /// # Errors
    /// Returns the name of a predefined rule with an invalid flow description, and the error.
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
            shape: TeidLayout::of(settings.sessions as usize),
            core,
            predefined: settings.predefined.iter().map(read).collect::<Result<_, _>>()?,
            held_packets: settings.limits.held_packets,
            held_ms: settings.limits.held_ms,
        })
    }

    /// Returns a hash of the context. If it changes, sessions are compiled anew.
    #[must_use]
    pub fn fingerprint(&self) -> u32 {
        // FNV-1a over the debug text, which is the same on every machine.
        let text = format!("{self:?}");
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
        (hash ^ hash >> 32) as u32
    }

    /// Returns the maximum number of held packets of a session and their time in ms, by a BAR.
    fn hold(&self, session: &Session, bar: Option<u8>) -> (u16, u32) {
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

/// Lookup keys of a session, each once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LookupKeys {
    /// UE addresses.
    pub users: Vec<UeKey>,
    /// Tunnels whose TEID does not contain the session index.
    pub tunnels: Vec<TunnelKey>,
    /// Networks behind the UE.
    pub framed: Vec<FramedRoute>,
}

fn add<T: PartialEq>(list: &mut Vec<T>, value: T) {
    if !list.contains(&value) {
        list.push(value);
    }
}

/// Returns the lookup keys of a session.
#[must_use]
pub fn keys(session: &Session, context: &Context) -> LookupKeys {
    let mut keys = LookupKeys::default();
    for pdr in &session.pdrs {
        if let Some(tunnel) = pdr.tunnel {
            if tunnel.teid != 0 && context.shape.session(tunnel.teid) != session.id {
                add(&mut keys.tunnels, TunnelKey { teid: tunnel.teid });
            }
        } else if matches!(pdr.source, Source::Core | Source::SgiLan) {
            let named = pdr.instance.as_slice();
            let instances = if named.is_empty() { &context.core } else { named };
            instances.iter().for_each(|instance| keys.of_user(pdr, *instance));
        }
    }
    keys
}

impl LookupKeys {
    /// Returns the keys that are not among `others`.
    #[must_use]
    pub fn without(mut self, others: &Self) -> Self {
        self.users.retain(|key| !others.users.contains(key));
        self.tunnels.retain(|key| !others.tunnels.contains(key));
        self.framed.retain(|route| !others.framed.contains(route));
        self
    }

    fn of_user(&mut self, pdr: &Pdr, instance: InstanceId) {
        if let Some(v4) = pdr.user.and_then(|user| user.v4) {
            add(&mut self.users, UeKey::v4(instance, v4));
        }
        match pdr.user.and_then(|user| user.v6) {
            Some((v6, 64)) => add(&mut self.users, UeKey::v6(instance, v6)),
            Some((v6, length)) => self.route(instance, v6.into(), length),
            None => {}
        }
        for prefix in &pdr.framed {
            self.route(instance, prefix.address, prefix.length);
        }
    }

    fn route(&mut self, instance: InstanceId, address: IpAddr, length: u8) {
        let Some(prefix) = Prefix::new(address, length) else { return };
        let (address, length) = (prefix.address, prefix.length);
        add(&mut self.framed, FramedRoute { instance, address, length });
    }
}

#[cfg(test)]
mod tests;
