//! Pcap ports: capture files as a port, for tests and for examining an application.
//!
//! Received packets come from a file in the classic pcap format or in pcapng, which is read and
//! checked as a whole when the port is opened. Sent packets go to a pcapng file with nanosecond
//! timestamps. The lane's thread writes it and waits for the file system, so a pcap port is not for
//! a lane under load.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fastlane_core::{Burst, Packet, Pool, PortId, Queue, Sent, Statistics, TxMemory};

mod blocks;
mod classic;
mod cursor;
pub mod pcapng;
mod write;

use cursor::{FormatError, FrameSpan};
use write::Writer;

/// Length of the longest file that is read, in bytes. The whole file is kept in memory.
const LONGEST_FILE: u64 = 4 << 30;

/// Settings of a pcap port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcapSettings {
    /// File whose frames are received; without one nothing is received.
    pub read: Option<PathBuf>,
    /// File that sent packets are written to. It is created or truncated. Without one they count as
    /// `transmit_error`.
    pub write: Option<PathBuf>,
    /// Number of times that the file is received; 0 is without end.
    pub repeat: u64,
}

impl Default for PcapSettings {
    fn default() -> Self {
        Self { read: None, write: None, repeat: 1 }
    }
}

/// Reason why a pcap port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings name no file.
    #[error("a pcap port needs a file to read, a file to write or both; name one")]
    NoFile,
    /// The settings name the same file for reading and writing.
    #[error("{}: a pcap port cannot write the file that it reads; name another file to write",
            .path.display())]
    SameFile {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("{}: cannot be read ({source}); check the path and its permissions", .path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The file cannot be created.
    #[error("{}: cannot be written ({source}); check the directory and its permissions",
            .path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The file is longer than the port keeps in memory.
    #[error("{}: longer than 4 GiB; split it with `editcap -c`", .path.display())]
    TooLong {
        /// Path of the file.
        path: PathBuf,
    },
    /// The content is no capture of Ethernet frames.
    #[error("{}, byte {offset}: {reason}", .path.display())]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// Offset of the defect, in bytes from the start of the file.
        offset: u64,
        /// Defect and remedy.
        reason: String,
    },
}

/// Queue of a pcap port. It has no interrupt.
#[derive(Debug)]
pub struct Pcap {
    port: PortId,
    file: Vec<u8>,
    frames: Vec<FrameSpan>,
    next: usize,
    /// Number of passes through the file that remain, with the current one; `u64::MAX` is without
    /// end.
    passes: u64,
    writer: Option<Writer>,
    statistics: Statistics,
}

/// Opens a pcap port: reads and checks the file to read, and creates the file to write.
///
/// # Errors
/// Returns an error if a file cannot be read or created, or is no capture of Ethernet frames. The
/// error names the file and the byte.
pub fn open(settings: &PcapSettings, port: PortId) -> Result<Pcap, Error> {
    let PcapSettings { read, write, repeat } = settings;
    if read.is_none() && write.is_none() {
        return Err(Error::NoFile);
    }
    let file = read.as_deref().map(content).transpose()?.unwrap_or_default();
    let frames =
        match read {
            Some(path) => parse(&file).map_err(|FormatError { offset, reason }| {
                Error::Content { path: path.clone(), offset: offset as u64, reason }
            })?,
            None => Vec::new(),
        };
    if let (Some(from), Some(to)) = (read, write)
        && is_same_file(from, to)
    {
        return Err(Error::SameFile { path: to.clone() });
    }
    let writer = write.as_deref().map(writer).transpose()?;
    let passes = match repeat {
        _ if frames.is_empty() => 0,
        0 => u64::MAX,
        passes => *passes,
    };
    let statistics = Statistics::default();
    Ok(Pcap { port, file, frames, next: 0, passes, writer, statistics })
}

/// Returns true if both paths name the same file, also through links.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| path.metadata().ok().map(|data| (data.dev(), data.ino()));
    file(one).is_some_and(|one| Some(one) == file(other))
}

fn content(path: &Path) -> Result<Vec<u8>, Error> {
    let mut content = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LONGEST_FILE + 1).read_to_end(&mut content))
        .map_err(|source| Error::Read { path: path.into(), source })?;
    if content.len() as u64 > LONGEST_FILE {
        return Err(Error::TooLong { path: path.into() });
    }
    Ok(content)
}

fn writer(path: &Path) -> Result<Writer, Error> {
    let writer = File::create(path).and_then(Writer::new);
    writer.map_err(|source| Error::Write { path: path.into(), source })
}

/// Returns the positions of the frames in a capture file of either format.
fn parse(file: &[u8]) -> Result<Vec<FrameSpan>, FormatError> {
    if blocks::is_section_header(file) { blocks::parse(file) } else { classic::parse(file) }
}

impl Pcap {
    /// Returns true if all frames of the file were received, with all repetitions.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.passes == 0
    }

    /// Returns the number of frames of the file.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Advances to the next frame or the next pass.
    fn step(&mut self) {
        self.next += 1;
        if self.next == self.frames.len() {
            self.next = 0;
            self.passes -= u64::from(self.passes != u64::MAX);
        }
    }
}

impl Queue for Pcap {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        // Bounded even if no frame of the file fits.
        for _ in 0..burst.room() {
            if self.is_finished() {
                return;
            }
            let Some(frame) = pool.take() else { return };
            let FrameSpan { start, length } = self.frames[self.next];
            match pool.packet(frame, pool.data_offset(), length, self.port) {
                Ok(mut packet) => {
                    packet.bytes_mut().copy_from_slice(&self.file[start..start + length]);
                    if let Err(mut packet) = burst.push(packet) {
                        pool.release(&mut packet); // unreachable: the burst has room
                    }
                }
                Err(frame) => {
                    self.statistics.receive_length += 1;
                    pool.give(frame);
                }
            }
            self.step();
        }
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let mut sent = Sent { taken: packets.len(), ..Sent::default() };
        let time = write::now();
        for packet in packets {
            if packet.len() > 0 && packet.complete_checksum() {
                sent.packets += 1;
                sent.bytes += packet.len() as u64;
                match &mut self.writer {
                    Some(writer) => writer.add(packet.bytes(), time),
                    None => self.statistics.transmit_error += 1,
                }
            }
            pool.release(packet);
        }
        sent
    }

    fn flush(&mut self, _: &mut Pool) -> bool {
        if let Some(writer) = &mut self.writer {
            writer.write_out();
        }
        false
    }

    fn tx_memory(&self) -> TxMemory {
        TxMemory::Any
    }

    fn statistics(&self) -> Statistics {
        let lost = self.writer.as_ref().map_or(0, Writer::lost);
        Statistics { transmit_error: self.statistics.transmit_error + lost, ..self.statistics }
    }

    fn close(&mut self, pool: &mut Pool) {
        self.flush(pool);
        self.statistics = self.statistics();
        self.writer = None;
        self.passes = 0;
    }
}

#[cfg(test)]
mod tests;
