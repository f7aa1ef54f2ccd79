//! Containment of rules: whether one list claims only frames that another one claims.

use super::{GTP_U_PORT, IPV4, IPV6, PortRange, Prefix, Rule, Rules};

impl Rules {
    /// Returns true if every rule of this list is narrower than one rule of `allowed`, so that the
    /// list claims no frame that `allowed` does not claim. A rule that only several rules of
    /// `allowed` together cover counts as not covered.
    ///
    /// # Examples
    /// ```
    /// use fastlane_steer::{PortRange, Rule, Rules};
    ///
    /// let rules = |first, last| {
    ///     let udp_port = Some(PortRange { first, last });
    ///     Rules::new(vec![Rule { udp_port, ..Rule::default() }])
    /// };
    /// let allowed = rules(5000, 5099)?;
    /// assert!(rules(5001, 5001)?.is_within(&allowed));
    /// assert!(!rules(5090, 5100)?.is_within(&allowed));
    /// assert!(!Rules::default().is_within(&allowed)); // claims everything
    /// # Ok::<(), fastlane_steer::RuleError>(())
    /// ```
    #[must_use]
    pub fn is_within(&self, allowed: &Rules) -> bool {
        self.first_outside(allowed).is_none()
    }

    /// Returns the index of the first rule that no rule of `allowed` covers, or 0 if this list
    /// claims everything and `allowed` does not.
    #[must_use]
    pub fn first_outside(&self, allowed: &Rules) -> Option<usize> {
        if allowed.is_empty() {
            return None;
        }
        // A rule of `allowed` without a VLAN does not claim the frames of those that it names.
        let leaves_vlans = !allowed.vlans().all(|vlan| self.names(vlan));
        let is_other = |vlan: Option<u16>| match vlan {
            Some(vlan) => !allowed.names(vlan),
            None => !leaves_vlans,
        };
        let claims_others = self.is_empty() || self.claims_others;
        if claims_others && (!allowed.claims_others || leaves_vlans) {
            return Some(0);
        }
        let covers = |rule: &Rule| {
            let by = |other: &Rule| match other.vlan {
                None => is_other(rule.vlan) && rule.is_within(other),
                some => rule.vlan == some && rule.is_within(other),
            };
            allowed.claims_others && is_other(rule.vlan) || allowed.rules.iter().any(by)
        };
        self.rules.iter().position(|rule| !covers(rule))
    }

    /// Returns the VLANs that rules name.
    fn vlans(&self) -> impl Iterator<Item = u16> {
        self.rules.iter().filter_map(|rule| rule.vlan)
    }

    /// Returns true if a rule names a VLAN.
    fn names(&self, vlan: u16) -> bool {
        self.vlans().any(|other| other == vlan)
    }
}

impl Rule {
    /// Returns true if this rule matches no frame that `other` does not match, whatever the VLAN.
    fn is_within(&self, other: &Rule) -> bool {
        let agrees = |own: Option<u64>, wanted: Option<u64>| wanted.is_none() || own == wanted;
        agrees(self.any_ethertype().map(u64::from), other.ethertype.map(u64::from))
            && agrees(self.ip_protocol().map(u64::from), other.protocol.map(u64::from))
            && is_inside(self.source, other.source)
            && is_inside(self.destination, other.destination)
            && is_narrower(self.udp_ports(), other.udp_port)
            && is_narrower(self.tcp_port, other.tcp_port)
            && (self.gtp_u || !other.gtp_u)
            && (other.fragments || !self.fragments)
    }

    /// Returns the EtherType that the rule names or its prefixes imply.
    fn any_ethertype(&self) -> Option<u16> {
        let of_prefix = |prefix: Prefix| if prefix.address.is_ipv4() { IPV4 } else { IPV6 };
        self.ethertype.or(self.source.or(self.destination).map(of_prefix))
    }

    /// Returns the UDP ports that the rule names or implies.
    fn udp_ports(&self) -> Option<PortRange> {
        if self.gtp_u { Some(GTP_U_PORT.into()) } else { self.udp_port }
    }
}

/// Returns true if all addresses of a prefix are in another one.
fn is_inside(own: Option<Prefix>, wanted: Option<Prefix>) -> bool {
    let Some(wanted) = wanted else { return true };
    own.is_some_and(|own| {
        let mask = wanted.mask();
        let is_equal = |((own, wanted), mask): ((u8, u8), u8)| (own ^ wanted) & mask == 0;
        own.address.is_ipv4() == wanted.address.is_ipv4()
            && own.length >= wanted.length
            && own.octets().into_iter().zip(wanted.octets()).zip(mask).all(is_equal)
    })
}

/// Returns true if all ports of a range are in another one.
fn is_narrower(own: Option<PortRange>, wanted: Option<PortRange>) -> bool {
    let Some(wanted) = wanted else { return true };
    own.is_some_and(|own| wanted.contains(own.first) && wanted.contains(own.last))
}
