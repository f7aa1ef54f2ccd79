//! Homes: the slots that the hash of some flow names. A program looks there first, as most packets
//! without a flow have a home that no flow has.

use std::io;

/// Number of bits in a word.
const BITS: usize = u64::BITS as usize;

/// Returns the number of words for the homes of a number of slots. A table of the kernel has one at
/// least.
pub(crate) fn home_words(first_slots: usize) -> usize {
    first_slots.div_ceil(BITS).max(1)
}

/// A bit for each slot that a hash may have.
#[derive(Debug)]
pub(crate) struct Homes(Vec<u64>);

impl Homes {
    /// Creates the homes of a number of slots, none of which a flow has.
    pub(crate) fn new(first_slots: usize) -> Self {
        Self(vec![0; home_words(first_slots)])
    }

    /// Returns the words.
    pub(crate) fn words(&self) -> &[u64] {
        &self.0
    }

    /// Notes whether some flow has a slot. `write` gets the word that changes, if one does.
    ///
    /// # Errors
    /// Returns the error of `write`. The word is unchanged then.
    pub(crate) fn set(
        &mut self,
        slot: usize,
        is_home: bool,
        write: impl FnOnce(usize, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let index = slot / BITS;
        let Some(word) = self.0.get_mut(index) else { return Ok(()) };
        let bit = 1 << (slot % BITS);
        let wanted = if is_home { *word | bit } else { *word & !bit };
        if *word != wanted {
            write(index, wanted)?;
            *word = wanted;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_written_only_if_it_changes() {
        let mut homes = Homes::new(65);
        let mut written = Vec::new();
        for (slot, is_home) in [(64, true), (64, true), (3, false), (3, true), (64, false)] {
            let write = |index, word| {
                written.push((index, word));
                Ok(())
            };
            homes.set(slot, is_home, write).unwrap();
        }
        assert_eq!(written, [(1, 1), (0, 8), (1, 0)]);
        assert_eq!(homes.words(), [8, 0]);
    }

    #[test]
    fn a_refused_word_is_tried_again() {
        let mut homes = Homes::new(64);
        let refusal = || Err(io::ErrorKind::OutOfMemory.into());
        homes.set(1, true, |_, _| refusal()).unwrap_err();
        let mut written = None;
        let write = |index, word| {
            written = Some((index, word));
            Ok(())
        };
        homes.set(1, true, write).unwrap();
        assert_eq!(written, Some((0, 2)));
    }
}
