//! Checks of the memory that a client sends to be a UMEM.
//!
//! The memory must stay as it is: a client that truncates it would leave the kernel with pages that
//! the file has no more. It must be the client's own and already have its pages, so that they are
//! charged to the client and not to the agent.

use std::os::fd::OwnedFd;

use fastlane_core::PoolLayout;
use fastlane_table::SharedMemory;
use rustix::fs::{OFlags, SealFlags, Stat};

/// `HUGETLBFS_MAGIC` of linux/magic.h.
const HUGETLBFS: u64 = 0x9584_58f6;
/// Size of the blocks in which stat(2) counts, in bytes.
const BLOCK: u64 = 512;

/// Identity of a file: device and inode.
pub(crate) type FileId = (u64, u64);

/// Memory that a client has sent.
#[derive(Debug)]
pub(crate) struct PoolMemory {
    file: OwnedFd,
    /// Identity of the file.
    pub(crate) id: FileId,
    /// Length in bytes.
    pub(crate) length: u64,
}

impl PoolMemory {
    /// Checks the memory of a client that runs as `user`.
    ///
    /// # Errors
    /// The first reason not to use it.
    pub(crate) fn check(file: OwnedFd, user: u32) -> Result<Self, String> {
        let seals = rustix::fs::fcntl_get_seals(&file);
        let seals = seals.map_err(|_| "the memory of the pool is no memfd".to_owned())?;
        let wanted = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        if !seals.contains(wanted) {
            return Err("the memory of the pool is not sealed against shrinking, growing and \
                        further seals"
                .to_owned());
        }
        let failed = |error: rustix::io::Errno| format!("the memory of the pool: {error}");
        let flags = rustix::fs::fcntl_getfl(&file).map_err(failed)?;
        if !flags.contains(OFlags::RDWR) || seals.contains(SealFlags::WRITE) {
            return Err("the memory of the pool cannot be written".to_owned());
        }
        let system = rustix::fs::fstatfs(&file).map_err(failed)?;
        if system.f_type as u64 == HUGETLBFS {
            return Err(
                "the memory of the pool is in reserved huge pages; use ordinary memory".to_owned()
            );
        }
        let Stat { st_uid, st_size, st_blocks, st_dev, st_ino, .. } =
            rustix::fs::fstat(&file).map_err(failed)?;
        if st_uid != user {
            return Err("the memory of the pool belongs to another user".to_owned());
        }
        let length = u64::try_from(st_size).unwrap_or(0);
        if u64::try_from(st_blocks).unwrap_or(0).saturating_mul(BLOCK) < length || length == 0 {
            return Err("the memory of the pool is not populated".to_owned());
        }
        Ok(Self { file, id: (st_dev, st_ino), length })
    }

    /// Maps the memory for its registration.
    ///
    /// # Errors
    /// The reason of the kernel, or a frame size that does not fit.
    pub(crate) fn map(self, frame_size: u32) -> Result<PoolLayout, String> {
        let memory = SharedMemory::attach_writable(self.file)
            .map_err(|error| format!("mapping the memory of the pool: {error}"))?;
        let layout = PoolLayout::of_memory(memory, frame_size as usize);
        layout.ok_or_else(|| format!("the memory of the pool has no frame of {frame_size} bytes"))
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::MemfdFlags;

    use super::*;

    const LENGTH: u64 = 1 << 16;

    fn memory(flags: MemfdFlags, seals: SealFlags) -> OwnedFd {
        let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, LENGTH).unwrap();
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        file
    }

    fn sealed() -> OwnedFd {
        memory(MemfdFlags::empty(), SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
    }

    fn user() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn refused(file: OwnedFd, words: &str) {
        let error = PoolMemory::check(file, user()).unwrap_err();
        assert!(error.contains(words), "{error}");
    }

    #[test]
    fn sealed_and_populated_memory_of_the_client_is_used() {
        let memory = PoolMemory::check(sealed(), user()).unwrap();
        assert_eq!(memory.length, LENGTH);
        assert_eq!(memory.map(2048).unwrap().frames(), 32);
        let none = PoolMemory::check(sealed(), user()).unwrap().map(0).unwrap_err();
        assert!(none.contains("no frame of 0 bytes"), "{none}");
    }

    #[test]
    fn any_other_memory_is_refused() {
        let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        for missing in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
            refused(memory(MemfdFlags::empty(), all.difference(missing)), "not sealed");
        }
        refused(memory(MemfdFlags::empty(), all | SealFlags::WRITE), "cannot be written");
        refused(std::fs::File::open("/dev/null").unwrap().into(), "is no memfd");
        refused(tempfile::tempfile().unwrap().into(), "memfd");
        let empty = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&empty, LENGTH).unwrap();
        rustix::fs::fcntl_add_seals(&empty, all).unwrap();
        refused(empty, "not populated");
        let error = PoolMemory::check(sealed(), user() + 1).unwrap_err();
        assert!(error.contains("another user"), "{error}");
    }

    #[test]
    fn huge_pages_are_refused() {
        let flags = MemfdFlags::HUGETLB | MemfdFlags::ALLOW_SEALING;
        let Ok(file) = rustix::fs::memfd_create("test", flags) else {
            return; // a kernel without huge pages
        };
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        refused(file, "huge pages");
    }
}
