//! Overflow of records: chains of parts.

use zerocopy::FromZeros;

use super::StoreError;
use super::record::{Array, Cells, PART, SessionPart};

/// PartChains, with a bitmap of those in use.
pub(super) struct PartChains {
    table: Array<SessionPart>,
    used: Vec<u64>,
    free: u32,
    /// No part in a word before that of this one is free.
    next: u32,
}

impl PartChains {
    /// Opens the table. No part is in use until it is [marked](Self::mark).
    pub(super) fn open(cells: Cells<SessionPart>) -> Self {
        let table = Array(cells);
        let count = table.capacity();
        let mut used = vec![0; count.div_ceil(64)];
        if let Some(last) = used.last_mut().filter(|_| !count.is_multiple_of(64)) {
            *last = u64::MAX << (count % 64);
        }
        Self { table, used, free: count as u32, next: 0 }
    }

    /// Returns the number of free parts.
    pub(super) const fn free(&self) -> u32 {
        self.free
    }

    fn is_used(&self, part: u32) -> bool {
        self.used.get(part as usize / 64).is_none_or(|word| word >> (part % 64) & 1 == 1)
    }

    /// Marks a chain as used. Returns false and marks nothing if the chain is invalid or overlaps
    /// another.
    pub(super) fn mark(&mut self, first: u32, length: usize, version: u64) -> bool {
        let Some(chain) = self.chain(first, length, version) else { return false };
        let mut sorted = chain.clone();
        sorted.sort_unstable();
        let is_sound = sorted.windows(2).all(|pair| pair[0] != pair[1])
            && chain.iter().all(|part| !self.is_used(*part));
        if is_sound {
            chain.iter().for_each(|part| self.take(*part));
        }
        is_sound
    }

    /// Clears all unmarked parts, which a killed writer left behind.
    pub(super) fn sweep(&mut self) {
        for part in 0..self.table.capacity() as u32 {
            if !self.is_used(part) && self.table.get(part).is_some() {
                self.table.clear(part);
            }
        }
    }

    /// Returns the indices of a chain's parts, exactly as many as the length needs.
    fn chain(&self, first: u32, length: usize, version: u64) -> Option<Vec<u32>> {
        let mut chain = Vec::new();
        let mut place = first;
        for _ in 0..length.div_ceil(PART) {
            let number = place.checked_sub(1)?;
            let part = self.table.get(number).filter(|part| part.version == version)?;
            chain.push(number);
            place = part.next;
        }
        (place == 0).then_some(chain)
    }

    /// Writes bytes to free parts. Returns 1 + the index of the first part, or 0 for no bytes.
    pub(super) fn write(&mut self, bytes: &[u8], version: u64) -> Result<u32, StoreError> {
        let count = bytes.len().div_ceil(PART);
        if count > self.free as usize {
            return Err(StoreError::NoPart { parts: self.table.capacity() });
        }
        let mut next = 0;
        for chunk in bytes.chunks(PART).rev() {
            let number = self.find();
            let mut part = SessionPart::new_zeroed();
            part.bytes[..chunk.len()].copy_from_slice(chunk);
            (part.next, part.length, part.version) = (next, chunk.len() as u32, version);
            if let Err(error) = self.table.set(number, &part) {
                self.give_up(next);
                return Err(error.into());
            }
            self.take(number);
            next = number + 1;
        }
        Ok(next)
    }

    /// Appends the bytes of a chain to `to`. Returns false if the chain is invalid.
    pub(super) fn read(&self, first: u32, length: usize, version: u64, to: &mut Vec<u8>) -> bool {
        let Some(chain) = self.chain(first, length, version) else { return false };
        let end = to.len() + length;
        for part in chain.iter().filter_map(|number| self.table.get(*number)) {
            to.extend_from_slice(&part.bytes[..PART.min(end - to.len())]);
        }
        to.len() == end
    }

    /// Frees a chain that nothing refers to any more.
    pub(super) fn give_up(&mut self, first: u32) {
        let mut place = first;
        while let Some(number) = place.checked_sub(1).filter(|number| self.is_used(*number)) {
            place = self.table.get(number).map_or(0, |part| part.next);
            self.table.clear(number);
            if let Some(word) = self.used.get_mut(number as usize / 64) {
                *word &= !(1 << (number % 64));
                self.free += 1;
                self.next = self.next.min(number);
            }
        }
    }

    fn take(&mut self, part: u32) {
        if let Some(word) = self.used.get_mut(part as usize / 64) {
            *word |= 1 << (part % 64);
            self.free -= 1;
        }
    }

    /// Returns a free part, one of the first, so that little memory is touched. One must be free.
    fn find(&mut self) -> u32 {
        let words = self.used.len() as u32;
        let start = self.next / 64;
        let word = (0..words).map(|step| (start + step) % words);
        let word = word.map(|word| (word, !self.used[word as usize])).find(|(_, free)| *free != 0);
        let part = word.map_or(0, |(word, free)| word * 64 + free.trailing_zeros());
        self.next = part;
        part
    }
}
