//! Interface configuration by rtnetlink.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use fastlane_netlink::{self as netlink, Request, ask, link_header};

/// `IFLA_INET6_ADDR_GEN_MODE` and its value `IN6_ADDR_GEN_MODE_NONE`, of `linux/if_link.h`.
const ADDRESS_GENERATION: u16 = 8;
const GENERATE_NONE: u8 = 1;

fn change(index: u32) -> Request {
    Request::new(libc::RTM_NEWLINK, 0, &link_header(index, 0, 0))
}

pub(crate) fn set_mac(index: u32, mac: [u8; 6]) -> io::Result<()> {
    ask(change(index).attribute(libc::IFLA_ADDRESS, &mac)).map(drop)
}

pub(crate) fn set_mtu(index: u32, mtu: u32) -> io::Result<()> {
    ask(change(index).attribute(libc::IFLA_MTU, &mtu.to_ne_bytes())).map(drop)
}

/// Sets and clears interface flags (`IFF_*`).
pub(crate) fn set_flags(index: u32, set: i32, clear: i32) -> io::Result<()> {
    let header = link_header(index, set as u32, (set | clear) as u32);
    ask(Request::new(libc::RTM_NEWLINK, 0, &header)).map(drop)
}

/// Moves an interface into another network namespace, under this name, and sets it up there.
pub(crate) fn move_to(index: u32, namespace: BorrowedFd<'_>, name: Option<&str>) -> io::Result<()> {
    let up = libc::IFF_UP as u32;
    let request = Request::new(libc::RTM_NEWLINK, 0, &link_header(index, up, up))
        .attribute(libc::IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes());
    let request = match name {
        Some(name) => request.attribute(libc::IFLA_IFNAME, &[name.as_bytes(), b"\0"].concat()),
        None => request,
    };
    ask(request).map(drop)
}

/// Disables IPv6 address generation, so that the interface gets no address when it comes up.
pub(crate) fn generate_no_addresses(index: u32) -> io::Result<()> {
    let request = change(index).nest(libc::IFLA_AF_SPEC, |families| {
        families.nest(libc::AF_INET6 as u16, |inet6| {
            inet6.attribute(ADDRESS_GENERATION, &[GENERATE_NONE])
        })
    });
    match ask(request) {
        // Without IPv6 there is nothing to keep from.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::AFNOSUPPORT) => Ok(()),
        other => other.map(drop),
    }
}

/// Adds an address to an interface.
pub(crate) fn add_address(index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
    let (family, octets) = match address {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
    };
    // `struct ifaddrmsg`: family, prefix length, flags, scope, index.
    let mut header = [family as u8, prefix, 0, 0, 0, 0, 0, 0];
    header[4..].copy_from_slice(&index.to_ne_bytes());
    let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let request = Request::new(libc::RTM_NEWADDR, flags, &header)
        .attribute(libc::IFA_LOCAL, &octets)
        .attribute(libc::IFA_ADDRESS, &octets);
    ask(request).map(drop)
}

/// Returns the index of the interface `name`.
pub(crate) fn index(name: &str) -> io::Result<u32> {
    let mut octets = name.as_bytes().to_vec();
    octets.push(0);
    let request = Request::new(libc::RTM_GETLINK, 0, &link_header(0, 0, 0))
        .attribute(libc::IFLA_IFNAME, &octets);
    let answers = ask(request)?;
    let number = answers.first().and_then(|answer| netlink::number(answer.get(4..)?));
    number.ok_or_else(|| Errno::NODEV.into())
}
