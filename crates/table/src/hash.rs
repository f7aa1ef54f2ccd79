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

mod copy;
mod hash_attach;
mod hash_reader;
mod hash_writer;
mod resize;

pub use hash_reader::{HashEntry, HashReader};
pub use hash_writer::HashWriter;

use hash_reader::{Bucket, CHAIN, WAYS, bits, tag_of};
