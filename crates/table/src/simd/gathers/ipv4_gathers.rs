//! Lookups of 32 IPv4 addresses by AVX2.
#![allow(unsafe_code, reason = "intrinsics")]

use super::*;

/// Looks up a batch in four parts of eight addresses. Each part goes on below the root by itself,
/// because few addresses do.
#[target_feature(enable = "avx2")]
pub(super) fn look_up(
    root: &[AtomicU32; ROOT4],
    groups: &[AtomicU32],
    addresses: &[Ipv4Addr; BATCH],
    values: &mut [Option<PrefixValue>; BATCH],
) {
    let parts = addresses.as_chunks::<8>().0;
    let found = values.as_chunks_mut::<8>().0;
    let mut words = [_mm256_setzero_si256(); 4];
    for (part, words) in words.iter_mut().enumerate() {
        *words = root_words(root, &parts[part]);
    }
    let value = _mm256_set1_epi32((ROUTE | NUMBER).cast_signed());
    for (part, words) in words.into_iter().enumerate() {
        let mut words = words;
        if _mm256_testz_si256(words, _mm256_set1_epi32(LINK.cast_signed())) == 0 {
            // SAFETY: eight addresses of 4 bytes.
            let octets = unsafe { _mm256_loadu_si256(parts[part].as_ptr().cast()) };
            words = words_below(groups, words, _mm256_srli_epi32::<24>(octets));
        }
        // No word is a link any more, and those with the highest bit are routes.
        let routes = _mm256_srai_epi32::<31>(words);
        let values = _mm256_and_si256(_mm256_and_si256(words, value), routes);
        // SAFETY: eight values of 4 bytes, of which any bits are one: see `PrefixValue`.
        unsafe { _mm256_storeu_si256(found[part].as_mut_ptr().cast(), values) };
    }
}

/// Loads the words of eight addresses from the root, one by one.
#[inline]
#[target_feature(enable = "avx2")]
fn root_words(root: &[AtomicU32; ROOT4], addresses: &[Ipv4Addr; 8]) -> __m256i {
    let fours = addresses.as_chunks::<4>().0;
    _mm256_set_m128i(four_root_words(root, &fours[1]), four_root_words(root, &fours[0]))
}

/// Loads the words of four addresses from the root, one by one. Processors of AMD split a gather
/// into more operations; those of Intel gather words faster if the cache has them, and slower if
/// they come from farther away.
#[inline]
#[target_feature(enable = "avx2")]
fn four_root_words(root: &[AtomicU32; ROOT4], addresses: &[Ipv4Addr; 4]) -> __m128i {
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
/// below 256. A group that does not exist has no routes, nor has a pair, as IPv4 has none, nor a
/// link in a group. The result has no links.
#[inline]
#[target_feature(enable = "avx2")]
fn words_below(groups: &[AtomicU32], words: __m256i, step: __m256i) -> __m256i {
    let kind = _mm256_set1_epi32((ROUTE | LINK).cast_signed());
    let group = _mm256_set1_epi32(LINK.cast_signed());
    let linked = _mm256_cmpeq_epi32(_mm256_and_si256(words, kind), group);
    let number = _mm256_and_si256(words, _mm256_set1_epi32(NUMBER.cast_signed()));
    let index = _mm256_or_si256(_mm256_slli_epi32::<8>(number), step);
    // Both are at most 2^30, so a signed comparison is right.
    let count = _mm256_set1_epi32(groups.len().min(1 << 30) as i32);
    let inside = _mm256_and_si256(linked, _mm256_cmpgt_epi32(count, index));
    // SAFETY: the lanes `inside` have an index below the number of words.
    let words = unsafe { gather(groups, index, inside, _mm256_andnot_si256(linked, words)) };
    let links = _mm256_cmpeq_epi32(_mm256_and_si256(words, group), group);
    _mm256_andnot_si256(links, words)
}

/// Loads the words at the indexes of the lanes whose mask has its highest bit set. Other lanes
/// keep their word.
///
/// # Safety
/// The index of each lane in `mask` is below the number of words.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn gather(from: &[AtomicU32], index: __m256i, mask: __m256i, words: __m256i) -> __m256i {
    let mut words = words;
    // SAFETY: as in `ipv6_gathers`.
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
