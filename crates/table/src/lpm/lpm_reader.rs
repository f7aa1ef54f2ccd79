//! Reader of a prefix table: lookups by lanes.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::Address;
use super::word::{Link, PairLink, Word};
use crate::header::Header;
use crate::layout::GROUP;
use crate::prefix_value::PrefixValue;
use crate::shared_slice::SharedSlice;
use crate::simd::{self, BATCH, InstructionSet, TrieWords};
use crate::{Guard, Kind, SharedMemory, Spec, TableError};

/// Minimum number of addresses for which a whole batch is gathered. For fewer, one load each is
/// faster.
const MIN_GATHERED: usize = 8;

/// Reader of a prefix table: returns the value of an address's longest prefix.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use fastlane_table::{Guard, Lpm4Reader, Lpm4Writer, Prefix, Readers, Spec};
///
/// let memory = Spec::lpm4("routes", 100).create()?;
/// // SAFETY: no lane reads in this example.
/// let readers = Arc::new(unsafe { Readers::none() });
/// let mut writer = Lpm4Writer::attach(&memory, &readers)?;
/// writer.insert(Prefix::new([10, 0, 0, 0].into(), 8).expect("8 bits"), 1)?;
/// writer.insert(Prefix::new([10, 1, 0, 0].into(), 16).expect("16 bits"), 2)?;
///
/// let reader = Lpm4Reader::attach(&memory)?;
/// // In a lane the turn is the guard.
/// // SAFETY: the writer does not write while the guard is borrowed.
/// let guard = unsafe { Guard::new() };
/// assert_eq!(reader.lookup(&guard, [10, 1, 2, 3].into()), Some(2));
/// assert_eq!(reader.lookup(&guard, [10, 2, 2, 3].into()), Some(1));
/// assert_eq!(reader.lookup(&guard, [192, 0, 2, 1].into()), None);
/// # Ok::<(), fastlane_table::TableError>(())
/// ```
#[derive(Clone, Debug)]
pub struct LpmReader<A> {
    pub(super) root: SharedSlice<AtomicU32>,
    pub(super) groups: SharedSlice<AtomicU32>,
    /// Two words for each pair.
    pub(super) pairs: SharedSlice<AtomicU32>,
    pub(super) header: Arc<Header>,
    pub(super) instructions: InstructionSet,
    address: PhantomData<fn(A)>,
}

/// Returns the specification that a prefix table of these addresses must have.
pub(super) fn expected<A: Address>() -> Spec {
    if A::KIND == Kind::Lpm4 { Spec::lpm4("", 1) } else { Spec::lpm6("", 1) }
}

impl<A: Address> LpmReader<A> {
    /// Attaches to a prefix table.
    ///
    /// # Errors
    /// Returns an error if the memory holds no prefix table, or one for other addresses.
    pub fn attach(memory: &Arc<SharedMemory>) -> Result<Self, TableError> {
        Self::new(Header::expect(memory, 0, &expected::<A>())?)
    }

    pub(super) fn new(header: Header) -> Result<Self, TableError> {
        let (layout, memory) = (header.layout, &header.memory);
        let root = header.part(SharedSlice::new(memory, layout.index, 1 << A::ROOT))?;
        let groups = SharedSlice::new(memory, layout.data, header.spec.groups * GROUP);
        let groups = header.part(groups)?;
        let pairs = SharedSlice::new(memory, layout.pairs(&header.spec), 2 * header.spec.pairs());
        let pairs = header.part(pairs)?;
        let (header, instructions) = (Arc::new(header), InstructionSet::fastest());
        Ok(Self { root, groups, pairs, header, instructions, address: PhantomData })
    }

    /// Returns the value of the longest prefix of an address, or `None` without one. A caller that
    /// uses the value as an index of another table sees what the writer wrote there before it
    /// inserted the prefix.
    #[inline]
    pub fn lookup<G>(&self, turn: &G, address: A) -> Option<u32>
    where
        G: AsRef<Guard> + ?Sized,
    {
        let _ = turn.as_ref();
        let mut word = self.root_word(address);
        for level in 0..A::LEVELS {
            let Some(link) = word.link() else { break };
            // Orders the read of the words below after the load of the link to them.
            fence(Ordering::Acquire);
            word = self.word_below(link, level, address.step(level));
        }
        fence(Ordering::Acquire); // orders reads of tables that the value refers to
        word.value()
    }

    /// Looks up many addresses at once, so that their cache misses overlap. Writes the result of
    /// each address to `values`, as far as it has room. Uses AVX-512 or AVX2 where the processor
    /// has it. Batches of 32 are the fastest.
    #[inline]
    pub fn lookup_many<G>(&self, turn: &G, addresses: &[A], values: &mut [Option<PrefixValue>])
    where
        G: AsRef<Guard> + ?Sized,
    {
        let _ = turn.as_ref();
        let is_gathered = match (addresses.as_array(), values.as_mut_array()) {
            (Some(addresses), Some(values)) => self.gather(addresses, values),
            _ => false,
        };
        if !is_gathered {
            self.batches(addresses, values);
        }
        fence(Ordering::Acquire); // as in `lookup`
    }

