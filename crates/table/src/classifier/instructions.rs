//! Vector instructions of lookups: comparisons with 16 rules, and with the keys of a search node.
#![allow(unsafe_code, reason = "intrinsics")]

use super::block::{Block, Intervals, RULES};

/// Instructions that a lookup uses.
pub trait Instructions {
    /// Returns the index of the block's first rule that matches, or 16 or more if none does.
    fn first_match(block: &Block, intervals: &Intervals) -> usize;
    /// Returns the number of keys that are less than `key`.
    fn count4(keys: &[i32; 16], key: i32) -> usize;
    /// Returns the number of keys, given as upper and lower halves, that are less than `key`.
    fn count6(keys: [&[i64; 8]; 2], key: [i64; 2]) -> usize;
}

/// Instructions that every processor has.
pub(crate) struct Portable;

impl Instructions for Portable {
    #[inline(always)]
    fn first_match(block: &Block, intervals: &Intervals) -> usize {
        let mut outside = [0_u16; RULES];
        for (bounds, [complement, number]) in block.bounds.iter().zip(intervals) {
            for (outside, bound) in outside.iter_mut().zip(bounds) {
                *outside |= complement.saturating_sub(bound[0]) | number.saturating_sub(bound[1]);
            }
        }
        outside.iter().position(|outside| *outside == 0).unwrap_or(RULES)
    }

    #[inline(always)]
    fn count4(keys: &[i32; 16], key: i32) -> usize {
        keys.iter().map(|other| usize::from(*other < key)).sum()
    }

    #[inline(always)]
    fn count6(keys: [&[i64; 8]; 2], key: [i64; 2]) -> usize {
        let all = keys[0].iter().zip(keys[1]);
        all.map(|(high, low)| usize::from([*high, *low] < key)).sum()
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use x86_64::{Avx2, Avx512, Sse2};

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64 {
    use std::arch::x86_64::*;

    use super::*;
    use crate::classifier::block::Interval;

    #[inline(always)]
    fn word(interval: Interval) -> i32 {
        zerocopy::transmute!(interval)
    }

    /// SSE2, which every processor of the architecture has.
    pub(crate) struct Sse2;

    impl Instructions for Sse2 {
        #[inline(always)]
        fn first_match(block: &Block, intervals: &Intervals) -> usize {
            // SAFETY: the processor has SSE2. Each load is of 16 bytes of an array of 64 bytes.
            unsafe {
                let zero = _mm_setzero_si128();
                let mut outside = [zero; 4];
                for (bounds, interval) in block.bounds.iter().zip(intervals) {
                    let interval = _mm_set1_epi32(word(*interval));
                    for (outside, bounds) in outside.iter_mut().zip(bounds.as_chunks::<4>().0) {
                        let bounds = _mm_loadu_si128(bounds.as_ptr().cast());
                        // A saturated difference is zero unless the subtrahend is the smaller one.
                        *outside = _mm_or_si128(*outside, _mm_subs_epu16(interval, bounds));
                    }
                }
                let [a, b, c, d] = outside.map(|quarter| _mm_cmpeq_epi32(quarter, zero));
                let inside = _mm_packs_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d));
                (_mm_movemask_epi8(inside) | 1 << RULES).trailing_zeros() as usize
            }
        }

        #[inline(always)]
        fn count4(keys: &[i32; 16], key: i32) -> usize {
            Portable::count4(keys, key)
        }

        #[inline(always)]
        fn count6(keys: [&[i64; 8]; 2], key: [i64; 2]) -> usize {
            Portable::count6(keys, key)
        }
    }

    /// AVX2. Only code that runs on a processor with AVX2 and POPCNT uses it.
    pub(crate) struct Avx2;

    impl Instructions for Avx2 {
        #[inline(always)]
        fn first_match(block: &Block, intervals: &Intervals) -> usize {
            // SAFETY: the processor has AVX2. Each load is of 32 bytes of an array of 64 bytes.
            unsafe {
                let zero = _mm256_setzero_si256();
                let mut outside = [zero; 2];
                for (bounds, interval) in block.bounds.iter().zip(intervals) {
                    let interval = _mm256_set1_epi32(word(*interval));
                    for (outside, bounds) in outside.iter_mut().zip(bounds.as_chunks::<8>().0) {
                        let bounds = _mm256_loadu_si256(bounds.as_ptr().cast());
                        // A saturated difference is zero unless the subtrahend is the smaller one.
                        *outside = _mm256_or_si256(*outside, _mm256_subs_epu16(interval, bounds));
                    }
                }
                let inside = outside.map(|half| {
                    let inside = _mm256_castsi256_ps(_mm256_cmpeq_epi32(half, zero));
                    _mm256_movemask_ps(inside)
                });
                ((inside[0] | inside[1] << 8 | 1 << RULES).trailing_zeros()) as usize
            }
        }

