//! Why a request about a session is refused.

use fastlane_pfcp::ie::FailedRuleId;
use fastlane_pfcp::{Cause, Fault, IeType};

/// What the answer to a request that changes nothing says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The cause.
    pub cause: Cause,
    /// The element that is missing or wrong.
    pub offending: Option<IeType>,
    /// The rule that could not be made or changed.
    pub failed: Option<FailedRuleId>,
}

impl Refusal {
    /// Nothing but a cause.
    #[must_use]
    pub const fn because(cause: Cause) -> Self {
        Self { cause, offending: None, failed: None }
    }

    /// An element is wrong.
    #[must_use]
    pub const fn of(cause: Cause, offending: IeType) -> Self {
        Self { cause, offending: Some(offending), failed: None }
    }

    /// A rule cannot be as it should (cause 73).
    #[must_use]
    pub const fn rule(failed: FailedRuleId) -> Self {
        let cause = Cause::RULE_CREATION_MODIFICATION_FAILURE;
        Self { cause, offending: None, failed: Some(failed) }
    }

    /// A rule cannot be as it should, because of an element of it.
    #[must_use]
    pub const fn rule_by(failed: FailedRuleId, offending: IeType) -> Self {
        Self { offending: Some(offending), ..Self::rule(failed) }
    }

    /// What this end does not do.
    #[must_use]
    pub const fn unsupported(offending: IeType) -> Self {
        Self::of(Cause::SERVICE_NOT_SUPPORTED, offending)
    }

    /// An element that means nothing here.
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
