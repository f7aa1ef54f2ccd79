//! Parent death signal: a process does not outlive its supervisor, since a new supervisor could not
//! start its own.

use rustix::process::set_parent_process_death_signal;
use rustix::process::{Pid, Signal, getpid, getppid, kill_process};

/// Requests SIGTERM for this process when its supervisor dies, if it has one.
pub fn end_with_supervisor() {
    let Some(supervisor) = std::env::var_os(super::SUPERVISOR) else { return };
    let Some(supervisor) = supervisor.to_str().and_then(|it| it.parse().ok()) else { return };
    if set_parent_process_death_signal(Some(Signal::TERM)).is_err() {
        return; // forbidden by a seccomp filter
    }
    // The supervisor may have died before.
    if getppid() != Pid::from_raw(supervisor) {
        let _ = kill_process(getpid(), Signal::TERM);
    }
}
