//! Descriptors inherited from a service manager such as systemd: sd_listen_fds(3).
#![allow(unsafe_code, reason = "descriptors of which only the numbers are known")]

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_setfd};

/// First inherited descriptor, `SD_LISTEN_FDS_START`.
const FIRST: RawFd = 3;
/// Maximum plausible number of inherited descriptors.
const MOST: usize = 1 << 16;

/// Takes the inherited descriptors whose names satisfy `are_ours`, with their names. Returns none
/// from the second call on, and if the process inherited none.
///
/// `LISTEN_PID` names the process they are for, so children of this one do not mistake the
/// variables, which stay, for theirs. The descriptors are closed on exec from now on.
#[must_use]
pub fn take(are_ours: impl Fn(&str) -> bool) -> Vec<(String, OwnedFd)> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    if variable("LISTEN_PID").parse() != Ok(std::process::id()) {
        return vec![];
    }
    let count = variable("LISTEN_FDS").parse().unwrap_or(0);
    if count > MOST || TAKEN.swap(true, Ordering::Relaxed) {
        return vec![];
    }
    let names = variable("LISTEN_FDNAMES");
    let ours = (FIRST..).zip(names.split(':')).take(count).filter(|(_, name)| are_ours(name));
    ours.filter_map(|(number, name)| Some((name.to_owned(), claim(number)?))).collect()
}

/// Takes ownership of a descriptor that [`take`] has found to be inherited.
fn claim(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: it takes numbers by value, and fails when nothing is open under this one.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return None;
    }
    // SAFETY: it is open. The service manager has opened it for this process (LISTEN_PID) before
    // its first instruction, so no value of this program owns it; its name says that it is for
    // nobody but us, and TAKEN lets each number come here once.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl_setfd(&descriptor, FdFlags::CLOEXEC).ok()?;
    Some(descriptor)
}
