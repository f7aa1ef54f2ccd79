//! Elements that are a string of octets.

use alloc::vec::Vec;

use super::Ie;
use crate::{Cause, IeType};

strings! {
    /// The network that packets come from or go to (clause 8.2.4): a name, or the labels of a
    /// domain name.
    NetworkInstance = NETWORK_INSTANCE;
    /// An application (clause 8.2.6).
    ApplicationId = APPLICATION_ID;
    /// An instance of an application (clause 8.2.60).
    ApplicationInstanceId = APPLICATION_INSTANCE_ID;
    /// The name of predefined rules that shall hold (clause 8.2.72).
    ActivatePredefinedRules = ACTIVATE_PREDEFINED_RULES;
    /// The name of predefined rules that shall no longer hold (clause 8.2.73).
    DeactivatePredefinedRules = DEACTIVATE_PREDEFINED_RULES;
    /// An IPv4 network behind the user (RFC 2865 section 5.22).
    FramedRoute = FRAMED_ROUTE;
    /// An IPv6 network behind the user (RFC 3162 section 2.5).
    FramedIpv6Route = FRAMED_IPV6_ROUTE;
    /// The data network name, as labels (clause 8.2.117, TS 23.003 clause 9.1).
    ApnDnn = APN_DNN;
    /// Names of predefined rules.
    PredefinedRulesName = PREDEFINED_RULES_NAME;
    /// Where the session is anchored.
    DataNetworkAccessIdentifier = DATA_NETWORK_ACCESS_IDENTIFIER;
}

impl NetworkInstance<'_> {
    /// Whether it is `name`, written as text or as labels, without regard to the case of ASCII
    /// letters.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        is_name(self.0, name)
    }
}

impl ApnDnn<'_> {
    /// Whether it is `name`, written as labels or as text, without regard to the case of ASCII
    /// letters.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        is_name(self.0, name)
    }
}

fn is_name(octets: &[u8], name: &str) -> bool {
    let name = name.as_bytes();
    octets.eq_ignore_ascii_case(name) || are_labels(octets, name)
}

/// Whether the labels, each after its length, are the parts of `name` between its dots.
fn are_labels(octets: &[u8], name: &[u8]) -> bool {
    let mut rest = octets.strip_suffix(&[0]).unwrap_or(octets);
    let equal = name.split(|octet| *octet == b'.').all(|part| {
        let Some((length, after)) = rest.split_first() else {
            return false;
        };
        let Some((label, after)) = after.split_at_checked((*length).into()) else {
            return false;
        };
        rest = after;
        label.eq_ignore_ascii_case(part)
    });
    equal && rest.is_empty()
}
