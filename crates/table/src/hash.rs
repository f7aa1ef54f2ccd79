//! Exact-match hash tables.
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

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::simd;

mod copy;
mod hash_attach;
mod hash_reader;
mod hash_writer;
mod key;
mod resize;

pub use hash_reader::{HashEntry, HashReader};
pub use hash_writer::HashWriter;

/// Number of ways (slot references) of a bucket.
const WAYS: usize = 8;
/// Maximum number of overflow buckets in a chain. Readers follow no more.
const CHAIN: usize = 16;

/// Number below the capacity that belongs to a key from insertion to removal, whatever its value.
/// Lane state is indexed by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub u32);

impl EntryId {
    /// Returns the id as an array index.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Eight ways and the link to the next bucket: one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Bucket {
    /// Eight tags, four per word.
    tags: [AtomicU64; 2],
    slot_refs: [AtomicU32; WAYS],
    next: AtomicU32,
    reserved: [AtomicU32; 3],
}

const _: () = assert!(size_of::<Bucket>() == 64);

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

/// Returns the positions of the set bits of `ways`, lowest first.
#[inline(always)]
fn bits(mut ways: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let way = (ways != 0).then(|| ways.trailing_zeros() as usize)?;
        ways &= ways - 1;
        Some(way)
    })
}