        #[inline(always)]
        fn count4(keys: &[i32; 16], key: i32) -> usize {
            // SAFETY: the processor has AVX2. Each load is of 32 bytes of an array of 64 bytes.
            unsafe {
                let key = _mm256_set1_epi32(key);
                let lower = _mm256_loadu_si256(keys.as_ptr().cast());
                let upper = _mm256_loadu_si256(keys.as_ptr().add(8).cast());
                let lower = _mm256_cmpgt_epi32(key, lower);
                let upper = _mm256_cmpgt_epi32(key, upper);
                let both = _mm256_packs_epi32(lower, upper);
                (_mm256_movemask_epi8(both).count_ones() / 2) as usize
            }
        }

        #[inline(always)]
        fn count6(keys: [&[i64; 8]; 2], key: [i64; 2]) -> usize {
            // SAFETY: the processor has AVX2. Each load is of 32 bytes of an array of 64 bytes.
            unsafe {
                let [high, low] = key.map(|half| _mm256_set1_epi64x(half));
                let less = |at: usize| {
                    let highs = _mm256_loadu_si256(keys[0].as_ptr().add(at).cast());
                    let lows = _mm256_loadu_si256(keys[1].as_ptr().add(at).cast());
                    let equal = _mm256_cmpeq_epi64(high, highs);
                    let lower = _mm256_and_si256(equal, _mm256_cmpgt_epi64(low, lows));
                    _mm256_or_si256(_mm256_cmpgt_epi64(high, highs), lower)
                };
                let both = _mm256_packs_epi32(less(0), less(4));
                (_mm256_movemask_epi8(both).count_ones() / 4) as usize
            }
        }
    }

    /// AVX-512. Only code that runs on a processor with AVX-512F, BW, VL and POPCNT uses it.
    pub(crate) struct Avx512;

    impl Instructions for Avx512 {
        #[inline(always)]
        fn first_match(block: &Block, intervals: &Intervals) -> usize {
            // SAFETY: the processor has AVX-512F and BW. Each load is of 64 bytes of an array of 64
            // bytes.
            unsafe {
                let mut outside = _mm512_setzero_si512();
                for (bounds, interval) in block.bounds.iter().zip(intervals) {
                    let interval = _mm512_set1_epi32(word(*interval));
                    let bounds = _mm512_loadu_si512(bounds.as_ptr().cast());
                    // A saturated difference is zero unless the subtrahend is the smaller one.
                    outside = _mm512_or_si512(outside, _mm512_subs_epu16(interval, bounds));
                }
                let inside = u32::from(_mm512_testn_epi32_mask(outside, outside));
                (inside | 1 << RULES).trailing_zeros() as usize
            }
        }

        #[inline(always)]
        fn count4(keys: &[i32; 16], key: i32) -> usize {
            // SAFETY: the processor has AVX-512F. The load is of 64 bytes of an array of 64 bytes.
            unsafe {
                let all = _mm512_loadu_si512(keys.as_ptr().cast());
                _mm512_cmplt_epi32_mask(all, _mm512_set1_epi32(key)).count_ones() as usize
            }
        }

        #[inline(always)]
        fn count6(keys: [&[i64; 8]; 2], key: [i64; 2]) -> usize {
            // SAFETY: the processor has AVX-512F. Each load is of 64 bytes of an array of 64 bytes.
            unsafe {
                let [high, low] = key.map(|half| _mm512_set1_epi64(half));
                let highs = _mm512_loadu_si512(keys[0].as_ptr().cast());
                let lows = _mm512_loadu_si512(keys[1].as_ptr().cast());
                let equal = _mm512_cmpeq_epi64_mask(highs, high);
                let less = _mm512_cmplt_epi64_mask(highs, high);
                (less | _mm512_mask_cmplt_epi64_mask(equal, lows, low)).count_ones() as usize
            }
        }
    }
}
