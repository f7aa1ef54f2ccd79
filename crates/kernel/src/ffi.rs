//! System calls without a safe wrapper: options of sockets, and ioctl(2) requests of
//! netdevice(7), `linux/ethtool.h` and `linux/if_tun.h`. Those of netdevice(7) act in the network
//! namespace of their socket.
#![allow(unsafe_code, reason = "ioctls and options of sockets")]

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Requests of `linux/if_tun.h`: `_IOR('T', 210, unsigned int)`, `_IOR('T', 215, int)`.
const TUNGETIFF: libc::Ioctl = 0x8004_54d2_u32 as libc::Ioctl;
const TUNGETVNETHDRSZ: libc::Ioctl = 0x8004_54d7_u32 as libc::Ioctl;
/// Request `_IO('T', 227)` of `linux/if_tun.h`.
const TUNGETDEVNETNS: libc::Ioctl = 0x54e3;
/// Request `SIOCGSKNS` of `linux/sockios.h`.
const SOCKET_NAMESPACE: libc::Ioctl = 0x894c;
/// Option `SO_PEERPIDFD` of `asm-generic/socket.h`.
const PEER_PIDFD: libc::c_int = 77;
/// Request `SIOCETHTOOL`.
const ETHTOOL: libc::Ioctl = 0x8946;

/// `ETHTOOL_GDRVINFO`, `ETHTOOL_GCHANNELS`, `ETHTOOL_GFLAGS`.
const GET_DRIVER: u32 = 0x3;
const GET_CHANNELS: u32 = 0x3c;
pub(crate) const GET_FLAGS: u32 = 0x25;

/// Converts an interface name to the NUL-terminated form of the kernel; `None` if it is invalid.
pub(crate) fn interface_name(name: &str) -> Option<[libc::c_char; libc::IFNAMSIZ]> {
    let fits = !name.is_empty() && name.len() < libc::IFNAMSIZ && !name.contains('\0');
    let mut octets = [0; libc::IFNAMSIZ];
    for (to, from) in octets.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    fits.then_some(octets)
}

