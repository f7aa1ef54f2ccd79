//! Output of a capture as pcapng.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use fastlane::capture::{CapturedPacket, Event, pcapng};
use fastlane::describe::{Application, PortFacts};
use fastlane::{PortId, RawVerdict, Verdict};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Error;

/// Size of the write buffer in bytes.
const SPACE: usize = 1 << 18;

/// Writer of a pcapng file or of standard output.
pub(super) struct Output {
    file: File,
    /// Path of the file; `None` for standard output.
    path: Option<PathBuf>,
    space: Vec<u8>,
    comment: String,
    ports: Vec<String>,
    /// Offset from `CLOCK_MONOTONIC` to `CLOCK_REALTIME` in nanoseconds.
    offset: u64,
    packets: u64,
}

impl Output {
    /// Writes the headers of a capture to a file or, without a path, to standard output.
    pub(super) fn new(
        path: Option<&Path>,
        application: &Application,
        snap_length: u32,
    ) -> Result<Self, Error> {
        let file = match path {
            Some(path) => File::create(path).map_err(|error| {
                let path = path.display();
                Error::Failed(format!("{path}: cannot be written ({error}); name another file"))
            })?,
            None => File::from(io::stdout().as_fd().try_clone_to_owned()?),
        };
        let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let offset = (real.as_nanos() as u64).wrapping_sub(fastlane::now());
        let mut space = Vec::with_capacity(2 * SPACE);
        let Application { name, version, pid, .. } = application;
        let program = concat!("fastlane capture ", env!("CARGO_PKG_VERSION"));
        pcapng::section(&mut space, program, &format!("{name} {version}, process {pid}"));
        for port in &application.ports {
            let (name, description) = (port.name.as_str(), describe(port));
            let interface = pcapng::Interface { name, description: &description, snap_length };
            pcapng::interface(&mut space, &interface);
        }
        let ports = application.ports.iter().map(|port| port.name.clone()).collect();
        let path = path.map(Path::to_owned);
        let mut output =
            Self { file, path, space, comment: String::new(), ports, offset, packets: 0 };
        output.write_out()?; // so that whoever reads it knows the ports before there are packets
        Ok(output)
    }

    /// Returns the number of packets written.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// Appends a packet. Packets of unknown ports are ignored.
    pub(super) fn add(&mut self, copy: &CapturedPacket<'_>) -> Result<(), Error> {
        let record = &copy.record;
        if usize::from(record.port.0) >= self.ports.len() {
            return Ok(());
        }
        self.comment.clear();
        comment(&mut self.comment, copy, &self.ports);
        let direction = match record.event {
            Event::Arrived => pcapng::Direction::Inbound,
            _ => pcapng::Direction::Outbound,
        };
        let packet = pcapng::Packet {
            interface: u32::from(record.port.0),
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
    pub(super) fn write_out(&mut self) -> Result<(), Error> {
        let written = self.file.write_all(&self.space);
        self.space.clear();
        written.map_err(|error| match &self.path {
            Some(path) => Error::Failed(format!("{}: {error}", path.display())),
            None => Error::Output(error),
        })
    }

    /// Fails if the reader of standard output has closed it.
    pub(super) fn is_wanted(&self) -> Result<(), Error> {
        let mut events = [PollFd::new(&self.file, PollFlags::empty())];
        let _ = poll(&mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        if self.path.is_none() && events[0].revents().contains(PollFlags::ERR) {
            return Err(Error::Output(io::ErrorKind::BrokenPipe.into()));
        }
        Ok(())
    }
}

/// Returns the description of a port: `af-xdp on eth0, native copy, 2 queues`.
fn describe(port: &PortFacts) -> String {
    let interface = port.interface.as_deref().map(|name| format!(" on {name}"));
    let mode = if port.mode.is_empty() { String::new() } else { format!(", {}", port.mode) };
    let queues = if port.queues == 1 { "queue" } else { "queues" };
    let (driver, interface) = (&port.driver, interface.unwrap_or_default());
    format!("{driver}{interface}{mode}, {} {queues}", port.queues)
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
