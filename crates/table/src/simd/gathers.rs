//! Gathers: lookups of 32 addresses in a prefix table by AVX-512 and AVX2.
//!
//! A writer changes words while they are gathered. All reads of words are inline assembly: to the
//! language they are foreign reads, as by another process, and no data race. The processor reads
//! each lane like an aligned load of 32 bits, or like two of them, which are never torn (Intel SDM,
//! volume 3, 9.1.1; AMD APM, volume 2, 7.3.2), and x86 keeps loads of different instructions in
//! order. An index that comes from a word is compared with the number of words in a register before
//! it is used.
#![allow(unsafe_code, reason = "intrinsics")]

use std::arch::asm;
use std::arch::x86_64::*;

use super::*;
use crate::layout::{GROUP, LINK, NUMBER, ROUTE};

mod ipv4_gathers;
mod ipv6_gathers;

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
        unsafe { ipv4_gathers::look_up(root, words.groups, addresses, values) };
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
        unsafe { ipv6_gathers::look_up(root, words, addresses, values) }
    }
}
