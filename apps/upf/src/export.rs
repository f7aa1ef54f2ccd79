//! Usage export: a stream of JSON lines for collectors, on a Unix socket of the control plane
//! process.
//!
//! [`UsageExporter`] encodes each usage record once (`lines`) and appends it to the queue of each
//! `collector`. It runs in the control plane's loop and never waits: a collector whose queue is
//! full is disconnected and counted. `intervals` adds what each session has used in equal
//! periods.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags};

use self::collector::Collector;
use self::intervals::Intervals;
use self::lines::LineWriter;
use crate::config::{Settings, UsageExport};
use crate::pfcp::sessions::Sessions;
use crate::time::{Now, SECOND};
use crate::transactions::{SessionIdentity, UsageEvent, UsageRecord};
use crate::usage::CountedPeriod;

mod collector;
mod intervals;
mod lines;
#[cfg(test)]
mod tests;

/// Maximum number of collectors; further ones are disconnected at once.
pub const COLLECTORS: usize = 8;
/// Pause after a failed `accept`, in nanoseconds.
const PAUSE: u64 = SECOND;
/// Permissions of the socket: SUPIs are personal data.
const PERMISSIONS: u32 = 0o660;

/// Reason why usage cannot be exported.
#[derive(Debug, thiserror::Error)]
#[error("app.usage-export.socket {}: {what}; choose another path", path.display())]
pub struct ExportError {
    path: PathBuf,
    what: String,
}

/// Counters of the export since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportCounts {
    /// Collectors that are connected.
    pub collectors: usize,
    /// Lines made, whether or not a collector was connected.
    pub lines: u64,
    /// Collectors disconnected because they did not read.
    pub cut_off: u64,
    /// Collectors refused because there were [`COLLECTORS`] already.
    pub refused: u64,
}

/// Server of the stream.
#[derive(Debug)]
pub struct UsageExporter {
    listener: UnixListener,
    path: PathBuf,
    collectors: Vec<Collector>,
    lines: LineWriter,
    intervals: Option<Intervals>,
    /// Time from which collectors are accepted again, in nanoseconds of `CLOCK_MONOTONIC`; 0 unless
    /// accepting has failed.
    accept_from: u64,
    cut_off: u64,
    refused: u64,
}

impl UsageExporter {
    /// Listens on the socket of the settings, if they have one. The socket of a process that was
    /// killed is replaced.
    ///
    /// # Errors
    /// If it cannot listen there, or another process does.
    pub fn open(settings: &Settings, now: Now) -> Result<Option<Self>, ExportError> {
        let Some(UsageExport { socket, interval_s }) = &settings.usage_export else {
            return Ok(None);
        };
        let path = PathBuf::from(socket);
        let listener = listen(&path).map_err(|error| {
            let what = match error.kind() {
                io::ErrorKind::AddrInUse => "another process, or a file, is there".to_owned(),
                _ => format!("cannot listen there ({error})"),
            };
            ExportError { path: path.clone(), what }
        })?;
        Ok(Some(Self {
            listener,
            path,
            collectors: Vec::new(),
            lines: LineWriter::new(&settings.node_id, *interval_s, now),
            intervals: interval_s.map(|seconds| Intervals::new(seconds, now)),
            accept_from: 0,
            cut_off: 0,
            refused: 0,
        }))
    }

    /// Returns the counters of the export.
    #[must_use]
    pub const fn counts(&self) -> ExportCounts {
        ExportCounts {
            collectors: self.collectors.len(),
            lines: self.lines.count(),
            cut_off: self.cut_off,
            refused: self.refused,
        }
    }

    /// Appends the descriptors to poll.
    pub fn poll<'a>(&'a self, descriptors: &mut Vec<PollFd<'a>>) {
        if self.accept_from == 0 {
            descriptors.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        descriptors.extend(self.collectors.iter().map(Collector::poll));
    }

    /// Makes lines of usage records.
    pub fn take_records(&mut self, records: &[UsageRecord], now: Now) {
        for record in records {
            if !matches!(record.event, UsageEvent::Report(..))
                && let Some(intervals) = &mut self.intervals
                && let Some(period) = intervals.read(record, now)
            {
                self.append_interval(&record.session, &period, now);
            }
            let line = self.lines.record(record, now, !self.collectors.is_empty());
            self.append(&line);
        }
    }

    /// Accepts collectors, makes the lines of sessions whose interval has passed, and sends what
    /// collectors take without waiting.
    pub fn serve(&mut self, sessions: &Sessions, now: Now) {
        self.accept(now);
        let mut due = Vec::new();
        if let Some(intervals) = &mut self.intervals {
            intervals.advance(sessions, now, &mut due);
        }
        for (session, period) in due {
            self.append_interval(&session, &period, now);
        }
        self.collectors.retain_mut(Collector::is_connected);
        self.collectors.retain_mut(|collector| collector.send().is_ok());
    }

    fn append_interval(&mut self, session: &SessionIdentity, period: &CountedPeriod, now: Now) {
        let line = self.lines.interval(session, period, now, !self.collectors.is_empty());
        self.append(&line);
    }

    /// Appends a line to the queue of each collector.
    fn append(&mut self, line: &[u8]) {
        let before = self.collectors.len();
        self.collectors.retain_mut(|collector| collector.append(line));
        let cut_off = before - self.collectors.len();
        if cut_off > 0 {
            self.cut_off += cut_off as u64;
            tracing::warn!("usage export: {cut_off} collectors did not read and were cut off");
        }
    }

    fn accept(&mut self, now: Now) {
        if now.monotonic < self.accept_from {
            return;
        }
        self.accept_from = 0;
        for _ in 0..COLLECTORS {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    // In most cases no descriptor is free, and the next call would fail, too.
                    self.accept_from = now.monotonic.saturating_add(PAUSE);
                    return tracing::warn!("usage export: no collector is accepted: {error}");
                }
            };
            if self.collectors.len() == COLLECTORS {
                self.refused += 1;
                continue;
            }
            match Collector::new(stream, self.lines.hello(now)) {
                Ok(collector) => self.collectors.push(collector),
                Err(error) => tracing::warn!("usage export: a collector is lost: {error}"),
            }
        }
    }
}

impl Drop for UsageExporter {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path); // a successor replaces it anyway
    }
}

/// Listens on a Unix socket. A socket on which nobody listens is replaced.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    if is_socket
        && let Err(error) = UnixStream::connect(path)
        && error.kind() == io::ErrorKind::ConnectionRefused
    {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(PERMISSIONS))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
