//! `upf CONFIG`: supervisor that runs both processes and restarts them when they die.
//!
//! The processes do not depend on each other's lifetime: lanes forward with or without a control
//! plane, and a control plane finds its sessions in the tables. So the supervisor only restarts
//! what has died: at once if it had come up before, otherwise after a delay.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};

mod process;

pub use process::end_with_supervisor;
use process::{AfterExit, Process};

/// Environment variable with the supervisor's process id.
const SUPERVISOR: &str = "UPF_SUPERVISOR";
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
}

/// Runs both processes until SIGINT or SIGTERM, and returns the exit status: 0 if both ended as
/// asked, otherwise that of the first one that did not. If a process exits with status 2 to 4
/// before it has ever come up (wrong command line or configuration, or refused by this machine),
/// both end.
///
/// Must be called in the main thread, since the processes end with the thread that started them.
///
/// # Errors
/// If signal handlers cannot be installed.
pub fn supervise(plan: &Plan) -> io::Result<u8> {
    let mut signals = SignalPipe::new()?;
    let mut processes = [Process::new("fast"), Process::new("slow")];
    loop {
        for process in &mut processes {
            if process.is_due(Instant::now()) {
                start(process, plan);
            }
        }
        let due = processes.iter().filter_map(Process::due).min();
        if signals.wait(due) {
            return Ok(end(&mut processes, &mut signals));
        }
        for process in &mut processes {
            let Some(status) = process.ended() else { continue };
            let name = process.name;
            match process.after(&status, Instant::now()) {
                AfterExit::GiveUp => {
                    let code = code(&status);
                    eprintln!(
                        "upf: the {name} path process cannot start (exit status {code}); \
                         ending both"
                    );
                    let others = end(&mut processes, &mut signals);
                    return Ok(if code == 0 { others } else { code });
                }
                AfterExit::Restart(wait) => {
                    let wait = match wait.as_millis() {
                        0 => "at once".to_owned(),
                        wait => format!("in {wait} ms"),
                    };
                    eprintln!(
                        "upf: the {name} path process has ended ({status}); restarting it {wait}"
                    );
                }
            }
        }
    }
}

fn start(process: &mut Process, plan: &Plan) {
    let mut command = Command::new(&plan.program);
    command.arg(process.name).args(&plan.arguments);
    command.env(SUPERVISOR, std::process::id().to_string());
    // Ctrl-C in a terminal reaches only the supervisor, which ends the processes in order.
    command.process_group(0);
    match command.spawn() {
        Ok(child) => {
            eprintln!("upf: the {} path process has id {}", process.name, child.id());
            process.started(child, Instant::now());
        }
        Err(error) => {
            let wait = process.failed(Instant::now()).as_millis();
            let program = plan.program.display();
            eprintln!("upf: {program} cannot be started ({error}); retrying in {wait} ms");
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
                eprintln!("upf: the {} path process does not end; killing it", process.name);
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

/// Wakes the supervisor when a child ends or this process is asked to end.
struct SignalPipe {
    children: UnixStream,
    end: UnixStream,
}

impl SignalPipe {
    fn new() -> io::Result<Self> {
        let (children, theirs) = UnixStream::pair()?;
        signal_hook::low_level::pipe::register(SIGCHLD, theirs)?;
        let (end, theirs) = UnixStream::pair()?;
        signal_hook::low_level::pipe::register(SIGTERM, theirs.try_clone()?)?;
        signal_hook::low_level::pipe::register(SIGINT, theirs)?;
        children.set_nonblocking(true)?;
        end.set_nonblocking(true)?;
        Ok(Self { children, end })
    }

    /// Waits for either, or until `until`. Returns true if this process is asked to end.
    fn wait(&mut self, until: Option<Instant>) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let mut both =
            [PollFd::new(&self.children, PollFlags::IN), PollFd::new(&self.end, PollFlags::IN)];
        // An interruption is a signal, which is in one of the pipes.
        let _ = poll(&mut both, left.as_ref());
        let mut octets = [0; 64];
        while matches!(self.children.read(&mut octets), Ok(1..)) {}
        let mut asked = false;
        while matches!(self.end.read(&mut octets), Ok(1..)) {
            asked = true;
        }
        asked
    }
}
