//! Write lock on shared memory: a table, or the message rings, has one writer.
//!
//! Tables and message rings outlive their application: a client of the previous process may go on
//! while the successor grants them to another. So no process keeps a list of writers. A writer
//! locks the memory itself (flock(2)), and the kernel releases the lock with the last mapping: when
//! the writer is dropped or its process ends.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use fastlane_table::SharedMemory;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, major, minor, open};
use rustix::io::Errno;

/// Longest wait for the lock: the connection of a killed process closes before its mappings.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Interval between two attempts.
const STEP: Duration = Duration::from_millis(1);

/// Error of [`attach`]: this writer holds the lock.
#[derive(Debug, thiserror::Error)]
#[error("{0} has locked it for writing")]
struct Locked(String);

/// Locks memory and maps it writable.
pub(crate) fn attach(memory: OwnedFd) -> io::Result<SharedMemory> {
    let own = reopen(memory.as_fd())?;
    let end = Instant::now() + TIMEOUT;
    loop {
        match flock(own.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return SharedMemory::attach_writable(own),
            Err(Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(STEP),
            Err(Errno::WOULDBLOCK) => {
                let holder = holder(memory.as_fd());
                return Err(io::Error::other(Locked(holder.unwrap_or_else(another))));
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the writer that holds the lock if `error` of [`attach`] says so.
pub(crate) fn writer(error: &io::Error) -> Option<&str> {
    error.get_ref()?.downcast_ref().map(|Locked(writer)| writer.as_str())
}

/// Returns the writer that holds the lock, such as `process 12 (firewall)`, or `None` if nobody
/// does.
pub(crate) fn holder(memory: BorrowedFd<'_>) -> Option<String> {
    if let Some(process) = locking_process(memory) {
        let program = std::fs::read_to_string(format!("/proc/{process}/comm"));
        let program = program.map(|name| format!(" ({})", name.trim_end())).unwrap_or_default();
        return Some(format!("process {process}{program}"));
    }
    // A process of another PID namespace is not listed there.
    let is_locked = |own: OwnedFd| flock(own, FlockOperation::NonBlockingLockShared).is_err();
    reopen(memory).is_ok_and(is_locked).then(another)
}

fn another() -> String {
    "another process".to_owned()
}

/// Reopens memory: flock(2) locks an open file description, and a received descriptor shares its
/// own with other processes.
fn reopen(memory: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    Ok(open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// Returns the process that has locked a file, if `/proc/locks` lists it (proc_locks(5)).
fn locking_process(file: BorrowedFd<'_>) -> Option<u32> {
    let status = fstat(file).ok()?;
    let (device, number) = (status.st_dev, status.st_ino);
    let file = format!("{:02x}:{:02x}:{number}", major(device), minor(device));
    process_in(&std::fs::read_to_string("/proc/locks").ok()?, &file)
}

/// Returns the process that has locked a file for writing, by the text of `/proc/locks`.
fn process_in(locks: &str, file: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_writer = ["FLOCK", "ADVISORY", "WRITE"].iter().all(|it| words.next() == Some(it));
        let (process, locked) = (words.next()?, words.next()?);
        (is_writer && locked == file).then(|| process.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_writer_of_a_file_is_found_among_all_locks() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 00:01:1027 0 EOF\n\
                     2: FLOCK  ADVISORY  READ 12 00:01:1027 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 13 00:01:1027 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 14 00:01:1028 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 15 00:01:1027 0 EOF\n";
        assert_eq!(process_in(locks, "00:01:1027"), Some(15));
        assert_eq!(process_in(locks, "00:01:1029"), None);
    }

    #[test]
    fn the_holder_of_a_lock_is_named_until_it_is_dropped() {
        let memory = SharedMemory::create("write-lock", 4096).unwrap();
        let share = || memory.as_fd().try_clone_to_owned().unwrap();
        assert_eq!(holder(memory.as_fd()), None);
        let locked = attach(share()).unwrap();
        let expected = format!("process {} (", std::process::id());
        assert!(holder(memory.as_fd()).unwrap().starts_with(&expected));
        let error = attach(share()).map(drop).unwrap_err();
        assert!(writer(&error).unwrap().starts_with(&expected), "{error}");
        drop(locked);
        assert_eq!(holder(memory.as_fd()), None);
        attach(share()).unwrap();
    }
}
