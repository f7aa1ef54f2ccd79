//! One-shot route queries to Linux, for diagnostics. Lanes use the [`Mirror`](crate::Mirror).

use std::io;
use std::net::IpAddr;

use rustix::io::Errno;

use crate::Prefix;
use crate::message::{Route, RouteKind, read_route};

use fastlane_netlink::{Request, ask, attribute, each, number};

/// Length of `struct rtmsg` in bytes.
const ROUTE_HEADER: usize = 12;

/// Gateway and interface of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Via {
    /// Gateway; `None` if the destination is on-link.
    pub gateway: Option<IpAddr>,
    /// Index of the interface.
    pub interface: u32,
}

/// Returns the route that Linux uses for `address`, by the rules and tables of the network
/// namespace of the calling thread.
///
/// # Errors
/// Returns the error of the kernel: `ENETUNREACH` without a route, `EINVAL` for a blackhole.
pub fn route(address: IpAddr) -> io::Result<Via> {
    let length = if address.is_ipv4() { 32 } else { 128 };
    let replies = ask(request(libc::RTM_GETROUTE, 0, address, length, 0))?;
    let found = replies.first().and_then(|reply| {
        let attributes = reply.get(ROUTE_HEADER..)?;
        let gateway = attribute(attributes, libc::RTA_GATEWAY);
        let interface = attribute(attributes, libc::RTA_OIF).and_then(number)?;
        Some(Via { gateway: gateway.and_then(from_octets), interface })
    });
    found.ok_or_else(|| io::Error::other("the kernel's reply names no interface"))
}

/// Returns the best route of one routing table for `address`, regardless of rules: longest prefix,
/// then lowest metric; of several next hops the first. Reads the whole table, which takes seconds
/// for a million routes.
///
/// # Errors
/// Returns the error of the kernel: `ENETUNREACH` without a route, and for routes that discard
/// packets the error of a lookup (`EINVAL`, `EHOSTUNREACH`, `EACCES`).
pub fn route_in_table(table: u32, address: IpAddr) -> io::Result<Via> {
    let mut header = [0; ROUTE_HEADER];
    header[0] = family(address) as u8;
    let dump = Request::new(libc::RTM_GETROUTE, libc::NLM_F_DUMP, &header);
    let mut best: Option<Route> = None;
    each(dump, |body| {
        let Ok(Some(found)) = read_route(body) else { return };
        let holds = Prefix::new(address, found.destination.length()) == found.destination;
        let is_for_all = found.selector == (0, 0);
        let rank = |it: &Route| (it.destination.length(), u32::MAX - it.metric);
        let is_better = best.as_ref().is_none_or(|best| rank(best) < rank(&found));
        if found.table == table && holds && is_for_all && is_better {
            best = Some(found);
        }
    })?;
    let Some(best) = best else { return Err(Errno::NETUNREACH.into()) };
    match best.kind {
        RouteKind::Blackhole => Err(Errno::INVAL.into()),
        RouteKind::Unreachable => Err(Errno::HOSTUNREACH.into()),
        RouteKind::Prohibit => Err(Errno::ACCESS.into()),
        RouteKind::Throw => Err(Errno::NETUNREACH.into()),
        RouteKind::Local => Err(io::Error::other("the address is this host's")),
        _ if best.next_hop != 0 => {
            let number = best.next_hop;
            let what = format!("next-hop object {number}: `ip nexthop show id {number}` has it");
            Err(io::Error::other(what))
        }
        _ => {
            let hop = best.hops.first().ok_or(Errno::NETUNREACH)?;
            Ok(Via { gateway: hop.gateway, interface: hop.link })
        }
    }
}

fn from_octets(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).ok().map(IpAddr::from);
    v4.or_else(|| <[u8; 16]>::try_from(octets).ok().map(IpAddr::from))
}

fn family(address: IpAddr) -> i32 {
    if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}

pub(crate) fn request(message: u16, flags: i32, address: IpAddr, length: u8, kind: u8) -> Request {
    let (family, octets) = match address {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
    };
    let mut header = [0; ROUTE_HEADER];
    header[0] = family as u8;
    header[1] = length;
    header[5] = libc::RTPROT_STATIC;
    header[6] = libc::RT_SCOPE_UNIVERSE;
    header[7] = kind;
    Request::new(message, flags, &header).attribute(libc::RTA_DST, &octets)
}
