//! Entries of tables: their ids, and their number in a table whose types are not known.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::header::Header;
use crate::shared_slice::SharedSlice;
use crate::{Kind, SharedMemory, TableError};

/// Number of words in a hash bucket, and the range of its slot references.
const BUCKET_WORDS: usize = 16;
const SLOT_REFS: std::ops::Range<usize> = 4..12;

/// Number below the capacity that belongs to a key from insertion to removal, whatever its value.
/// Lane state is indexed by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub u32);

impl EntryId {
    /// Returns the id as an array index.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Returns the number of entries of a table of any types. It scans the whole index and is meant for
/// tools; entries that change meanwhile may or may not count. Lane state and pending events have
/// none.
///
/// # Errors
/// Returns an error if the memory holds no table.
pub fn entries(memory: &Arc<SharedMemory>) -> Result<usize, TableError> {
    let header = Header::read(memory, 0)?;
    match header.layout.nested(&header.spec) {
        Some((_, at)) => count(&Header::read(memory, at)?),
        None => count(&header),
    }
}

fn count(header: &Header) -> Result<usize, TableError> {
    let layout = header.layout;
    let run = |words| {
        header.part(SharedSlice::<AtomicU32>::new(
            &header.memory,
            header.base + layout.index,
            words,
        ))
    };
    let is_used = |slot_ref: &&AtomicU32| slot_ref.load(Ordering::Relaxed) != 0;
    match header.spec.kind {
        Kind::Hash => {
            let words = run((layout.buckets + layout.overflow) * BUCKET_WORDS)?;
            let buckets = words.chunks_exact(BUCKET_WORDS);
            Ok(buckets.map(|bucket| bucket[SLOT_REFS].iter().filter(is_used).count()).sum())
        }
        Kind::Array => Ok(run(header.spec.capacity)?.iter().filter(is_used).count()),
        Kind::Classifier => {
            let words = |offset, count| {
                header.part(SharedSlice::<AtomicU32>::new(&header.memory, offset, count))
            };
            // Either no generation, or its area, which begins with the numbers of rules.
            let area = words(header.base + layout.index, 1)?[0].load(Ordering::Relaxed) as usize;
            let Some(area) = area.checked_sub(1).filter(|area| *area < layout.slots) else {
                return Ok(0);
            };
            let rules = words(header.base + layout.data + area * layout.stride, 2)?;
            Ok(rules.iter().map(|rules| rules.load(Ordering::Relaxed) as usize).sum())
        }
        _ => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ArrayWriter, HashWriter, Lpm4Writer, Prefix, Readers, Spec};

    #[test]
    fn each_kind_is_counted() {
        let readers = &Arc::new(Readers::of_no_lane());
        let memory = Spec::hash::<u32, u32>("hash", 1000).create().unwrap();
        let mut hash = HashWriter::<u32, u32>::attach(&memory, readers).unwrap();
        (0..900).for_each(|key| assert!(hash.insert(&key, &key).is_ok()));
        (0..100).for_each(|key| assert!(hash.remove(&key)));
        assert_eq!(entries(&memory).unwrap(), 800);

        let memory = Spec::array::<u64>("array", 10).create().unwrap();
        let mut array = ArrayWriter::<u64>::attach(&memory, readers).unwrap();
        array.set(3, &0).unwrap();
        array.set(9, &1).unwrap();
        assert_eq!(entries(&memory).unwrap(), 2);

        let memory = Spec::lpm4("routes", 10).create().unwrap();
        let mut routes = Lpm4Writer::attach(&memory, readers).unwrap();
        let prefix = |address: [u8; 4], length| Prefix::new(address.into(), length).unwrap();
        routes.insert(prefix([10, 0, 0, 0], 8), 1).unwrap();
        routes.insert(prefix([10, 1, 0, 0], 16), 2).unwrap();
        assert_eq!(entries(&memory).unwrap(), 2);

        let memory = Spec::state::<1>("state", 10, 0).create().unwrap();
        assert_eq!(entries(&memory).unwrap(), 0);
    }
}
