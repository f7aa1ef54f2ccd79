//! Processor-specific instructions: prefetch, comparison of eight tags at once, and lookups of 32
//! addresses in a prefix table by gathers.
#![allow(unsafe_code, reason = "intrinsics")]

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::AtomicU32;

use crate::prefix_value::PrefixValue;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod gathers;

/// Prefetches the cache line of `address`, which need not be valid.
#[inline(always)]
pub fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that faults on no address; SSE is part of x86_64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint that faults on no address, changes no memory and no flags.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address,
            options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// Compares eight tags (four per word, the first in the lowest bits) with `tag`. Bit i of the
/// result is set if tag i is equal.
#[inline(always)]
pub(crate) fn matching(tags: [u64; 2], tag: u16) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of x86_64.
    unsafe {
        use std::arch::x86_64::*;
        let tags = _mm_set_epi64x(tags[1].cast_signed(), tags[0].cast_signed());
        let equal = _mm_cmpeq_epi16(tags, _mm_set1_epi16(tag.cast_signed()));
        _mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128())).cast_unsigned()
    }
    #[cfg(not(target_arch = "x86_64"))]
    portable(tags, tag)
}

/// Compares tags as [`matching`] does, without SIMD instructions.
#[cfg_attr(target_arch = "x86_64", allow(dead_code, reason = "the reference in the test"))]
fn portable(tags: [u64; 2], tag: u16) -> u32 {
    const ONES: u64 = 0x0001_0001_0001_0001;
    const LOW: u64 = 0x7FFF * ONES;
    let half = |word: u64| {
        let differ = word ^ (u64::from(tag) * ONES);
        // Bit 15 of each 16 bits that are zero. The comparison is exact: no carry leaves its 16
        // bits.
        let zero = !(((differ & LOW) + LOW) | differ | LOW);
        // Moves bits 15, 31, 47 and 63 to the four lowest bits.
        ((zero >> 15).wrapping_mul(0x1000_2000_4000_8000) >> 60) as u32
    };
    half(tags[0]) | half(tags[1]) << 4
}

/// Number of addresses that are looked up together.
pub(crate) const BATCH: usize = 32;

/// Instructions that look up a batch. The processor has those of every existing value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstructionSet(Extension);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extension {
    None,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx2,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx512,
}

impl InstructionSet {
    /// Returns all that this processor has, the fastest one last.
    pub(crate) fn supported() -> impl DoubleEndedIterator<Item = Self> {
        let all = [
            (true, Extension::None),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            (is_x86_feature_detected!("avx2"), Extension::Avx2),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            (
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw"),
                Extension::Avx512,
            ),
        ];
        all.into_iter().filter(|(has, _)| *has).map(|(_, extension)| Self(extension))
    }

    /// Returns the fastest one that this processor has.
    pub(crate) fn fastest() -> Self {
        Self::supported().next_back().unwrap_or(Self(Extension::None))
    }

    /// Returns true if nothing can be gathered.
    pub(crate) fn is_scalar(self) -> bool {
        self.0 == Extension::None
    }
}

/// Words of a prefix table.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "there is no gather"))]
pub struct TrieWords<'t> {
    /// Words of the root, indexed by the first bits of an address.
    pub(crate) root: &'t [AtomicU32],
    /// Words of all groups.
    pub(crate) groups: &'t [AtomicU32],
    /// Two words for each pair; IPv4 has none.
    pub(crate) pairs: &'t [AtomicU32],
}

/// Addresses that can be looked up with gather instructions.
pub trait Gather: Sized {
    /// Looks up a batch. Returns false, and has written nothing, if these instructions have no
    /// gather for these addresses.
    fn gather(
        instructions: InstructionSet,
        words: TrieWords<'_>,
        addresses: &[Self; BATCH],
        values: &mut [Option<PrefixValue>; BATCH],
    ) -> bool;
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod portable {
    use super::*;

    macro_rules! no_gather {
        ($($address:ty),*) => {$(
            impl Gather for $address {
                #[inline(always)]
                fn gather(
                    _: InstructionSet,
                    _: TrieWords<'_>,
                    _: &[Self; BATCH],
                    _: &mut [Option<PrefixValue>; BATCH],
                ) -> bool {
                    false
                }
            }
        )*};
    }
    no_gather!(Ipv4Addr, Ipv6Addr);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_found_where_they_are() {
        let mut tags = [1_u16, 0x8000, 1, 0, 0xFFFF, 0x7FFF, 1, 2];
        for turn in 0..8 {
            tags.rotate_left(turn);
            let word =
                |half: &[u16]| half.iter().rev().fold(0, |word, tag| word << 16 | u64::from(*tag));
            let words = [word(&tags[..4]), word(&tags[4..])];
            for tag in [0, 1, 2, 3, 0x7FFF, 0x8000, 0x8001, 0xFFFF] {
                let expected = (0..8).filter(|i| tags[*i] == tag).fold(0, |bits, i| bits | 1 << i);
                assert_eq!(matching(words, tag), expected, "{tag} in {tags:?}");
                assert_eq!(portable(words, tag), expected, "{tag} in {tags:?}");
            }
        }
    }
}
