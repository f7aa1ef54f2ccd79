//! A half does not outlive its supervisor: the next one could not start its own.

use rustix::process::set_parent_process_death_signal;
use rustix::process::{Pid, Signal, getpid, getppid, kill_process};

/// Lets this process be told to end (SIGTERM) when the supervisor that started it dies, if one did.
pub fn end_with_supervisor() {
    let Some(supervisor) = std::env::var_os(super::SUPERVISOR) else { return };
    let Some(supervisor) = supervisor.to_str().and_then(|it| it.parse().ok()) else { return };
    if set_parent_process_death_signal(Some(Signal::TERM)).is_err() {
        return; // a seccomp filter forbids it: then it is for whoever ends the supervisor
    }
    // It may have died before.
    if getppid() != Pid::from_raw(supervisor) {
        let _ = kill_process(getpid(), Signal::TERM);
    }
}
