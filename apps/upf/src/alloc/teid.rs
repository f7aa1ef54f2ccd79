//! Allocation of TEIDs: the session index and a growing generation.
//!
//! An index starts with an unpredictable generation and counts up across all its sessions. So a
//! TEID is reused only after all others of its index; the record holds the count. Additional
//! tunnels of a session take further generations. They are found in the exact table, but no other
//! session can get them.

use std::hash::{BuildHasher, RandomState};

use crate::rules::layout::key::TeidLayout;
use crate::session::SessionIndex;

/// Returns the generation of an index that was never used.
#[must_use]
pub fn first_generation(id: SessionIndex) -> u32 {
    // The standard library's hasher has a random key from the kernel.
    RandomState::new().hash_one(id.0) as u32
}

/// Returns the next free TEID of an index, neither 0 nor all ones (TS 29.281 clause 5.1). Returns
/// `None` if TEIDs chosen by the control plane occupy all of them.
pub fn next(
    shape: TeidLayout,
    id: SessionIndex,
    generation: &mut u32,
    is_taken: impl Fn(u32) -> bool,
) -> Option<u32> {
    let tries = shape.generations().min(1 << 16);
    (0..tries).find_map(|_| {
        let teid = shape.teid(id, *generation);
        *generation = generation.wrapping_add(1);
        Some(teid).filter(|teid| !matches!(*teid, 0 | u32::MAX) && !is_taken(*teid))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_identifiers_of_a_place_come_before_one_comes_again() {
        let (shape, id) = (TeidLayout::of(1 << 20), SessionIndex(0xF_FFFF));
        let mut generation = u32::MAX - 7;
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..4095 {
            let teid = next(shape, id, &mut generation, |_| false).unwrap();
            assert!(seen.insert(teid) && shape.session(teid) == id && teid != u32::MAX);
        }
        let again = next(shape, id, &mut generation, |_| false).unwrap();
        assert!(!seen.insert(again));
    }

    #[test]
    fn what_is_taken_is_passed_over_and_neither_0_nor_all_ones_is_given() {
        let shape = TeidLayout::of(1 << 20);
        let mut generation = 0;
        assert_eq!(next(shape, SessionIndex(0), &mut generation, |_| false), Some(1 << 20));
        let taken = |teid| teid < 5 << 20;
        assert_eq!(next(shape, SessionIndex(0), &mut generation, taken), Some(5 << 20));
        assert_eq!(next(shape, SessionIndex(0), &mut generation, |_| true), None);
    }
}
