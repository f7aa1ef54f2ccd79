//! Buckets of a hash table: eight tags, eight slot references and a link; and the keyed hash that
//! selects bucket and tag.
#![allow(unsafe_code, reason = "buckets lie in shared memory")]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::shared_slice::Atomic;
use crate::{Key, simd};

/// Number of ways (slot references) of a bucket.
pub(super) const WAYS: usize = 8;

/// Maximum number of overflow buckets in a chain. Readers follow no more.
pub(super) const CHAIN: usize = 16;

/// Eight ways and the link to the next bucket: one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Bucket {
    /// Eight tags, four per word.
    tags: [AtomicU64; 2],
    slot_refs: [AtomicU32; WAYS],
    next: AtomicU32,
    reserved: [AtomicU32; 3],
}

const _: () = assert!(size_of::<Bucket>() == 64);

// SAFETY: 2 x 8 bytes, 8 x 4 bytes and 4 x 4 bytes of atomics, aligned to 64.
unsafe impl Atomic for Bucket {}

impl Bucket {
    #[inline(always)]
    pub(super) fn matching(&self, tag: u16) -> u32 {
        let [first, second] = &self.tags;
        simd::matching([first.load(Ordering::Relaxed), second.load(Ordering::Relaxed)], tag)
    }

    #[inline(always)]
    pub(super) fn slot_ref(&self, way: usize) -> u32 {
        self.slot_refs[way % WAYS].load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(super) fn next(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    pub(super) fn tag(&self, way: usize) -> u16 {
        (self.tags[way / 4].load(Ordering::Relaxed) >> (way % 4 * 16)) as u16
    }

    /// Sets a tag. Like the other setters, only the writer calls it.
    pub(super) fn set_tag(&self, way: usize, tag: u16) {
        let shift = way % 4 * 16;
        let word = &self.tags[way / 4];
        let others = word.load(Ordering::Relaxed) & !(0xFFFF << shift);
        word.store(others | u64::from(tag) << shift, Ordering::Release);
    }

    pub(super) fn set_slot_ref(&self, way: usize, slot_ref: u32) {
        self.slot_refs[way].store(slot_ref, Ordering::Release);
    }

    pub(super) fn set_next(&self, next: u32) {
        self.next.store(next, Ordering::Release);
    }

    pub(super) fn empty_way(&self) -> Option<usize> {
        (0..WAYS).find(|way| self.slot_ref(*way) == 0)
    }

    pub(super) fn is_empty(&self) -> bool {
        (0..WAYS).all(|way| self.slot_ref(way) == 0)
    }
}

/// Returns the positions of the set bits of `ways`, lowest first.
#[inline(always)]
pub(super) fn bits(mut ways: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let way = (ways != 0).then(|| ways.trailing_zeros() as usize)?;
        ways &= ways - 1;
        Some(way)
    })
}

const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;

#[inline(always)]
fn fold(x: u64, y: u64) -> u64 {
    let product = u128::from(x) * u128::from(y);
    product as u64 ^ (product >> 64) as u64
}

#[inline(always)]
fn pair(hash: u64, seed: u64, bytes: &[u8; 16]) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    fold(hash ^ u64::from_le_bytes(words[0]), seed ^ u64::from_le_bytes(words[1]))
}

/// Returns the hash of a key, as documented in the module `hash`.
#[inline(always)]
pub(super) fn hash_of<K: Key>(seed: [u64; 2], key: &K) -> u64 {
    let (whole, rest) = key.as_bytes().as_chunks::<16>();
    let mut hash = seed[0] ^ size_of::<K>() as u64;
    for bytes in whole {
        hash = pair(hash, seed[1], bytes);
    }
    if !size_of::<K>().is_multiple_of(16) {
        let mut bytes = [0; 16];
        bytes[..rest.len()].copy_from_slice(rest);
        hash = pair(hash, seed[1], &bytes);
    }
    fold(hash ^ seed[1], GOLDEN_RATIO)
}

/// Returns the tag that a bucket stores of a hash; never 0.
#[inline(always)]
pub(super) fn tag_of(hash: u64) -> u16 {
    ((hash >> 48) as u16).max(1)
}
