//! One supervised process: when it is started, and what follows from its end.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal,
};

/// Lifetime after which a process had come up: it is restarted at once.
const MIN_UPTIME: Duration = Duration::from_secs(2);
/// Lifetime after which a process can start here: later failures do not end the program.
const SETTLED_UPTIME: Duration = Duration::from_secs(10);
/// Delay before the second restart of a process that does not come up; doubled each time.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// Maximum delay.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A supervised process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: &'static str,
    pub(super) child: Option<Child>,
    /// Time of the last start.
    since: Option<Instant>,
    /// Time of the next start; `None` while it runs.
    due: Option<Instant>,
    /// True if it is known to be able to start here.
    is_settled: bool,
    /// Number of consecutive failures before it came up.
    failures: u32,
}

/// Consequence of a process's end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AfterExit {
    /// Restart after this delay.
    Restart(Duration),
    /// It cannot start here: end the program.
    GiveUp,
}

impl Process {
    pub(super) fn new(name: &'static str) -> Self {
        let due = Some(Instant::now());
        Self { name, child: None, since: None, due, is_settled: false, failures: 0 }
    }

    /// Returns the time of the next start; `None` while it runs.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    pub(super) fn started(&mut self, child: Child, now: Instant) {
        self.child = Some(child);
        self.since = Some(now);
        self.due = None;
    }

    /// Records that it could not be started. Returns the delay.
    pub(super) fn failed(&mut self, now: Instant) -> Duration {
        let wait = self.back_off();
        self.due = Some(now + wait);
        wait
    }

    /// Returns the exit status if it has ended.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().ok().flatten()?;
        self.child = None;
        Some(status)
    }

    /// Decides what follows from its end.
    pub(super) fn after(&mut self, status: &ExitStatus, now: Instant) -> AfterExit {
        let lived = self.since.map_or(Duration::ZERO, |since| now.duration_since(since));
        self.is_settled |= lived >= SETTLED_UPTIME;
        // These statuses mean that a restart cannot help.
        if !self.is_settled && matches!(status.code(), Some(2..=4)) {
            return AfterExit::GiveUp;
        }
        let wait = if lived >= MIN_UPTIME {
            self.failures = 0;
            Duration::ZERO
        } else {
            self.back_off()
        };
        self.due = Some(now + wait);
        AfterExit::Restart(wait)
    }

    fn back_off(&mut self) -> Duration {
        // A single death needs no delay.
        let wait = match self.failures {
            0 => Duration::ZERO,
            more => FIRST_WAIT.saturating_mul(1 << (more - 1).min(10)).min(LONGEST_WAIT),
        };
        self.failures = self.failures.saturating_add(1);
        wait
    }
}

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

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    const KILLED: i32 = 9;

    fn exit(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    fn running(since: Instant) -> Process {
        Process { since: Some(since), due: None, ..Process::new("slow") }
    }

    #[test]
    fn one_that_had_come_up_starts_again_at_once() {
        let start = Instant::now();
        let mut process = running(start);
        for status in [ExitStatus::from_raw(KILLED), exit(0), exit(3), exit(4)] {
            process.since = Some(start);
            let end = start + SETTLED_UPTIME;
            assert_eq!(process.after(&status, end), AfterExit::Restart(Duration::ZERO), "{status}");
            assert!(process.is_due(end));
        }
    }

    #[test]
    fn one_that_never_comes_up_waits_longer_each_time() {
        let start = Instant::now();
        let mut process = running(start);
        let mut waits = Vec::new();
        for _ in 0..9 {
            match process.after(&ExitStatus::from_raw(KILLED), start) {
                AfterExit::Restart(wait) => waits.push(wait.as_millis()),
                AfterExit::GiveUp => panic!("it was killed, it has refused nothing"),
            }
        }
        assert_eq!(waits, [0, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }

    #[test]
    fn one_that_refuses_at_its_first_start_ends_all() {
        for code in 2..=4 {
            let start = Instant::now();
            assert_eq!(running(start).after(&exit(code), start), AfterExit::GiveUp);
        }
        let start = Instant::now();
        assert_ne!(running(start).after(&exit(5), start), AfterExit::GiveUp);
        let mut process = running(start);
        process.is_settled = true;
        assert_ne!(
            process.after(&exit(3), start),
            AfterExit::GiveUp,
            "its lanes may still forward"
        );
    }
}
