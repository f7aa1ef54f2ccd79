//! Gathers: lookups of 32 addresses in a prefix table by AVX-512 and AVX2.
//!
//! A writer changes words while they are gathered. All reads of words are inline assembly: to the
//! language they are foreign reads, as by another process, and no data race. The processor reads
//! each lane like an aligned load of 32 bits, which is never torn (Intel SDM, volume 3, 9.1.1; AMD
//! APM, volume 2, 7.3.2), and x86 keeps loads of different instructions in order. An index that
//! comes from a word is compared with the number of words in a register before it is used.
#![allow(unsafe_code, reason = "intrinsics")]

use std::arch::asm;
use std::arch::x86_64::*;

use super::*;
use crate::layout::{LINK, NUMBER, ROUTE};

/// Number of words in the root of a prefix table for IPv4 and for IPv6.
const ROOT4: usize = 1 << 24;
const ROOT6: usize = 1 << 16;

// The vector code reads addresses as octets in their order, which is checked here. All 32 and
// all 128 bits of them are values, so they have no padding.
// SAFETY: types of equal size without padding, and any bytes are octets.
const OCTETS4: [u8; 4] = unsafe { std::mem::transmute(Ipv4Addr::new(1, 2, 3, 4)) };
const _: () = assert!(matches!(OCTETS4, [1, 2, 3, 4]));
const BITS6: u128 = 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10;
// SAFETY: as above.
const OCTETS6: [u8; 16] = unsafe { std::mem::transmute(Ipv6Addr::from_bits(BITS6)) };
const _: () = assert!(u128::from_be_bytes(OCTETS6) == BITS6);

impl Gather for Ipv4Addr {
    #[inline(always)]
    fn gather(
        instructions: InstructionSet,
        words: TrieWords<'_>,
        addresses: &[Self; BATCH],
        values: &mut [Option<PrefixValue>; BATCH],
    ) -> bool {
        let Some(root) = words.root.first_chunk::<ROOT4>() else { return false };
        if instructions.0 == Extension::None {
            return false;
        }
        // SAFETY: the processor has AVX2, as all others of `InstructionSet` include it.
        unsafe { ipv4_avx2(root, words.groups, addresses, values) };
        true
    }
}

