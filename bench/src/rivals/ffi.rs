//! The rivals, and the few system calls that no safe interface has: the only unsafe code here.
#![allow(unsafe_code, reason = "the rivals in C, and calls that have no safe form")]

use std::ffi::{CStr, c_char, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use crate::Result;

unsafe extern "C" {
    fn macswap_new(
        count: u32,
        frame_size: usize,
        offset: usize,
        content: *const u8,
        length: u32,
    ) -> *mut c_void;
    fn macswap_run(rival: *mut c_void, turns: u64, burst: u32) -> u64;
    fn macswap_free(rival: *mut c_void);

    fn xsk_echo_open(interface: u32, size: u32, frames: u32, error: *mut c_char) -> *mut c_void;
    fn xsk_echo_run(rival: *mut c_void, frames: u64, patience: u64) -> u64;
    fn xsk_echo_close(rival: *mut c_void);
}

/// The macswap in plain C over a ring of {pointer, length}: `c/macswap.c`.
pub(crate) struct PlainMacswap(NonNull<c_void>);

impl PlainMacswap {
    /// A ring of `count` packets, a power of two, that hold `content`, `offset` bytes into their
    /// frames.
    pub(crate) fn new(
        count: u32,
        frame_size: usize,
        offset: usize,
        content: &[u8],
    ) -> Result<Self> {
        assert!(count.is_power_of_two() && offset + content.len() <= frame_size);
        let length = content.len() as u32;
        // SAFETY: the callee reads `length` bytes of `content` and keeps no pointer to them; that
        // they fit a frame was checked.
        let rival = unsafe { macswap_new(count, frame_size, offset, content.as_ptr(), length) };
        Ok(Self(NonNull::new(rival).ok_or("no memory for the plain macswap")?))
    }

    /// Does `turns` bursts; returns how many packets were swapped.
    pub(crate) fn run(&mut self, turns: u64, burst: u32) -> u64 {
        // SAFETY: the pointer came from `macswap_new` and is freed only by `drop`.
        unsafe { macswap_run(self.0.as_ptr(), turns, burst) }
    }
}

impl Drop for PlainMacswap {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `macswap_new` and is not used again.
        unsafe { macswap_free(self.0.as_ptr()) }
    }
}

/// The hand-written loop on AF_XDP rings: `c/xsk_echo.c`.
pub(crate) struct XskEcho(NonNull<c_void>);

impl XskEcho {
    /// Takes queue 0 of an interface, with rings of `size` places and `frames` frames of 2048
    /// bytes.
    pub(crate) fn open(interface: u32, size: u32, frames: u32) -> Result<Self> {
        assert!(size.is_power_of_two() && frames >= 2 * size);
        let mut error: [c_char; 128] = [0; 128];
        // SAFETY: the callee writes at most 128 bytes to `error`, with a NUL at their end.
        let rival = unsafe { xsk_echo_open(interface, size, frames, error.as_mut_ptr()) };
        NonNull::new(rival).map(Self).ok_or_else(|| {
            // SAFETY: the callee wrote a NUL into the array, or left it all zeros.
            let error = unsafe { CStr::from_ptr(error.as_ptr()) };
            format!("the hand-written AF_XDP loop: {}", error.to_string_lossy()).into()
        })
    }

    /// Turns until `frames` were echoed and have left, or `patience` turns in a row found nothing;
    /// returns how many were echoed.
    pub(crate) fn run(&mut self, frames: u64, patience: u64) -> u64 {
        // SAFETY: the pointer came from `xsk_echo_open` and is closed only by `drop`.
        unsafe { xsk_echo_run(self.0.as_ptr(), frames, patience) }
    }
}

impl Drop for XskEcho {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `xsk_echo_open` and is not used again.
        unsafe { xsk_echo_close(self.0.as_ptr()) }
    }
}

/// Moves the calling thread into a network namespace of its own. Threads and processes that it
/// starts from then on are in it too.
pub(crate) fn unshare_network() -> io::Result<()> {
    // SAFETY: unshare touches no memory; only this thread changes its namespace.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNET) }).map(drop)
}

/// CPU time that a thread of this process has used, in nanoseconds, up to this moment.
pub(crate) fn cpu_of_thread(thread: rustix::thread::Pid) -> io::Result<u64> {
    // CPUCLOCK_PERTHREAD_MASK and CPUCLOCK_SCHED of the kernel's posix-timers_types.h.
    let clock = (!thread.as_raw_nonzero().get() << 3) | 4 | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives through the call, and the kernel checks the number of the clock.
    checked(unsafe { libc::clock_gettime(clock, &raw mut time) })?;
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Lets the calling thread run whenever it wants to (SCHED_FIFO), or as all others again. Where the
/// clock on the wall counts, other programs on the machine would be measured else.
pub(crate) fn set_real_time(on: bool) -> io::Result<()> {
    set_real_time_of(0, on)
}

/// The right to read tables whose writer does not write any more: it ends here.
pub(crate) fn guard<W>(writer: W) -> fastlane_table::Guard {
    drop(writer);
    // SAFETY: the caller had the writer of the tables that it reads, and there is none now.
    unsafe { fastlane_table::Guard::new() }
}

/// As [`set_real_time`], of a thread of any process; 0 is the calling thread.
pub(crate) fn set_real_time_of(thread: u64, on: bool) -> io::Result<()> {
    let (policy, priority) = if on { (libc::SCHED_FIFO, 5) } else { (libc::SCHED_OTHER, 0) };
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: `parameter` lives through the call; what it changes is when a thread runs.
    checked(unsafe {
        libc::sched_setscheduler(
            thread as libc::pid_t,
            policy | libc::SCHED_RESET_ON_FORK,
            &raw const parameter,
        )
    })
    .map(drop)
}

/// A raw AF_PACKET socket on an interface that sends past the queueing discipline, never waits, and
/// receives nothing unless asked to, and then not what it sent itself.
#[derive(Debug)]
pub(crate) struct RawSocket(OwnedFd);

impl RawSocket {
    pub(crate) fn open(interface: u32, receives: bool) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: socket(2) takes integers only.
        let number = checked(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
        // SAFETY: the kernel just made this descriptor for us, and nobody else has it.
        let socket = Self(unsafe { OwnedFd::from_raw_fd(number) });
        socket.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
        socket.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        socket.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 16 << 20)?;
        let protocol = if receives { (libc::ETH_P_ALL as u16).to_be() } else { 0 };
        // SAFETY: all zeros is a valid address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = interface as i32;
        let length = size_of::<libc::sockaddr_ll>() as u32;
        // SAFETY: the pointer and the length describe `address`, which lives through the call.
        checked(unsafe { libc::bind(number, (&raw const address).cast(), length) })?;
        Ok(socket)
    }

    fn set(&self, level: i32, option: i32, value: i32) -> io::Result<()> {
        let length = size_of::<i32>() as u32;
        let value = (&raw const value).cast();
        // SAFETY: the pointer and the length describe `value`, which lives through the call.
        checked(unsafe { libc::setsockopt(self.0.as_raw_fd(), level, option, value, length) })
            .map(drop)
    }
}

impl AsFd for RawSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn checked(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
