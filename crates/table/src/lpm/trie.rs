//! Trie: the words of a prefix table, as its writer changes them.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::lpm_reader::LpmReader;
use super::word::{Link, PairLink, Word};
use super::{Address, Prefix};
use crate::huge_pages::HugePages;
use crate::layout::GROUP;
use crate::slots::FreeList;
use crate::written::written;
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

    pub(super) fn group(number: u32, from: u8) -> Self {
        Self { group: Some(number), from, to: from + 8 }
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

/// Words of a prefix table, and its free groups and pairs.
#[derive(Debug)]
pub(super) struct Trie<A> {
    pub(super) reader: LpmReader<A>,
    pub(super) free_groups: FreeList,
    pub(super) free_pairs: FreeList,
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

/// Room that a prefix needs in addition.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Missing {
    /// Number of groups that must replace pairs.
    pub(super) groups: usize,
    /// Number of further groups or pairs.
    pub(super) nodes: usize,
}

/// First word of a pair, and the octets of the addresses that have it.
#[derive(Debug)]
struct Inside {
    word: Word,
    octets: Range<usize>,
}

impl Inside {
    fn of(word: Word, octet: u8, from: u8) -> Self {
        let equal_bits = word.equal_bits(from + 8);
        let first = usize::from(octet & equal_bits);
        Self { word, octets: first..first + GROUP - usize::from(equal_bits) }
    }

    fn is_octet(&self, octet: u8) -> bool {
        self.octets == (usize::from(octet)..usize::from(octet) + 1)
    }
}

/// Returns the octet of an address from bit `from` on.
fn octet(bits: u128, from: u8) -> u8 {
    (bits << from >> 120) as u8
}

/// Returns the octets, from bit `from` on, of the addresses that a prefix covers.
fn octets(bits: u128, from: u8, length: u8) -> Range<usize> {
    let free = (from + 8).saturating_sub(length).min(8);
    let first = usize::from(octet(bits, from)) >> free << free;
    first..first + (1 << free)
}

/// Returns the number of groups or pairs between bit `to` and the end of a prefix.
fn levels(to: u8, length: u8) -> usize {
    usize::from(length - to).div_ceil(8)
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
    /// Returns the index of the first word of a node, among these, that is not empty. Returns the
    /// end of the range if there is none.
    pub(super) fn next_word(&self, node: Node, indices: Range<usize>) -> usize {
        let words = match node.group {
            None => &self.reader.root[..],
            Some(group) => &self.reader.groups[group as usize * GROUP..][..GROUP],
        };
        first_word(&words[..indices.end], indices.start)
    }

    /// Returns the indices of the words of the root that were ever written.
    pub(super) fn written_root(&self) -> impl Iterator<Item = Range<usize>> + use<A> {
        const WORD: usize = size_of::<Word>();
        let (header, words) = (&self.reader.header, self.reader.root.len());
        let start = header.layout.index;
        let parts = written(&header.memory, start..start + words * WORD).into_iter();
        parts.map(move |part| (part.start - start) / WORD..(part.end - start).div_ceil(WORD))
    }

    fn word(&self, node: Node, index: usize) -> &AtomicU32 {
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

    /// Returns what a prefix needs in addition.
    pub(super) fn missing(&self, prefix: Prefix<A>) -> Missing {
        let (mut node, bits) = (Node::root::<A>(), prefix.address.to_bits());
        while prefix.length > node.to {
            let mut word = self.load(node, node.index(bits));
            let mut to = node.to;
            while let Some(Link::Pair(pair)) = word.link() {
                let inside = Inside::of(self.reader.inside(pair), pair.octet, to);
                to += 8;
                if prefix.length <= to {
                    let is_same = inside.octets == octets(bits, to - 8, prefix.length);
                    return Missing { groups: usize::from(!is_same), nodes: 0 };
                }
                if !inside.is_octet(octet(bits, to - 8)) {
                    return Missing { groups: 1, nodes: levels(to, prefix.length) };
                }
                word = inside.word;
            }
            match word.link() {
                Some(Link::Group(group)) => node = Node::group(group, to),
                _ => return Missing { groups: 0, nodes: levels(to, prefix.length) },
            }
        }
        Missing::default()
    }

    /// Returns true if there is room for what a prefix needs.
    pub(super) fn has_room(&self, missing: Missing) -> bool {
        let groups = missing.groups + missing.nodes.saturating_sub(self.free_pairs.len());
        groups <= self.free_groups.len()
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
        let assigned = self.assign_below(word, node.to, prefix, new, change)?;
        if assigned != word {
            self.store(node, index, assigned);
        }
        Ok(())
    }

    /// Assigns a new word below a word of addresses with equal first `to` bits. Returns the word
    /// that must replace that one.
    fn assign_below(
        &mut self,
        word: Word,
        to: u8,
        prefix: Prefix<A>,
        new: Word,
        change: Change,
    ) -> Result<Word, TableError> {
        match (word.link(), change) {
            (Some(Link::Group(group)), _) => {
                self.assign(Node::group(group, to), prefix, new, change).map(|()| word)
            }
            (Some(Link::Pair(pair)), _) => self.assign_in_pair(pair, to, prefix, new, change),
            (None, Change::Insert) => self.branch(word, to, prefix, new),
            (None, Change::Remove) => Ok(word), // there is no longer prefix here
        }
    }

    /// Makes the words for a prefix that is the only one longer than `from` among addresses that
    /// have the word `outside`. Returns the link to them.
    fn branch(
        &mut self,
        outside: Word,
        from: u8,
        prefix: Prefix<A>,
        new: Word,
    ) -> Result<Word, TableError> {
        let bits = prefix.address.to_bits();
        let name = self.reader.header.name();
        let is_pair = self.free_pairs.len() > 0;
        let free = if is_pair { &mut self.free_pairs } else { &mut self.free_groups };
        let number = free.take(&self.readers, name)?;
        let below = if prefix.length <= from + 8 {
            Ok(new)
        } else {
            self.branch(outside, from + 8, prefix, new)
        };
        let inside = match below {
            Ok(inside) => inside,
            Err(error) => {
                let free = if is_pair { &mut self.free_pairs } else { &mut self.free_groups };
                free.put_back(number);
                return Err(error);
            }
        };
        if !is_pair {
            let octets = octets(bits, from, prefix.length);
            return Ok(self.fill_group(number, &octets, inside, outside));
        }
        let pair = PairLink { number, octet: octet(bits, from) };
        self.huge_pages.prepare(&self.reader.pairs[2 * number as usize..][..2]);
        self.store_inside(pair, inside);
        self.store_outside(pair, outside);
        Ok(Word::pair(pair))
    }

    /// Fills a group that is not linked yet: some octets have the word `inside`. Returns the link.
    fn fill_group(
        &mut self,
        number: u32,
        octets: &Range<usize>,
        inside: Word,
        outside: Word,
    ) -> Word {
        self.huge_pages.prepare(&self.reader.groups[number as usize * GROUP..][..GROUP]);
        for (index, word) in
            self.reader.groups[number as usize * GROUP..][..GROUP].iter().enumerate()
        {
            let filled = if octets.contains(&index) { inside } else { outside };
            word.store(filled.0, Ordering::Release);
        }
        Word::group(number)
    }

    /// Assigns a new word in a pair, or in the group that must replace it. Returns the link.
    fn assign_in_pair(
        &mut self,
        pair: PairLink,
        from: u8,
        prefix: Prefix<A>,
        new: Word,
        change: Change,
    ) -> Result<Word, TableError> {
        let (bits, to) = (prefix.address.to_bits(), from + 8);
        let inside = Inside::of(self.reader.inside(pair), pair.octet, from);
        if prefix.length > to && inside.is_octet(octet(bits, from)) {
            let word = self.assign_below(inside.word, to, prefix, new, change)?;
            if word != inside.word {
                self.store_inside(pair, word);
            }
        } else if prefix.length <= to && inside.octets == octets(bits, from, prefix.length) {
            let word = self.filled(inside.word, to, prefix.length, new, change);
            self.store_inside(pair, word);
        } else if matches!(change, Change::Insert) {
            let number = self.free_groups.take(&self.readers, self.reader.header.name())?;
            let outside = self.reader.outside(pair);
            let link = self.fill_group(number, &inside.octets, inside.word, outside);
            if let Err(error) = self.assign(Node::group(number, from), prefix, new, change) {
                self.free_groups.put_back(number);
                return Err(error);
            }
            self.free_pairs.retire(pair.number);
            return Ok(link);
        }
        Ok(Word::pair(pair))
    }

    fn fill(&self, node: Node, range: Range<usize>, length: u8, new: Word, change: Change) {
        for index in range {
            let word = self.load(node, index);
            let filled = self.filled(word, node.to, length, new, change);
            if filled != word {
                self.store(node, index, filled);
            }
        }
    }

    /// Assigns a new word to all addresses of a word, whose first `to` bits are equal, as far as
    /// the change is for them. Returns the word that must replace it.
    fn filled(&self, word: Word, to: u8, length: u8, new: Word, change: Change) -> Word {
        match word.link() {
            None if change.is_for(word, length) => new,
            None => word,
            Some(Link::Group(group)) => {
                let node = Node::group(group, to);
                self.fill(node, 0..node.len(), length, new, change);
                word
            }
            Some(Link::Pair(pair)) => {
                let [inside, outside] = [self.reader.inside(pair), self.reader.outside(pair)];
                let filled = self.filled(inside, to + 8, length, new, change);
                if filled != inside {
                    self.store_inside(pair, filled);
                }
                if change.is_for(outside, length) && outside != new {
                    self.store_outside(pair, new);
                }
                word
            }
        }
    }

    /// Unlinks the groups and pairs on the path to a prefix that are no longer needed.
    pub(super) fn merge(&mut self, node: Node, prefix: Prefix<A>) {
        if prefix.length <= node.to {
            return;
        }
        let index = node.index(prefix.address.to_bits());
        let word = self.load(node, index);
        let merged = self.merged(word, node.to, prefix);
        if merged != word {
            self.store(node, index, merged);
        }
    }

    /// Merges below a word. Returns the word that must replace it.
    fn merged(&mut self, word: Word, to: u8, prefix: Prefix<A>) -> Word {
        match word.link() {
            None => return word,
            Some(Link::Group(group)) => self.merge(Node::group(group, to), prefix),
            Some(Link::Pair(pair)) if prefix.length > to + 8 => {
                let inside = Inside::of(self.reader.inside(pair), pair.octet, to);
                if inside.is_octet(octet(prefix.address.to_bits(), to)) {
                    let merged = self.merged(inside.word, to + 8, prefix);
                    self.store_inside(pair, merged);
                }
            }
            Some(Link::Pair(_)) => {}
        }
        self.unlinked(word, to)
    }

    /// Returns the word that can replace a link, whose group or pair is retired then: all its words
    /// are equal and have no prefix longer than `to`. Returns the link itself otherwise.
    // Lanes may read the retired words until their turns have ended, so the caller stores the
    // result before anything is taken from a free list again.
    pub(super) fn unlinked(&mut self, link: Word, to: u8) -> Word {
        let fits =
            |word: Word| word.link().is_none() && word.length().is_none_or(|length| length <= to);
        match link.link() {
            Some(Link::Group(group)) => {
                let node = Node::group(group, to);
                let word = self.load(node, 0);
                if fits(word) && (1..GROUP).all(|index| self.load(node, index) == word) {
                    self.free_groups.retire(group);
                    return word;
                }
            }
            Some(Link::Pair(pair)) => {
                let outside = self.reader.outside(pair);
                if fits(outside) && self.reader.inside(pair) == outside {
                    self.free_pairs.retire(pair.number);
                    return outside;
                }
            }
            None => {}
        }
        link
    }

    pub(super) fn store_inside(&self, pair: PairLink, word: Word) {
        self.reader.pairs[2 * pair.number as usize].store(word.0, Ordering::Release);
    }

    pub(super) fn store_outside(&self, pair: PairLink, word: Word) {
        self.reader.pairs[2 * pair.number as usize + 1].store(word.0, Ordering::Release);
    }
}
