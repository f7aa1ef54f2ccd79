//! `upf CONFIG`: both halves as processes of their own, started again when they die.
//!
//! The halves know nothing of each other's life: lanes forward whether or not there is a slow half,
//! and a slow half finds its sessions in the tables. So all that is to be done here is to start
//! what has died, at once if it had come up before, else after a while.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};

mod half;
mod orphan;

use half::{Half, Next};
pub use orphan::end_with_supervisor;

/// The environment variable that tells a half its supervisor's process id.
const SUPERVISOR: &str = "UPF_SUPERVISOR";
/// How long halves may take to end before they are killed.
const ENDING: Duration = Duration::from_secs(10);
/// What a half's death by a signal, or a half that had to be killed, becomes: the run went wrong.
const WRONG: u8 = 5;

/// How both halves are started.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program.
    pub program: PathBuf,
    /// What follows `fast` and `slow`: the configuration and what changes it.
    pub arguments: Vec<OsString>,
}

/// Runs both halves until SIGINT or SIGTERM, and returns the exit status: 0 when both ended as
/// asked, else that of the first that did not. A half that says, before it has ever come up, that
/// its command line or configuration is wrong, or that this machine refuses (status 2 to 4), ends
/// both.
///
/// Must be called in the main thread: halves end with the thread that started them.
///
/// # Errors
/// When signals cannot be handled.
pub fn supervise(plan: &Plan) -> io::Result<u8> {
    let mut bell = Bell::new()?;
    let mut halves = [Half::new("fast"), Half::new("slow")];
    loop {
        for half in &mut halves {
            if half.is_due(Instant::now()) {
                start(half, plan);
            }
        }
        let due = halves.iter().filter_map(Half::due).min();
        if bell.wait(due) {
            return Ok(end(&mut halves, &mut bell));
        }
        for half in &mut halves {
            let Some(status) = half.ended() else { continue };
            let name = half.name;
            match half.after(&status, Instant::now()) {
                Next::Over => {
                    let code = code(&status);
                    eprintln!("upf: the {name} half cannot start (exit status {code}); all ends");
                    let others = end(&mut halves, &mut bell);
                    return Ok(if code == 0 { others } else { code });
                }
                Next::Again(wait) => {
                    let wait = match wait.as_millis() {
                        0 => "at once".to_owned(),
                        wait => format!("in {wait} ms"),
                    };
                    eprintln!("upf: the {name} half has ended ({status}); it starts again {wait}");
                }
            }
        }
    }
}

fn start(half: &mut Half, plan: &Plan) {
    let mut command = Command::new(&plan.program);
    command.arg(half.name).args(&plan.arguments);
    command.env(SUPERVISOR, std::process::id().to_string());
    // A terminal's Ctrl-C is for the supervisor alone, which tells the halves in their order.
    command.process_group(0);
    match command.spawn() {
        Ok(child) => {
            eprintln!("upf: the {} half is process {}", half.name, child.id());
            half.started(child, Instant::now());
        }
        Err(error) => {
            let wait = half.failed(Instant::now()).as_millis();
            let program = plan.program.display();
            eprintln!("upf: {program} cannot be started ({error}); once more in {wait} ms");
        }
    }
}

/// Ends both: the slow half first, so that it does not see the other go. Returns the exit status.
fn end(halves: &mut [Half; 2], bell: &mut Bell) -> u8 {
    let limit = Instant::now() + ENDING;
    let mut status = 0;
    for half in halves.iter_mut().rev() {
        let Some(mut child) = half.child.take() else { continue };
        signal(&child, Signal::TERM);
        let own = match wait(&mut child, limit, bell) {
            Some(ended) => code(&ended),
            None => {
                eprintln!("upf: the {} half does not end; it is killed", half.name);
                let _ = child.kill(); // it may just have ended
                let _ = child.wait();
                WRONG
            }
        };
        status = if own == 0 { status } else { own };
    }
    status
}

fn wait(child: &mut Child, limit: Instant, bell: &mut Bell) -> Option<ExitStatus> {
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= limit {
            return None;
        }
        // A second signal is passed on: it ends a half at once.
        if bell.wait(Some(limit)) {
            signal(child, Signal::TERM);
        }
    }
}

fn signal(child: &Child, signal: Signal) {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // It has not been waited for, so the id is still its own.
    let _ = id.map(|id| kill_process(id, signal));
}

/// What a half's end is as an exit status of ours.
fn code(status: &ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(WRONG),
        _ => WRONG,
    }
}

/// Wakes when a child ends, or when this process is to end.
struct Bell {
    children: UnixStream,
    end: UnixStream,
}

impl Bell {
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

    /// Waits for either, or until this moment. Whether this process is to end.
    fn wait(&mut self, until: Option<Instant>) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let mut both =
            [PollFd::new(&self.children, PollFlags::IN), PollFd::new(&self.end, PollFlags::IN)];
        // An interruption is a signal, of which one of them knows.
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
