//! Slices of atomics in shared memory.
#![allow(unsafe_code, reason = "typed views of the mapping")]

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::SharedMemory;

/// Type that may lie in shared memory: atomics only. Any bytes are a value of it, and concurrent
/// writers are no data race.
///
/// # Safety
/// The type consists of atomics of up to 64 bits, without padding, and its alignment is at most 64.
pub(crate) unsafe trait Atomic {}

// SAFETY: an atomic.
unsafe impl Atomic for AtomicU32 {}
// SAFETY: an atomic.
unsafe impl Atomic for AtomicU64 {}

/// Slice of atomics that keeps its memory mapped.
#[derive(Debug)]
pub(crate) struct SharedSlice<T> {
    start: NonNull<T>,
    count: usize,
    memory: Arc<SharedMemory>,
}

// SAFETY: the pointer is into the mapping, which any thread may use and `memory` keeps. It points
// to atomics.
unsafe impl<T: Atomic> Send for SharedSlice<T> {}
// SAFETY: as above.
unsafe impl<T: Atomic> Sync for SharedSlice<T> {}

impl<T: Atomic> SharedSlice<T> {
    /// Returns `count` values from byte `offset` on, or `None` if they are outside the memory or
    /// misaligned.
    pub(crate) fn new(memory: &Arc<SharedMemory>, offset: usize, count: usize) -> Option<Self> {
        let end = count.checked_mul(size_of::<T>())?.checked_add(offset)?;
        if end > memory.len() || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: inside the mapping, as checked above.
        let start = unsafe { memory.start().add(offset) }.cast();
        Some(Self { start, count, memory: Arc::clone(memory) })
    }
}

impl<T: Atomic> Deref for SharedSlice<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `new` checked bounds and alignment (the mapping begins on a page), `memory` keeps
        // it mapped, and any bytes are atomics.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl<T: Atomic> Clone for SharedSlice<T> {
    fn clone(&self) -> Self {
        Self { start: self.start, count: self.count, memory: Arc::clone(&self.memory) }
    }
}
