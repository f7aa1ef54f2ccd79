//! Attaches a writer: derives the words from the routes again.

use super::lpm_reader::{LpmReader, expected};
use super::lpm_writer::{LpmWriter, Routes};
use super::trie::{Change, Node, Trie};
use super::word::Word;
use super::{Address, Prefix};
use crate::hash::HashWriter;
use crate::header::Header;
use crate::huge_pages::HugePages;
use crate::slots::FreeList;
use crate::{Readers, SharedMemory, TableError};

use std::sync::Arc;

struct Repair<'a, A: Address> {
    writer: &'a mut LpmWriter<A>,
    used: Vec<bool>,
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
        let free = FreeList::attach("group", &vec![false; groups], fresh);
        let (reader, readers) = (LpmReader::new(header)?, Arc::clone(readers));
        let trie = Trie { reader, free, readers, huge_pages: HugePages::new(memory) };
        let mut writer = Self { trie, routes, repaired: 0 };
        if !fresh {
            writer.repaired = repair(&mut writer)?;
        }
        Ok(writer)
    }
}

fn repair<A: Address>(writer: &mut LpmWriter<A>) -> Result<usize, TableError> {
    let used = vec![false; writer.trie.reader.header.spec.groups];
    let mut repair = Repair { writer, used, last: None, changed: 0 };
    repair.drop_broken_routes();
    repair.scan(Node::root::<A>(), 0);
    repair.writer.trie.free = FreeList::attach("group", &repair.used, false);
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

    /// Corrects words of a node and below that follow from no route. The node's first word is for
    /// addresses that begin with `bits`.
    fn scan(&mut self, node: Node, bits: u128) {
        let mut next = 0;
        loop {
            let index = self.writer.trie.next_word(node, next);
            if index >= node.len() {
                return;
            }
            next = index + 1;
            let word = self.writer.trie.load(node, index);
            let bits = bits | (index as u128) << (128 - u32::from(node.to));
            let fresh = |group: u32| self.used.get(group as usize) == Some(&false);
            match word.group() {
                Some(group) if node.to < A::BITS && fresh(group) => {
                    self.used[group as usize] = true;
                    self.scan(node.below(group), bits);
                    self.writer.trie.unlink(node, index, group);
                    self.used[group as usize] =
                        self.writer.trie.load(node, index).group().is_some();
                }
                None if self.is_correct(node, word, A::from_bits(bits)) => {}
                _ => {
                    let correct = self.writer.routes.longest_match(A::from_bits(bits), node.to);
                    self.writer.trie.store(node, index, correct);
                    self.changed += 1;
                }
            }
        }
    }

    fn is_correct(&mut self, node: Node, word: Word, address: A) -> bool {
        if self.last.is_some_and(|(last, prefix)| last == word && prefix.contains(address)) {
            return true;
        }
        let Some(length) = word.length().filter(|length| *length <= node.to) else { return false };
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
            let assigned = match self.writer.trie.missing_groups(prefix) {
                missing if missing > self.writer.trie.free.len() => None,
                _ => Some(self.writer.trie.assign(Node::root::<A>(), prefix, word, Change::Insert)),
            };
            match assigned {
                Some(assigned) => assigned?,
                // Only in damaged memory: a writer checks for free groups before it inserts.
                None => {
                    self.writer.remove(prefix);
                    self.changed += 1;
                }
            }
        }
        Ok(())
    }
}
