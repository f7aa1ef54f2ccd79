//! A program that runs beside the test.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::eventually;

/// How long anything may take that is waited for: only a machine that hangs needs longer.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How a process has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// All that it wrote to standard output.
    pub stdout: String,
    /// All that it wrote to standard error.
    pub stderr: String,
}

impl Ended {
    /// A counter of the summary that an application has printed at its end; 0 when it is not in it.
    #[must_use]
    pub fn counter(&self, name: &str) -> u64 {
        let mut lines = self.stderr.lines().map(str::split_whitespace);
        let value = lines.find_map(|mut words| (words.next()? == name).then(|| words.next())?);
        value.and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    /// All counters of the summary that name a loss.
    #[must_use]
    pub fn drops(&self) -> u64 {
        let names = self.stderr.lines().filter_map(|line| line.split_whitespace().next());
        names.filter(|name| name.starts_with("drop_")).map(|name| self.counter(name)).sum()
    }
}

/// Lines that a thread gathers.
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

/// A process, killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
    output: [Arc<Gathered>; 2],
    readers: Vec<JoinHandle<()>>,
}

impl Process {
    /// Starts a command, without input unless it has one.
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

    /// The id of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to standard error so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.output[1].lock().0.clone()
    }

    /// What it has written to standard output so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.output[0].lock().0.clone()
    }

    /// Writes a line to its standard input, which must have been asked for.
    ///
    /// # Panics
    /// When it does not read.
    #[track_caller]
    pub fn say(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("a pipe");
        writeln!(input, "{line}").unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    /// Waits until standard error contains `words`.
    ///
    /// # Panics
    /// When it does not, in [`PATIENCE`] or before the program has ended.
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

    /// Stops it, and waits until all its threads stand still.
    ///
    /// # Panics
    /// When it has ended.
    #[track_caller]
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.id());
        // Behind the name in parentheses: the state (proc_pid_stat(5)).
        let is_stopped =
            |stat: String| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'));
        eventually("all threads stand still", || {
            let tasks = std::fs::read_dir(&tasks).expect("it has not ended");
            tasks
                .flatten()
                .all(|task| std::fs::read_to_string(task.path().join("stat")).is_ok_and(is_stopped))
        });
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// When it has ended.
    #[track_caller]
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When that takes longer than `limit`.
    #[track_caller]
    #[must_use]
    pub fn wait_within(mut self, limit: Duration) -> Ended {
        let end = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
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
        self.readers.drain(..).for_each(|reader| reader.join().expect("reading does not panic"));
        Ended { status, stdout: self.stdout(), stderr: self.stderr() }
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When that takes longer than [`PATIENCE`].
    #[track_caller]
    #[must_use]
    pub fn wait(self) -> Ended {
        self.wait_within(PATIENCE)
    }

    /// Asks it to end (SIGTERM) and waits.
    #[track_caller]
    #[must_use]
    pub fn stop(self) -> Ended {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Kills it (SIGKILL) and waits.
    #[track_caller]
    pub fn kill(self) {
        self.signal(Signal::KILL);
        let _ = self.wait();
    }

    /// CPU time that it has used, in clock ticks of 10 ms (proc_pid_stat(5)).
    ///
    /// # Panics
    /// When it has ended.
    #[track_caller]
    #[must_use]
    pub fn cpu_ticks(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).expect("it runs");
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

/// The last lines, enough to understand.
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
