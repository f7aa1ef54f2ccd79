//! `upf CONFIG`: supervisor that runs both processes and restarts them when they die.
//!
//! The processes do not depend on each other's lifetime: lanes forward with or without a control
//! plane, and a control plane finds its sessions in the tables. So the supervisor only restarts
//! what has died: at once if it had come up before, otherwise after a delay.
//!
//! The first SIGTERM or SIGINT goes to the control plane, which drains while the lanes forward. A
//! process that dies meanwhile is restarted. When the control plane has ended, the fast path ends.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal,
};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

/// Names of the processes: the first argument of their command lines.
const FAST: &str = "fast";
const SLOW: &str = "slow";
/// Environment variable with the supervisor's process id.
const SUPERVISOR: &str = "UPF_SUPERVISOR";
/// Environment variable of a control plane that is restarted during the drain.
const EXITING: &str = "UPF_EXITING";
/// Time after the release period in which the control plane must have ended by itself.
const MARGIN: Duration = Duration::from_secs(1);
/// Time after which ending processes are killed.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// Exit status for a process that died by a signal or had to be killed.
const FAILED: u8 = 5;

/// Command line of both processes.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Path of the program.
    pub program: PathBuf,
    /// Arguments behind `fast` and `slow`: the configuration and its overrides.
    pub arguments: Vec<OsString>,
    /// Time that the control plane may take for its drain.
    pub release: Duration,
}

/// Runs both processes until SIGINT or SIGTERM, and returns the exit status: 0 if both ended as
/// asked, otherwise that of the first one that did not. If a process exits with status 2 to 4
/// before it has ever come up (wrong command line or configuration, or refused by this machine),
/// both end. The first signal starts the drain of the control plane, a second one ends it.
///
/// Must be called in the main thread, since the processes end with the thread that started them.
///
/// # Errors
/// If signal handlers cannot be installed.
pub fn supervise(plan: &Plan) -> io::Result<u8> {
    let mut signals = SignalPipe::new()?;
    let mut processes = [Process::new(FAST), Process::new(SLOW)];
    let mut drain_end: Option<Instant> = None;
    loop {
        for process in &mut processes {
            if process.is_due(Instant::now()) {
                start(process, plan, drain_end.is_some());
            }
        }
        let due = processes.iter().filter_map(Process::due).chain(drain_end).min();
        let is_asked = signals.wait(due);
        if signals.take_reload() {
            reload(&processes);
        }
        let is_over = drain_end.is_some_and(|end| is_asked || end <= Instant::now());
        if is_asked && !is_over {
            drain_end = begin_drain(&processes, plan.release);
        }
        if is_over || is_asked && drain_end.is_none() {
            return Ok(end(&mut processes, &mut signals));
        }
        for process in &mut processes {
            let Some(status) = process.ended() else { continue };
            let is_drained = drain_end.is_some() && process.name == SLOW && status.code().is_some();
            if is_drained || !is_restarted(process, &status) {
                let (code, others) = (code(&status), end(&mut processes, &mut signals));
                return Ok(if code == 0 { others } else { code });
            }
        }
    }
}

/// Passes SIGHUP to the control plane, which reads the configuration again. One that is being
/// restarted reads it anyway.
fn reload(processes: &[Process; 2]) {
    let slow = processes.iter().find(|process| process.name == SLOW);
    if let Some(child) = slow.and_then(|process| process.child.as_ref()) {
        signal(child, Signal::HUP);
    }
}

/// Requests the drain of the control plane. Returns its latest end, or `None` if there is none.
fn begin_drain(processes: &[Process; 2], release: Duration) -> Option<Instant> {
    let slow = processes.iter().find(|process| process.name == SLOW)?;
    let child = slow.child.as_ref().filter(|_| !release.is_zero())?;
    signal(child, Signal::TERM);
    Some(Instant::now() + release + MARGIN)
}

/// Logs the end of a process. Returns true if it is restarted, false if it cannot start here.
fn is_restarted(process: &mut Process, status: &ExitStatus) -> bool {
    let name = process.name;
    match process.after(status, Instant::now()) {
        AfterExit::GiveUp => {
            let code = code(status);
            log(&format!("the {name} path process cannot start (exit status {code}); ending both"));
            false
        }
        AfterExit::Restart(wait) => {
            let wait = match wait.as_millis() {
                0 => "at once".to_owned(),
                wait => format!("in {wait} ms"),
            };
            log(&format!("the {name} path process has ended ({status}); restarting it {wait}"));
            true
        }
    }
}

/// Logs a line by one write(2). The processes write to the same file, and `eprintln` would write
/// the line in pieces, between which theirs could come.
fn log(line: &str) {
    // There is nobody to report a closed standard error to.
    let _ = io::stderr().write_all(format!("upf: {line}\n").as_bytes());
}

fn start(process: &mut Process, plan: &Plan, is_exiting: bool) {
    let mut command = Command::new(&plan.program);
    command.arg(process.name).args(&plan.arguments);
    command.env(SUPERVISOR, std::process::id().to_string());
    if is_exiting {
        command.env(EXITING, "1");
    }
    // Ctrl-C in a terminal reaches only the supervisor, which ends the processes in order.
    command.process_group(0);
    match command.spawn() {
        Ok(child) => {
            log(&format!("the {} path process has id {}", process.name, child.id()));
            process.started(child, Instant::now());
        }
        Err(error) => {
            let wait = process.failed(Instant::now()).as_millis();
            let program = plan.program.display();
            log(&format!("{program} cannot be started ({error}); retrying in {wait} ms"));
        }
    }
}

