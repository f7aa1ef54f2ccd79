//! Unsafe code of the tests: sockets and devices that the standard library does not support.
#![allow(unsafe_code, reason = "sockets and system calls without a safe form")]

use std::{
    ffi::CString,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    process::Command,
    ptr,
};

/// Size of the UMEM of [`xdp_socket`], in octets.
const UMEM_LENGTH: usize = 4096 * 16;

/// Opens an AF_XDP socket with memory and rings, not bound: sufficient for the table of sockets.
pub(crate) fn xdp_socket() -> io::Result<OwnedFd> {
    let socket = socket(libc::AF_XDP, libc::SOCK_RAW, 0)?;
    // SAFETY: a new private mapping at an address of the kernel's choice aliases no memory of this
    // process. It is never unmapped, so it outlives the socket that refers to it.
    let area = unsafe {
        libc::mmap(
            ptr::null_mut(),
            UMEM_LENGTH,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if area == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // struct xdp_umem_reg: address, length, then frame size and headroom as two words, then flags.
    let registration = [area as u64, UMEM_LENGTH as u64, 4096, 0];
    set_option(&socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &registration)?;
    for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING] {
        set_option(&socket, libc::SOL_XDP, ring, &64_u32)?;
    }
    Ok(socket)
}

/// Opens a non-blocking AF_PACKET socket on an interface that receives every protocol.
pub(crate) fn packet_socket(interface: &str) -> io::Result<OwnedFd> {
    let protocol = (libc::ETH_P_ALL as u16).to_be();
    let socket = socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, protocol.into())?;
    // SAFETY: sockaddr_ll is made of integers, for which zero is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol;
    address.sll_ifindex = index_of(interface)? as i32;
    // SAFETY: the pointer and the length describe `address`, which lives through the call.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as u32,
        )
    };
    done(result)?;
    Ok(socket)
}

/// Opens a TAP with this name, without packet information. It ends with the descriptor.
pub(crate) fn tap(name: &str) -> io::Result<OwnedFd> {
    let file = std::fs::File::options().read(true).write(true).open("/dev/net/tun")?;
    // SAFETY: ifreq is made of integers and unions of them, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (character, octet) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *character = octet as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as i16;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which lives through the call.
    done(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    Ok(file.into())
}

/// Returns the index of an interface in this thread's network namespace.
pub(crate) fn index_of(interface: &str) -> io::Result<u32> {
    let name = CString::new(interface)?;
    // SAFETY: the name is a string that ends with NUL and lives through the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// Runs `body` on a new thread in a new network namespace, which ends with it.
pub(crate) fn in_namespace<T: Send + 'static>(
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let thread = std::thread::spawn(move || {
        // SAFETY: unshare touches no memory; only this thread changes its namespace.
        done(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
        Ok(body())
    });
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs `ip` with these arguments in this thread's network namespace.
pub(crate) fn ip(words: &str) {
    let output = Command::new("ip").args(words.split_whitespace()).output().expect("ip is there");
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: socket(2) takes integers only.
    let number = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    done(number)?;
    // SAFETY: the kernel just created this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn set_option<T>(socket: &OwnedFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which lives through the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            ptr::from_ref(value).cast(),
            size_of::<T>() as u32,
        )
    };
    done(result)
}

fn done(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Drops all capabilities of the calling thread except those of the mask `kept`.
pub(crate) fn keep_capabilities(kept: u64) -> io::Result<()> {
    // struct __user_cap_header_struct: version 3 and this thread. Then, for the lower and the upper
    // 32 bits, the effective, permitted and inheritable mask.
    let header = [0x2008_0522_u32, 0];
    let (lower, upper) = (kept as u32, (kept >> 32) as u32);
    let masks = [lower, lower, 0, upper, upper, 0];
    // SAFETY: capset(2) reads both arrays, which have the layout of that version and live through
    // the call.
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), masks.as_ptr()) };
    done(result as i32)
}
