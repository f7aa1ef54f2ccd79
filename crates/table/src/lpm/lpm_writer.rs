//! Writer of a prefix table: insertion and removal by the slow path.

use super::trie::{Change, Node, Trie};
use super::word::{VALUE_LIMIT, Word};
use super::{Address, Prefix};
use crate::TableError;
use crate::hash::HashWriter;
use crate::prefix_value::PrefixValue;

/// Writer of a prefix table. A table has one writer at a time; the session ensures this.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use fastlane_table::{Lpm4Writer, Prefix, Readers, Spec};
///
/// let memory = Spec::lpm4("routes", 100).create()?;
/// // SAFETY: no lane reads in this example.
/// let readers = Arc::new(unsafe { Readers::none() });
/// let mut writer = Lpm4Writer::attach(&memory, &readers)?;
/// let prefix = Prefix::new([10, 1, 0, 0].into(), 16).expect("16 bits");
/// writer.insert(prefix, 2)?;
/// assert_eq!(writer.lookup([10, 1, 2, 3].into()), Some(2));
/// assert!(writer.remove(prefix));
/// assert_eq!(writer.lookup([10, 1, 2, 3].into()), None);
/// # Ok::<(), fastlane_table::TableError>(())
/// ```
pub struct LpmWriter<A: Address> {
    pub(super) trie: Trie<A>,
    pub(super) routes: Routes<A>,
    pub(super) repaired: usize,
}

/// Route table, from which the words of the trie are derived.
pub(super) struct Routes<A: Address> {
    pub(super) hash: HashWriter<A::Route, u32>,
    /// Number of routes of each prefix length.
    pub(super) lengths: [u32; 129],
}

impl<A: Address> Routes<A> {
    pub(super) fn get(&self, prefix: Prefix<A>) -> Option<u32> {
        if self.lengths[usize::from(prefix.length())] == 0 {
            return None;
        }
        Some(*self.hash.get(&A::route(prefix))?.value)
    }

    /// Returns the word of an address's longest prefix with at most `longest` bits.
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
    /// Returns the name of the table.
    #[must_use]
    pub fn name(&self) -> &str {
        self.trie.reader.header.name()
    }

    /// Returns the number of prefixes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.routes.hash.len()
    }

    /// Returns true if there are no prefixes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the maximum number of prefixes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.routes.hash.capacity()
    }

    /// Returns the number of words and routes that were repaired when the writer attached.
    #[must_use]
    pub fn repaired(&self) -> usize {
        self.repaired
    }

    /// Returns the value of exactly this prefix.
    #[must_use]
    pub fn get(&self, prefix: Prefix<A>) -> Option<u32> {
        self.routes.get(prefix)
    }

    /// Returns the value of the longest prefix of an address, as lanes see it.
    #[must_use]
    pub fn lookup(&self, address: A) -> Option<u32> {
        self.trie.reader.lookup(self.routes.hash.guard(), address)
    }

    /// Looks up many addresses at once, as
    /// [`LpmReader::lookup_many`](crate::LpmReader::lookup_many) does.
    pub fn lookup_many(&self, addresses: &[A], values: &mut [Option<PrefixValue>]) {
        self.trie.reader.lookup_many(self.routes.hash.guard(), addresses, values);
    }

    /// Collapses the table's memory into huge pages, as [`SharedMemory`](crate::SharedMemory) does.
    /// Only memory that a lane had read before the first insertion there lies in small pages. If
    /// three quarters of the root are in use, the rest is added, so that an address without a
    /// route is looked up in huge pages too.
    pub fn collapse(&self) {
        let (header, root) = (&self.trie.reader.header, &self.trie.reader.root);
        header.memory.collapse();
        let start = header.layout.index;
        header.memory.complete(start, start + size_of_val(&root[..]));
    }

    /// Returns all prefixes with their values, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix<A>, u32)> {
        let all = self.routes.hash.iter();
        all.filter_map(|(route, found)| Some((A::prefix(route)?, *found.value)))
    }

    /// Inserts a prefix with a value below 2^22, or replaces the value of an existing one.
    ///
    /// # Errors
    /// Returns an error if the value is too great, the table or its groups are full, or a lane
    /// delays the reuse of released groups. The table is unchanged then.
    pub fn insert(&mut self, prefix: Prefix<A>, value: u32) -> Result<(), TableError> {
        if value >= VALUE_LIMIT {
            let (table, index) = (self.name().to_owned(), value as usize);
            return Err(TableError::OutOfRange { table, index, capacity: VALUE_LIMIT as usize });
        }
        self.check_room(prefix)?;
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
            // An existing prefix has its groups, so this cannot fail.
            _ => {}
        }
        assigned
    }

    fn check_room(&mut self, prefix: Prefix<A>) -> Result<(), TableError> {
        let missing = self.trie.missing(prefix);
        if self.trie.has_room(missing) {
            return Ok(());
        }
        let count = missing.groups + missing.nodes;
        let what = format!("{prefix} needs {count} groups of 256 words more");
        Err(TableError::Full { table: self.name().to_owned(), what })
    }

    /// Removes a prefix. Returns false if it does not exist.
    pub fn remove(&mut self, prefix: Prefix<A>) -> bool {
        if !self.routes.hash.remove(&A::route(prefix)) {
            return false;
        }
        self.routes.lengths[usize::from(prefix.length())] -= 1;
        let longest = prefix.length().checked_sub(1);
        let covering = longest
            .map_or(Word::NONE, |length| self.routes.longest_match(prefix.address(), length));
        // A removal needs no group, so it cannot fail.
        let _ = self.trie.assign(Node::root::<A>(), prefix, covering, Change::Remove);
        self.trie.merge(Node::root::<A>(), prefix);
        true
    }
}
