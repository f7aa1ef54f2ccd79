//! What lanes read, made of what the control plane said.
//!
//! [`compile`] takes a session as it is and gives [`Compiled`]: its [`Rules`], its blocks, and the
//! keys by which its packets find it. It is total: whatever the session says, it gives rules or an
//! error that names the rule at fault. A PDR that no packet can find (from the access network
//! without a tunnel, for example) is left out.
//!
//! A session may have other users' addresses than one IPv4 address and one /64, and networks behind
//! them: packets from the access network must have one of them as their source, if the session has
//! any, whatever PDR they match.

mod context;
mod entry;
mod keys;
mod pack;
mod rate;
mod simple;
mod way;

#[cfg(test)]
mod tests;

use std::net::IpAddr;

pub use context::{Context, PredefinedRule};
pub use keys::{Keys, keys};

use crate::rules::layout::key::{TunnelKey, UserKey};
use crate::rules::layout::rules::{Block, Rules};
use crate::session::{FarId, InstanceId, PdrId, QerId, Session, UrrId};

/// A network behind a user, or addresses of a user that no [`UserKey`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FramedRoute {
    /// The network instance.
    pub instance: InstanceId,
    /// The first address.
    pub address: IpAddr,
    /// How many of its bits count.
    pub length: u8,
}

/// What is published of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Compiled {
    /// For the table of rules. Its block, and the blocks' next ones, are those of whoever places
    /// them.
    pub rules: Rules,
    /// The blocks, in order.
    pub blocks: Vec<Block>,
    /// Users' addresses, each once.
    pub users: Vec<UserKey>,
    /// Tunnels whose number does not say whose they are, each once.
    pub tunnels: Vec<TunnelKey>,
    /// Networks behind users, each once.
    pub framed: Vec<FramedRoute>,
}

/// Why a session cannot be compiled. Nothing of it is published then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// A PDR names a FAR that is not there.
    #[error("PDR {pdr} names FAR {far}, which the session has not; create it with the PDR")]
    NoFar {
        /// The PDR.
        pdr: PdrId,
        /// The FAR.
        far: FarId,
    },
    /// A PDR names a QER that is not there.
    #[error("PDR {pdr} names QER {qer}, which the session has not; create it with the PDR")]
    NoQer {
        /// The PDR.
        pdr: PdrId,
        /// The QER.
        qer: QerId,
    },
    /// A PDR names a URR that is not there.
    #[error("PDR {pdr} names URR {urr}, which the session has not; create it with the PDR")]
    NoUrr {
        /// The PDR.
        pdr: PdrId,
        /// The URR.
        urr: UrrId,
    },
    /// A PDR activates a predefined rule that the configuration has not.
    #[error(
        "PDR {pdr} activates a predefined rule that is not in `app.predefined`; write it there"
    )]
    NoPredefined {
        /// The PDR.
        pdr: PdrId,
    },
    /// A FAR's outer header is none that can be made.
    #[error(
        "FAR {far} puts on an outer header without an address, or without a tunnel or a port; give \
         GTP-U/UDP/IP with a TEID and an address, or UDP/IP with a port and an address"
    )]
    OuterHeader {
        /// The FAR.
        far: FarId,
    },
    /// A FAR redirects to a longer URL than a lane keeps.
    #[error("FAR {far} redirects to more than {most} octets; give a shorter URL", most = way::URL)]
    Redirect {
        /// The FAR.
        far: FarId,
    },
    /// What one PDR refers to is more than a block holds.
    #[error(
        "PDR {pdr} refers to more QERs, URRs and paths than a lane looks through; give it fewer"
    )]
    TooMuch {
        /// The PDR.
        pdr: PdrId,
    },
    /// The blocks are more than a lane looks through.
    #[error("the session has more PDRs and filters than a lane looks through; give it fewer")]
    TooLong,
}

impl CompileError {
    /// The PDR at fault, if it is one.
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

    /// The FAR at fault, if it is one.
    #[must_use]
    pub const fn far(self) -> Option<FarId> {
        match self {
            Self::OuterHeader { far } | Self::Redirect { far } => Some(far),
            _ => None,
        }
    }
}

/// Makes what lanes read.
///
/// URRs and QERs must have their lines of state (`slow::publish::Published::assign`).
///
/// # Errors
/// When a rule refers to one that is not there, or cannot be carried out.
pub fn compile(session: &Session, context: &Context) -> Result<Compiled, CompileError> {
    let entries = entry::entries(session, context)?;
    let keys = keys(session, context);
    let (rules, blocks) = match simple::rules(session, &entries) {
        Some(rules) => (rules, Vec::new()),
        None => pack::blocks(session, &entries)?,
    };
    let rules = with_marker(session, rules);
    let Keys { users, tunnels, framed } = keys;
    Ok(Compiled { rules, blocks, users, tunnels, framed })
}

/// With the newest end marker that is due, and what was given up.
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
        marker.instance.unwrap_or(crate::rules::layout::rules::way::NO_INSTANCE);
    rules
}
