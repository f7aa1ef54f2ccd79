//! Log of the blocks of external ports: a line per allocation and release, with user and time (RFC
//! 6888, REQ-12 and REQ-14: no destinations, and little volume).

use std::fmt::{Display, Formatter};
use std::fs::OpenOptions;
use std::io::Write;
use std::net::Ipv4Addr;

use crate::config::nat_plan::BUCKET;
use crate::rules::layout::nat_tables::NatUser;
use crate::session::Session;
use crate::time::SECOND;

/// Destination of the lines: a file, or the log of the program.
#[derive(Debug)]
pub(super) struct NatLog {
    /// Path of the file. It is opened for each line, so it may be rotated at any time.
    path: Option<String>,
    failed: u64,
}

/// Allocation or release of a block.
pub(super) struct BlockEvent<'a> {
    pub(super) session: &'a Session,
    pub(super) user: &'a NatUser,
    pub(super) is_allocated: bool,
    /// Time in ns of `CLOCK_REALTIME`.
    pub(super) real: u64,
}

impl Display for BlockEvent<'_> {
    fn fmt(&self, to: &mut Formatter<'_>) -> std::fmt::Result {
        let NatUser { inside, external, first_port, buckets, .. } = *self.user;
        let last = u32::from(first_port) + buckets * BUCKET - 1;
        let what = if self.is_allocated { "allocated" } else { "released" };
        let supi = self.session.supi.as_deref().map_or("-".to_owned(), |it| format!("imsi-{it}"));
        let (inside, external) = (Ipv4Addr::from(inside), Ipv4Addr::from(external));
        write!(to, "{} nat-block {what} user={supi}", UtcTime(self.real))?;
        write!(to, " seid={:#x} inside={inside}", self.session.seid)?;
        write!(to, " external={external} ports={first_port}-{last}")
    }
}

impl NatLog {
    /// Opens the log; without a path it is that of the program.
    pub(super) fn open(path: Option<&str>) -> Self {
        Self { path: path.map(str::to_owned), failed: 0 }
    }

    /// Returns the number of lines that could not be written.
    pub(super) const fn failed(&self) -> u64 {
        self.failed
    }

    /// Writes a line.
    pub(super) fn write(&mut self, event: &BlockEvent<'_>) {
        let Some(path) = &self.path else {
            log_info(event);
            return;
        };
        let file = OpenOptions::new().append(true).create(true).open(path);
        let line = format!("{event}\n");
        if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
            self.failed += 1;
            if self.failed.is_power_of_two() {
                let lines = self.failed;
                log_warning(&format!("nat: {lines} lines were not written to {path}: {error}"));
            }
            log_info(event);
        }
    }
}

/// Writes a line to the log of the program.
#[cfg(feature = "control-plane")]
fn log_info(event: &BlockEvent<'_>) {
    tracing::info!("{event}");
}

/// Writes a warning to the log of the program.
#[cfg(feature = "control-plane")]
pub(super) fn log_warning(text: &str) {
    tracing::warn!("{text}");
}

/// Does nothing: without a control plane there is no log.
#[cfg(not(feature = "control-plane"))]
fn log_info(_: &BlockEvent<'_>) {}

/// Does nothing: without a control plane there is no log.
#[cfg(not(feature = "control-plane"))]
pub(super) fn log_warning(_: &str) {}

/// Time in ns of `CLOCK_REALTIME`, written as in RFC 3339 with milliseconds.
struct UtcTime(u64);

impl Display for UtcTime {
    fn fmt(&self, to: &mut Formatter<'_>) -> std::fmt::Result {
        const DAY: u64 = 86_400;
        let seconds = self.0 / SECOND;
        let (days, of_day) = (seconds / DAY, seconds % DAY);
        // Days since 1 March of year 0, in eras of 400 years (a year ends with February).
        let days = days + 719_468;
        let (era, of_era) = (days / 146_097, days % 146_097);
        let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = era * 400 + year + u64::from(month <= 2);
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        let milliseconds = self.0 % SECOND / 1_000_000;
        write!(to, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        write!(to, ".{milliseconds:03}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::UtcTime;

    /// Times as `date -u -d @SECONDS +%FT%TZ` writes them.
    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000Z"),
            (1_798_761_599, "2026-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(UtcTime(seconds * 1_000_000_000).to_string(), text);
        }
        assert_eq!(UtcTime(1_002_000_000).to_string(), "1970-01-01T00:00:01.002Z");
    }
}
