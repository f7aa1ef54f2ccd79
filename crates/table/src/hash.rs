//! Exact-match hash tables: buckets, and the keyed hash that selects bucket and tag.
//!
//! ```text
//! page 0     header
//! index      buckets of 64 bytes: first the primary buckets, then the overflow buckets
//! data       slots: entry id u32, version u32, key, value
//!
//! bucket     0 8 tags u16    16 8 slot references u32: 0, or 1 + slot number
//!           48 next u32: 0, or 1 + number of an overflow bucket    52 zeros
//! ```
//! A key's hash selects `hash & (buckets - 1)` as its bucket and `max(hash >> 48, 1)` as its tag.
//!
//! ```text
//! a, b        little-endian words of the key, zero padded to a multiple of 16 bytes, in pairs
//! fold(x, y)  low half of the 128-bit product of x and y, xor its upper half
//! hash        h = seed0 ^ bytes of the key;  for each a, b: h = fold(h ^ a, seed1 ^ b);
//!             fold(h ^ seed1, 0x9E3779B97F4A7C15)
//! ```
//! The seeds are random, so a peer that chooses the keys cannot make them collide.
//!
//! A key never moves. An insertion fills a slot and a tag, then stores the slot reference. That
//! store is the operation: a writer that is killed leaves the old state or the new one. An update
//! stores the reference of a fresh slot; a removal stores 0. An overflow bucket is filled before it
//! is linked, and unlinked once it is empty. Slots, buckets and entry ids are reused after a grace
//! period.

mod copy;
mod hash_attach;
mod hash_reader;
mod hash_writer;
mod resize;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::shared_slice::Atomic;
use crate::{Key, simd};

pub use hash_reader::{HashEntry, HashReader};
pub use hash_writer::HashWriter;

/// Maximum number of overflow buckets in a chain. Readers follow no more.
const CHAIN: usize = 16;

/// Returns the positions of the set bits of `ways`, lowest first.
#[inline(always)]
fn bits(mut ways: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let way = (ways != 0).then(|| ways.trailing_zeros() as usize)?;
        ways &= ways - 1;
        Some(way)
    })
}

/// Number of ways (slot references) of a bucket.
const WAYS: usize = 8;

/// Eight ways and the link to the next bucket: one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
struct Bucket {
    /// Eight tags, four per word.
    tags: [AtomicU64; 2],
    slot_refs: [AtomicU32; WAYS],
    next: AtomicU32,
    reserved: [AtomicU32; 3],
}

const _: () = assert!(size_of::<Bucket>() == 64);

#[allow(unsafe_code, reason = "buckets lie in shared memory")]
// SAFETY: 2 x 8 bytes, 8 x 4 bytes and 4 x 4 bytes of atomics, aligned to 64.
unsafe impl Atomic for Bucket {}

impl Bucket {
    #[inline(always)]
    fn matching(&self, tag: u16) -> u32 {
        let [first, second] = &self.tags;
        simd::matching([first.load(Ordering::Relaxed), second.load(Ordering::Relaxed)], tag)
    }

    #[inline(always)]
    fn slot_ref(&self, way: usize) -> u32 {
        self.slot_refs[way % WAYS].load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn next(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    fn tag(&self, way: usize) -> u16 {
        (self.tags[way / 4].load(Ordering::Relaxed) >> (way % 4 * 16)) as u16
    }

    /// Sets a tag. Like the other setters, only the writer calls it.
    fn set_tag(&self, way: usize, tag: u16) {
        let shift = way % 4 * 16;
        let word = &self.tags[way / 4];
        let others = word.load(Ordering::Relaxed) & !(0xFFFF << shift);
        word.store(others | u64::from(tag) << shift, Ordering::Release);
    }

    fn set_slot_ref(&self, way: usize, slot_ref: u32) {
        self.slot_refs[way].store(slot_ref, Ordering::Release);
    }

    fn set_next(&self, next: u32) {
        self.next.store(next, Ordering::Release);
    }

    fn empty_way(&self) -> Option<usize> {
        (0..WAYS).find(|way| self.slot_ref(*way) == 0)
    }

    fn is_empty(&self) -> bool {
        (0..WAYS).all(|way| self.slot_ref(way) == 0)
    }
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

/// Returns the hash of a key, as documented above.
#[inline(always)]
fn hash_of<K: Key>(seed: [u64; 2], key: &K) -> u64 {
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
fn tag_of(hash: u64) -> u16 {
    ((hash >> 48) as u16).max(1)
}
