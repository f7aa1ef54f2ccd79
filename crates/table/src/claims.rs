//! List of the shared memories that this process has mapped, by file. It ensures what the compiler
//! cannot see, because two mappings of one file look like two memories to it:
//!
//! * the memory of a frame pool is mapped once, so no two packets borrow the same bytes;
//! * a table has one writer, so nobody writes what another writer has lent.
//!
//! Another process is not in the list. It is trusted to keep the protocol (see [`Guard`]).
//!
//! [`Guard`]: crate::Guard

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::fstat;

/// Device and inode of a file.
type File = (u64, u64);

static FILES: Mutex<BTreeMap<File, Uses>> = Mutex::new(BTreeMap::new());

/// Uses of a file in this process.
#[derive(Debug, Default)]
struct Uses {
    mappings: usize,
    /// True once a pool has the memory.
    has_frames: bool,
    has_writer: bool,
}

fn files() -> MutexGuard<'static, BTreeMap<File, Uses>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn identity(file: impl AsFd) -> io::Result<File> {
    let status = fstat(file)?;
    Ok((status.st_dev, status.st_ino))
}

/// Entry of a mapping in the list.
#[derive(Debug)]
pub(crate) struct Mapping {
    file: File,
}

impl Mapping {
    /// Adds a mapping of a file.
    ///
    /// # Errors
    /// Returns an error if the file is the memory of a frame pool.
    pub(crate) fn new(file: &OwnedFd) -> io::Result<Self> {
        let file = identity(file)?;
        let mut files = files();
        let uses = files.entry(file).or_default();
        if uses.has_frames {
            return Err(io::Error::other("the shared memory is a frame pool of this process"));
        }
        uses.mappings += 1;
        Ok(Self { file })
    }

    /// Adds memory on the heap, which has its address for an inode.
    #[cfg(miri)]
    pub(crate) fn of_heap(address: usize) -> Self {
        let file = (0, address as u64);
        files().entry(file).or_default().mappings += 1;
        Self { file }
    }

    /// Reserves the file for frames. Returns false if it has another mapping.
    pub(crate) fn reserve_for_frames(&self) -> bool {
        files().get_mut(&self.file).is_some_and(|uses| {
            let is_free = uses.mappings == 1 && !uses.has_frames;
            uses.has_frames |= is_free;
            is_free
        })
    }

    /// Takes the right to write the table in the file, or returns `None` while another writer of
    /// this process has it.
    pub(crate) fn claim_writing(&self) -> Option<WriterClaim> {
        let mut files = files();
        let uses = files.get_mut(&self.file)?;
        let is_taken = std::mem::replace(&mut uses.has_writer, true);
        // A claim that is made and dropped here would wait for the lock.
        if is_taken { None } else { Some(WriterClaim { file: self.file }) }
    }

    /// Forgets the mappings of a file whose pool is not used any more.
    pub(crate) fn forget(file: &OwnedFd) -> io::Result<()> {
        files().remove(&identity(file)?);
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let mut files = files();
        if let Some(uses) = files.get_mut(&self.file) {
            uses.mappings = uses.mappings.saturating_sub(1); // after `forget`
            if uses.mappings == 0 {
                files.remove(&self.file);
            }
        }
    }
}

/// Right to write the table in a file. It must not outlive the mapping.
#[derive(Debug)]
pub(crate) struct WriterClaim {
    file: File,
}

impl Drop for WriterClaim {
    fn drop(&mut self) {
        if let Some(uses) = files().get_mut(&self.file) {
            uses.has_writer = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{ArrayWriter, HashWriter, Lpm4Writer, Readers, SharedMemory, Spec, TableError};

    /// Maps a memory for a second time.
    fn again(memory: &SharedMemory) -> io::Result<SharedMemory> {
        SharedMemory::attach_writable(memory.as_fd().try_clone_to_owned()?)
    }

    #[test]
    fn a_second_writer_of_a_table_is_refused_by_whatever_mapping() {
        let readers = Arc::new(Readers::unknown());
        let memory = Spec::hash::<u32, u64>("one", 8).create().unwrap();
        let same = Arc::new(again(&memory).unwrap());
        let first = HashWriter::<u32, u64>::attach(&memory, &readers).unwrap();
        for memory in [&memory, &same] {
            let error = HashWriter::<u32, u64>::attach(memory, &readers).err().unwrap();
            assert!(matches!(&error, TableError::HasWriter(table) if table == "one"), "{error}");
        }
        drop(first);
        assert!(HashWriter::<u32, u64>::attach(&same, &readers).is_ok());

        let memory = Spec::array::<u64>("two", 8).create().unwrap();
        let _first = ArrayWriter::<u64>::attach(&memory, &readers).unwrap();
        assert!(ArrayWriter::<u64>::attach(&memory, &readers).is_err());
        let memory = Spec::lpm4("three", 8).create().unwrap();
        let _first = Lpm4Writer::attach(&memory, &readers).unwrap();
        assert!(Lpm4Writer::attach(&memory, &readers).is_err());
    }

    #[test]
    fn the_memory_of_frames_is_mapped_once() {
        let memory = SharedMemory::create("frames", 4096).unwrap();
        let other = again(&memory).unwrap();
        assert!(!memory.reserve_for_frames() && !other.reserve_for_frames());
        drop(other);
        assert!(memory.reserve_for_frames() && !memory.reserve_for_frames());
        assert!(again(&memory).unwrap_err().to_string().contains("frame pool"));
        let file = memory.as_fd().try_clone_to_owned().unwrap();
        drop(memory);
        assert!(SharedMemory::attach_writable(file).unwrap().reserve_for_frames());
    }
}
