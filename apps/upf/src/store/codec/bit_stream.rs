//! Bit stream of encoded sessions.
//!
//! The first bit is the lowest bit of the first byte. A reader accepts any bytes and returns `None`
//! at their end.

/// Writer of a bit stream.
#[derive(Debug, Default)]
pub(super) struct BitWriter {
    bytes: Vec<u8>,
    /// Bits that do not fill a byte yet, the first one lowest.
    rest: u128,
    /// Number of bits in `rest`.
    count: u32,
}

impl BitWriter {
    /// Creates a writer that clears and fills a buffer.
    pub(super) fn into(mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        Self { bytes, rest: 0, count: 0 }
    }

    /// Appends the lower `bits` of a value, at most 64.
    pub(super) fn put(&mut self, value: u64, bits: u32) {
        debug_assert!(bits <= 64 && (bits == 64 || value >> bits == 0), "{value} in {bits} bits");
        self.rest |= u128::from(value) << self.count;
        self.count += bits;
        if self.count >= 64 {
            self.bytes.extend_from_slice(&(self.rest as u64).to_le_bytes());
            self.rest >>= 64;
            self.count -= 64;
        }
    }

    /// Appends a number in variable length: its size in 6 bits, then the bits below its highest
    /// one.
    pub(super) fn number(&mut self, value: u64) {
        match 64 - value.leading_zeros() {
            0 => self.put(0, 6),
            size @ 1..=62 => {
                self.put(u64::from(size), 6);
                self.put(value & ((1 << (size - 1)) - 1), size - 1);
            }
            _ => {
                self.put(63, 6);
                self.put(value, 64);
            }
        }
    }

    /// Returns the bytes, padded to a whole byte.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let bytes = self.count.div_ceil(8) as usize;
        self.bytes.extend_from_slice(&self.rest.to_le_bytes()[..bytes]);
        self.bytes
    }
}

/// Reader of a bit stream.
#[derive(Debug)]
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    /// Position in bits.
    at: usize,
}

impl<'a> BitReader<'a> {
    pub(super) const fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Reads `bits` bits, at most 64. Returns `None` if fewer are left.
    #[inline]
    pub(super) fn get(&mut self, bits: u32) -> Option<u64> {
        debug_assert!(bits <= 64);
        let (first, skip) = (self.at / 8, self.at as u32 % 8);
        // All sessions are read at each start. Most fields lie within one word.
        let word = match self.bytes.get(first..).and_then(|rest| rest.first_chunk()) {
            Some(word) if skip + bits <= 64 => u64::from_le_bytes(*word) >> skip,
            _ => self.word(first, skip, bits)?,
        };
        self.at += bits as usize;
        Some(word & u64::MAX.checked_shr(64 - bits).unwrap_or(0))
    }

    /// Reads a word that spans nine bytes or is near the end.
    #[cold]
    fn word(&self, first: usize, skip: u32, bits: u32) -> Option<u64> {
        let rest = self.bytes.get(first..)?;
        if (skip + bits) as usize > 8 * rest.len() {
            return None;
        }
        let mut bytes = [0; 16];
        let length = rest.len().min(16);
        bytes[..length].copy_from_slice(&rest[..length]);
        Some((u128::from_le_bytes(bytes) >> skip) as u64)
    }

    /// Reads a number that [`BitWriter::number`] wrote.
    #[inline]
    pub(super) fn number(&mut self) -> Option<u64> {
        match self.get(6)? as u32 {
            0 => Some(0),
            63 => self.get(64),
            size => Some(1 << (size - 1) | self.get(size - 1)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_put_is_got(values in prop::collection::vec((any::<u64>(), 0_u32..=64), 0..50)) {
            let mut to = BitWriter::default();
            let cut = |value: u64, bits: u32| value & u64::MAX.checked_shr(64 - bits).unwrap_or(0);
            for (value, bits) in &values {
                to.put(cut(*value, *bits), *bits);
                to.number(cut(*value, *bits));
            }
            let bytes = to.finish();
            let mut from = BitReader::of(&bytes);
            for (value, bits) in &values {
                prop_assert_eq!(from.get(*bits), Some(cut(*value, *bits)));
                prop_assert_eq!(from.number(), Some(cut(*value, *bits)));
            }
            prop_assert!(from.get(8).is_none());
        }
    }
}
