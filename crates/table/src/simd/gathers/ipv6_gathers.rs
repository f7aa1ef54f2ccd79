//! Lookups of 32 IPv6 addresses by AVX-512.
#![allow(unsafe_code, reason = "intrinsics")]

use super::*;

/// Looks up a batch. Returns false, and has written nothing, if pairs and groups do not lie at
/// whole multiples of eight bytes from each other.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn look_up(
    root: &[AtomicU32; ROOT6],
    words: TrieWords<'_>,
    addresses: &[Ipv6Addr; BATCH],
    values: &mut [Option<PrefixValue>; BATCH],
) -> bool {
    let (all, none) = (0xFFFF, _mm512_setzero_si512());
    let octet = _mm512_set1_epi32(0xFF);
    let Some(below) = WordsBelow::new(words) else { return false };
    let mut octets = [quarter(addresses, 0, 0), quarter(addresses, 1, 0)];
    let mut words = [none; 2];
    let mut linked = [0; 2];
    for half in 0..2 {
        let high = _mm512_slli_epi32::<8>(_mm512_and_si512(octets[half], octet));
        let low = _mm512_and_si512(_mm512_srli_epi32::<8>(octets[half]), octet);
        // SAFETY: the indexes have 16 bits, and the root has that many words.
        words[half] = unsafe { gather(root, _mm512_or_si512(high, low), all, none) };
        linked[half] = links(words[half]);
        octets[half] = _mm512_srli_epi32::<16>(octets[half]);
    }
    // The halves take turns, so that the misses of all 32 addresses overlap.
    for level in 0..14 {
        let to = 24 + 8 * level as i32;
        if linked[0] | linked[1] == 0 {
            break;
        }
        if level % 4 == 2 {
            let part = (level + 2) / 4;
            octets = [quarter(addresses, 0, part), quarter(addresses, 1, part)];
        }
        for half in 0..2 {
            let step = _mm512_and_si512(octets[half], octet);
            octets[half] = _mm512_srli_epi32::<8>(octets[half]);
            words[half] = below.step(words[half], linked[half], step, to);
            linked[half] = links(words[half]);
        }
    }
    store(words, values);
    true
}

/// Words below the root.
#[derive(Clone, Copy)]
struct WordsBelow<'t> {
    groups: &'t [AtomicU32],
    /// Number of groups, and of pairs.
    counts: [__m512i; 2],
    /// Distance from the first group to the first pair, in units of eight bytes.
    distance: __m512i,
}

impl<'t> WordsBelow<'t> {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn new(TrieWords { groups, pairs, .. }: TrieWords<'t>) -> Option<Self> {
        // Numbers have 22 bits.
        let count = |words: usize| _mm512_set1_epi32(words.min(1 << 30) as i32);
        let counts = [count(groups.len() / GROUP), count(pairs.len() / 2)];
        let address = |words: &[AtomicU32]| words.as_ptr().expose_provenance() as i64;
        let distance = address(pairs) - address(groups);
        let distance = (distance % 8 == 0).then(|| _mm512_set1_epi64(distance / 8))?;
        Some(Self { groups, counts, distance })
    }

