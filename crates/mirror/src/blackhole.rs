//! Routes whose packets Linux drops, for addresses that are an application's alone.

use std::io;
use std::net::IpAddr;

use rustix::io::Errno;

use crate::query::request;
use fastlane_netlink::ask;

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
