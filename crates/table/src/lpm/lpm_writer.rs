//! The slow path's side.

use super::trie::{Change, Node, Trie};
use super::word::{VALUE_LIMIT, Word};
use super::{Address, Prefix};
use crate::TableError;
use crate::hash::HashWriter;

/// Inserts and removes prefixes. There is one writer of a table at a time: the session sees to it.
pub struct LpmWriter<A: Address> {
    pub(super) trie: Trie<A>,
    pub(super) routes: Routes<A>,
    pub(super) repaired: usize,
}

/// What the table holds.
pub(super) struct Routes<A: Address> {
    pub(super) hash: HashWriter<A::Route, u32>,
    /// How many there are of each length.
    pub(super) lengths: [u32; 129],
}

impl<A: Address> Routes<A> {
    pub(super) fn get(&self, prefix: Prefix<A>) -> Option<u32> {
        if self.lengths[usize::from(prefix.length())] == 0 {
            return None;
        }
        Some(*self.hash.get(&A::route(prefix))?.value)
    }

    /// The word of the longest prefix of an address that has at most `longest` bits.
    pub(super) fn longest_match(&self, address: A, longest: u8) -> Word {
        let prefixes = (0..=longest).rev().filter_map(|length| Prefix::new(address, length));
        let mut words =
            prefixes.filter_map(|prefix| Some(Word::route(prefix.length(), self.get(prefix)?)));
        words.next().unwrap_or(Word::NONE)
    }

    pub(super) fn count(&mut self) {
        self.lengths = [0; 129];
        for (route, _) in self.hash.iter() {
            if let Some(prefix) = A::prefix(route) {
                self.lengths[usize::from(prefix.length())] += 1;
            }
        }
    }
}

impl<A: Address> LpmWriter<A> {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.trie.reader.header.name()
    }

    /// How many prefixes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.routes.hash.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most prefixes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.routes.hash.capacity()
    }

    /// How many words and routes were put right when the writer attached.
    #[must_use]
    pub fn repaired(&self) -> usize {
        self.repaired
    }

    /// The value of exactly this prefix.
    #[must_use]
    pub fn get(&self, prefix: Prefix<A>) -> Option<u32> {
        self.routes.get(prefix)
    }

    /// The value of the longest prefix of an address, as lanes find it.
    #[must_use]
    pub fn lookup(&self, address: A) -> Option<u32> {
        self.trie.reader.lookup(self.routes.hash.guard(), address)
    }

    /// As [`LpmReader::lookup_many`].
    pub fn lookup_many(&self, addresses: &[A], values: &mut [Option<u32>]) {
        self.trie.reader.lookup_many(self.routes.hash.guard(), addresses, values);
    }

    /// As [`SharedMemory::collapse`]. What lanes read first of an address is 64 MiB for IPv4 and
    /// lies in small pages until then.
    pub fn collapse(&self) {
        self.trie.reader.header.memory.collapse();
    }

    /// All prefixes with their values, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix<A>, u32)> {
        let all = self.routes.hash.iter();
        all.filter_map(|(route, found)| Some((A::prefix(route)?, *found.value)))
    }

    /// Gives a prefix a value less than 2^22, a new one if it has one.
    ///
    /// # Errors
    /// When the value is too great, the table or its groups are full, or a lane holds back what was
    /// given up before; nothing has changed then.
    pub fn insert(&mut self, prefix: Prefix<A>, value: u32) -> Result<(), TableError> {
        if value >= VALUE_LIMIT {
            let (table, index) = (self.name().to_owned(), value as usize);
            return Err(TableError::OutOfRange { table, index, capacity: VALUE_LIMIT as usize });
        }
        self.check_groups(prefix)?;
        let route = A::route(prefix);
        let before = self.routes.hash.get(&route).map(|found| *found.value);
        self.routes.hash.insert(&route, &value)?;
        let word = Word::route(prefix.length(), value);
        let assigned = self.trie.assign(Node::root::<A>(), prefix, word, Change::Insert);
        match (&assigned, before) {
            (Ok(()), None) => self.routes.lengths[usize::from(prefix.length())] += 1,
            (Err(_), None) => {
                self.routes.hash.remove(&route);
            }
            // A prefix that was there has its groups: this cannot fail.
            _ => {}
        }
        assigned
    }

    fn check_groups(&mut self, prefix: Prefix<A>) -> Result<(), TableError> {
        let missing = self.trie.missing_groups(prefix);
        if missing > self.trie.free.len() {
            let what = format!("{prefix} needs {missing} groups of 256 words more");
            return Err(TableError::Full { table: self.name().to_owned(), what });
        }
        Ok(())
    }

    /// Removes a prefix; false when it is not there.
    pub fn remove(&mut self, prefix: Prefix<A>) -> bool {
        if !self.routes.hash.remove(&A::route(prefix)) {
            return false;
        }
        self.routes.lengths[usize::from(prefix.length())] -= 1;
        let longest = prefix.length().checked_sub(1);
        let covering = longest
            .map_or(Word::NONE, |length| self.routes.longest_match(prefix.address(), length));
        // Removing needs no group, so it cannot fail.
        let _ = self.trie.assign(Node::root::<A>(), prefix, covering, Change::Remove);
        self.trie.merge(Node::root::<A>(), prefix);
        true
    }
}
