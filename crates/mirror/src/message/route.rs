//! Routes: `struct rtmsg`, `struct rtnexthop` and `RTA_*`, of `linux/rtnetlink.h`.

use std::net::{IpAddr, Ipv6Addr};

use super::{Malformed, Prefix, ip, is_ip, malformed, unspecified};
use fastlane_netlink::{attribute, attributes, number};

/// `RTM_F_CLONED`: a cached exception for one destination, not a route.
const CLONED: u32 = 0x200;

/// `RTNH_F_DEAD`: the interface of the hop was taken down. `RTNH_F_LINKDOWN` (no carrier) changes
/// without a route event; the link event reports it.
const DEAD: u8 = 1;
/// `RTNH_F_UNRESOLVED`: an unresolved multicast route.
const UNRESOLVED: u8 = 32;

/// `RTA_VIA`, `RTA_ENCAP`, `RTA_NH_ID`; `RTAX_MTU`.
const VIA: u16 = 18;
const ENCAP: u16 = 22;
const NEXT_HOP_ID: u16 = 30;
const METRIC_MTU: u16 = 2;

/// Type of a route (`RTN_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouteKind {
    /// Forwards to a gateway or directly to the destination.
    Unicast,
    /// Delivers to this host.
    Local,
    /// Broadcasts on a link and delivers to this host.
    Broadcast,
    /// Delivers to the nearest of several hosts, which is this one.
    Anycast,
    /// Delivers to a multicast group.
    Multicast,
    /// Drops silently.
    Blackhole,
    /// Rejects with "host unreachable".
    Unreachable,
    /// Rejects with "communication prohibited".
    Prohibit,
    /// Continues with the next rule's table.
    Throw,
    /// Any other type.
    Other,
}

impl RouteKind {
    fn read(kind: u8) -> Self {
        match kind {
            libc::RTN_UNICAST => Self::Unicast,
            libc::RTN_LOCAL => Self::Local,
            libc::RTN_BROADCAST => Self::Broadcast,
            libc::RTN_ANYCAST => Self::Anycast,
            libc::RTN_MULTICAST => Self::Multicast,
            libc::RTN_BLACKHOLE => Self::Blackhole,
            libc::RTN_UNREACHABLE => Self::Unreachable,
            libc::RTN_PROHIBIT => Self::Prohibit,
            libc::RTN_THROW => Self::Throw,
            _ => Self::Other,
        }
    }
}

/// One next hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// Gateway; `None` if the destination is on-link. An IPv4 route may have an IPv6 gateway (RFC
    /// 5549).
    pub gateway: Option<IpAddr>,
    /// Index of the interface, or 0.
    pub link: u32,
    /// Relative weight, 1 to 65,536.
    pub weight: u32,
    /// True if Linux reports that the interface cannot send.
    pub dead: bool,
    /// True if Linux encapsulates the packets (MPLS, segment routing, tunnels).
    pub encapsulated: bool,
}

impl Hop {
    /// Returns true if both are the same next hop; state and weight may differ.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.gateway == other.gateway
            && self.link == other.link
            && self.encapsulated == other.encapsulated
    }
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Number of the routing table.
    pub table: u32,
    /// Destination prefix.
    pub destination: Prefix,
    /// Route type.
    pub kind: RouteKind,
    /// Metric: of several routes to one destination the lowest wins.
    pub metric: u32,
    /// Protocol (`RTPROT_*`) and scope (`RT_SCOPE_*`), which distinguish otherwise equal routes.
    pub origin: (u8, u8),
    /// Type of service and source prefix length. Unless both are 0, the route applies only to some
    /// packets.
    pub selector: (u8, u8),
    /// MTU of the route in bytes, or 0.
    pub mtu: u32,
    /// Id of the next-hop object, or 0.
    pub next_hop: u32,
    /// Next hops.
    pub hops: Vec<Hop>,
}