    /// Replaces the words of the lanes `linked`, which link to groups or pairs, by those for the
    /// octets `step`, which end at bit `to` of the addresses. What does not exist has no routes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn step(&self, words: __m512i, linked: __mmask16, step: __m512i, to: i32) -> __m512i {
        let route = _mm512_set1_epi32(ROUTE.cast_signed());
        let paired = _mm512_mask_test_epi32_mask(linked, words, route);
        if paired != 0 {
            return self.step_with_pairs(words, [linked, paired], step, to);
        }
        let number = _mm512_and_si512(words, _mm512_set1_epi32(NUMBER.cast_signed()));
        let exist = _mm512_mask_cmplt_epu32_mask(linked, number, self.counts[0]);
        let index = _mm512_or_si512(_mm512_slli_epi32::<8>(number), step);
        let rest = _mm512_maskz_mov_epi32(!linked, words);
        // SAFETY: the lanes `exist` have an index in a group below the number of groups.
        unsafe { gather(self.groups, index, exist, rest) }
    }

    /// Does what [`step`](Self::step) does if some lanes link to pairs. Both words of a pair are
    /// gathered at once. For a group they are the two of which one is at index `step`, so that
    /// groups take no gather of their own.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn step_with_pairs(
        &self,
        words: __m512i,
        [linked, paired]: [__mmask16; 2],
        step: __m512i,
        to: i32,
    ) -> __m512i {
        let (one, octet) = (_mm512_set1_epi32(1), _mm512_set1_epi32(0xFF));
        let number = _mm512_and_si512(words, _mm512_set1_epi32(NUMBER.cast_signed()));
        let count = _mm512_mask_mov_epi32(self.counts[0], paired, self.counts[1]);
        let exist = _mm512_mask_cmplt_epu32_mask(linked, number, count);
        let of_group =
            _mm512_or_si512(_mm512_slli_epi32::<7>(number), _mm512_srli_epi32::<1>(step));
        let index = _mm512_mask_mov_epi32(of_group, paired, number);
        // SAFETY: the lanes `exist` have a number below that of groups or pairs.
        let two = unsafe { self.gather_two(index, exist, paired) };
        let inside = two[0];
        // As in `Word::equal_bits`. Bit 0 of `step` selects the word of a group.
        let length = _mm512_and_si512(_mm512_srli_epi32::<22>(inside), octet);
        let free = _mm512_sub_epi32(_mm512_set1_epi32(to), length);
        let free = _mm512_mask_mov_epi32(free, links(inside), _mm512_setzero_si512());
        let equal_bits = _mm512_and_si512(_mm512_sllv_epi32(octet, free), octet);
        let bits = _mm512_mask_mov_epi32(one, paired, equal_bits);
        let differ = _mm512_mask_xor_epi32(step, paired, _mm512_srli_epi32::<22>(words), step);
        let is_second = _mm512_test_epi32_mask(differ, bits);
        let below = _mm512_mask_mov_epi32(inside, is_second, two[1]);
        _mm512_mask_mov_epi32(words, linked, below)
    }

    /// Loads two words for each lane in `mask`: the pair at an index if it is in `paired`, else
    /// those of the groups at twice the index. Words of other lanes are zero.
    ///
    /// # Safety
    /// The words of each lane in `mask` exist.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn gather_two(
        &self,
        index: __m512i,
        mask: __mmask16,
        paired: __mmask16,
    ) -> [__m512i; 2] {
        let halves = [_mm512_castsi512_si256(index), _mm512_extracti64x4_epi64::<1>(index)];
        let mut found = [_mm512_setzero_si512(); 2];
        for half in 0..2 {
            let index = _mm512_cvtepu32_epi64(halves[half]);
            let paired = (paired >> (8 * half)) as u8;
            let index = _mm512_mask_add_epi64(index, paired, index, self.distance);
            // SAFETY: reads 64 bits of each lane in the mask, of a pair or a group by the caller's
            // promise. `new` has exposed the address of the pairs. Else as in `gather`.
            unsafe {
                asm!(
                    "vpgatherqq {found} {{{mask}}}, [{groups} + {index} * 8]",
                    found = inout(zmm_reg) found[half],
                    mask = inout(kreg) (mask >> (8 * half)) as u8 => _,
                    index = in(zmm_reg) index,
                    groups = in(reg) self.groups.as_ptr(),
                    options(nostack, preserves_flags, readonly),
                );
            }
        }
        let first = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
        let second = _mm512_or_si512(first, _mm512_set1_epi32(1));
        [first, second].map(|place| _mm512_permutex2var_epi32(found[0], place, found[1]))
    }
}

/// Returns four octets of each of the 16 addresses in a half of a batch, from octet
/// `4 * quarter` on, the first one in the lowest bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn quarter(addresses: &[Ipv6Addr; BATCH], half: usize, quarter: usize) -> __m512i {
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
fn links(words: __m512i) -> __mmask16 {
    _mm512_test_epi32_mask(words, _mm512_set1_epi32(LINK.cast_signed()))
}

/// Loads the words at the indexes of the lanes in `mask`. Other lanes keep their word.
///
/// # Safety
/// The index of each lane in `mask` is below the number of words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn gather(from: &[AtomicU32], index: __m512i, mask: __mmask16, words: __m512i) -> __m512i {
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
fn store(words: [__m512i; 2], values: &mut [Option<PrefixValue>; BATCH]) {
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
