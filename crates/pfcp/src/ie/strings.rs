//! Elements that are a string of octets.

use alloc::vec::Vec;

use super::Ie;
use crate::{Cause, IeType};

strings! {
    /// Network instance: the IP domain that packets come from or go to (clause 8.2.4). A name, or
    /// the labels of an FQDN.
    NetworkInstance = NETWORK_INSTANCE;
    /// Application identifier (clause 8.2.6).
    ApplicationId = APPLICATION_ID;
    /// Application instance identifier (clause 8.2.60).
    ApplicationInstanceId = APPLICATION_INSTANCE_ID;
    /// Name of predefined rules to activate (clause 8.2.72).
    ActivatePredefinedRules = ACTIVATE_PREDEFINED_RULES;
    /// Name of predefined rules to deactivate (clause 8.2.73).
    DeactivatePredefinedRules = DEACTIVATE_PREDEFINED_RULES;
    /// IPv4 network behind the UE (RFC 2865 section 5.22).
    FramedRoute = FRAMED_ROUTE;
    /// IPv6 network behind the UE (RFC 3162 section 2.5).
    FramedIpv6Route = FRAMED_IPV6_ROUTE;
    /// Data network name, as labels (clause 8.2.117, TS 23.003 clause 9.1).
    ApnDnn = APN_DNN;
    /// Names of predefined rules.
    PredefinedRulesName = PREDEFINED_RULES_NAME;
    /// Data network access identifier: location of the session's anchor.
    DataNetworkAccessIdentifier = DATA_NETWORK_ACCESS_IDENTIFIER;
}

impl NetworkInstance<'_> {
    /// Returns true if it equals `name`, encoded as text or as labels, ignoring ASCII case.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        is_name(self.0, name)
    }
}

impl ApnDnn<'_> {
    /// Returns true if it equals `name`, encoded as labels or as text, ignoring ASCII case.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        is_name(self.0, name)
    }
}

fn is_name(octets: &[u8], name: &str) -> bool {
    let name = name.as_bytes();
    octets.eq_ignore_ascii_case(name) || are_labels(octets, name)
}

/// Returns true if the labels (each after its length) are the parts of `name` between its dots.
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
