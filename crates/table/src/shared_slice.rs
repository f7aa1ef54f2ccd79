//! Runs of atomics in shared memory.
#![allow(unsafe_code, reason = "typed views of the mapping")]

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::SharedMemory;

/// What may lie in shared memory: atomics and nothing else, so that any bytes are a value and
/// writers elsewhere are no data race.
///
/// # Safety
/// The type is made of atomics of up to 64 bits only, without padding, and aligned to 64 or less.
pub(crate) unsafe trait Atomic {}

// SAFETY: an atomic.
unsafe impl Atomic for AtomicU32 {}
// SAFETY: an atomic.
unsafe impl Atomic for AtomicU64 {}
// SAFETY: 2 x 8 bytes, 8 x 4 bytes and 4 x 4 bytes of atomics, aligned to 64.
unsafe impl Atomic for crate::hash::Bucket {}

/// Consecutive atomics, which stay mapped as long as the run lives.
#[derive(Debug)]
pub(crate) struct SharedSlice<T> {
    start: NonNull<T>,
    count: usize,
    memory: Arc<SharedMemory>,
}

// SAFETY: the pointer is into the mapping, which any thread may use and `memory` keeps; what it
// points to is atomic.
unsafe impl<T: Atomic> Send for SharedSlice<T> {}
// SAFETY: as above.
unsafe impl<T: Atomic> Sync for SharedSlice<T> {}

impl<T: Atomic> SharedSlice<T> {
    /// The `count` values from byte `offset` on; `None` when they are not all inside or misplaced.
    pub(crate) fn new(memory: &Arc<SharedMemory>, offset: usize, count: usize) -> Option<Self> {
        let end = count.checked_mul(size_of::<T>())?.checked_add(offset)?;
        if end > memory.len() || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: inside the mapping, as was just found.
        let start = unsafe { memory.start().add(offset) }.cast();
        Some(Self { start, count, memory: Arc::clone(memory) })
    }
}

impl<T: Atomic> Deref for SharedSlice<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `new` checked place and alignment (the mapping begins on a page), `memory` keeps
        // it mapped, and any bytes are atomics.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl<T: Atomic> Clone for SharedSlice<T> {
    fn clone(&self) -> Self {
        Self { start: self.start, count: self.count, memory: Arc::clone(&self.memory) }
    }
}
