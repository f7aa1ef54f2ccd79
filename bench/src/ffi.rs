//! The calls into the rivals.

use std::ffi::c_void;
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
}

/// The macswap in plain C over a ring of {pointer, length}.
pub(crate) struct PlainMacswap(NonNull<c_void>);

impl PlainMacswap {
    /// A ring of `count` packets, a power of two, that hold `content`, `offset` bytes into their frames.
    pub(crate) fn new(
        count: u32,
        frame_size: usize,
        offset: usize,
        content: &[u8],
    ) -> Result<Self> {
        assert!(count.is_power_of_two() && offset + content.len() <= frame_size);
        let length = content.len() as u32;
        // SAFETY: the callee reads `length` bytes of `content` and keeps no pointer to them; that they
        // fit a frame was checked.
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