/// Ends both: the control plane first, so that it does not see the other one detach. Returns the
/// exit status.
fn end(processes: &mut [Process; 2], signals: &mut SignalPipe) -> u8 {
    let limit = Instant::now() + END_TIMEOUT;
    let mut status = 0;
    for process in processes.iter_mut().rev() {
        let Some(mut child) = process.child.take() else { continue };
        signal(&child, Signal::TERM);
        let own = match wait(&mut child, limit, signals) {
            Some(ended) => code(&ended),
            None => {
                log(&format!("the {} path process does not end; killing it", process.name));
                let _ = child.kill(); // it may have ended meanwhile
                let _ = child.wait();
                FAILED
            }
        };
        status = if own == 0 { status } else { own };
    }
    status
}

fn wait(child: &mut Child, limit: Instant, signals: &mut SignalPipe) -> Option<ExitStatus> {
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= limit {
            return None;
        }
        // A second signal is passed on and ends a process at once.
        if signals.wait(Some(limit)) {
            signal(child, Signal::TERM);
        }
    }
}

fn signal(child: &Child, signal: Signal) {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // The child has not been reaped, so the id is still its own.
    let _ = id.map(|id| kill_process(id, signal));
}

/// Returns the exit status of this program for that of a process.
fn code(status: &ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(FAILED),
        _ => FAILED,
    }
}

/// Wakes the supervisor when a child ends or this process is asked to end or to reload.
struct SignalPipe {
    children: UnixStream,
    end: UnixStream,
    reload: UnixStream,
}

impl SignalPipe {
    fn new() -> io::Result<Self> {
        let (children, theirs) = UnixStream::pair()?;
        signal_hook::low_level::pipe::register(SIGCHLD, theirs)?;
        let (end, theirs) = UnixStream::pair()?;
        signal_hook::low_level::pipe::register(SIGTERM, theirs.try_clone()?)?;
        signal_hook::low_level::pipe::register(SIGINT, theirs)?;
        let (reload, theirs) = UnixStream::pair()?;
        signal_hook::low_level::pipe::register(SIGHUP, theirs)?;
        children.set_nonblocking(true)?;
        end.set_nonblocking(true)?;
        reload.set_nonblocking(true)?;
        Ok(Self { children, end, reload })
    }

    /// Returns true if this process was asked to reload the configuration since the last call.
    fn take_reload(&mut self) -> bool {
        let mut is_asked = false;
        while matches!(self.reload.read(&mut [0; 64]), Ok(1..)) {
            is_asked = true;
        }
        is_asked
    }

    /// Waits for any of them, or until `until`. Returns true if this process is asked to end.
    fn wait(&mut self, until: Option<Instant>) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let pipes = [&self.children, &self.end, &self.reload];
        let mut pipes = pipes.map(|pipe| PollFd::new(pipe, PollFlags::IN));
        // An interruption is a signal, which is in one of the pipes.
        let _ = poll(&mut pipes, left.as_ref());
        let mut octets = [0; 64];
        while matches!(self.children.read(&mut octets), Ok(1..)) {}
        let mut asked = false;
        while matches!(self.end.read(&mut octets), Ok(1..)) {
            asked = true;
        }
        asked
    }
}

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
struct Process {
    name: &'static str,
    child: Option<Child>,
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
enum AfterExit {
    /// Restart after this delay.
    Restart(Duration),
    /// It cannot start here: end the program.
    GiveUp,
}

impl Process {
    fn new(name: &'static str) -> Self {
        let due = Some(Instant::now());
        Self { name, child: None, since: None, due, is_settled: false, failures: 0 }
    }

    /// Returns the time of the next start; `None` while it runs.
    fn due(&self) -> Option<Instant> {
        self.due
    }

    fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    fn started(&mut self, child: Child, now: Instant) {
        self.child = Some(child);
        self.since = Some(now);
        self.due = None;
    }

    /// Records that it could not be started. Returns the delay.
    fn failed(&mut self, now: Instant) -> Duration {
        let wait = self.back_off();
        self.due = Some(now + wait);
        wait
    }

    /// Returns the exit status if it has ended.
    fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().ok().flatten()?;
        self.child = None;
        Some(status)
    }

    /// Decides what follows from its end.
    fn after(&mut self, status: &ExitStatus, now: Instant) -> AfterExit {
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
    if supervisor().is_none() || set_parent_process_death_signal(Some(Signal::TERM)).is_err() {
        return; // it has none, or a seccomp filter forbids it
    }
    // The supervisor may have died before.
    if is_orphan() {
        let _ = kill_process(getpid(), Signal::TERM);
    }
}

/// Returns the process id of the supervisor of this process, if it has one.
fn supervisor() -> Option<Pid> {
    let id = std::env::var_os(SUPERVISOR)?;
    Pid::from_raw(id.to_str()?.parse().ok()?)
}

/// Returns true if the supervisor of this process has died.
pub(super) fn is_orphan() -> bool {
    supervisor().is_some_and(|supervisor| getppid() != Some(supervisor))
}

/// Returns true if the supervisor was already ending when it started this process.
pub(super) fn is_exiting() -> bool {
    std::env::var_os(EXITING).is_some()
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
        Process { since: Some(since), due: None, ..Process::new(SLOW) }
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