impl Gather for Ipv6Addr {
    #[inline(always)]
    fn gather(
        instructions: InstructionSet,
        words: TrieWords<'_>,
        addresses: &[Self; BATCH],
        values: &mut [Option<PrefixValue>; BATCH],
    ) -> bool {
        let Some(root) = words.root.first_chunk::<ROOT6>() else { return false };
        if instructions.0 != Extension::Avx512 {
            return false;
        }
        // SAFETY: the processor has the instructions (`InstructionSet`).
        unsafe { ipv6_avx512(root, words, addresses, values) };
        true
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn ipv6_avx512(
    root: &[AtomicU32; ROOT6],
    TrieWords { groups, pairs, .. }: TrieWords<'_>,
    addresses: &[Ipv6Addr; BATCH],
    values: &mut [Option<PrefixValue>; BATCH],
) {
    let (all, none) = (0xFFFF, _mm512_setzero_si512());
    let octet = _mm512_set1_epi32(0xFF);
    let route = _mm512_set1_epi32(ROUTE.cast_signed());
    let mut octets = [quarter_512(addresses, 0, 0), quarter_512(addresses, 1, 0)];
    let mut words = [none; 2];
    let mut linked = [0; 2];
    for half in 0..2 {
        let high = _mm512_slli_epi32::<8>(_mm512_and_si512(octets[half], octet));
        let low = _mm512_and_si512(_mm512_srli_epi32::<8>(octets[half]), octet);
        // SAFETY: the indexes have 16 bits, and the root has that many words.
        words[half] = unsafe { gather_512(root, _mm512_or_si512(high, low), all, none) };
        linked[half] = linked_512(words[half]);
        octets[half] = _mm512_srli_epi32::<16>(octets[half]);
    }
    // The halves take turns, so that the misses of all 32 addresses overlap.
    for level in 0..14 {
        let to = 24 + 8 * level as i32;
        if linked[0] | linked[1] == 0 {
            break;
        }
        if level % 4 == 2 {
            let quarter = (level + 2) / 4;
            octets = [quarter_512(addresses, 0, quarter), quarter_512(addresses, 1, quarter)];
        }
        for half in 0..2 {
            let step = _mm512_and_si512(octets[half], octet);
            octets[half] = _mm512_srli_epi32::<8>(octets[half]);
            let paired = _mm512_mask_test_epi32_mask(linked[half], words[half], route);
            let mut below = words[half];
            below = in_groups_512(groups, below, linked[half] & !paired, step);
            if paired != 0 {
                below = in_pairs_512(pairs, below, paired, step, to);
            }
            words[half] = below;
            linked[half] = linked_512(words[half]);
        }
    }
    store_512(words, values);
}

/// Returns four octets of each of the 16 addresses in a half of a batch, from octet
/// `4 * quarter` on, the first one in the lowest bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn quarter_512(addresses: &[Ipv6Addr; BATCH], half: usize, quarter: usize) -> __m512i {
    let half = &addresses.as_chunks::<16>().0[half];
    let start = half.as_ptr().cast::<i32>();
    // SAFETY: 16 addresses of 16 bytes are four vectors of 64.
    let four = unsafe {
        [
            _mm512_loadu_epi32(start),
            _mm512_loadu_epi32(start.add(16)),
            _mm512_loadu_epi32(start.add(32)),
            _mm512_loadu_epi32(start.add(48)),
        ]
    };
    let every_fourth = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 28, 24, 20, 16, 12, 8, 4, 0);
    let indexes = _mm512_add_epi32(every_fourth, _mm512_set1_epi32(quarter as i32));
    let low = _mm512_permutex2var_epi32(four[0], indexes, four[1]);
    let high = _mm512_permutex2var_epi32(four[2], indexes, four[3]);
    _mm512_inserti64x4::<1>(low, _mm512_castsi512_si256(high))
}

/// Returns the lanes whose word links to a group or pair.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn linked_512(words: __m512i) -> __mmask16 {
    _mm512_test_epi32_mask(words, _mm512_set1_epi32(LINK.cast_signed()))
}

/// Replaces the words of the lanes `grouped`, which link to groups, by those at index `step`,
/// which is below 256. A group that does not exist has no routes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn in_groups_512(
    groups: &[AtomicU32],
    words: __m512i,
    grouped: __mmask16,
    step: __m512i,
) -> __m512i {
    let number = _mm512_and_si512(words, _mm512_set1_epi32(NUMBER.cast_signed()));
    let index = _mm512_or_si512(_mm512_slli_epi32::<8>(number), step);
    let inside = below_512(grouped, index, groups.len());
    let rest = _mm512_maskz_mov_epi32(!grouped, words);
    // SAFETY: the lanes `inside` have an index below the number of words.
    unsafe { gather_512(groups, index, inside, rest) }
}

/// Replaces the words of the lanes `paired`, which link to pairs, by those for the octets
/// `step`, which end at bit `to` of the addresses. A pair that does not exist has no routes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn in_pairs_512(
    pairs: &[AtomicU32],
    words: __m512i,
    paired: __mmask16,
    step: __m512i,
    to: i32,
) -> __m512i {
    let octet = _mm512_set1_epi32(0xFF);
    let number = _mm512_and_si512(words, _mm512_set1_epi32(NUMBER.cast_signed()));
    let first = _mm512_slli_epi32::<1>(number);
    let second = _mm512_or_si512(first, _mm512_set1_epi32(1));
    // The number of words is even, so the second one exists if the first one does.
    let exist = below_512(paired, first, pairs.len());
    let rest = _mm512_maskz_mov_epi32(!paired, words);
    // SAFETY: the lanes `exist` have an index below the number of words.
    let inside = unsafe { gather_512(pairs, first, exist, rest) };
    // As in `Word::equal_bits`.
    let length = _mm512_and_si512(_mm512_srli_epi32::<22>(inside), octet);
    let free = _mm512_sub_epi32(_mm512_set1_epi32(to), length);
    let free = _mm512_mask_mov_epi32(free, linked_512(inside), _mm512_setzero_si512());
    let equal_bits = _mm512_and_si512(_mm512_sllv_epi32(octet, free), octet);
    let differ = _mm512_xor_si512(_mm512_srli_epi32::<22>(words), step);
    let outside = _mm512_mask_test_epi32_mask(exist, differ, equal_bits);
    // SAFETY: as above.
    unsafe { gather_512(pairs, second, outside, inside) }
}

