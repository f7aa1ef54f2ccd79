//! Captured packets as a pcapng file or on the standard output.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use fastlane_capture::Event;
use fastlane_core::{PortId, RawVerdict, Verdict};
use fastlane_local::pcap::pcapng;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::CapturedPacket;
use crate::describe::Application;

/// Size of the write buffer in bytes.
const SPACE: usize = 1 << 18;

/// Error of a capture file.
#[derive(Debug, thiserror::Error)]
pub enum CaptureFileError {
    /// The file cannot be created or written.
    #[error("{}: cannot be written ({source}); name another file", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The standard output cannot be written. A reader that has closed it is
    /// [`ErrorKind::BrokenPipe`](io::ErrorKind::BrokenPipe).
    #[error("the output cannot be written: {0}")]
    Output(io::Error),
}

/// Interface of a capture file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureInterface {
    /// Name of the interface.
    pub name: String,
    /// Description for people.
    pub description: String,
}

/// Writer of captured packets.
#[derive(Debug)]
pub struct CaptureFile {
    file: File,
    /// Path of the file; `None` for standard output.
    path: Option<PathBuf>,
    space: Vec<u8>,
    comment: String,
    /// Names of the application's ports.
    ports: Vec<String>,
    /// Offset from `CLOCK_MONOTONIC` to `CLOCK_REALTIME` in nanoseconds.
    offset: u64,
    packets: u64,
}

impl CaptureFile {
    /// Writes the headers of a capture of `application` by `program` to a file or, without a path,
    /// to the standard output.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create(
        path: Option<&Path>,
        program: &str,
        application: &Application,
        interfaces: &[CaptureInterface],
        snap_length: u32,
    ) -> Result<Self, CaptureFileError> {
        let file = match path {
            Some(path) => File::create(path)
                .map_err(|source| CaptureFileError::File { path: path.to_owned(), source })?,
            None => {
                let output = io::stdout().as_fd().try_clone_to_owned();
                File::from(output.map_err(CaptureFileError::Output)?)
            }
        };
        let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let offset = (real.as_nanos() as u64).wrapping_sub(fastlane_core::now());
        let mut space = Vec::with_capacity(2 * SPACE);
        let Application { name, version, pid, .. } = application;
        pcapng::section(&mut space, program, &format!("{name} {version}, process {pid}"));
        for CaptureInterface { name, description } in interfaces {
            pcapng::interface(&mut space, &pcapng::Interface { name, description, snap_length });
        }
        let ports = application.ports.iter().map(|port| port.name.clone()).collect();
        let path = path.map(Path::to_owned);
        let mut file =
            Self { file, path, space, comment: String::new(), ports, offset, packets: 0 };
        file.write_out()?; // so that whoever reads it knows the interfaces before there are packets
        Ok(file)
    }

    /// Returns the number of packets written.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Appends a packet to an interface, with lane and verdict as its comment, and with `more`
    /// about it. Packets of unknown ports are ignored.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(
        &mut self,
        interface: u32,
        copy: &CapturedPacket<'_>,
        more: &str,
    ) -> Result<(), CaptureFileError> {
        let record = &copy.record;
        if usize::from(record.port.0) >= self.ports.len() {
            return Ok(());
        }
        self.comment.clear();
        comment(&mut self.comment, copy, &self.ports);
        self.comment.push_str(more);
        let direction = match record.event {
            Event::Arrived => pcapng::Direction::Inbound,
            _ => pcapng::Direction::Outbound,
        };
        let packet = pcapng::Packet {
            interface,
            time: record.time.wrapping_add(self.offset),
            bytes: record.bytes,
            length: record.length,
            direction: Some(direction),
            comment: &self.comment,
        };
        pcapng::packet(&mut self.space, &packet);
        self.packets += 1;
        if self.space.len() >= SPACE { self.write_out() } else { Ok(()) }
    }

    /// Flushes the buffer.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_out(&mut self) -> Result<(), CaptureFileError> {
        let written = self.file.write_all(&self.space);
        self.space.clear();
        written.map_err(|source| match &self.path {
            Some(path) => CaptureFileError::File { path: path.clone(), source },
            None => CaptureFileError::Output(source),
        })
    }

    /// Fails if the reader of standard output has closed it.
    ///
    /// # Errors
    /// The reader has closed it.
    pub fn is_wanted(&self) -> Result<(), CaptureFileError> {
        let mut events = [PollFd::new(&self.file, PollFlags::empty())];
        let _ = poll(&mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        if self.path.is_none() && events[0].revents().contains(PollFlags::ERR) {
            return Err(CaptureFileError::Output(io::ErrorKind::BrokenPipe.into()));
        }
        Ok(())
    }
}

/// Appends the lane and the verdict of a packet.
fn comment(into: &mut String, copy: &CapturedPacket<'_>, ports: &[String]) {
    let record = &copy.record;
    let _ = write!(into, "lane {}", copy.lane); // writing to a string does not fail
    if record.event != Event::Arrived {
        let _ = write!(into, ", {}", record.event.name());
    }
    match record.verdict {
        _ if record.is_from_kernel => into.push_str(", from Linux"),
        Some(label) => {
            into.push_str(", verdict ");
            verdict(into, label, ports);
        }
        None => into.push_str(", the application has put another packet in its place"),
    }
    if record.is_partial {
        into.push_str(", checksum left to the device");
    }
}

fn verdict(into: &mut String, label: RawVerdict, ports: &[String]) {
    let _ = match label.verdict() {
        Some(Verdict::Kernel) => write!(into, "kernel"),
        Some(Verdict::Drop) => write!(into, "drop"),
        Some(Verdict::Reflect) => write!(into, "reflect"),
        Some(Verdict::Forward(PortId(number))) => match ports.get(usize::from(number)) {
            Some(name) => write!(into, "forward({name})"),
            None => write!(into, "forward({number}), of which there is no port"),
        },
        Some(Verdict::Hold(key)) => write!(into, "hold({})", key.number()),
        None => write!(into, "invalid({:#010x})", label.0),
    };
}
