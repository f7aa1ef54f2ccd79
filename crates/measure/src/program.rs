//! Runs other programs, one thread of which is measured. They run only during their slices.

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

/// Time limit for the start of a program and for its end on request.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Number of output lines that are kept to explain a failure.
const LINES: usize = 20;

/// Running program. The kernel kills it when the thread that started it ends.
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
    /// Starts `program`; `name` denotes it in errors.
    ///
    /// # Errors
    /// Returns an error if the program or `setpriv` (of util-linux) cannot be started.
    pub fn start<S: AsRef<OsStr>>(
        name: &str,
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<Self> {
        Self::spawn(name, program, arguments, None)
    }

    /// Starts a program like [`start`](Self::start) and returns a reader of the program's standard
    /// output.
    ///
    /// # Errors
    /// Returns the same errors as [`start`](Self::start).
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

    /// Returns the process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to the standard input of the program.
    ///
    /// # Errors
    /// Returns an error if the program has ended.
    pub fn say(&mut self, line: &str) -> Result<()> {
        writeln!(self.input, "{line}")
            .map_err(|_| self.failure("does not read its standard input").into())
    }

    /// Returns the id of the thread called `name`, if it exists (see [`wait_for`](Self::wait_for)).
    #[must_use]
    pub fn thread(&self, name: &str) -> Option<u64> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.id())).ok()?;
        let named = |thread: &std::fs::DirEntry| {
            let comm = std::fs::read_to_string(thread.path().join("comm"));
            comm.is_ok_and(|comm| comm.trim_end() == name)
        };
        threads.filter_map(|thread| thread.ok()).find(named)?.file_name().to_str()?.parse().ok()
    }

    /// Calls `look` until it returns a value.
    ///
    /// # Errors
    /// Returns an error if the program ends before, or if it takes longer than [`PATIENCE`].
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

    /// Returns true if one of the last output lines equals `line`.
    #[must_use]
    pub fn has_said(&self, line: &str) -> bool {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        output.iter().any(|said| said == line)
    }

    /// Resumes the program.
    ///
    /// # Errors
    /// Returns an error if the program has ended.
    pub fn resume(&self) -> Result<()> {
        kill_process(self.pid(), Signal::CONT).map_err(|_| self.failure("has ended").into())
    }

    /// Stops the program and waits until it has stopped.
    ///
    /// # Errors
    /// Returns an error if the program has ended.
    pub fn stop(&mut self) -> Result<()> {
        if !self.ended {
            kill_process(self.pid(), Signal::STOP)?;
            let (_, status) =
                waitpid(Some(self.pid()), WaitOptions::UNTRACED)?.ok_or("no child")?;
            self.ended = !status.stopped();
        }
        if self.ended { Err(self.failure("has ended").into()) } else { Ok(()) }
    }

    /// Returns the CPU time of a thread in nanoseconds (`schedstat`, Documentation/scheduler of
    /// Linux). It is exact while the thread is stopped; otherwise it is as of the last scheduler
    /// tick.
    ///
    /// # Errors
    /// Returns an error if the thread does not exist.
    pub fn cpu(&self, thread: u64) -> Result<u64> {
        let path = format!("/proc/{}/task/{thread}/schedstat", self.id());
        let text = std::fs::read_to_string(&path)
            .map_err(|error| self.failure(&format!("{path}: {error}")))?;
        Ok(text.split(' ').next().unwrap_or_default().parse()?)
    }

    /// Returns the CPU time of all running threads in nanoseconds; ended threads are not included.
    /// It is as exact as [`cpu`](Self::cpu).
    ///
    /// # Errors
    /// Returns an error if the program has ended.
    pub fn cpu_of_all(&self) -> Result<u64> {
        let threads = format!("/proc/{}/task", self.id());
        let gone = |error| self.failure(&format!("{threads}: {error}"));
        let mut sum = 0;
        for thread in std::fs::read_dir(&threads).map_err(gone)? {
            // A thread that has just ended has no file.
            let text = std::fs::read_to_string(thread.map_err(gone)?.path().join("schedstat"));
            let text = text.unwrap_or_default();
            sum += text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
        }
        Ok(sum)
    }

    /// Returns the exit status if the program has ended.
    ///
    /// # Errors
    /// Returns an error if the status cannot be read.
    pub fn has_ended(&mut self) -> Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        self.ended |= status.is_some();
        Ok(status)
    }

    /// Ends the program with SIGINT and, if it still runs after `limit`, with SIGTERM.
    ///
    /// # Errors
    /// Returns an error if it runs on after both. The program is then killed.
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

    /// Returns an error text with the last output lines of the program.
    #[must_use]
    pub fn failure(&self, what: &str) -> String {
        let end = Instant::now() + PATIENCE / 20;
        // Waits for the last output. A child of the program may keep the pipe open, so the wait is
        // bounded.
        while self.ended && !self.reader.is_finished() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<&str> = output.iter().map(String::as_str).collect();
        format!("{}: {what}; its last output:\n  {}", self.name, lines.join("\n  "))
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.ended {
            return; // the process id may be in use by another process
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

/// Packet counter of a running program.
pub trait Odometer {
    /// Returns the number of packets since the start of the program, which must be running.
    ///
    /// # Errors
    /// Returns an error if the program does not report it.
    fn packets(&mut self) -> Result<u64>;
}

/// Contender that is a program moving packets as fast as it can whenever it may run.
///
/// Packets and CPU time are counted from the end of a slice to the end of the next, just before the
/// program stops. The delay of the counters is therefore the same at both ends.
pub struct Looping<O> {
    program: Program,
    odometer: O,
    thread: u64,
    cpu: u64,
    packets: u64,
}

impl<O: Odometer> Looping<O> {
    /// Stops `program` until its first slice; `thread` moves its packets.
    ///
    /// # Errors
    /// Returns an error if the program has ended or does not report its packets.
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
            // A shell cannot trap a signal that was ignored when it started, as SIGINT is in a
            // background job of a script.
            let arguments = ["--default-signal=INT", "sh", "-c", &script];
            let (program, mut output) =
                Program::start_and_listen("a shell", "env", arguments).unwrap();
            output.read_line(&mut String::new()).unwrap();
            program
        };
        assert_eq!(trapped("INT", 3).finish(limit).unwrap().code(), Some(3));
        assert_eq!(trapped("TERM", 4).finish(limit).unwrap().code(), Some(4));
        let endless = ["--default-signal=INT", "sh", "-c", "while :; do :; done"];
        let program = Program::start("a shell", "env", endless).unwrap();
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