/// Returns the lanes of a mask whose index is below a number of words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn below_512(mask: __mmask16, index: __m512i, words: usize) -> __mmask16 {
    let count = _mm512_set1_epi32(words.min(1 << 30) as i32);
    _mm512_mask_cmplt_epu32_mask(mask, index, count)
}

/// Loads the words at the indexes of the lanes in `mask`. Other lanes keep their word.
///
/// # Safety
/// The index of each lane in `mask` is below the number of words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn gather_512(
    from: &[AtomicU32],
    index: __m512i,
    mask: __mmask16,
    words: __m512i,
) -> __m512i {
    let mut words = words;
    // SAFETY: reads 32 bits of each lane in the mask, inside the slice by the caller's promise;
    // they are accessed as atomics elsewhere (see the module). The other lanes are not read.
    unsafe {
        asm!(
            "vpgatherdd {words} {{{mask}}}, [{from} + {index} * 4]",
            words = inout(zmm_reg) words,
            mask = inout(kreg) mask => _,
            index = in(zmm_reg) index,
            from = in(reg) from.as_ptr(),
            options(nostack, preserves_flags, readonly),
        );
    }
    words
}

/// Stores the values of words that are routes, and `None` for the others.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn store_512(words: [__m512i; 2], values: &mut [Option<PrefixValue>; BATCH]) {
    let kind = _mm512_set1_epi32((ROUTE | LINK).cast_signed());
    let route = _mm512_set1_epi32(ROUTE.cast_signed());
    let value = _mm512_set1_epi32((ROUTE | NUMBER).cast_signed());
    let start = values.as_mut_ptr().cast::<i32>();
    for (half, word) in words.into_iter().enumerate() {
        let routes = _mm512_cmpeq_epi32_mask(_mm512_and_si512(word, kind), route);
        let found = _mm512_maskz_and_epi32(routes, word, value);
        // SAFETY: 32 values of 4 bytes, of which any bits are one: see `PrefixValue`.
        unsafe { _mm512_storeu_epi32(start.add(16 * half), found) };
    }
}

#[target_feature(enable = "avx2")]
fn ipv4_avx2(
    root: &[AtomicU32; ROOT4],
    groups: &[AtomicU32],
    addresses: &[Ipv4Addr; BATCH],
    values: &mut [Option<PrefixValue>; BATCH],
) {
    let fours = addresses.as_chunks::<4>().0;
    let mut words = [_mm256_setzero_si256(); 4];
    let mut any = words[0];
    for eight in 0..4 {
        let low = root_words(root, &fours[2 * eight]);
        let high = root_words(root, &fours[2 * eight + 1]);
        words[eight] = _mm256_set_m128i(high, low);
        any = _mm256_or_si256(any, words[eight]);
    }
    if _mm256_testz_si256(any, _mm256_set1_epi32(LINK.cast_signed())) == 0 {
        for (eight, word) in words.iter_mut().enumerate() {
            // SAFETY: 32 addresses of 4 bytes.
            let octets = unsafe { _mm256_loadu_si256(addresses.as_ptr().add(8 * eight).cast()) };
            let step = _mm256_srli_epi32::<24>(octets);
            *word = below_256(groups, *word, step);
        }
    }
    let kind = _mm256_set1_epi32((ROUTE | LINK).cast_signed());
    let route = _mm256_set1_epi32(ROUTE.cast_signed());
    let value = _mm256_set1_epi32((ROUTE | NUMBER).cast_signed());
    for (eight, word) in words.into_iter().enumerate() {
        let routes = _mm256_cmpeq_epi32(_mm256_and_si256(word, kind), route);
        let found = _mm256_and_si256(_mm256_and_si256(word, value), routes);
        // SAFETY: 32 values of 4 bytes, of which any bits are one: see `PrefixValue`.
        unsafe { _mm256_storeu_si256(values.as_mut_ptr().add(8 * eight).cast(), found) };
    }
}

