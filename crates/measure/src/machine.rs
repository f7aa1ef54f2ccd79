//! The machine and the time of a measurement.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Properties of a machine that a reader needs to judge a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the processor, as Linux reports it.
    pub processor: String,
    /// Number of processors that this process may use.
    pub processors: usize,
    /// Version of Linux.
    pub linux: String,
}

impl Machine {
    /// Describes this machine.
    #[must_use]
    pub fn this() -> Self {
        let line = |path, start: &str| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix(start));
            line.map(|line| line.trim_start_matches([' ', '\t', ':']).trim().to_owned())
        };
        let linux = line("/proc/sys/kernel/osrelease", "").unwrap_or_default();
        Self {
            processor: line("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned()),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            linux: linux.split('-').next().unwrap_or_default().to_owned(),
        }
    }
}

/// Returns the load average over the last minute, which shows other activity. Returns NaN if Linux
/// does not report it.
#[must_use]
pub fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(f64::NAN)
}

/// Returns the free huge pages of the default size in MiB (proc_meminfo(5)).
#[must_use]
pub fn free_huge_pages() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let number = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    number("HugePages_Free:") * number("Hugepagesize:") / 1024
}

/// Returns the current time formatted by [`date`].
#[must_use]
pub fn today() -> String {
    date(SystemTime::now())
}

/// Formats a time as a date of the Gregorian calendar (UTC, ISO 8601), by the algorithm of Howard
/// Hinnant ("chrono-compatible low-level date algorithms", `civil_from_days`).
#[must_use]
pub fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153; // months since March
    let day = day - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_right() {
        let at = |seconds| date(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_795_132_799), "2026-11-19T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn this_machine_is_described() {
        let machine = Machine::this();
        assert!(machine.processors > 0 && machine.linux.contains('.'), "{machine:?}");
        assert!(load_average() >= 0.0);
    }
}
