//! Making the words follow from the routes again.

use super::trie::{Change, Node};
use super::word::Word;
use super::writer::LpmWriter;
use super::{Address, Prefix};
use crate::TableError;
use crate::pool::Pool;

struct Repair<'a, A: Address> {
    writer: &'a mut LpmWriter<A>,
    used: Vec<bool>,
    /// The word that was found right last, and its prefix: the next is often the same.
    last: Option<(Word, Prefix<A>)>,
    changed: usize,
}

pub(super) fn repair<A: Address>(writer: &mut LpmWriter<A>) -> Result<usize, TableError> {
    let used = vec![false; writer.trie.reader.header.spec.groups];
    let mut repair = Repair { writer, used, last: None, changed: 0 };
    repair.drop_broken_routes();
    repair.scan(Node::root::<A>(), 0);
    repair.writer.trie.free = Pool::attach("group", &repair.used, false);
    repair.paint()?;
    Ok(repair.changed)
}

impl<A: Address> Repair<'_, A> {
    /// Routes that no writer writes: a prefix too long, bits after it, a value too great.
    fn drop_broken_routes(&mut self) {
        let routes = &mut self.writer.routes;
        let broken = |(route, value): (A::Route, u32)| {
            let sound = A::prefix(route).is_some_and(|prefix| A::route(prefix) == route);
            (!sound || value >= super::word::VALUES).then_some(route)
        };
        let all = routes.hash.iter().map(|(route, found)| (route, *found.value));
        let broken: Vec<_> = all.filter_map(broken).collect();
        self.changed += broken.iter().filter(|route| routes.hash.remove(route)).count();
        routes.count();
    }

    /// Changes words below a node that no route accounts for. Its first word is for addresses that
    /// begin with `bits`.
    fn scan(&mut self, node: Node, bits: u128) {
        for index in 0..node.len() {
            let word = self.writer.trie.load(node, index);
            if word == Word::NONE {
                continue;
            }
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
                None if self.is_right(node, word, A::from_bits(bits)) => {}
                _ => {
                    let right = self.writer.routes.best(A::from_bits(bits), node.to);
                    self.writer.trie.store(node, index, right);
                    self.changed += 1;
                }
            }
        }
    }

    fn is_right(&mut self, node: Node, word: Word, address: A) -> bool {
        if self.last.is_some_and(|(last, prefix)| last == word && prefix.contains(address)) {
            return true;
        }
        let Some(length) = word.length().filter(|length| *length <= node.to) else { return false };
        let Some(prefix) = Prefix::new(address, length) else { return false };
        let right = self.writer.routes.get(prefix).map(|value| Word::route(length, value));
        self.last = Some((word, prefix)).filter(|_| right == Some(word));
        self.last.is_some()
    }

    /// Gives each route the words that are its own.
    fn paint(&mut self) -> Result<(), TableError> {
        let routes: Vec<_> = self.writer.iter().collect();
        for (prefix, value) in routes {
            let word = Word::route(prefix.length(), value);
            let painted = match self.writer.trie.missing(prefix) {
                missing if missing > self.writer.trie.free.len() => None,
                _ => Some(self.writer.trie.paint(Node::root::<A>(), prefix, word, Change::Insert)),
            };
            match painted {
                Some(painted) => painted?,
                // Only of damaged memory: a writer makes sure of the groups first.
                None => {
                    self.writer.remove(prefix);
                    self.changed += 1;
                }
            }
        }
        Ok(())
    }
}