/// Attaches a filter to a socket that rejects every packet until another filter replaces it.
pub(crate) fn refuse_all(socket: BorrowedFd<'_>) -> io::Result<()> {
    // The instruction "return 0": `BPF_RET | BPF_K`.
    let mut filter = libc::sock_filter { code: 6, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &raw mut filter };
    let length = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: `program` is a whole `struct sock_fprog` that points to its one instruction; both
    // outlive the call.
    let result = unsafe {
        let (file, program) = (socket.as_raw_fd(), (&raw const program).cast());
        libc::setsockopt(file, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program, length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Opens the network namespace of a socket. An accepted Unix socket is in that of its client.
pub(crate) fn socket_namespace(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // To a file of another kind, which a client may have sent, the request means something else.
    // This question goes to no driver and no file system.
    rustix::net::sockopt::socket_domain(socket)?;
    namespace(socket, SOCKET_NAMESPACE)
}

/// Opens the network namespace of the interface of a TAP queue. The queue itself is a socket of the
/// namespace in which it was opened.
pub(crate) fn tun_namespace(queue: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    namespace(queue, TUNGETDEVNETNS)
}

fn namespace(file: BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<OwnedFd> {
    // SAFETY: both requests have no argument.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the file is a socket or a TAP queue, as the callers have checked. For these the
    // kernel just created this descriptor (with O_CLOEXEC), and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// Returns the credentials of the process at the other end of a Unix socket. Its id is 0 if it is
/// outside of the PID namespace of this one, which the type of rustix cannot hold.
pub(crate) fn peer_credentials(connection: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes a `struct ucred`, whose size is `length`; both outlive the call.
    let result = unsafe {
        let (file, value) = (connection.as_raw_fd(), (&raw mut credentials).cast());
        libc::getsockopt(file, libc::SOL_SOCKET, libc::SO_PEERCRED, value, &raw mut length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(credentials) }
}

/// Opens the process that connected an accepted Unix socket (Linux 6.5 and later).
pub(crate) fn peer_pidfd(connection: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let (mut pidfd, mut length) = (-1, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the kernel writes an int, whose size is `length`; both outlive the call.
    let result = unsafe {
        let (file, value) = (connection.as_raw_fd(), (&raw mut pidfd).cast());
        libc::getsockopt(file, libc::SOL_SOCKET, PEER_PIDFD, value, &raw mut length)
    };
    if result < 0 || pidfd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just created this descriptor (with O_CLOEXEC), and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(pidfd) })
}

/// Layout of `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// Layout of `struct ethtool_channels`: maximum and current numbers of receive, transmit, other and
/// combined channels.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Channels {
    command: u32,
    most: [u32; 4],
    pub(crate) receive: u32,
    pub(crate) transmit: u32,
    other: u32,
    pub(crate) combined: u32,
}

/// Layout of `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Socket for ethtool requests to interface drivers.
pub(crate) struct Ethtool {
    socket: OwnedFd,
}

impl Ethtool {
    /// Opens a socket in the network namespace of the calling thread.
    pub(crate) fn new() -> io::Result<Self> {
        let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
        Ok(Self { socket })
    }

    /// Sends requests through a socket, in its network namespace.
    pub(crate) fn through(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Returns the name of the driver.
    pub(crate) fn driver(&self, interface: &str) -> io::Result<String> {
        let mut answer = DriverInfo { command: GET_DRIVER, driver: [0; 32], rest: [0; 160] };
        // SAFETY: the structure is the one that the command fills.
        unsafe { self.ask(interface, &mut answer)? };
        Ok(fastlane_netlink::text(&answer.driver))
    }

    /// Returns the numbers of queues in use.
    pub(crate) fn channels(&self, interface: &str) -> io::Result<Channels> {
        let mut answer = Channels { command: GET_CHANNELS, ..Channels::default() };
        // SAFETY: the structure is the one that the command fills.
        unsafe { self.ask(interface, &mut answer)? };
        Ok(answer)
    }

    /// Returns the result of a command that reads one number.
    pub(crate) fn value(&self, interface: &str, command: u32) -> io::Result<u32> {
        let mut answer = Value { command, data: 0 };
        // SAFETY: the structure is the one that such commands fill.
        unsafe { self.ask(interface, &mut answer)? };
        Ok(answer.data)
    }

    /// Sends an ethtool command and stores the reply in `answer`.
    ///
    /// # Safety
    /// `answer` must begin with a command and be at least what the kernel writes for it.
    unsafe fn ask<T>(&self, interface: &str, answer: &mut T) -> io::Result<()> {
        let ifr_name = interface_name(interface).ok_or(io::ErrorKind::InvalidInput)?;
        let ifr_ifru = libc::__c_anonymous_ifr_ifru { ifru_data: (&raw mut *answer).cast() };
        let mut request = libc::ifreq { ifr_name, ifr_ifru };
        // SAFETY: `request` is a whole `struct ifreq` that points to `answer`, whose size the
        // caller has promised; both outlive the call.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), ETHTOOL, &raw mut request) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Property of an interface that a netdevice(7) request sets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Property {
    Mtu(u32),
    Mac([u8; 6]),
    /// `IFF_*` flags, all of them.
    Flags(libc::c_short),
    Address(Ipv4Addr),
    Netmask(Ipv4Addr),
}

/// Sets a property of an interface in the network namespace of `socket`, where the calling thread
/// need not be. IPv4 addresses take a socket of IPv4, the others any.
pub(crate) fn set_property(
    socket: BorrowedFd<'_>,
    interface: &str,
    property: Property,
) -> io::Result<()> {
    let (request, ifr_ifru) = match property {
        Property::Mtu(mtu) => {
            let ifru_mtu = libc::c_int::try_from(mtu).unwrap_or(libc::c_int::MAX);
            (libc::SIOCSIFMTU, libc::__c_anonymous_ifr_ifru { ifru_mtu })
        }
        Property::Mac(mac) => {
            let ifru_hwaddr = socket_address(libc::ARPHRD_ETHER, 0, &mac);
            (libc::SIOCSIFHWADDR, libc::__c_anonymous_ifr_ifru { ifru_hwaddr })
        }
        Property::Flags(ifru_flags) => {
            (libc::SIOCSIFFLAGS, libc::__c_anonymous_ifr_ifru { ifru_flags })
        }
        Property::Address(address) => {
            let ifru_addr = socket_address(libc::AF_INET as u16, 2, &address.octets());
            (libc::SIOCSIFADDR, libc::__c_anonymous_ifr_ifru { ifru_addr })
        }
        Property::Netmask(mask) => {
            let ifru_netmask = socket_address(libc::AF_INET as u16, 2, &mask.octets());
            (libc::SIOCSIFNETMASK, libc::__c_anonymous_ifr_ifru { ifru_netmask })
        }
    };
    interface_request(socket, interface, request, ifr_ifru).map(drop)
}

/// Returns the index of an interface in the network namespace of `socket`.
pub(crate) fn index_there(socket: BorrowedFd<'_>, interface: &str) -> io::Result<libc::c_int> {
    let empty = libc::__c_anonymous_ifr_ifru { ifru_ifindex: 0 };
    let reply = interface_request(socket, interface, libc::SIOCGIFINDEX, empty)?;
    // SAFETY: the kernel has written this member; every bit pattern of it is an integer.
    Ok(unsafe { reply.ifr_ifru.ifru_ifindex })
}

/// Returns the flags of an interface in the network namespace of `socket`.
pub(crate) fn flags_there(socket: BorrowedFd<'_>, interface: &str) -> io::Result<libc::c_short> {
    let empty = libc::__c_anonymous_ifr_ifru { ifru_flags: 0 };
    let reply = interface_request(socket, interface, libc::SIOCGIFFLAGS, empty)?;
    // SAFETY: the kernel has written this member; every bit pattern of it is an integer.
    Ok(unsafe { reply.ifr_ifru.ifru_flags })
}

/// Adds an IPv6 address to an interface in the network namespace of `socket`, one of IPv6.
pub(crate) fn add_ipv6_address(
    socket: BorrowedFd<'_>,
    index: libc::c_int,
    address: Ipv6Addr,
    prefix: u8,
) -> io::Result<()> {
    if rustix::net::sockopt::socket_domain(socket)? != AddressFamily::INET6 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let ifr6_addr = libc::in6_addr { s6_addr: address.octets() };
    let request = libc::in6_ifreq { ifr6_addr, ifr6_prefixlen: prefix.into(), ifr6_ifindex: index };
    let set = libc::SIOCSIFADDR as libc::Ioctl;
    // SAFETY: of an IPv6 socket, SIOCSIFADDR reads one whole `struct in6_ifreq`, which outlives the
    // call. Another one would read a longer `struct ifreq`, so the family was checked.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), set, &raw const request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Builds a `struct sockaddr` with octets at an offset of its data.
fn socket_address(family: u16, offset: usize, octets: &[u8]) -> libc::sockaddr {
    let mut sa_data = [0; 14];
    for (to, from) in sa_data[offset..].iter_mut().zip(octets) {
        *to = *from as libc::c_char;
    }
    libc::sockaddr { sa_family: family, sa_data }
}

/// Sends a netdevice(7) request, which acts in the network namespace of the socket.
fn interface_request(
    socket: BorrowedFd<'_>,
    interface: &str,
    request: libc::c_ulong,
    ifr_ifru: libc::__c_anonymous_ifr_ifru,
) -> io::Result<libc::ifreq> {
    let ifr_name = interface_name(interface).ok_or(io::ErrorKind::InvalidInput)?;
    let mut argument = libc::ifreq { ifr_name, ifr_ifru };
    // SAFETY: the requests of this file read and write one whole `struct ifreq`, which outlives the
    // call.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), request as libc::Ioctl, &raw mut argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(argument) }
}

/// Sends a `/dev/net/tun` request with a `struct ifreq` of name and flags.
fn tun_request(file: BorrowedFd<'_>, name: &str, flags: i32) -> io::Result<libc::ifreq> {
    let ifr_name = interface_name(name).ok_or(io::ErrorKind::InvalidInput)?;
    let ifr_ifru = libc::__c_anonymous_ifr_ifru { ifru_flags: flags as libc::c_short };
    let mut request = libc::ifreq { ifr_name, ifr_ifru };
    // SAFETY: TUNSETIFF reads and writes one whole `struct ifreq`, which outlives the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(request) }
}

/// Attaches an open `/dev/net/tun` as a queue of the interface `name`. A `%d` in the name is
/// replaced by a number that the kernel chooses. Returns the actual name.
pub(crate) fn tun_attach(file: BorrowedFd<'_>, name: &str, flags: i32) -> io::Result<String> {
    let request = tun_request(file, name, flags)?;
    Ok(fastlane_netlink::text(&request.ifr_name.map(|octet| octet as u8)))
}

/// Sets the offloads that a TAP queue accepts from Linux (`TUN_F_*`).
pub(crate) fn tun_set_offloads(file: BorrowedFd<'_>, offloads: u32) -> io::Result<()> {
    let offloads = libc::c_ulong::from(offloads);
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, offloads) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns the flags with which a queue was attached and the current name of its interface.
pub(crate) fn tun_attached(file: BorrowedFd<'_>) -> io::Result<(i32, String)> {
    let ifr_ifru = libc::__c_anonymous_ifr_ifru { ifru_flags: 0 };
    let mut request = libc::ifreq { ifr_name: [0; libc::IFNAMSIZ], ifr_ifru };
    // SAFETY: TUNGETIFF writes one whole `struct ifreq`, which outlives the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), TUNGETIFF, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it has written this member; every bit pattern of it is an integer.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    let name = fastlane_netlink::text(&request.ifr_name.map(|octet| octet as u8));
    Ok((i32::from(flags as u16), name))
}

/// Returns the length of the header before each frame of a queue, in bytes.
pub(crate) fn tun_header(file: BorrowedFd<'_>) -> io::Result<usize> {
    let mut length: libc::c_int = 0;
    // SAFETY: TUNGETVNETHDRSZ writes one int, which outlives the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), TUNGETVNETHDRSZ, &raw mut length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(length.max(0) as usize) }
}

/// Sets the carrier of a TAP device.
pub(crate) fn tun_set_carrier(file: BorrowedFd<'_>, carrier: bool) -> io::Result<()> {
    let carrier = libc::c_int::from(carrier);
    // SAFETY: TUNSETCARRIER reads one int, which outlives the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETCARRIER, &raw const carrier) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_file_of_another_kind_is_not_asked_for_its_namespace() {
        let file = File::open("/dev/null").unwrap();
        let error = socket_namespace(file.as_fd()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTSOCK), "no request reached its driver");
    }
}
