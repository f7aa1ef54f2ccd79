//! Bindings of the rivals, and system calls without a safe interface. All unsafe code of the
//! benchmarks except the memif rings is here.
#![allow(unsafe_code, reason = "the rivals in C, and calls that have no safe form")]

use std::alloc::Layout;
use std::ffi::{CStr, c_char, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use rustix::mm::Advice;

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

/// Macswap in plain C over a ring of {pointer, length}: `c/macswap.c`.
pub(crate) struct PlainMacswap(NonNull<c_void>);

impl PlainMacswap {
    /// Creates a ring of `count` packets, a power of two. Each holds `content` at `offset` bytes
    /// into its frame.
    pub(crate) fn new(
        count: u32,
        frame_size: usize,
        offset: usize,
        content: &[u8],
    ) -> Result<Self> {
        assert!(count.is_power_of_two() && offset + content.len() <= frame_size);
        let length = content.len() as u32;
        // SAFETY: the callee reads `length` bytes of `content` and keeps no pointer to them. The
        // assertion above checks that they fit a frame.
        let rival = unsafe { macswap_new(count, frame_size, offset, content.as_ptr(), length) };
        Ok(Self(NonNull::new(rival).ok_or("no memory for the plain macswap")?))
    }

    /// Runs `turns` bursts. Returns the number of swapped packets.
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

/// Hand-written loop on AF_XDP rings: `c/xsk_echo.c`.
pub(crate) struct XskEcho(NonNull<c_void>);

impl XskEcho {
    /// Opens queue 0 of an interface with rings of `size` slots and `frames` frames of 2048 bytes.
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

    /// Runs until `frames` frames were echoed and sent, or `patience` iterations in a row found no
    /// work. Returns the number of echoed frames.
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

/// Moves the calling thread into a new network namespace. Threads and processes that it starts
/// afterwards are in it too.
pub(crate) fn unshare_network() -> io::Result<()> {
    // SAFETY: unshare touches no memory; only this thread changes its namespace.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNET) }).map(drop)
}

/// Returns the CPU time that a thread of this process has used so far, in nanoseconds.
pub(crate) fn cpu_of_thread(thread: rustix::thread::Pid) -> io::Result<u64> {
    // CPUCLOCK_PERTHREAD_MASK and CPUCLOCK_SCHED of the kernel's posix-timers_types.h.
    let clock = (!thread.as_raw_nonzero().get() << 3) | 4 | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call, and the kernel checks the clock id.
    checked(unsafe { libc::clock_gettime(clock, &raw mut time) })?;
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Gives the calling thread real-time priority (SCHED_FIFO), or the ordinary policy again.
/// Measurements of elapsed time need it, because they would include the time of other programs.
pub(crate) fn set_real_time(on: bool) -> io::Result<()> {
    set_real_time_of(0, on)
}

/// Copies items to memory of their own that is aligned to huge pages, and asks for such pages. They
/// stay as long as the process.
pub(crate) fn in_huge_pages<T: Copy>(items: &[T]) -> io::Result<&'static [T]> {
    const PAGE: usize = 2 << 20;
    let length = size_of_val(items).next_multiple_of(PAGE).max(PAGE);
    let layout = Layout::from_size_align(length, PAGE).map_err(io::Error::other)?;
    // SAFETY: the length is not zero. The memory has room for the items, is aligned for them, is
    // never freed, and its first bytes are the items before they are read.
    unsafe {
        let memory = std::alloc::alloc(layout);
        if memory.is_null() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let _ = rustix::mm::madvise(memory.cast(), length, Advice::LinuxHugepage); // only a hint
        let start = memory.cast::<T>();
        start.copy_from_nonoverlapping(items.as_ptr(), items.len());
        Ok(std::slice::from_raw_parts(start, items.len()))
    }
}

/// Ends `writer` and returns the permission to read the tables that it wrote.
pub(crate) fn guard<W>(writer: W) -> fastlane_table::Guard {
    drop(writer);
    // SAFETY: the caller owned the writer of the tables that it reads, and it was dropped above.
    unsafe { fastlane_table::Guard::new() }
}

/// Returns the readers of tables that are written before a lane runs, and not afterwards.
pub(crate) fn no_readers() -> fastlane_table::Readers {
    // SAFETY: no value that was found in such a table is borrowed while it is written.
    unsafe { fastlane_table::Readers::none() }
}

/// Changes the policy like [`set_real_time`] for a thread of any process; 0 is the calling thread.
pub(crate) fn set_real_time_of(thread: u64, on: bool) -> io::Result<()> {
    let (policy, priority) = if on { (libc::SCHED_FIFO, 5) } else { (libc::SCHED_OTHER, 0) };
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: `parameter` outlives the call, which changes only the scheduling of a thread.
    checked(unsafe {
        libc::sched_setscheduler(
            thread as libc::pid_t,
            policy | libc::SCHED_RESET_ON_FORK,
            &raw const parameter,
        )
    })
    .map(drop)
}

/// Raw, non-blocking AF_PACKET socket that bypasses the queueing discipline. It receives frames
/// only on request, and never its own.
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
