//! One half: when it is started, and what its end means.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// A half that has lived for so long had come up: it is started again at once.
const UP: Duration = Duration::from_secs(2);
/// One that has lived for so long can start here: what it refuses later is no reason to end all.
const SETTLED: Duration = Duration::from_secs(10);
/// What is waited for the second start of one that does not come up; doubled each time.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The most that is waited.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A half.
#[derive(Debug)]
pub(super) struct Half {
    pub(super) name: &'static str,
    pub(super) child: Option<Child>,
    /// When it was started last.
    since: Option<Instant>,
    /// When it is to be started, while it does not run.
    due: Option<Instant>,
    /// Whether it can start here.
    is_settled: bool,
    /// How often in a row it has died before it came up.
    failures: u32,
}

/// What happens after a half's end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It starts again after this time.
    Again(Duration),
    /// It cannot start here: all ends.
    Over,
}

impl Half {
    pub(super) fn new(name: &'static str) -> Self {
        let due = Some(Instant::now());
        Self { name, child: None, since: None, due, is_settled: false, failures: 0 }
    }

    /// When it is to be started; none while it runs.
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

    /// It could not even be started. Returns what is waited.
    pub(super) fn failed(&mut self, now: Instant) -> Duration {
        let wait = self.back_off();
        self.due = Some(now + wait);
        wait
    }

    /// How it has ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().ok().flatten()?;
        self.child = None;
        Some(status)
    }

    /// What follows from its end.
    pub(super) fn after(&mut self, status: &ExitStatus, now: Instant) -> Next {
        let lived = self.since.map_or(Duration::ZERO, |since| now.duration_since(since));
        self.is_settled |= lived >= SETTLED;
        // It has said itself that it will not do better.
        if !self.is_settled && matches!(status.code(), Some(2..=4)) {
            return Next::Over;
        }
        let wait = if lived >= UP {
            self.failures = 0;
            Duration::ZERO
        } else {
            self.back_off()
        };
        self.due = Some(now + wait);
        Next::Again(wait)
    }

    fn back_off(&mut self) -> Duration {
        // One death, by whatever hand, is no reason to wait.
        let wait = match self.failures {
            0 => Duration::ZERO,
            more => FIRST_WAIT.saturating_mul(1 << (more - 1).min(10)).min(LONGEST_WAIT),
        };
        self.failures = self.failures.saturating_add(1);
        wait
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

    fn running(since: Instant) -> Half {
        Half { since: Some(since), due: None, ..Half::new("slow") }
    }

    #[test]
    fn one_that_had_come_up_starts_again_at_once() {
        let start = Instant::now();
        let mut half = running(start);
        for status in [ExitStatus::from_raw(KILLED), exit(0), exit(3), exit(4)] {
            half.since = Some(start);
            let end = start + SETTLED;
            assert_eq!(half.after(&status, end), Next::Again(Duration::ZERO), "{status}");
            assert!(half.is_due(end));
        }
    }

    #[test]
    fn one_that_never_comes_up_waits_longer_each_time() {
        let start = Instant::now();
        let mut half = running(start);
        let mut waits = Vec::new();
        for _ in 0..9 {
            match half.after(&ExitStatus::from_raw(KILLED), start) {
                Next::Again(wait) => waits.push(wait.as_millis()),
                Next::Over => panic!("it was killed, it has refused nothing"),
            }
        }
        assert_eq!(waits, [0, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }

    #[test]
    fn one_that_refuses_at_its_first_start_ends_all() {
        for code in 2..=4 {
            let start = Instant::now();
            assert_eq!(running(start).after(&exit(code), start), Next::Over);
        }
        let start = Instant::now();
        assert_ne!(running(start).after(&exit(5), start), Next::Over);
        let mut half = running(start);
        half.is_settled = true;
        assert_ne!(half.after(&exit(3), start), Next::Over, "its lanes may still forward");
    }
}
