//! BPF links of XDP and ingress (tcx) programs, also those of other processes, and pins in a BPF
//! file system, by bpf(2). The loader creates such links too, but does not give access to their
//! descriptors, which a successor needs.
#![allow(unsafe_code, reason = "bpf(2) and if_nametoindex(3)")]

use std::{
    ffi::CString,
    fmt, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    os::unix::ffi::OsStrExt,
    path::Path,
};

// Constants of linux/bpf.h and linux/if_link.h.
const BPF_OBJ_PIN: libc::c_int = 6;
const BPF_OBJ_GET: libc::c_int = 7;
const BPF_PROG_GET_FD_BY_ID: libc::c_int = 13;
pub(crate) const OBJ_GET_INFO_BY_FD: libc::c_int = 15; // BPF_OBJ_GET_INFO_BY_FD
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_LINK_UPDATE: libc::c_int = 29;
const BPF_LINK_GET_FD_BY_ID: libc::c_int = 30;
const BPF_LINK_DETACH: libc::c_int = 34;
/// Flag of an update: only in place of the program that is named.
const BPF_F_REPLACE: u32 = 1 << 2;
const BPF_XDP: u32 = 37;
const BPF_TCX_INGRESS: u32 = 46;
const BPF_LINK_TYPE_XDP: u32 = 6;
const BPF_LINK_TYPE_TCX: u32 = 11;
/// Flag of a tcx link: before all other programs.
const BPF_F_BEFORE: u32 = 1 << 3;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// Place where the XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver, before the kernel allocates a socket buffer.
    Native,
    /// In the kernel's network stack: slower, but works with every driver.
    Generic,
}

impl fmt::Display for XdpMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
        })
    }
}

/// First fields of `union bpf_attr` for BPF_LINK_CREATE.
#[repr(C)]
struct Create {
    program: u32,
    interface: u32,
    kind: u32,
    flags: u32,
    /// Options such as cookies and positions, which these links do not have.
    rest: [u64; 4],
}

/// `union bpf_attr` for BPF_OBJ_PIN and BPF_OBJ_GET.
#[repr(C)]
struct Pin {
    /// Address of the path.
    path: u64,
    descriptor: u32,
    flags: u32,
}

/// `union bpf_attr` for BPF_OBJ_GET_INFO_BY_FD.
#[repr(C)]
pub(crate) struct GetInfo {
    pub(crate) descriptor: u32,
    pub(crate) length: u32,
    /// Address of the result.
    pub(crate) info: u64,
}

/// `union bpf_attr` for BPF_PROG_GET_FD_BY_ID and BPF_LINK_GET_FD_BY_ID.
#[repr(C)]
struct GetById {
    id: u32,
    next: u32,
    flags: u32,
}

/// `union bpf_attr` for BPF_LINK_UPDATE.
#[repr(C)]
struct Update {
    link: u32,
    program: u32,
    flags: u32,
    old: u32,
}

/// `union bpf_attr` for BPF_LINK_DETACH.
#[repr(C)]
struct Detach {
    link: u32,
}

/// First fields of `struct bpf_prog_info`.
#[repr(C)]
#[derive(Default)]
struct ProgramInfo {
    kind: u32,
    id: u32,
}

/// First fields of `struct bpf_link_info` for a link of an XDP or tcx program.
#[repr(C)]
#[derive(Default)]
struct Info {
    kind: u32,
    link: u32,
    program: u32,
    padding: u32,
    interface: u32,
    rest: [u32; 3],
}

/// Attaches an XDP program to an interface, by its index. The link ends with its last descriptor.
///
/// # Errors
/// Returns the refusal of the kernel, for example `EBUSY` if another program is attached.
pub fn attach(program: BorrowedFd<'_>, interface: u32, mode: XdpMode) -> io::Result<OwnedFd> {
    let flags = match mode {
        XdpMode::Native => XDP_FLAGS_DRV_MODE,
        XdpMode::Generic => XDP_FLAGS_SKB_MODE,
    };
    create(program, interface, BPF_XDP, flags)
}

/// Attaches a program to the ingress of an interface, before all others (Linux 6.6 and later). The
/// link ends with its last descriptor.
pub(crate) fn attach_ingress(program: BorrowedFd<'_>, interface: u32) -> io::Result<OwnedFd> {
    create(program, interface, BPF_TCX_INGRESS, BPF_F_BEFORE)
}

