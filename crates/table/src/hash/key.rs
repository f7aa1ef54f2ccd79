//! Keyed hash.

use crate::Key;

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
pub(super) fn hash<K: Key>(seed: [u64; 2], key: &K) -> u64 {
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
pub(super) fn tag(hash: u64) -> u16 {
    ((hash >> 48) as u16).max(1)
}
