//! A running program of which the CPU time of one lane is measured.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Result;

/// Longest wait for a program to start and to stop.
const PATIENCE: Duration = Duration::from_secs(5);

/// Process with a lane. It belongs to somebody else, who ends it.
pub struct MeasuredProgram {
    process: Pid,
    /// Folder of the lane's thread in `/proc`.
    thread: PathBuf,
}

impl MeasuredProgram {
    /// Finds the first lane in a process or in one that it supervises.
    ///
    /// # Errors
    /// Returns an error if there is none within five seconds.
    pub fn of(process: u32) -> Result<Self> {
        let path = format!("/proc/{process}/task/{process}/children");
        let end = Instant::now() + PATIENCE;
        let (process, thread) = loop {
            let children = std::fs::read_to_string(&path)?;
            let children = children.split_whitespace().filter_map(|id| id.parse().ok());
            let mut found = std::iter::once(process).chain(children);
            match found.find_map(|id| Some((id, lane_of(id)?))) {
                Some(lane) => break lane,
                None if Instant::now() > end => return Err("no lane".into()),
                None => std::thread::sleep(Duration::from_millis(10)), // the program starts
            }
        };
        let process = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or("no process")?;
        Ok(Self { process, thread })
    }

    /// Lets the program run.
    ///
    /// # Errors
    /// Returns an error if it has ended.
    pub fn resume(&self) -> Result<()> {
        Ok(kill_process(self.process, Signal::CONT)?)
    }

    /// Stops the program and waits until its lane has stopped.
    ///
    /// # Errors
    /// Returns an error if it does not stop, or has ended.
    pub fn stop(&self) -> Result<()> {
        kill_process(self.process, Signal::STOP)?;
        let end = Instant::now() + PATIENCE;
        loop {
            // The state follows the name in parentheses (proc_pid_stat(5)).
            let stat = std::fs::read_to_string(self.thread.join("stat"))?;
            if stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')) {
                return Ok(());
            }
            if Instant::now() > end {
                return Err("a program does not stop".into());
            }
            std::thread::yield_now();
        }
    }

    /// Returns the CPU time of the lane in nanoseconds. It is exact while the program is stopped.
    ///
    /// # Errors
    /// Returns an error if the program has ended.
    pub fn cpu(&self) -> Result<u64> {
        cpu_of(&self.thread)
    }
}

impl Drop for MeasuredProgram {
    fn drop(&mut self) {
        // A stopped program would not end.
        let _ = self.resume();
    }
}

/// Returns the CPU time of a thread, by its folder in `/proc`, in nanoseconds.
///
/// # Errors
/// Returns an error if the thread has ended.
pub fn cpu_of(thread: &std::path::Path) -> Result<u64> {
    let text = std::fs::read_to_string(thread.join("schedstat"))?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}

/// Returns the folder of the lane's thread of a process.
fn lane_of(process: u32) -> Option<PathBuf> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
    let is_lane = |thread: &PathBuf| {
        std::fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.trim() == "lane-0")
    };
    threads.map(|thread| thread.path()).find(is_lane)
}