/// Loads the words of four addresses from the root, one by one. That is faster than a gather,
/// which the processors of AMD split into more operations.
#[inline]
#[target_feature(enable = "avx2")]
fn root_words(root: &[AtomicU32; ROOT4], addresses: &[Ipv4Addr; 4]) -> __m128i {
    let words;
    // SAFETY: reads four addresses of 4 bytes, and words at indexes of 24 bits, as many as the
    // root has. They are accessed as atomics elsewhere (see the module).
    unsafe {
        asm!(
            "mov {first:e}, dword ptr [{addresses}]",
            "mov {second:e}, dword ptr [{addresses} + 4]",
            "mov {third:e}, dword ptr [{addresses} + 8]",
            "mov {fourth:e}, dword ptr [{addresses} + 12]",
            "bswap {first:e}",
            "bswap {second:e}",
            "bswap {third:e}",
            "bswap {fourth:e}",
            "shr {first:e}, 8",
            "shr {second:e}, 8",
            "shr {third:e}, 8",
            "shr {fourth:e}, 8",
            "vmovd {words}, dword ptr [{root} + {first} * 4]",
            "vpinsrd {words}, {words}, dword ptr [{root} + {second} * 4], 1",
            "vpinsrd {words}, {words}, dword ptr [{root} + {third} * 4], 2",
            "vpinsrd {words}, {words}, dword ptr [{root} + {fourth} * 4], 3",
            words = out(xmm_reg) words,
            first = out(reg) _,
            second = out(reg) _,
            third = out(reg) _,
            fourth = out(reg) _,
            addresses = in(reg) addresses.as_ptr(),
            root = in(reg) root.as_ptr(),
            options(nostack, readonly),
        );
    }
    words
}

/// Replaces each word that links to a group by that of the group at index `step`, which is
/// below 256. A group that does not exist has no routes, nor has a pair, as IPv4 has none.
#[inline]
#[target_feature(enable = "avx2")]
fn below_256(groups: &[AtomicU32], words: __m256i, step: __m256i) -> __m256i {
    let kind = _mm256_set1_epi32((ROUTE | LINK).cast_signed());
    let group = _mm256_set1_epi32(LINK.cast_signed());
    let linked = _mm256_cmpeq_epi32(_mm256_and_si256(words, kind), group);
    let number = _mm256_and_si256(words, _mm256_set1_epi32(NUMBER.cast_signed()));
    let index = _mm256_or_si256(_mm256_slli_epi32::<8>(number), step);
    // Both are at most 2^30, so a signed comparison is right.
    let count = _mm256_set1_epi32(groups.len().min(1 << 30) as i32);
    let inside = _mm256_and_si256(linked, _mm256_cmpgt_epi32(count, index));
    // SAFETY: the lanes `inside` have an index below the number of words.
    unsafe { gather_256(groups, index, inside, _mm256_andnot_si256(linked, words)) }
}

/// Loads the words at the indexes of the lanes whose mask has its highest bit set. Other lanes
/// keep their word.
///
/// # Safety
/// The index of each lane in `mask` is below the number of words.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn gather_256(from: &[AtomicU32], index: __m256i, mask: __m256i, words: __m256i) -> __m256i {
    let mut words = words;
    // SAFETY: as in `gather_512`.
    unsafe {
        asm!(
            "vpgatherdd {words}, [{from} + {index} * 4], {mask}",
            words = inout(ymm_reg) words,
            mask = inout(ymm_reg) mask => _,
            index = in(ymm_reg) index,
            from = in(reg) from.as_ptr(),
            options(nostack, preserves_flags, readonly),
        );
    }
    words
}
