//! Preconditions of the start: capabilities, and a BPF file system for its pins.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::Error;

/// Checks the capabilities that every client needs.
pub(crate) fn check_capabilities() -> Result<(), Error> {
    use rustix::thread::CapabilitySet as Set;
    let has = rustix::thread::capabilities(None).map(|sets| sets.effective);
    let has = has.unwrap_or(Set::empty());
    let missing: Vec<&str> = [
        ("CAP_NET_ADMIN", Set::NET_ADMIN),
        ("CAP_NET_RAW", Set::NET_RAW),
        ("CAP_BPF", Set::BPF | Set::SYS_ADMIN),
        ("CAP_PERFMON", Set::PERFMON | Set::SYS_ADMIN),
    ]
    .into_iter()
    .filter_map(|(name, set)| (!has.intersects(set)).then_some(name))
    .collect();
    if !has.intersects(Set::IPC_LOCK) {
        tracing::warn!(
            "without CAP_IPC_LOCK the memory of all clients counts against RLIMIT_MEMLOCK of the \
             agent"
        );
    }
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Error::NoPrivilege { missing: missing.join(", ") }),
    }
}

/// Creates the directory of the pins, which must be in a BPF file system, and locks it: two agents
/// would take each other's devices for those of an agent that has ended.
pub(crate) fn lock_pins(path: &Path) -> Result<OwnedFd, Error> {
    /// `BPF_FS_MAGIC` of linux/magic.h.
    const BPF_FS: u64 = 0xcafe_4a11;
    let refuse = |error: io::Error| Error::pins(path, error.to_string());
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(refuse)?;
    let system = rustix::fs::statfs(path).map_err(|error| refuse(error.into()))?;
    if system.f_type as u64 != BPF_FS {
        let _ = std::fs::remove_dir(path); // only if it is empty
        return Err(Error::pins(path, "it is in no BPF file system".to_owned()));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let directory = opened.map_err(|error| refuse(error.into()))?;
    match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(directory),
        Err(Errno::WOULDBLOCK) => Err(Error::OtherAgent { path: path.to_owned() }),
        Err(error) => Err(refuse(error.into())),
    }
}