impl Route {
    /// Returns the destination of all IPv6 multicast groups (RFC 4291 2.7).
    pub(crate) fn all_groups() -> Prefix {
        Prefix::new(IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), 8)
    }

    /// Returns true for the route that an interface has while Linux takes IPv6 packets from it
    /// (`addrconf_add_mroute` in `net/ipv6/addrconf.c`).
    pub(crate) fn shows_ipv6(&self) -> bool {
        self.table == u32::from(libc::RT_TABLE_LOCAL) && self.destination == Self::all_groups()
    }
}

/// Parses a route; `None` for families other than IP and for cached exceptions.
pub(crate) fn read(body: &[u8]) -> Result<Option<Route>, Malformed> {
    let wrong = malformed("a route");
    let (header, rest) = body.split_first_chunk::<12>().ok_or(wrong)?;
    let [family, length, source_length, service, table, protocol, scope, kind, ..] = *header;
    let flags = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
    if !is_ip(family) || flags & CLONED != 0 {
        return Ok(None);
    }
    let mut route = Route {
        table: u32::from(table),
        destination: Prefix::new(unspecified(family), length),
        kind: RouteKind::read(kind),
        metric: 0,
        origin: (protocol, scope),
        selector: (service, source_length),
        mtu: 0,
        next_hop: 0,
        hops: Vec::new(),
    };
    for (kind, value) in attributes(rest) {
        match kind {
            libc::RTA_DST => {
                route.destination = Prefix::new(ip(family, value).ok_or(wrong)?, length);
            }
            libc::RTA_TABLE => route.table = number(value).ok_or(wrong)?,
            libc::RTA_PRIORITY => route.metric = number(value).ok_or(wrong)?,
            libc::RTA_METRICS => {
                route.mtu = attribute(value, METRIC_MTU).and_then(number).unwrap_or(0);
            }
            libc::RTA_MULTIPATH => several(family, value, &mut route.hops)?,
            NEXT_HOP_ID => route.next_hop = number(value).ok_or(wrong)?,
            _ => {}
        }
    }
    if route.next_hop != 0 {
        route.hops.clear(); // as the object was; the object itself is asked
    } else if route.hops.is_empty() {
        let hop = one(family, flags as u8, 0, rest)?;
        route.hops.extend((hop.link != 0 || hop.gateway.is_some()).then_some(hop));
    }
    Ok(Some(route))
}

/// Parses `RTA_MULTIPATH`: a list of `struct rtnexthop` with attributes.
fn several(family: u8, value: &[u8], hops: &mut Vec<Hop>) -> Result<(), Malformed> {
    let wrong = malformed("the next hops of a route");
    let mut rest = value;
    while let Some((header, _)) = rest.split_first_chunk::<8>() {
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let attributes = rest.get(8..length).ok_or(wrong)?;
        let mut hop = one(family, header[2], u32::from(header[3]), attributes)?;
        hop.link = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
        hops.push(hop);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(())
}

/// Parses one hop from its attributes; `weight` is the weight minus one.
fn one(family: u8, flags: u8, weight: u32, rest: &[u8]) -> Result<Hop, Malformed> {
    let wrong = malformed("a next hop");
    let dead = flags & (DEAD | UNRESOLVED) != 0;
    let mut hop = Hop { gateway: None, link: 0, weight: weight + 1, dead, encapsulated: false };
    for (kind, value) in attributes(rest) {
        match kind {
            libc::RTA_GATEWAY => hop.gateway = Some(ip(family, value).ok_or(wrong)?),
            libc::RTA_OIF => hop.link = number(value).ok_or(wrong)?,
            VIA => {
                let (family, address) = value.split_first_chunk::<2>().ok_or(wrong)?;
                hop.gateway = Some(ip(u16::from_ne_bytes(*family) as u8, address).ok_or(wrong)?);
            }
            ENCAP => hop.encapsulated = true,
            _ => {}
        }
    }
    Ok(hop)
}
