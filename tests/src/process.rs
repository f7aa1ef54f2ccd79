//! Child processes of a test.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::eventually;

/// Timeout of all waits. Only a machine that hangs needs longer; an emulated one beside others was
/// seen to need more than a minute.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Exit status and output of a process.
#[derive(Debug)]
pub struct Ended {
    /// Exit status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Ended {
    /// Returns a counter of the summary that an application prints at its end, or 0 if it is
    /// absent.
    #[must_use]
    pub fn counter(&self, name: &str) -> u64 {
        let mut lines = self.stderr.lines().map(str::split_whitespace);
        let value = lines.find_map(|mut words| (words.next()? == name).then(|| words.next())?);
        value.and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    /// Returns the sum of all drop counters of the summary.
    #[must_use]
    pub fn drops(&self) -> u64 {
        let names = self.stderr.lines().filter_map(|line| line.split_whitespace().next());
        names.filter(|name| name.starts_with("drop_")).map(|name| self.counter(name)).sum()
    }
}

/// Lines that a thread has read from a pipe.
#[derive(Debug, Default)]
struct Gathered {
    text: Mutex<(String, bool)>,
    more: Condvar,
}

impl Gathered {
    fn lock(&self) -> MutexGuard<'_, (String, bool)> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A process. Dropping it kills the process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
    output: [Arc<Gathered>; 2],
    readers: Vec<JoinHandle<()>>,
}

impl Process {
    /// Starts a command.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    #[must_use]
    pub fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program can be started");
        let output = [Arc::default(), Arc::default()];
        let stdout = child.stdout.take().expect("a pipe");
        let stderr = child.stderr.take().expect("a pipe");
        let readers = vec![gather(stdout, &output[0]), gather(stderr, &output[1])];
        Self { child, name: format!("{command:?}"), output, readers }
    }

    /// Returns the process ID.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns standard error so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.output[1].lock().0.clone()
    }

    /// Returns standard output so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.output[0].lock().0.clone()
    }

    /// Writes a line to standard input, which must be a pipe.
    ///
    /// # Panics
    /// When the process has closed it.
    #[track_caller]
    pub fn write_line(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("a pipe");
        writeln!(input, "{line}").unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    /// Waits until standard error contains `words`.
    ///
    /// # Panics
    /// After [`PATIENCE`], or when the program has ended before.
    #[track_caller]
    pub fn wait_for(&self, words: &str) {
        let end = Instant::now() + PATIENCE;
        let mut text = self.output[1].lock();
        while !text.0.contains(words) {
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero() && !text.1, "no `{words}` from {}:\n{}", self.name, text.0);
            let woken = self.output[1].more.wait_timeout(text, left);
            text = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sends a signal to this process.
    ///
    /// # Panics
    /// When it has ended.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(id, signal).unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    /// Sends SIGSTOP and waits until all threads are stopped.
    ///
    /// # Panics
    /// When it has ended.
    #[track_caller]
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.id());
        // The state follows the name in parentheses (proc_pid_stat(5)).
        let is_stopped =
            |stat: String| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'));
        eventually("all threads are stopped", || {
            let tasks = std::fs::read_dir(&tasks).expect("the process runs");
            tasks
                .flatten()
                .all(|task| std::fs::read_to_string(task.path().join("stat")).is_ok_and(is_stopped))
        });
    }

    /// Sends SIGCONT.
    ///
    /// # Panics
    /// When it has ended.
    #[track_caller]
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Returns true if the process still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for the end of the process.
    ///
    /// # Panics
    /// When that takes longer than `limit`.
    #[track_caller]
    #[must_use]
    pub fn wait_within(mut self, limit: Duration) -> Ended {
        let end = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child of this process") {
                break status;
            }
            assert!(
                Instant::now() < end,
                "{} has not ended:\n{}{}",
                self.name,
                self.stdout(),
                self.stderr()
            );
            std::thread::sleep(Duration::from_millis(5));
        };
        self.readers.drain(..).for_each(|reader| reader.join().expect("the reader does not panic"));
        Ended { status, stdout: self.stdout(), stderr: self.stderr() }
    }

    /// Waits for the end of the process.
    ///
    /// # Panics
    /// When that takes longer than [`PATIENCE`].
    #[track_caller]
    #[must_use]
    pub fn wait(self) -> Ended {
        self.wait_within(PATIENCE)
    }

    /// Sends SIGTERM and waits for the end.
    #[track_caller]
    #[must_use]
    pub fn stop(self) -> Ended {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Sends SIGKILL and waits for the end.
    #[track_caller]
    pub fn kill(self) {
        self.signal(Signal::KILL);
        let _ = self.wait();
    }

    /// Returns the CPU time in clock ticks of 10 ms (proc_pid_stat(5)).
    ///
    /// # Panics
    /// When it has ended.
    #[track_caller]
    #[must_use]
    pub fn cpu_ticks(&self) -> u64 {
        let text =
            std::fs::read_to_string(format!("/proc/{}/stat", self.id())).expect("the process runs");
        let (_, fields) = text.rsplit_once(") ").expect("a name in brackets");
        let fields: Vec<&str> = fields.split(' ').collect();
        fields[11..13].iter().filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}:\n{}{}", self.name, tail(&self.stdout()), tail(&self.stderr()));
        }
    }
}

/// Returns the last 20 lines.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n") + "\n"
}

fn gather(from: impl Read + Send + 'static, into: &Arc<Gathered>) -> JoinHandle<()> {
    let into = Arc::clone(into);
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            into.lock().0.push_str(&String::from_utf8_lossy(&line));
            into.more.notify_all();
            line.clear();
        }
        into.lock().1 = true;
        into.more.notify_all();
    })
}