fn create(program: BorrowedFd<'_>, interface: u32, kind: u32, flags: u32) -> io::Result<OwnedFd> {
    let program = program.as_raw_fd() as u32;
    let mut request = Create { program, interface, kind, flags, rest: [0; 4] };
    // SAFETY: this command only reads the structure, whose fields are as it requires and otherwise
    // zero.
    let number = unsafe { call(BPF_LINK_CREATE, &mut request)? };
    // SAFETY: the kernel just created this descriptor (with O_CLOEXEC), and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Returns the index of the interface that a link's XDP or tcx program is attached to. Returns
/// `None` if the interface is removed, or the link is of another kind.
///
/// # Errors
/// Returns the refusal of the kernel.
pub fn interface(link: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let info = info(link)?;
    let is_known = [BPF_LINK_TYPE_XDP, BPF_LINK_TYPE_TCX].contains(&info.kind);
    let on_one = is_known && info.interface != 0;
    Ok(on_one.then_some(info.interface))
}

/// Returns true if a link is that of a program at the ingress of an interface (tcx).
///
/// # Errors
/// Returns the refusal of the kernel.
pub fn is_ingress(link: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(info(link)?.kind == BPF_LINK_TYPE_TCX)
}

fn info(link: BorrowedFd<'_>) -> io::Result<Info> {
    let mut info = Info::default();
    let mut request = GetInfo {
        descriptor: link.as_raw_fd() as u32,
        length: size_of::<Info>() as u32,
        info: (&raw mut info).expose_provenance() as u64,
    };
    // SAFETY: this command writes at most `length` octets to `info`, which outlives the call. Every
    // bit pattern is a valid value of it.
    unsafe { call(OBJ_GET_INFO_BY_FD, &mut request)? };
    Ok(info)
}

/// Detaches the program of a link, also if other processes have descriptors of it.
///
/// # Errors
/// Returns the refusal of the kernel.
pub fn detach(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut request = Detach { link: link.as_raw_fd() as u32 };
    // SAFETY: this command only reads the structure.
    unsafe { call(BPF_LINK_DETACH, &mut request)? };
    Ok(())
}

/// Returns the id of a program.
///
/// # Errors
/// Returns the refusal of the kernel.
pub fn program_id(program: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = ProgramInfo::default();
    let mut request = GetInfo {
        descriptor: program.as_raw_fd() as u32,
        length: size_of::<ProgramInfo>() as u32,
        info: (&raw mut info).expose_provenance() as u64,
    };
    // SAFETY: this command writes at most `length` octets to `info`, which outlives the call. Every
    // bit pattern is a valid value of it.
    unsafe { call(OBJ_GET_INFO_BY_FD, &mut request)? };
    Ok(info.id)
}

/// Opens the program with an id.
///
/// # Errors
/// Returns the refusal of the kernel, `ENOENT` if there is no such program.
pub fn open_program(id: u32) -> io::Result<OwnedFd> {
    open(BPF_PROG_GET_FD_BY_ID, id)
}

/// Opens the link with an id. It then lasts at least as long as the descriptor.
///
/// # Errors
/// Returns the refusal of the kernel, `ENOENT` if there is no such link.
pub fn open_link(id: u32) -> io::Result<OwnedFd> {
    open(BPF_LINK_GET_FD_BY_ID, id)
}

fn open(command: libc::c_int, id: u32) -> io::Result<OwnedFd> {
    let mut request = GetById { id, next: 0, flags: 0 };
    // SAFETY: this command only reads the structure.
    let number = unsafe { call(command, &mut request)? };
    // SAFETY: the kernel just created this descriptor (with O_CLOEXEC), and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Exchanges the program of a link, from one packet to the next.
///
/// # Errors
/// Returns the refusal of the kernel, `EPERM` if the link has another program than the old one.
pub fn exchange(
    link: BorrowedFd<'_>,
    old: BorrowedFd<'_>,
    program: BorrowedFd<'_>,
) -> io::Result<()> {
    let [link, program, old] = [link, program, old].map(|it| it.as_raw_fd() as u32);
    let mut request = Update { link, program, flags: BPF_F_REPLACE, old };
    // SAFETY: this command only reads the structure.
    unsafe { call(BPF_LINK_UPDATE, &mut request)? };
    Ok(())
}

/// Exchanges whatever program a link has for another one. Does nothing if it has this one.
///
/// # Errors
/// Returns the refusal of the kernel.
pub fn renew(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let attached = info(link)?.program;
    if attached == program_id(program)? {
        return Ok(());
    }
    exchange(link, open_program(attached)?.as_fd(), program)
}

/// Pins a link, a map or a program at a path of a BPF file system: it then outlives its
/// descriptors.
///
/// # Errors
/// Returns the refusal of the kernel, `EPERM` if the path is not in a BPF file system.
pub fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let descriptor = object.as_raw_fd() as u32;
    let mut request = Pin { path: path.as_ptr().expose_provenance() as u64, descriptor, flags: 0 };
    // SAFETY: this command only reads the structure and the path, a string that ends with NUL and
    // outlives the call.
    unsafe { call(BPF_OBJ_PIN, &mut request)? };
    Ok(())
}

/// Opens a pinned link, map or program.
///
/// # Errors
/// Returns the refusal of the kernel, `ENOENT` if nothing is pinned there.
pub fn open_pin(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let path_address = path.as_ptr().expose_provenance() as u64;
    let mut request = Pin { path: path_address, descriptor: 0, flags: 0 };
    // SAFETY: this command only reads the structure and the path, a string that ends with NUL and
    // outlives the call.
    let number = unsafe { call(BPF_OBJ_GET, &mut request)? };
    // SAFETY: the kernel just created this descriptor (with O_CLOEXEC), and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Returns the index of an interface in the network namespace of the calling thread.
///
/// # Errors
/// Returns `ENODEV` if there is no such interface.
pub fn index_of(interface: &str) -> io::Result<u32> {
    let name = CString::new(interface)?;
    // SAFETY: the name is a string that ends with NUL and lives through the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// Calls bpf(2).
///
/// # Safety
/// `request` must be of the type that the command takes.
pub(crate) unsafe fn call<T>(command: libc::c_int, request: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: pointer and length are those of `request`; the caller guarantees the rest.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(request), size_of::<T>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}