    /// Looks up addresses that are no whole batch, or that this processor does not gather.
    fn batches(&self, addresses: &[A], values: &mut [Option<PrefixValue>]) {
        for (addresses, values) in addresses.chunks(BATCH).zip(values.chunks_mut(BATCH)) {
            let is_gathered = match (addresses.as_array(), values.as_mut_array()) {
                (Some(addresses), Some(values)) => self.gather(addresses, values),
                _ => self.gather_some(addresses, values),
            };
            if !is_gathered {
                self.batch(addresses, values);
            }
        }
    }

    #[inline(always)]
    fn gather(&self, addresses: &[A; BATCH], values: &mut [Option<PrefixValue>; BATCH]) -> bool {
        let words = TrieWords { root: &self.root, groups: &self.groups, pairs: &self.pairs };
        A::gather(self.instructions, words, addresses, values)
    }

    /// Gathers less than a batch. The other lanes repeat the first address, so that they touch no
    /// page that no lane has a reason to read. Returns false as [`gather`](Self::gather) does.
    fn gather_some(&self, addresses: &[A], values: &mut [Option<PrefixValue>]) -> bool {
        let count = addresses.len().min(values.len());
        let is_worth_it = count >= MIN_GATHERED && !self.instructions.is_scalar();
        let Some(first) = addresses.first().filter(|_| is_worth_it) else { return false };
        let mut batch = [*first; BATCH];
        batch[..count].copy_from_slice(&addresses[..count]);
        let mut found = [None; BATCH];
        let is_gathered = self.gather(&batch, &mut found);
        if is_gathered {
            values[..count].copy_from_slice(&found[..count]);
        }
        is_gathered
    }

    /// Looks up a batch, one load after the other.
    fn batch(&self, addresses: &[A], values: &mut [Option<PrefixValue>]) {
        for address in addresses {
            simd::prefetch(self.root.as_ptr().wrapping_add(address.root()));
        }
        let mut words = [Word::NONE; BATCH];
        let mut links = false;
        for (word, address) in words.iter_mut().zip(addresses) {
            *word = self.root_word(*address);
            links |= self.prefetch(*word, address.step(0));
        }
        for level in 0..A::LEVELS {
            if !links {
                break;
            }
            links = false;
            fence(Ordering::Acquire); // as in `lookup`, once for all of them
            for (word, address) in words.iter_mut().zip(addresses) {
                if let Some(link) = word.link() {
                    *word = self.word_below(link, level, address.step(level));
                    if level + 1 < A::LEVELS {
                        links |= self.prefetch(*word, address.step(level + 1));
                    }
                }
            }
        }
        for ((value, word), _) in values.iter_mut().zip(words).zip(addresses) {
            *value = word.prefix_value();
        }
    }

    #[inline(always)]
    fn prefetch(&self, word: Word, step: usize) -> bool {
        match word.link() {
            Some(Link::Group(group)) => {
                let index = group as usize * GROUP + step;
                simd::prefetch(self.groups.as_ptr().wrapping_add(index));
            }
            Some(Link::Pair(pair)) => {
                simd::prefetch(self.pairs.as_ptr().wrapping_add(2 * pair.number as usize));
            }
            None => return false,
        }
        true
    }

    #[inline(always)]
    fn root_word(&self, address: A) -> Word {
        load(&self.root, address.root())
    }

    /// Returns the word for an address at index `step` below a link of a level, or no route if
    /// there is no such group or pair. The caller has ordered it after the load of the link.
    #[inline(always)]
    fn word_below(&self, link: Link, level: usize, step: usize) -> Word {
        match link {
            Link::Group(group) => load(&self.groups, group as usize * GROUP + step),
            Link::Pair(pair) => {
                let to = A::ROOT + 8 * (level as u8 + 1);
                let inside = self.inside(pair);
                let differ = (step as u8 ^ pair.octet) & inside.equal_bits(to);
                if differ == 0 { inside } else { self.outside(pair) }
            }
        }
    }

    /// Returns the word of a pair for the addresses inside.
    #[inline(always)]
    pub(super) fn inside(&self, pair: PairLink) -> Word {
        load(&self.pairs, 2 * pair.number as usize)
    }

    /// Returns the word of a pair for all other addresses.
    #[inline(always)]
    pub(super) fn outside(&self, pair: PairLink) -> Word {
        load(&self.pairs, 2 * pair.number as usize + 1)
    }
}

/// Returns a word, or no route if it does not exist.
#[inline(always)]
fn load(words: &[AtomicU32], index: usize) -> Word {
    words.get(index).map_or(Word::NONE, |word| Word(word.load(Ordering::Relaxed)))
}
