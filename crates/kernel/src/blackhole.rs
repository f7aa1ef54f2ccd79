//! Routes whose packets Linux drops, for addresses that are an application's alone; and where
//! other packets go.

use std::io;
use std::net::IpAddr;

use rustix::io::Errno;

use crate::netlink::{Request, ask, attribute, number};

/// Octets of `struct rtmsg`.
const ROUTE_HEADER: usize = 12;

/// Adds `blackhole PREFIX` to a routing table of the network namespace of the calling thread: what
/// Linux would forward to there it drops, and answers with nothing. It stays until somebody removes
/// it. Whether it is new: `false` when the table has a route to that prefix already, of which
/// [`is_blackhole`] says what it is.
///
/// # Errors
/// The kernel's answer: `EPERM` without `CAP_NET_ADMIN`.
pub fn add(address: IpAddr, length: u8, table: u32) -> io::Result<bool> {
    let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let kind = libc::RTN_BLACKHOLE;
    let request = request(libc::RTM_NEWROUTE, flags, address, length, kind)
        .attribute(libc::RTA_TABLE, &table.to_ne_bytes());
    match ask(request) {
        Ok(_) => Ok(true),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::EXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether what this host sends to `address` comes to a blackhole.
///
/// # Errors
/// What the kernel says besides that.
pub fn is_blackhole(address: IpAddr) -> io::Result<bool> {
    let length = if address.is_ipv4() { 32 } else { 128 };
    match ask(request(libc::RTM_GETROUTE, 0, address, length, 0)) {
        Ok(_) => Ok(false),
        Err(error) => match Errno::from_io_error(&error) {
            // What the lookup of a blackhole ends with (`fib_props` of the kernel).
            Some(Errno::INVAL) => Ok(true),
            Some(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ACCESS) => Ok(false),
            _ => Err(error),
        },
    }
}

/// How Linux sends what this host sends to `address`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The next hop; none for what is on the link.
    pub gateway: Option<IpAddr>,
    /// The number of the interface.
    pub interface: u32,
}

/// How Linux sends to `address`, by the rules and tables of the network namespace of the calling
/// thread.
///
/// # Errors
/// What the kernel says: `ENETUNREACH` without a route, `EINVAL` for a blackhole.
pub fn way(address: IpAddr) -> io::Result<Way> {
    let length = if address.is_ipv4() { 32 } else { 128 };
    let answers = ask(request(libc::RTM_GETROUTE, 0, address, length, 0))?;
    let found = answers.first().and_then(|answer| {
        let attributes = answer.get(ROUTE_HEADER..)?;
        let gateway = attribute(attributes, libc::RTA_GATEWAY);
        let interface = attribute(attributes, libc::RTA_OIF).and_then(number)?;
        Some(Way { gateway: gateway.and_then(from_octets), interface })
    });
    found.ok_or_else(|| io::Error::other("the kernel's answer names no interface"))
}

fn from_octets(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).ok().map(IpAddr::from);
    v4.or_else(|| <[u8; 16]>::try_from(octets).ok().map(IpAddr::from))
}

fn request(message: u16, flags: i32, address: IpAddr, length: u8, kind: u8) -> Request {
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
