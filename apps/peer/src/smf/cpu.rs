//! CPU time of another process.

use std::fs;
use std::time::Duration;

use super::SmfError;

/// CPU time of all threads of a process.
#[derive(Clone, Copy, Debug)]
pub struct CpuTime {
    pid: u32,
}

impl CpuTime {
    /// Selects the process `pid`.
    #[must_use]
    pub const fn of(pid: u32) -> Self {
        Self { pid }
    }

    /// Reads the CPU time that the process has used so far, without threads that have ended.
    ///
    /// # Errors
    ///
    /// Returns an error if the process does not exist.
    pub fn read(self) -> Result<Duration, SmfError> {
        let failed = |error| SmfError::Cpu { pid: self.pid, error };
        let mut nanoseconds = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.pid)).map_err(failed)? {
            // A thread may end during the loop. The first number is its time on a CPU.
            let path = task.map_err(failed)?.path().join("schedstat");
            let Ok(line) = fs::read_to_string(path) else { continue };
            let first = line.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
            nanoseconds += first.unwrap_or(0);
        }
        Ok(Duration::from_nanos(nanoseconds))
    }
}
