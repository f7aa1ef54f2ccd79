//! Reasons to refuse a session request.

use fastlane_pfcp::ie::FailedRuleId;
use fastlane_pfcp::{Cause, Fault, IeType};

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
