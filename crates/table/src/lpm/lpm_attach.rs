//! Attaches a writer: derives the words from the routes again.

use super::lpm_reader::{LpmReader, expected};
use super::lpm_writer::{LpmWriter, Routes};
use super::trie::{Change, Node, Trie};
use super::word::{Link, PairLink, Word};
use super::{Address, Prefix};
use crate::hash::HashWriter;
use crate::header::Header;
use crate::huge_pages::HugePages;
use crate::layout::GROUP;
use crate::slots::FreeList;
use crate::{Readers, SharedMemory, TableError};

use std::ops::Range;
use std::sync::Arc;

struct Repair<'a, A: Address> {
    writer: &'a mut LpmWriter<A>,
    used_groups: Vec<bool>,
    used_pairs: Vec<bool>,
    /// Last word that was found correct, and its prefix. The next word is often the same.
    last: Option<(Word, Prefix<A>)>,
    changed: usize,
}

impl<A: Address> LpmWriter<A> {
    /// Attaches as the writer of a prefix table. Corrects words that do not follow from the routes
    /// because a writer was killed. No lookup fails meanwhile that did not fail before.
    ///
    /// # Errors
    /// Returns an error if the memory holds no such table, is mapped read-only, or has a writer
    /// already.
    pub fn attach(memory: &Arc<SharedMemory>, readers: &Arc<Readers>) -> Result<Self, TableError> {
        let header = Header::expect_writable(memory, 0, &expected::<A>())?;
        let (fresh, base, groups) = (header.fresh, header.layout.rib, header.spec.groups);
        let rib = Header::expect_writable(memory, base, &header.spec.rib())?;
        let hash = HashWriter::new(rib, &Arc::new(Readers::of_no_lane()))?;
        let mut routes = Routes { hash, lengths: [0; 129] };
        routes.count();
        let free_groups = FreeList::attach("group", &vec![false; groups], fresh);
        let free_pairs = FreeList::attach("pair", &vec![false; header.spec.pairs()], fresh);
        let (reader, readers) = (LpmReader::new(header)?, Arc::clone(readers));
        let huge_pages = HugePages::new(memory);
        let trie = Trie { reader, free_groups, free_pairs, readers, huge_pages };
        let mut writer = Self { trie, routes, repaired: 0 };
        if !fresh {
            writer.repaired = repair(&mut writer)?;
        }
        Ok(writer)
    }
}

fn repair<A: Address>(writer: &mut LpmWriter<A>) -> Result<usize, TableError> {
    let spec = &writer.trie.reader.header.spec;
    let [used_groups, used_pairs] = [spec.groups, spec.pairs()].map(|count| vec![false; count]);
    let mut repair = Repair { writer, used_groups, used_pairs, last: None, changed: 0 };
    repair.drop_broken_routes();
    for indices in repair.writer.trie.written_root() {
        repair.scan(Node::root::<A>(), indices, 0);
    }
    let trie = &mut repair.writer.trie;
    trie.free_groups = FreeList::attach("group", &repair.used_groups, false);
    trie.free_pairs = FreeList::attach("pair", &repair.used_pairs, false);
    repair.assign()?;
    Ok(repair.changed)
}

