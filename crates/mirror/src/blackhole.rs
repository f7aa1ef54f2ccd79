//! Blackhole routes, for prefixes that an application handles alone.

use std::io;
use std::net::IpAddr;

use rustix::io::Errno;

use crate::query::request;
use fastlane_netlink::ask;

/// Adds `blackhole PREFIX` to a routing table of the calling thread's network namespace: Linux
/// silently drops what it would forward there. The route stays until it is deleted. Returns false
/// if the table already has a route to the prefix; [`is_blackhole`] tells which kind.
///
/// # Errors
/// Returns the error that the kernel reports: `EPERM` without `CAP_NET_ADMIN`.
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

/// Returns true if packets that this host sends to `address` hit a blackhole route.
///
/// # Errors
/// Returns the error of the kernel if the lookup fails for another reason.
pub fn is_blackhole(address: IpAddr) -> io::Result<bool> {
    let length = if address.is_ipv4() { 32 } else { 128 };
    match ask(request(libc::RTM_GETROUTE, 0, address, length, 0)) {
        Ok(_) => Ok(false),
        Err(error) => match Errno::from_io_error(&error) {
            // Error of a lookup that hits a blackhole (`fib_props` of the kernel).
            Some(Errno::INVAL) => Ok(true),
            Some(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ACCESS) => Ok(false),
            _ => Err(error),
        },
    }
}
