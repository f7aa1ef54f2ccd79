//! Pseudo-random numbers from a seed, and mutation of octets.

/// Pseudo-random number generator (splitmix64).
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number less than `end`, or 0 if that is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 1).unwrap_or(0).checked_rem(end).unwrap_or(0)
    }

    /// Returns true with a probability of one in `count`.
    pub(crate) fn is_one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn octet(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }

    /// Returns fewer than `end` octets.
    pub(crate) fn octets(&mut self, end: usize) -> Vec<u8> {
        (0..self.below(end)).map(|_| self.octet()).collect()
    }

    /// Returns one element of `all`.
    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// Returns an octet that is likely to be a boundary of a parser.
    fn extreme(&mut self) -> u8 {
        match self.below(8) {
            0 => self.octet(),
            1 => self.below(17) as u8,
            _ => *self.pick(&[0, 1, 0x7f, 0x80, 0xfe, 0xff]),
        }
    }

    /// Mutates octets in one of eight ways.
    pub(crate) fn mutate(&mut self, octets: &mut Vec<u8>) {
        let at = self.below(octets.len() + 1);
        let is_inside = at < octets.len();
        match self.below(8) {
            0 | 1 if is_inside => octets[at] ^= 1 << self.below(8),
            2 if is_inside => octets[at] = self.extreme(),
            3 => octets.truncate(at),
            4 => drop(octets.splice(at..at, self.octets(9))),
            5 => {
                // Duplicate a part.
                let end = (at + self.below(40)).min(octets.len());
                let again = octets[at..end].to_vec();
                octets.splice(at..at, again);
            }
            6 => {
                let end = (at + self.below(9)).min(octets.len());
                octets.drain(at..end);
            }
            _ => {
                // Replace a number of two, four or eight octets.
                let end = (at + (2 << self.below(3))).min(octets.len());
                let with = self.extreme();
                octets[at..end].fill(with);
                if let Some(last) = octets[at..end].last_mut() {
                    *last = self.extreme();
                }
            }
        }
    }
}
