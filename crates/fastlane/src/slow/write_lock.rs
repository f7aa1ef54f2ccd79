//! Write lock on shared memory, so that it has one writer across restarts of the application.
//!
//! A session grants a table to one of its clients. But tables and message rings outlive their
//! application: a client of the previous process may continue while the successor grants them to
//! another. So a writer also locks the memory itself (flock(2)). The kernel releases the lock with
//! the last mapping: when the writer is dropped or its process ends.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastlane_table::{SharedMemory, Spec};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;

/// Longest wait for the lock: the connection of a killed process closes before its mappings.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Interval between two attempts.
const STEP: Duration = Duration::from_millis(1);

/// Error of [`attach`]: this process holds the lock; 0 if it is unknown.
#[derive(Debug, thiserror::Error)]
#[error("process {0} has locked it for writing")]
struct Locked(u32);

/// Locks memory and maps it writable.
pub(super) fn attach(memory: OwnedFd) -> io::Result<SharedMemory> {
    // flock(2) locks an open file description, and the received descriptor shares its own with
    // other processes. So the file is reopened.
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let own = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let end = Instant::now() + TIMEOUT;
    loop {
        match flock(own.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return SharedMemory::attach_writable(own),
            Err(Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(STEP),
            Err(Errno::WOULDBLOCK) => return Err(io::Error::other(Locked(last_writer(memory)))),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the process that became the writer of a table last; 0 if it is unknown.
fn last_writer(memory: OwnedFd) -> u32 {
    let memory = SharedMemory::attach_read_only(memory).map(Arc::new);
    memory.ok().and_then(|memory| Spec::writer_of(&memory).ok()).unwrap_or(0)
}

/// Returns the process that holds the lock if `error` of [`attach`] says so; 0 if it is unknown.
pub(super) fn writer(error: &io::Error) -> Option<u32> {
    error.get_ref()?.downcast_ref().map(|Locked(process)| *process)
}
