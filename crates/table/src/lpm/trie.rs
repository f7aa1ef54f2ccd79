//! Trie: the words of a prefix table, as its writer changes them.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::lpm_reader::LpmReader;
use super::word::Word;
use super::{Address, Prefix};
use crate::huge_pages::HugePages;
use crate::layout::GROUP;
use crate::slots::FreeList;
use crate::{Readers, TableError};

/// The root or a group, and the range of address bits that it resolves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    /// Number of the group; `None` for the root.
    pub(super) group: Option<u32>,
    pub(super) from: u8,
    pub(super) to: u8,
}

impl Node {
    pub(super) fn root<A: Address>() -> Self {
        Self { group: None, from: 0, to: A::ROOT }
    }

    pub(super) fn below(self, group: u32) -> Self {
        Self { group: Some(group), from: self.to, to: self.to + 8 }
    }

    pub(super) fn len(self) -> usize {
        1 << (self.to - self.from)
    }

    /// Returns the index of the word for an address with these bits.
    fn index(self, bits: u128) -> usize {
        let width = u32::from(self.to - self.from);
        let shifted = bits << self.from >> (128 - width);
        shifted as usize
    }

    /// Returns the indexes of the words that a prefix covers. The prefix must not be longer than
    /// `to`.
    fn covered(self, bits: u128, length: u8) -> Range<usize> {
        if length <= self.from {
            return 0..self.len();
        }
        let first = self.index(bits);
        first..first + (1 << (self.to - length))
    }
}

/// Words and free groups of a prefix table.
#[derive(Debug)]
pub(super) struct Trie<A> {
    pub(super) reader: LpmReader<A>,
    pub(super) free: FreeList,
    pub(super) readers: Arc<Readers>,
    pub(super) huge_pages: HugePages,
}

/// Selection of the words that a change applies to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// Words without a route, or with a route whose prefix is not longer.
    Insert,
    /// Words with the route of this prefix length.
    Remove,
}

impl Change {
    fn is_for(self, word: Word, length: u8) -> bool {
        match self {
            Self::Insert => word.length().is_none_or(|other| other <= length),
            Self::Remove => word.length() == Some(length),
        }
    }
}

/// Returns the index of the first word, from `from` on, that is not empty.
// A loop by hand: tests attach to tables thousands of times, and without optimization an iterator
// calls functions for each word.
fn first_word(words: &[AtomicU32], from: usize) -> usize {
    let mut at = from;
    while at < words.len() && words[at].load(Ordering::Relaxed) == Word::NONE.0 {
        at += 1;
    }
    at
}

impl<A: Address> Trie<A> {
    /// Returns the index of the first word of a node, from `from` on, that is not empty. Returns
    /// the length of the node if there is none.
    pub(super) fn next_word(&self, node: Node, from: usize) -> usize {
        let words = match node.group {
            None => &self.reader.root[..],
            Some(group) => &self.reader.groups[group as usize * GROUP..][..GROUP],
        };
        first_word(words, from)
    }

    pub(super) fn word(&self, node: Node, index: usize) -> &AtomicU32 {
        match node.group {
            None => &self.reader.root[index],
            Some(group) => &self.reader.groups[group as usize * GROUP + index],
        }
    }

    pub(super) fn load(&self, node: Node, index: usize) -> Word {
        Word(self.word(node, index).load(Ordering::Relaxed))
    }

    pub(super) fn store(&self, node: Node, index: usize, word: Word) {
        self.word(node, index).store(word.0, Ordering::Release);
    }

    /// Returns the number of groups that a prefix needs in addition.
    pub(super) fn missing_groups(&self, prefix: Prefix<A>) -> usize {
        let mut node = Node::root::<A>();
        while prefix.length > node.to {
            match self.load(node, node.index(prefix.address.to_bits())).group() {
                Some(group) => node = node.below(group),
                None => return usize::from(prefix.length - node.to).div_ceil(8),
            }
        }
        0
    }

    /// Assigns a new word to the addresses that a prefix covers. On an error nothing has changed.
    pub(super) fn assign(
        &mut self,
        node: Node,
        prefix: Prefix<A>,
        new: Word,
        change: Change,
    ) -> Result<(), TableError> {
        let bits = prefix.address.to_bits();
        if node.group.is_none() && matches!(change, Change::Insert) {
            let covered = node.covered(bits, prefix.length.min(node.to));
            self.huge_pages.prepare(&self.reader.root[covered]);
        }
        if prefix.length <= node.to {
            self.fill(node, node.covered(bits, prefix.length), prefix.length, new, change);
            return Ok(());
        }
        let index = node.index(bits);
        let word = self.load(node, index);
        if let Some(group) = word.group() {
            return self.assign(node.below(group), prefix, new, change);
        }
        if matches!(change, Change::Remove) {
            return Ok(()); // there is no longer prefix here
        }
        let group = self.free.take(&self.readers, self.reader.header.name())?;
        self.huge_pages.prepare(&self.reader.groups[group as usize * GROUP..][..GROUP]);
        let below = node.below(group);
        (0..GROUP).for_each(|index| self.store(below, index, word));
        let assigned = self.assign(below, prefix, new, change);
        match &assigned {
            Ok(()) => self.store(node, index, Word::link(group)),
            Err(_) => self.free.put_back(group),
        }
        assigned
    }

    fn fill(&self, node: Node, range: Range<usize>, length: u8, new: Word, change: Change) {
        for index in range {
            let word = self.load(node, index);
            if let Some(group) = word.group() {
                let below = node.below(group);
                self.fill(below, 0..below.len(), length, new, change);
            } else if word != new && change.is_for(word, length) {
                self.store(node, index, new);
            }
        }
    }

    /// Unlinks the groups on the path to a prefix that are no longer needed.
    pub(super) fn merge(&mut self, node: Node, prefix: Prefix<A>) {
        if prefix.length <= node.to {
            return;
        }
        let index = node.index(prefix.address.to_bits());
        if let Some(group) = self.load(node, index).group() {
            self.merge(node.below(group), prefix);
            self.unlink(node, index, group);
        }
    }

    /// Unlinks a group if all its words are equal and can replace the word that links to it.
    pub(super) fn unlink(&mut self, node: Node, index: usize, group: u32) {
        let below = node.below(group);
        let word = self.load(below, 0);
        let fits = word.group().is_none() && word.length().is_none_or(|length| length <= node.to);
        if fits && (1..below.len()).all(|index| self.load(below, index) == word) {
            self.store(node, index, word);
            self.free.retire(group);
        }
    }
}
