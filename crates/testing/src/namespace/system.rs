//! System calls that the standard library lacks.
#![allow(unsafe_code, reason = "FFI; each block has a SAFETY comment")]

use std::ffi::CString;
use std::io;
use std::mem::{MaybeUninit, size_of, size_of_val};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub(super) fn unshare_network() -> io::Result<()> {
    // SAFETY: no pointers; only the network namespace of this thread changes.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) }).map(drop)
}

fn set_option<T>(
    socket: &impl AsRawFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of `value`, which is only read.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of_val(value) as libc::socklen_t,
        )
    };
    check(result).map(drop)
}

pub(super) fn bind_to_device(socket: &impl AsRawFd, interface: &str) -> io::Result<()> {
    let mut name = [0_u8; libc::IFNAMSIZ];
    let field = name.get_mut(..interface.len()).ok_or(io::ErrorKind::InvalidInput)?;
    field.copy_from_slice(interface.as_bytes());
    set_option(socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &name)
}

/// Enlarges the receive buffer to 64 MiB. Without privilege it keeps its size.
pub(super) fn grow_receive_buffer(socket: &impl AsRawFd) {
    let bytes: libc::c_int = 64 << 20;
    let _ = set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes);
}

/// Opens a raw packet socket (packet(7)) for all frames that arrive on an interface.
pub(super) fn packet_socket(interface: &str) -> io::Result<OwnedFd> {
    let name = CString::new(interface)?;
    // SAFETY: the name is a string with a terminating zero and is only read.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        return Err(io::Error::last_os_error());
    }
    // Protocol 0: it receives nothing before it is bound to the interface.
    // SAFETY: no pointers.
    let socket = check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) })?;
    // SAFETY: the descriptor was just created and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    for option in [libc::PACKET_IGNORE_OUTGOING, libc::PACKET_AUXDATA] {
        set_option(&socket, libc::SOL_PACKET, option, &1_i32)?;
    }
    grow_receive_buffer(&socket);
    // SAFETY: for this plain structure all zeros are a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    // SAFETY: the pointer and the length are those of `address`, which is only read.
    let result = unsafe {
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), length)
    };
    check(result)?;
    Ok(socket)
}

/// Sends without waiting. Returns false if the kernel has not taken all bytes.
pub(super) fn send(socket: &impl AsRawFd, bytes: &[u8]) -> bool {
    // SAFETY: the pointer and the length are those of `bytes`, which are only read.
    let sent = unsafe {
        let flags = libc::MSG_DONTWAIT;
        libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags)
    };
    sent == bytes.len() as isize
}

/// Waits for up to `within` until the socket is readable. Returns false after a timeout.
fn wait(socket: &impl AsRawFd, within: Duration) -> bool {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let timeout = libc::timespec {
        tv_sec: within.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(within.subsec_nanos()),
    };
    // SAFETY: the count is one, for one structure; the timeout is only read; no signal mask.
    unsafe { libc::ppoll(&raw mut poll, 1, &raw const timeout, std::ptr::null()) > 0 }
}

/// Receives a datagram and returns its length. Waits for up to `within`.
pub(super) fn receive(socket: &impl AsRawFd, bytes: &mut [u8], within: Duration) -> Option<usize> {
    receive_with_tag(socket, bytes, within).map(|(length, _)| length)
}

/// Receives a frame from a packet socket. Returns its length and the VLAN tag that Linux has
/// removed from it (packet(7), `PACKET_AUXDATA`): protocol and control information.
pub(super) fn receive_with_tag(
    socket: &impl AsRawFd,
    bytes: &mut [u8],
    within: Duration,
) -> Option<(usize, Option<[u16; 2]>)> {
    match receive_now(socket, bytes) {
        None if !within.is_zero() && wait(socket, within) => receive_now(socket, bytes),
        received => received,
    }
}

fn receive_now(socket: &impl AsRawFd, bytes: &mut [u8]) -> Option<(usize, Option<[u16; 2]>)> {
    let mut control = [0_u64; 16]; // aligned as cmsg(3) requires
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: for this plain structure all zeros are a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the message points to the exclusive `bytes` and `control` with their lengths.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    let length = usize::try_from(length).ok()?;
    // SAFETY: the kernel filled the message in, and `control` is alive and unmoved.
    let tag = unsafe { vlan_tag(&message) };
    Some((length, tag))
}

/// Returns the VLAN tag in the control data of a message.
///
/// # Safety
/// The kernel must have filled in the message, and its control buffer must be alive.
unsafe fn vlan_tag(message: &libc::msghdr) -> Option<[u16; 2]> {
    // SAFETY: the caller's promise is what the macros of cmsg(3) ask for.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_PACKET
                && (*header).cmsg_type == libc::PACKET_AUXDATA
            {
                let mut data = MaybeUninit::<libc::tpacket_auxdata>::uninit();
                let size = size_of_val(&data);
                let from = libc::CMSG_DATA(header);
                std::ptr::copy_nonoverlapping(from, data.as_mut_ptr().cast(), size);
                let data = data.assume_init();
                let valid = data.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
                return valid.then_some([data.tp_vlan_tpid, data.tp_vlan_tci]);
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    None
}
