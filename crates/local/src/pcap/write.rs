//! Writing pcapng (draft-ietf-opsawg-pcapng).

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use super::pcapng;

/// Holds several bursts of usual frames, and one frame of any length at least.
const SPACE: usize = 512 * 1024;
/// Returns the time in nanoseconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// A pcapng file under way. Errors are counted, not returned: a lane has nobody to tell.
#[derive(Debug)]
pub(super) struct Writer {
    file: File,
    space: Vec<u8>,
    /// Packets in `space`.
    pending: u64,
    lost: u64,
    /// Up to where the file consists of whole blocks.
    whole: u64,
    /// The file ends inside a block, and that could not be mended.
    broken: bool,
}

impl Writer {
    /// Begins the file: a section, an interface.
    pub(super) fn new(mut file: File) -> io::Result<Self> {
        let mut space = Vec::with_capacity(SPACE);
        pcapng::section(&mut space, "", "");
        pcapng::interface(&mut space, &pcapng::Interface::default());
        file.write_all(&space)?;
        let whole = space.len() as u64;
        space.clear();
        Ok(Self { file, space, pending: 0, lost: 0, whole, broken: false })
    }

    /// Returns the number of packets that could not be written.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Adds a packet that was sent at `time`; writes out first if it would not fit.
    pub(super) fn add(&mut self, packet: &[u8], time: u64) {
        let total = pcapng::PACKET + packet.len().next_multiple_of(4);
        if self.space.len() + total > SPACE {
            self.write_out();
        }
        if total > SPACE {
            self.lost += 1;
            return;
        }
        let length = packet.len() as u32;
        let (interface, direction, comment) = (0, None, "");
        let packet = pcapng::Packet { interface, time, bytes: packet, length, direction, comment };
        pcapng::packet(&mut self.space, &packet);
        self.pending += 1;
    }

    /// Hands everything to the file.
    pub(super) fn write_out(&mut self) {
        if self.space.is_empty() {
            return;
        }
        if !self.broken && self.file.write_all(&self.space).is_ok() {
            self.whole += self.space.len() as u64;
        } else {
            self.lost += self.pending;
            self.mend();
        }
        self.space.clear();
        self.pending = 0;
    }

    /// Cuts off a block that was written in part, so that later ones can be read.
    fn mend(&mut self) {
        let cut = self.file.set_len(self.whole);
        let seek = self.file.seek(SeekFrom::Start(self.whole));
        self.broken = cut.is_err() || seek.is_err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_takes_nothing_is_counted_and_not_waited_for() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut writer = Writer {
            file: full,
            space: Vec::with_capacity(SPACE),
            pending: 0,
            lost: 0,
            whole: 0,
            broken: false,
        };
        for number in 0..10 {
            writer.add(&[1; 60], number);
            writer.write_out();
        }
        assert_eq!((writer.lost(), writer.space.len()), (10, 0));
        assert_eq!(writer.space.capacity(), SPACE);
    }
}
