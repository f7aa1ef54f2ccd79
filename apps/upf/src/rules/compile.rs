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

mod block_packer;
mod context;
mod far_path;
mod lookup_keys;
mod meter_cost;
mod rule_entry;
mod simple_form;

#[cfg(test)]
mod tests;

use std::net::IpAddr;

pub use context::{Context, PredefinedRule};
pub use lookup_keys::{LookupKeys, keys};

use crate::rules::layout::key::{TunnelKey, UeKey};
use crate::rules::layout::session_rules::{Block, Rules};
use crate::session::{FarId, InstanceId, PdrId, QerId, Session, UrrId};

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
        most = far_path::MAX_URL
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
    rules.cold.marker_instance =
        marker.instance.unwrap_or(crate::rules::layout::session_rules::forwarding::NO_INSTANCE);
    rules
}
