//! Sets of frames of a pool, as a successor finds them in the rings of a queue.

/// Set of frames of one pool, by frame index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FrameSet {
    /// One bit per frame; the first frame is the lowest bit of the first word.
    pub(crate) words: Vec<u64>,
    frames: u32,
    shift: u32,
}

impl FrameSet {
    /// Creates the empty set for a pool of `frames` frames. `frame_size` is a power of two.
    pub(crate) fn empty(frames: u32, frame_size: usize) -> Self {
        let words = vec![0; frames.div_ceil(64) as usize];
        Self { words, frames, shift: frame_size.trailing_zeros() }
    }

    /// Returns the number of frames in the pool.
    pub(crate) fn pool_frames(&self) -> u32 {
        self.frames
    }

    /// Returns the size of a frame in bytes.
    pub(crate) fn frame_size(&self) -> usize {
        1 << self.shift
    }

    pub(crate) fn contains(&self, index: u32) -> bool {
        self.words.get(index as usize / 64).is_some_and(|word| word >> (index % 64) & 1 != 0)
    }

    /// Returns the number of frames in the set.
    pub(crate) fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Adds the frames that contain the addresses. Returns false if an address is outside of the
    /// pool or its frame is already in the set.
    pub(crate) fn add_all(&mut self, addresses: impl Iterator<Item = u64>) -> bool {
        for address in addresses {
            let index = address >> self.shift;
            if index >= u64::from(self.frames) {
                return false;
            }
            let (word, bit) = (&mut self.words[(index / 64) as usize], 1 << (index % 64));
            if *word & bit != 0 {
                return false;
            }
            *word |= bit;
        }
        true
    }

    /// Adds the frames of `other`; returns false if the sets overlapped.
    pub(crate) fn add(&mut self, other: &Self) -> bool {
        let apart = self.words.iter().zip(&other.words).all(|(ours, theirs)| ours & theirs == 0);
        self.unite(other);
        apart
    }

    /// Adds the frames of `other`.
    pub(crate) fn unite(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(ours, theirs)| *ours |= theirs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_set_refuses_addresses_outside_and_frames_twice() {
        let mut frames = FrameSet::empty(70, 2048);
        assert!(frames.add_all([0, 2048 * 69 + 256, 2048 * 64].into_iter()));
        assert!(!frames.add_all([2048 * 69].into_iter()), "twice");
        for outside in [2048 * 70, u64::MAX] {
            assert!(!frames.clone().add_all([outside].into_iter()), "{outside}");
        }
        assert_eq!(frames.len(), 3);
        assert!(frames.contains(69) && frames.contains(0) && !frames.contains(1));
        assert!(!frames.contains(70) && !frames.contains(u32::MAX));
        let mut other = FrameSet::empty(70, 2048);
        assert!(other.add_all([2048].into_iter()));
        assert!(frames.add(&other) && !frames.add(&other));
        assert_eq!(frames.len(), 4);
    }
}
