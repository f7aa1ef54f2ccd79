//! Requests: dumps and neighbour probes.

use std::net::IpAddr;

use fastlane_netlink::{Request, link_header};

use super::{Effect, Message, TrafficControl, traffic_control};

/// `RTM_GETNEXTHOP`, of `linux/rtnetlink.h`.
const GET_NEXT_HOP: u16 = 106;

/// `NTF_USE`: acts as if a packet had been sent to the neighbour.
const USE: u8 = 1;

/// Kind of dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dump {
    Links,
    Addresses,
    Neighbours,
    NextHops,
    Rules,
    /// Routes of all tables of a family (`AF_*`).
    Routes(i32),
    /// Forwarding settings of a family (`AF_*`).
    Netconf(i32),
    /// Queueing disciplines of all interfaces.
    Disciplines,
    /// Filters of an interface for frames that leave.
    EgressFilters(u32),
}

impl Dump {
    /// All dumps that the model needs. Objects come before those that refer to them.
    pub(crate) const ALL: [Self; 7] = [
        Self::Links,
        Self::Rules,
        Self::Addresses,
        Self::NextHops,
        Self::Routes(libc::AF_INET),
        Self::Routes(libc::AF_INET6),
        Self::Neighbours,
    ];

    /// Returns true if a kernel may lack this kind: IPv6, next-hop objects (Linux 5.3), rules
    /// and traffic control are optional.
    pub(crate) fn is_optional(self) -> bool {
        let of_ipv6 = matches!(self, Self::Routes(libc::AF_INET6) | Self::Netconf(libc::AF_INET6));
        let of_control = matches!(self, Self::Disciplines | Self::EgressFilters(_));
        of_ipv6 || of_control || matches!(self, Self::NextHops | Self::Rules)
    }

    /// Returns the name for messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Links => "the interfaces",
            Self::Addresses => "the addresses",
            Self::Neighbours => "the neighbours",
            Self::NextHops => "the next-hop objects",
            Self::Rules => "the routing rules",
            Self::Routes(libc::AF_INET) => "the routes of IPv4",
            Self::Routes(_) => "the routes of IPv6",
            Self::Netconf(libc::AF_INET) => "the settings of forwarding of IPv4",
            Self::Netconf(_) => "the settings of forwarding of IPv6",
            Self::Disciplines => "the queueing disciplines",
            Self::EgressFilters(_) => "the filters of an interface",
        }
    }

    /// Returns the dump that completes a dumped object.
    pub(crate) fn following(message: &Message) -> Option<Self> {
        match message {
            Message::TrafficControl(TrafficControl { link, effect: Effect::Filters }) => {
                Some(Self::EgressFilters(*link))
            }
            _ => None,
        }
    }

    /// Builds the request with a sequence number, which its replies repeat.
    pub(crate) fn request(self, sequence: u32) -> Vec<u8> {
        let (kind, fixed) = match self {
            Self::Links => (libc::RTM_GETLINK, link_header(0, 0, 0).to_vec()),
            Self::Addresses => (libc::RTM_GETADDR, vec![0; 8]),
            Self::Neighbours => (libc::RTM_GETNEIGH, vec![0; 12]),
            Self::NextHops => (GET_NEXT_HOP, vec![0; 8]),
            Self::Rules => (libc::RTM_GETRULE, vec![0; 12]),
            Self::Routes(family) => {
                let mut fixed = vec![0; 12];
                fixed[0] = family as u8;
                (libc::RTM_GETROUTE, fixed)
            }
            Self::Netconf(family) => (libc::RTM_GETNETCONF, vec![family as u8, 0, 0, 0]),
            Self::Disciplines => (libc::RTM_GETQDISC, traffic_control::header(0, 0).to_vec()),
            Self::EgressFilters(link) => {
                let header = traffic_control::header(link, traffic_control::EGRESS);
                (libc::RTM_GETTFILTER, header.to_vec())
            }
        };
        let mut octets = Request::new(kind, libc::NLM_F_DUMP, &fixed).finish();
        octets[8..12].copy_from_slice(&sequence.to_ne_bytes());
        octets
    }
}

/// Builds a request that makes Linux probe a neighbour that it knows. The result arrives as an
/// event.
pub(crate) fn probe(link: u32, address: IpAddr) -> Vec<u8> {
    use_neighbour(link, address, 0)
}

/// Builds a request that makes Linux find a neighbour, as for a packet to it. The result arrives as
/// an event.
pub(crate) fn resolve(link: u32, address: IpAddr) -> Vec<u8> {
    use_neighbour(link, address, libc::NLM_F_CREATE)
}

fn use_neighbour(link: u32, address: IpAddr, flags: i32) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
    };
    // `struct ndmsg`: family, padding, index, state, flags, type.
    let mut fixed = [0; 12];
    fixed[0] = family as u8;
    fixed[4..8].copy_from_slice(&link.to_ne_bytes());
    fixed[10] = USE;
    Request::new(libc::RTM_NEWNEIGH, flags, &fixed).attribute(libc::NDA_DST, &octets).finish()
}