impl<A: Address> Repair<'_, A> {
    /// Removes invalid routes: a prefix that is too long, bits after the prefix, a value that is
    /// too great.
    fn drop_broken_routes(&mut self) {
        let routes = &mut self.writer.routes;
        let broken = |(route, value): (A::Route, u32)| {
            let sound = A::prefix(route).is_some_and(|prefix| A::route(prefix) == route);
            (!sound || value >= super::word::VALUE_LIMIT).then_some(route)
        };
        let all = routes.hash.iter().map(|(route, found)| (route, *found.value));
        let broken: Vec<_> = all.filter_map(broken).collect();
        self.changed += broken.iter().filter(|route| routes.hash.remove(route)).count();
        routes.count();
    }

    /// Corrects words of a node, and below them, that follow from no route. The node's first word
    /// is for addresses that begin with `bits`.
    fn scan(&mut self, node: Node, mut indices: Range<usize>, bits: u128) {
        loop {
            let index = self.writer.trie.next_word(node, indices.clone());
            if index >= indices.end {
                return;
            }
            indices.start = index + 1;
            let word = self.writer.trie.load(node, index);
            let bits = bits | (index as u128) << (128 - u32::from(node.to));
            let correct = self.corrected(word, node.to, bits);
            if correct != word {
                self.writer.trie.store(node, index, correct);
            }
        }
    }

    /// Corrects what is below a word of addresses with equal first `to` bits. Returns the word that
    /// must replace it.
    fn corrected(&mut self, word: Word, to: u8, bits: u128) -> Word {
        match word.link().filter(|_| to < A::BITS) {
            Some(Link::Group(group)) if is_fresh(&mut self.used_groups, group) => {
                self.scan(Node::group(group, to), 0..GROUP, bits);
                let merged = self.writer.trie.unlinked(word, to);
                self.used_groups[group as usize] = merged == word;
                merged
            }
            Some(Link::Pair(pair)) if is_fresh(&mut self.used_pairs, pair.number) => {
                let merged = if self.correct_pair(pair, to, bits) {
                    self.writer.trie.unlinked(word, to)
                } else {
                    self.longest_match(to, bits)
                };
                self.used_pairs[pair.number as usize] = merged == word;
                merged
            }
            None if word == Word::NONE || self.is_correct(to, word, A::from_bits(bits)) => word,
            _ => self.longest_match(to, bits),
        }
    }

    /// Returns the word that replaces a wrong one.
    fn longest_match(&mut self, to: u8, bits: u128) -> Word {
        self.changed += 1;
        self.writer.routes.longest_match(A::from_bits(bits), to)
    }

    /// Corrects the words of a pair. Returns false if none of its addresses has a prefix that is
    /// longer than `from`, as far as the pair knows.
    fn correct_pair(&mut self, pair: PairLink, from: u8, bits: u128) -> bool {
        let reader = &self.writer.trie.reader;
        let [inside, outside] = [reader.inside(pair), reader.outside(pair)];
        if outside != Word::NONE && !self.is_correct(from, outside, A::from_bits(bits)) {
            let correct = self.longest_match(from, bits);
            self.writer.trie.store_outside(pair, correct);
        }
        let to = from + 8;
        let bits = bits | u128::from(pair.octet) << (128 - u32::from(to));
        let correct = self.corrected(inside, to, bits);
        if correct != inside {
            self.writer.trie.store_inside(pair, correct);
        }
        correct.link().is_some() || correct.length().is_some_and(|length| length > from)
    }

    /// Returns true if a word of addresses with equal first `to` bits follows from a route.
    fn is_correct(&mut self, to: u8, word: Word, address: A) -> bool {
        if self.last.is_some_and(|(last, prefix)| last == word && prefix.contains(address)) {
            return true;
        }
        let Some(length) = word.length().filter(|length| *length <= to) else { return false };
        let Some(prefix) = Prefix::new(address, length) else { return false };
        let correct = self.writer.routes.get(prefix).map(|value| Word::route(length, value));
        self.last = Some((word, prefix)).filter(|_| correct == Some(word));
        self.last.is_some()
    }

    /// Writes the words of each route.
    fn assign(&mut self) -> Result<(), TableError> {
        let routes: Vec<_> = self.writer.iter().collect();
        for (prefix, value) in routes {
            let word = Word::route(prefix.length(), value);
            let trie = &mut self.writer.trie;
            if trie.has_room(trie.missing(prefix)) {
                trie.assign(Node::root::<A>(), prefix, word, Change::Insert)?;
            } else {
                // Only in damaged memory: a writer checks for room before it inserts.
                self.writer.remove(prefix);
                self.changed += 1;
            }
        }
        Ok(())
    }
}

/// Marks a group or pair as used. Returns false if it does not exist or is used already.
fn is_fresh(used: &mut [bool], number: u32) -> bool {
    used.get_mut(number as usize).is_some_and(|used| !std::mem::replace(used, true))
}
