//! Why the mirror has no answer.

/// Why a packet goes to Linux, which knows what to do with it. The numbers are part of the tables'
/// layout and stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FallbackReason {
    /// The destination is one of this host's own.
    Local = 1,
    /// The destination is all hosts of a link.
    Broadcast = 2,
    /// The destination is a group.
    Multicast = 3,
    /// The destination is nothing that is forwarded: the loopback, "this network", an address of
    /// one link, what is reserved (RFC 6890).
    Martian = 4,
    /// No route covers it.
    NoRoute = 5,
    /// The route drops (`blackhole`).
    Blackhole = 6,
    /// The route refuses (`unreachable`).
    Unreachable = 7,
    /// The route refuses (`prohibit`).
    Prohibit = 8,
    /// The route sends it to the next rule (`throw`).
    Throw = 9,
    /// The route or its next hop asks for what is not done here: an encapsulation, a type of
    /// service, a source, more hops than a group holds, several routes that are equally good.
    Unsupported = 10,
    /// The interface of the route is down, or has no carrier.
    LinkDown = 11,
    /// The interface of the route is none of the ports.
    NotOurPort = 12,
    /// The Ethernet address of the next hop is not known.
    NoNeighbour = 13,
    /// A table is full, or does not hold yet what Linux has.
    Incomplete = 14,
    /// There are routing rules, so that one table is not the whole truth.
    Policy = 15,
    /// There is no such table in the mirror.
    NoTable = 16,
}

impl FallbackReason {
    /// All of them, in the order of their numbers; the first has the number 1.
    pub const ALL: [Self; 16] = [
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
    ];

    /// The reason of a number that a table holds; what means nothing is [`Self::Incomplete`].
    #[must_use]
    pub fn from_number(number: u8) -> Self {
        let place = usize::from(number).wrapping_sub(1);
        Self::ALL.get(place).copied().unwrap_or(Self::Incomplete)
    }

    /// A name for counters: words joined by underscores.
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
