//! What one process writes at a time, whichever application has granted it.
//!
//! A session sees to it that one of its clients writes a table. But tables and messages outlive
//! their application, and a client of it may go on while its successor grants them to another. So
//! whoever writes holds a lock of the memory itself (flock(2)), which the kernel releases when the
//! last mapping goes: with the writer, or with its process.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastlane_table::{SharedMemory, Spec};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;

/// A process that was killed loses its connection a moment before its mappings.
const PATIENCE: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(1);

/// Another one writes.
#[derive(Debug, thiserror::Error)]
#[error("process {0} writes it")]
struct Writes(u32);

/// Maps memory for writing, with the lock.
pub(super) fn attach(memory: OwnedFd) -> io::Result<SharedMemory> {
    // The lock belongs to an opening of the file, and the descriptor that came shares its opening
    // with those of others.
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let own = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let end = Instant::now() + PATIENCE;
    loop {
        match flock(own.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return SharedMemory::attach_writable(own),
            Err(Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(STEP),
            Err(Errno::WOULDBLOCK) => return Err(io::Error::other(Writes(last_writer(memory)))),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The process that has become the writer of a table last; 0 when nobody knows.
fn last_writer(memory: OwnedFd) -> u32 {
    let memory = SharedMemory::attach_read_only(memory).map(Arc::new);
    memory.ok().and_then(|memory| Spec::writer_of(&memory).ok()).unwrap_or(0)
}

/// The process that writes, when that is the reason of an error of [`attach`]; 0 when nobody knows.
pub(super) fn writer(error: &io::Error) -> Option<u32> {
    error.get_ref()?.downcast_ref().map(|Writes(process)| *process)
}
