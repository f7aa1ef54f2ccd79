//! Causes of responses (TS 29.244 clause 8.2.1) and faults of messages.

use core::fmt;

use crate::IeType;

/// Cause of a response: the reason why a request was accepted or rejected (clause 8.2.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cause(pub u8);

macro_rules! causes {
    ($($name:ident = $number:literal, $words:literal;)*) => {
        impl Cause {
            $(#[doc = $words] pub const $name: Self = Self($number);)*

            /// Returns the name in TS 29.244, or `None` for causes that this crate does not know.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some($words),)*
                    _ => None,
                }
            }
        }
    };
}

causes! {
    REQUEST_ACCEPTED = 1, "Request accepted";
    MORE_USAGE_REPORT_TO_SEND = 2, "More Usage Report to send";
    REQUEST_PARTIALLY_ACCEPTED = 3, "Request partially accepted";
    REQUEST_REJECTED = 64, "Request rejected (reason not specified)";
    SESSION_CONTEXT_NOT_FOUND = 65, "Session context not found";
    MANDATORY_IE_MISSING = 66, "Mandatory IE missing";
    CONDITIONAL_IE_MISSING = 67, "Conditional IE missing";
    INVALID_LENGTH = 68, "Invalid length";
    MANDATORY_IE_INCORRECT = 69, "Mandatory IE incorrect";
    INVALID_FORWARDING_POLICY = 70, "Invalid Forwarding Policy";
    INVALID_F_TEID_ALLOCATION_OPTION = 71, "Invalid F-TEID allocation option";
    NO_ESTABLISHED_PFCP_ASSOCIATION = 72, "No established PFCP Association";
    RULE_CREATION_MODIFICATION_FAILURE = 73, "Rule creation/modification Failure";
    PFCP_ENTITY_IN_CONGESTION = 74, "PFCP entity in congestion";
    NO_RESOURCES_AVAILABLE = 75, "No resources available";
    SERVICE_NOT_SUPPORTED = 76, "Service not supported";
    SYSTEM_FAILURE = 77, "System failure";
    REDIRECTION_REQUESTED = 78, "Redirection Requested";
    ALL_DYNAMIC_ADDRESSES_ARE_OCCUPIED = 79, "All dynamic addresses are occupied";
    UNKNOWN_PRE_DEFINED_RULE = 80, "Unknown Pre-defined Rule";
    UNKNOWN_APPLICATION_ID = 81, "Unknown Application ID";
    L2TP_TUNNEL_ESTABLISHMENT_FAILURE = 82, "L2TP tunnel Establishment failure";
    L2TP_SESSION_ESTABLISHMENT_FAILURE = 83, "L2TP session Establishment failure";
    L2TP_TUNNEL_RELEASE = 84, "L2TP tunnel release";
    L2TP_SESSION_RELEASE = 85, "L2TP session release";
    PFCP_SESSION_RESTORATION_FAILURE = 86, "PFCP session restoration failure";
}

impl Cause {
    /// Returns true if the request was accepted, wholly or in part (clause 8.2.1).
    #[must_use]
    pub const fn is_accepted(self) -> bool {
        self.0 < 64
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(to, "{name} ({})", self.0),
            None => write!(to, "cause {}", self.0),
        }
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, to)
    }
}

/// Fault of a request: Cause and Offending IE of its response (clause 7.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Cause of the response.
    pub cause: Cause,
    /// Type of the missing or wrong element, if there is one (clause 8.2.22).
    pub offending: Option<IeType>,
}

impl Fault {
    /// Creates the fault of an element.
    #[must_use]
    pub const fn of(cause: Cause, offending: IeType) -> Self {
        Self { cause, offending: Some(offending) }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offending {
            Some(offending) => write!(to, "{}: {offending}", self.cause),
            None => self.cause.fmt(to),
        }
    }
}

impl core::error::Error for Fault {}
