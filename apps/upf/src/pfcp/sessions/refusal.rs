//! Reasons to refuse a session request.

use fastlane_pfcp::ie::FailedRuleId;
use fastlane_pfcp::{Cause, Fault, IeType};

use crate::rules::publish::PublishError;
use crate::session::{Pdr, Session};
use crate::store::StoreError;

/// IEs of a response that refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Cause of the refusal.
    pub cause: Cause,
    /// IE that is missing or wrong.
    pub offending: Option<IeType>,
    /// Rule that could not be created or modified.
    pub failed: Option<FailedRuleId>,
}

impl Refusal {
    /// Creates a refusal with a cause only.
    #[must_use]
    pub const fn because(cause: Cause) -> Self {
        Self { cause, offending: None, failed: None }
    }

    /// Creates a refusal that names the offending IE.
    #[must_use]
    pub const fn of(cause: Cause, offending: IeType) -> Self {
        Self { cause, offending: Some(offending), failed: None }
    }

    /// Creates a refusal that names the failed rule (cause 73).
    #[must_use]
    pub const fn rule(failed: FailedRuleId) -> Self {
        let cause = Cause::RULE_CREATION_MODIFICATION_FAILURE;
        Self { cause, offending: None, failed: Some(failed) }
    }

    /// Creates a refusal that names the failed rule and the offending IE.
    #[must_use]
    pub const fn rule_by(failed: FailedRuleId, offending: IeType) -> Self {
        Self { offending: Some(offending), ..Self::rule(failed) }
    }

    /// Creates a refusal of an IE that is not supported.
    #[must_use]
    pub const fn unsupported(offending: IeType) -> Self {
        Self::of(Cause::SERVICE_NOT_SUPPORTED, offending)
    }

    /// Creates a refusal of an IE with an invalid value.
    #[must_use]
    pub const fn incorrect(offending: IeType) -> Self {
        Self::of(Cause::MANDATORY_IE_INCORRECT, offending)
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self { cause: fault.cause, offending: fault.offending, failed: None }
    }
}

/// Returns the refusal for a session that could not be published.
pub(super) fn refused_by(error: &PublishError, session: &Session) -> Refusal {
    let pdr_with = |has: &dyn Fn(&Pdr) -> bool| {
        let pdr = session.pdrs.iter().find(|pdr| has(pdr)).or(session.pdrs.first());
        FailedRuleId::Pdr(pdr.map_or(0, |pdr| pdr.id))
    };
    match error {
        PublishError::Compile(error) => match (error.pdr(), error.far()) {
            (Some(pdr), _) => Refusal::rule(FailedRuleId::Pdr(pdr)),
            (_, Some(far)) => Refusal::rule(FailedRuleId::Far(far)),
            _ => Refusal::rule(pdr_with(&|_| true)),
        },
        PublishError::Tunnel { teid, .. } => {
            let has = |pdr: &Pdr| pdr.tunnel.is_some_and(|tunnel| tunnel.teid == *teid);
            Refusal::rule_by(pdr_with(&has), IeType::F_TEID)
        }
        PublishError::User { .. } => {
            Refusal::rule_by(pdr_with(&|pdr| pdr.user.is_some()), IeType::UE_IP_ADDRESS)
        }
        PublishError::Network { route, .. } => {
            let ie = if route.address.is_ipv4() {
                IeType::FRAMED_ROUTE
            } else {
                IeType::FRAMED_IPV6_ROUTE
            };
            Refusal::rule_by(pdr_with(&|pdr| !pdr.framed.is_empty()), ie)
        }
        PublishError::Table(_) | PublishError::None(_) => {
            Refusal::because(Cause::NO_RESOURCES_AVAILABLE)
        }
    }
}

/// Returns the refusal for a session that could not be stored.
pub(super) fn refusal_of(error: &StoreError) -> Refusal {
    tracing::warn!("{error}");
    Refusal::because(match error {
        StoreError::NoPart { .. } | StoreError::TooLong { .. } => Cause::NO_RESOURCES_AVAILABLE,
        StoreError::Table(_) => Cause::SYSTEM_FAILURE,
    })
}
