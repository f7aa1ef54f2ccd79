//! Programs beside this one, of which one thread is measured: they run only when it is their turn.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::Result;
use crate::slices::{Contender, Slice};

/// How long a program gets to start, and to end when it is asked to.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Lines of its output that are kept, to explain why it ended.
const LINES: usize = 20;

/// A program that ends with this one, and with the thread that has started it.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    input: ChildStdin,
    output: Arc<Mutex<VecDeque<String>>>,
    reader: JoinHandle<()>,
    ended: bool,
}

impl Program {
    /// Starts `program`, which `name` stands for in errors.
    ///
    /// # Errors
    /// When it, or `setpriv` (of util-linux), cannot be started.
    pub fn start<S: AsRef<OsStr>>(
        name: &str,
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<Self> {
        Self::spawn(name, program, arguments, None)
    }

    /// As [`start`](Self::start), and also gives what it writes to standard output.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_and_listen<S: AsRef<OsStr>>(
        name: &str,
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<(Self, BufReader<PipeReader>)> {
        let (reader, writer) = std::io::pipe()?;
        let program = Self::spawn(name, program, arguments, Some(writer))?;
        Ok((program, BufReader::new(reader)))
    }

    fn spawn<S: AsRef<OsStr>>(
        name: &str,
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = S>,
        standard_output: Option<PipeWriter>,
    ) -> Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(match standard_output {
                Some(theirs) => theirs,
                None => writer.try_clone()?,
            })
            .stderr(writer)
            .spawn()
            .map_err(|error| format!("{name}: setpriv: {error}; install `util-linux`"))?;
        let output = Arc::new(Mutex::new(VecDeque::new()));
        let kept = Arc::clone(&output);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(reader).split(b'\n').map_while(|line| line.ok()) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push_back(String::from_utf8_lossy(&line).into_owned());
                if kept.len() > LINES {
                    kept.pop_front();
                }
            }
        });
        let input = child.stdin.take().ok_or("no standard input")?;
        Ok(Self { name: name.to_owned(), child, input, output, reader, ended: false })
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to its standard input.
    ///
    /// # Errors
    /// When it has ended.
    pub fn say(&mut self, line: &str) -> Result<()> {
        writeln!(self.input, "{line}").map_err(|_| self.failure("does not read").into())
    }

    /// The id of its thread called `name` (see [`wait_for`](Self::wait_for)).
    #[must_use]
    pub fn thread(&self, name: &str) -> Option<u64> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.id())).ok()?;
        let named = |thread: &std::fs::DirEntry| {
            let comm = std::fs::read_to_string(thread.path().join("comm"));
            comm.is_ok_and(|comm| comm.trim_end() == name)
        };
        threads.filter_map(|thread| thread.ok()).find(named)?.file_name().to_str()?.parse().ok()
    }

    /// Asks `look` until it finds something.
    ///
    /// # Errors
    /// When the program ends before, or takes too long.
    pub fn wait_for<T>(
        &mut self,
        what: &str,
        mut look: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look(self) {
                return Ok(found);
            }
            if self.child.try_wait()?.is_some() {
                self.ended = true;
                return Err(self.failure("has ended").into());
            }
            if Instant::now() > end {
                return Err(self.failure(&format!("{what}: not within {PATIENCE:?}")).into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether one of the last lines of its output is `line`.
    #[must_use]
    pub fn has_said(&self, line: &str) -> bool {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        output.iter().any(|said| said == line)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it has ended.
    pub fn resume(&self) -> Result<()> {
        kill_process(self.pid(), Signal::CONT).map_err(|_| self.failure("has ended").into())
    }

    /// Stops it, and waits until it is.
    ///
    /// # Errors
    /// When it has ended.
    pub fn stop(&mut self) -> Result<()> {
        if !self.ended {
            kill_process(self.pid(), Signal::STOP)?;
            let (_, status) =
                waitpid(Some(self.pid()), WaitOptions::UNTRACED)?.ok_or("no child")?;
            self.ended = !status.stopped();
        }
        if self.ended { Err(self.failure("has ended").into()) } else { Ok(()) }
    }

    /// CPU time of its thread in nanoseconds (`schedstat`, Documentation/scheduler of Linux):
    /// exact while it is stopped, else as of the last tick of the scheduler.
    ///
    /// # Errors
    /// When there is no such thread.
    pub fn cpu(&self, thread: u64) -> Result<u64> {
        let path = format!("/proc/{}/task/{thread}/schedstat", self.id());
        let text = std::fs::read_to_string(&path)
            .map_err(|error| self.failure(&format!("{path}: {error}")))?;
        Ok(text.split(' ').next().unwrap_or_default().parse()?)
    }

    /// CPU time of all its threads in nanoseconds, those that have ended not included. As exact as
    /// [`cpu`](Self::cpu).
    ///
    /// # Errors
    /// When it has ended.
    pub fn cpu_of_all(&self) -> Result<u64> {
        let threads = format!("/proc/{}/task", self.id());
        let gone = |error| self.failure(&format!("{threads}: {error}"));
        let mut sum = 0;
        for thread in std::fs::read_dir(&threads).map_err(gone)? {
            // One that ends just now has no file any more.
            let text = std::fs::read_to_string(thread.map_err(gone)?.path().join("schedstat"));
            let text = text.unwrap_or_default();
            sum += text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
        }
        Ok(sum)
    }

    /// Whether it has ended, and how.
    ///
    /// # Errors
    /// When Linux does not tell.
    pub fn has_ended(&mut self) -> Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        self.ended |= status.is_some();
        Ok(status)
    }

    /// Ends it by SIGINT and, when it has not ended within `limit`, by SIGTERM.
    ///
    /// # Errors
    /// When it has not ended by either within `limit`: then it is killed.
    pub fn finish(mut self, limit: Duration) -> Result<ExitStatus> {
        for signal in [Signal::INT, Signal::TERM] {
            if let Some(status) = self.has_ended()? {
                return Ok(status);
            }
            let _ = kill_process(self.pid(), signal);
            let _ = kill_process(self.pid(), Signal::CONT);
            let end = Instant::now() + limit;
            while Instant::now() < end {
                if let Some(status) = self.has_ended()? {
                    return Ok(status);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Err(self.failure(&format!("does not end by SIGINT and SIGTERM within {limit:?}")).into())
    }

    /// An error about it, with what it said last.
    #[must_use]
    pub fn failure(&self, what: &str) -> String {
        let end = Instant::now() + PATIENCE / 20;
        // Its last words may be on their way; a child of its own may keep the line open.
        while self.ended && !self.reader.is_finished() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<&str> = output.iter().map(String::as_str).collect();
        format!("{}: {what}; it said last:\n  {}", self.name, lines.join("\n  "))
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.ended {
            return; // its id may be another's by now
        }
        let _ = kill_process(self.pid(), Signal::TERM);
        let _ = kill_process(self.pid(), Signal::CONT);
        let end = Instant::now() + PATIENCE / 5;
        while Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What tells how many packets a program has moved since its start.
pub trait Odometer {
    /// That number. Asked while the program runs.
    ///
    /// # Errors
    /// When the program does not tell.
    fn packets(&mut self) -> Result<u64>;
}

/// A program that moves packets by itself, as fast as it can, whenever it may run.
///
/// Packets are counted from the end of a slice to the end of the next, just before the program
/// stops, and so is the CPU time: what the counts are late by is the same at both ends.
pub struct Looping<O> {
    program: Program,
    odometer: O,
    thread: u64,
    cpu: u64,
    packets: u64,
}

impl<O: Odometer> Looping<O> {
    /// Stops `program`, of which `thread` moves the packets, until its first slice.
    ///
    /// # Errors
    /// When it has ended, or does not tell its packets.
    pub fn new(mut program: Program, thread: u64, mut odometer: O) -> Result<Self> {
        let packets = odometer.packets()?;
        program.stop()?;
        let cpu = program.cpu(thread)?;
        Ok(Self { program, odometer, thread, cpu, packets })
    }
}

impl<O: Odometer> Contender for Looping<O> {
    fn run(&mut self, length: Duration) -> Result<Slice> {
        self.program.resume()?;
        std::thread::sleep(length);
        let packets = self.odometer.packets();
        self.program.stop()?;
        let (packets, cpu) = (packets?, self.program.cpu(self.thread)?);
        let slice = Slice { cpu: cpu - self.cpu, packets: packets.saturating_sub(self.packets) };
        (self.cpu, self.packets) = (cpu, packets);
        Ok(slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program::start("a shell", "sh", ["-c", script]).unwrap()
    }

    #[test]
    fn a_program_uses_cpu_only_when_it_may() {
        struct Constant;
        impl Odometer for Constant {
            fn packets(&mut self) -> Result<u64> {
                Ok(7)
            }
        }
        let program = shell("while :; do :; done");
        let thread = u64::from(program.id());
        let mut looping = Looping::new(program, thread, Constant).unwrap();
        let slice = looping.run(Duration::from_millis(50)).unwrap();
        assert!(slice.cpu > 0 && slice.packets == 0, "{slice:?}");
        let before = looping.program.cpu(thread).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(looping.program.cpu(thread).unwrap(), before);
    }

    #[test]
    fn a_program_that_ends_says_why() {
        let mut program = shell("echo no such device >&2; exit 3");
        let error = program.wait_for("never", |_| None::<()>).unwrap_err().to_string();
        assert!(error.starts_with("a shell: has ended"), "{error}");
        drop(program);
        let mut program = shell("exec true");
        std::thread::sleep(Duration::from_millis(50));
        assert!(program.stop().is_err() && program.stop().is_err());
    }

    #[test]
    fn a_program_ends_by_the_gentlest_signal_that_it_heeds() {
        let limit = Duration::from_millis(500);
        let trapped = |signal: &str, code| {
            let script = format!(
                "trap '' INT; trap 'exit {code}' {signal}; echo set; \
                                  while :; do sleep 0.01; done"
            );
            let (program, mut output) =
                Program::start_and_listen("a shell", "sh", ["-c", &script]).unwrap();
            output.read_line(&mut String::new()).unwrap();
            program
        };
        assert_eq!(trapped("INT", 3).finish(limit).unwrap().code(), Some(3));
        assert_eq!(trapped("TERM", 4).finish(limit).unwrap().code(), Some(4));
        let program = shell("while :; do :; done");
        assert!(program.cpu_of_all().is_ok());
        assert_eq!(program.finish(limit).unwrap().code(), None, "killed by SIGINT");
    }

    #[test]
    fn a_program_hears_and_its_threads_have_names() {
        let mut program = shell("read line; echo heard $line; exec sleep 100");
        program.say("this").unwrap();
        let thread = program.wait_for("the sleep", |program| program.thread("sleep")).unwrap();
        assert_eq!(thread, u64::from(program.id()));
        let failure = program.wait_for("its words", |program| {
            Some(program.failure("")).filter(|text| text.contains("heard this"))
        });
        failure.unwrap();
    }
}
