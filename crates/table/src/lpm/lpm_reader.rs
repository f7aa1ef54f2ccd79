//! The lanes' side.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::Address;
use super::word::Word;
use crate::header::Header;
use crate::layout::GROUP;
use crate::shared_slice::SharedSlice;
use crate::{Guard, Kind, SharedMemory, Spec, TableError, simd};

/// How many addresses are looked up together.
const BATCH: usize = 32;

/// Finds the value of the longest prefix of an address.
#[derive(Clone, Debug)]
pub struct LpmReader<A> {
    pub(super) root: SharedSlice<AtomicU32>,
    pub(super) groups: SharedSlice<AtomicU32>,
    pub(super) header: Arc<Header>,
    address: PhantomData<fn(A)>,
}

/// What a prefix table of such addresses looks like.
pub(super) fn expected<A: Address>() -> Spec {
    if A::KIND == Kind::Lpm4 { Spec::lpm4("", 1) } else { Spec::lpm6("", 1) }
}

impl<A: Address> LpmReader<A> {
    /// Attaches to a prefix table.
    ///
    /// # Errors
    /// When the memory holds none, or one of the other kind of addresses.
    pub fn attach(memory: &Arc<SharedMemory>) -> Result<Self, TableError> {
        Self::new(Header::expect(memory, 0, &expected::<A>())?)
    }

    pub(super) fn new(header: Header) -> Result<Self, TableError> {
        let (layout, memory) = (header.layout, &header.memory);
        let root = header.part(SharedSlice::new(memory, layout.index, 1 << A::ROOT))?;
        let groups = SharedSlice::new(memory, layout.data, header.spec.groups * GROUP);
        let groups = header.part(groups)?;
        Ok(Self { root, groups, header: Arc::new(header), address: PhantomData })
    }

    /// The value of the longest prefix of an address. Who looks into other tables with it finds
    /// what the writer wrote there before it gave a prefix this value.
    #[inline]
    pub fn lookup<G>(&self, turn: &G, address: A) -> Option<u32>
    where
        G: AsRef<Guard> + ?Sized,
    {
        let _ = turn.as_ref();
        let mut word = self.root_word(address);
        for level in 0..A::LEVELS {
            let Some(group) = word.group() else { break };
            word = self.group_word(group, address.step(level));
        }
        fence(Ordering::Acquire); // what else the writer wrote before
        word.value()
    }

    /// Looks up many addresses at once: their cache misses overlap. `values` gets an answer for
    /// each address that it has room for.
    #[inline]
    pub fn lookup_many<G>(&self, turn: &G, addresses: &[A], values: &mut [Option<u32>])
    where
        G: AsRef<Guard> + ?Sized,
    {
        let _ = turn.as_ref();
        for (addresses, values) in addresses.chunks(BATCH).zip(values.chunks_mut(BATCH)) {
            self.batch(addresses, values);
        }
    }

    fn batch(&self, addresses: &[A], values: &mut [Option<u32>]) {
        for address in addresses {
            simd::prefetch(self.root.as_ptr().wrapping_add(address.root()));
        }
        let mut words = [Word::NONE; BATCH];
        let mut groups = false;
        for (word, address) in words.iter_mut().zip(addresses) {
            *word = self.root_word(*address);
            groups |= self.prefetch(*word, address.step(0));
        }
        for level in 0..A::LEVELS {
            if !groups {
                break;
            }
            groups = false;
            fence(Ordering::Acquire); // as in `below`, once for all of them
            for (word, address) in words.iter_mut().zip(addresses) {
                if let Some(group) = word.group() {
                    *word = self.group_word_unfenced(group, address.step(level));
                    if level + 1 < A::LEVELS {
                        groups |= self.prefetch(*word, address.step(level + 1));
                    }
                }
            }
        }
        for (value, word) in values.iter_mut().zip(words) {
            *value = word.value();
        }
        fence(Ordering::Acquire); // as in `lookup`
    }

    #[inline(always)]
    fn prefetch(&self, word: Word, step: usize) -> bool {
        let group = word.group();
        if let Some(group) = group {
            simd::prefetch(self.groups.as_ptr().wrapping_add(group as usize * GROUP + step));
        }
        group.is_some()
    }

    #[inline(always)]
    fn root_word(&self, address: A) -> Word {
        self.root.get(address.root()).map_or(Word::NONE, |word| Word(word.load(Ordering::Relaxed)))
    }

    /// A word of a group; nothing, if there is no such group.
    #[inline(always)]
    fn group_word(&self, group: u32, step: usize) -> Word {
        // What the writer wrote into the group before it group_word_unfenced it.
        fence(Ordering::Acquire);
        self.group_word_unfenced(group, step)
    }

    /// The same, after such a fence.
    #[inline(always)]
    fn group_word_unfenced(&self, group: u32, step: usize) -> Word {
        let word = self.groups.get(group as usize * GROUP + step);
        word.map_or(Word::NONE, |word| Word(word.load(Ordering::Relaxed)))
    }
}
