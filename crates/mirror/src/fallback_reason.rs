//! Reasons why the fast path leaves a packet to Linux.

/// Reason why a lookup leaves a packet to Linux. The numbers are part of the tables' layout and
/// must not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FallbackReason {
    /// The destination is an address of this host.
    Local = 1,
    /// The destination is a broadcast address.
    Broadcast = 2,
    /// The destination is a multicast group.
    Multicast = 3,
    /// The destination is never forwarded to: loopback, "this network", link-local or reserved
    /// addresses (RFC 6890).
    Martian = 4,
    /// No route covers the destination.
    NoRoute = 5,
    /// The route is a `blackhole`: Linux drops silently.
    Blackhole = 6,
    /// The route is `unreachable`: Linux replies "host unreachable".
    Unreachable = 7,
    /// The route is `prohibit`: Linux replies "communication prohibited".
    Prohibit = 8,
    /// The route is `throw`: the lookup continues with the next rule.
    Throw = 9,
    /// The route needs something the mirror does not do: encapsulation, a type of service, a source
    /// prefix, more next hops than a group holds, or several IPv6 routes of equal metric.
    Unsupported = 10,
    /// The interface of the route is down or has no carrier.
    LinkDown = 11,
    /// The interface of the route is not a port.
    NotOurPort = 12,
    /// The Ethernet address of the next hop is unknown.
    NoNeighbour = 13,
    /// A table is full or does not yet hold what Linux has.
    Incomplete = 14,
    /// Routing rules exist, so the main table alone does not decide.
    Policy = 15,
    /// The mirror has no such routing table.
    NoTable = 16,
    /// Linux delays, changes or redirects what leaves by the interface of the route: it has a
    /// queueing discipline or filters.
    TrafficControl = 17,
}

impl FallbackReason {
    /// All reasons in numeric order; the first has the number 1.
    pub const ALL: [Self; 17] = [
        Self::Local,
        Self::Broadcast,
        Self::Multicast,
        Self::Martian,
        Self::NoRoute,
        Self::Blackhole,
        Self::Unreachable,
        Self::Prohibit,
        Self::Throw,
        Self::Unsupported,
        Self::LinkDown,
        Self::NotOurPort,
        Self::NoNeighbour,
        Self::Incomplete,
        Self::Policy,
        Self::NoTable,
        Self::TrafficControl,
    ];

    /// Converts a number from a table; unknown numbers become [`Self::Incomplete`].
    #[must_use]
    pub fn from_number(number: u8) -> Self {
        let place = usize::from(number).wrapping_sub(1);
        Self::ALL.get(place).copied().unwrap_or(Self::Incomplete)
    }

    /// Returns the name for counters, in snake case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Broadcast => "broadcast",
            Self::Multicast => "multicast",
            Self::Martian => "martian",
            Self::NoRoute => "no_route",
            Self::Blackhole => "blackhole",
            Self::Unreachable => "unreachable",
            Self::Prohibit => "prohibit",
            Self::Throw => "throw",
            Self::Unsupported => "unsupported",
            Self::LinkDown => "link_down",
            Self::NotOurPort => "not_our_port",
            Self::NoNeighbour => "no_neighbour",
            Self::Incomplete => "incomplete",
            Self::Policy => "policy",
            Self::NoTable => "no_table",
            Self::TrafficControl => "traffic_control",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_unique() {
        let mut names = std::collections::BTreeSet::new();
        for (place, reason) in FallbackReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place + 1);
            assert_eq!(FallbackReason::from_number(reason as u8), reason);
            assert!(names.insert(reason.name()));
        }
        assert_eq!(FallbackReason::from_number(0), FallbackReason::Incomplete);
        assert_eq!(FallbackReason::from_number(255), FallbackReason::Incomplete);
    }
}
