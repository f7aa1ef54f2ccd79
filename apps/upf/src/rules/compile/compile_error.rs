//! Reasons why a session cannot be compiled, each with the rule at fault.

use fastlane_pfcp::IeType;

use crate::session::{FarId, PdrId, QerId, UrrId};

/// Maximum length of a URL in octets.
pub(super) const MAX_URL: usize = 512;

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
    /// A PDR matches packets of a data network that no N6 interface serves.
    #[error(
        "PDR {pdr} matches packets of a network instance that no N6 interface serves; add it to \
         `network-instances` of one"
    )]
    NoDataNetwork {
        /// Rule ID of the PDR.
        pdr: PdrId,
    },
    /// A FAR forwards into a network instance that no interface serves.
    #[error(
        "FAR {far} forwards into a network instance that no interface serves; add it to \
         `network-instances` of one"
    )]
    NoExit {
        /// Rule ID of the FAR.
        far: FarId,
    },
    /// A FAR forwards to a data network, and there is no N6 interface.
    #[error(
        "FAR {far} forwards to a data network, but no interface has the role `n6`; add one to \
         `interfaces`, or have the SMF send Outer Header Creation with the tunnel of the next UPF"
    )]
    NoN6 {
        /// Rule ID of the FAR.
        far: FarId,
    },
    /// A FAR forwards to the CP function without an outer header.
    #[error(
        "FAR {far} forwards to the CP function without a tunnel; have the SMF send Outer Header \
         Creation with its own"
    )]
    NoControlTunnel {
        /// Rule ID of the FAR.
        far: FarId,
    },
    /// A FAR has an outer header that cannot be built.
    #[error(
        "FAR {far} adds an outer header without a TEID, or without an address of a family that \
         an interface for tunnels has; use GTP-U/UDP/IP with a TEID and such an address"
    )]
    OuterHeader {
        /// Rule ID of the FAR.
        far: FarId,
    },
    /// A FAR redirects to a URL that is too long.
    #[error(
        "FAR {far} redirects to a URL of more than {most} octets; use a shorter one",
        most = MAX_URL
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
            | Self::NoDataNetwork { pdr }
            | Self::TooMuch { pdr } => Some(pdr),
            _ => None,
        }
    }

    /// Returns the FAR at fault, if any.
    #[must_use]
    pub const fn far(self) -> Option<FarId> {
        match self {
            Self::NoExit { far }
            | Self::NoN6 { far }
            | Self::NoControlTunnel { far }
            | Self::OuterHeader { far }
            | Self::Redirect { far } => Some(far),
            _ => None,
        }
    }

    /// Returns the IE at fault, if it is one that the rule has.
    #[must_use]
    pub const fn offending(self) -> Option<IeType> {
        match self {
            Self::NoDataNetwork { .. } | Self::NoExit { .. } => Some(IeType::NETWORK_INSTANCE),
            Self::NoN6 { .. } | Self::NoControlTunnel { .. } | Self::OuterHeader { .. } => {
                Some(IeType::OUTER_HEADER_CREATION)
            }
            _ => None,
        }
    }
}
