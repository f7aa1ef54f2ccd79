//! Counter of frames that Linux could not put into a TAP device.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Statistics of all interfaces in the network namespace of the thread that opens the file. Netlink
/// would wait for the lock of all network configuration.
const TABLE: &str = "/proc/thread-self/net/dev";
/// Column of the transmit drops after the name (proc(5)).
const TRANSMIT_DROPPED: usize = 11;
/// Read size in bytes: a line has about 130.
const PIECE: usize = 4096;
/// Maximum number of bytes read: some thousand interfaces.
const MOST: u64 = 1 << 20;

/// Reader of the number of frames that a TAP device dropped because nobody read them.
#[derive(Debug)]
pub(super) struct DropCounter {
    table: File,
    name: String,
    /// Value at the time of a takeover.
    first: u64,
    last: u64,
}

impl DropCounter {
    pub(super) fn new(name: &str) -> io::Result<Self> {
        Ok(Self { table: File::open(TABLE)?, name: name.to_owned(), first: 0, last: 0 })
    }

    /// Creates a counter for a device of another process that counts only later drops.
    pub(super) fn from_now(name: &str) -> io::Result<Self> {
        let mut drops = Self::new(name)?;
        drops.first = drops.read();
        Ok(drops)
    }

    /// Returns the number of drops since the device was created or taken over, or the last known
    /// number if its line is missing.
    pub(super) fn read(&mut self) -> u64 {
        let (mut piece, mut at) = ([0; PIECE], 0);
        while at < MOST {
            let length = self.table.read_at(&mut piece, at).unwrap_or(0);
            // Up to the end of the last whole line; the next piece begins behind it.
            let Some(end) = piece[..length].iter().rposition(|octet| *octet == b'\n') else {
                break;
            };
            let mut lines = piece[..end].split(|octet| *octet == b'\n');
            if let Some(dropped) = lines.find_map(|line| dropped(line, &self.name)) {
                self.last = dropped;
                break;
            }
            at += end as u64 + 1;
        }
        self.last.saturating_sub(self.first)
    }
}

/// Parses the drops from a line, if it belongs to the interface `name`.
fn dropped(line: &[u8], name: &str) -> Option<u64> {
    let (found, numbers) = std::str::from_utf8(line).ok()?.trim_start().split_once(':')?;
    let number = || numbers.split_ascii_whitespace().nth(TRANSMIT_DROPPED)?.parse().ok();
    (found == name).then(number)?
}

#[cfg(test)]
mod tests {
    use super::dropped;

    #[test]
    fn a_line_is_known_by_its_name() {
        let line = b"  fl0: 11 12 13 14 15 16 17 18 21 22 23 24 25 26 27 28";
        assert_eq!(dropped(line, "fl0"), Some(24));
        assert_eq!(dropped(line, "fl1"), None);
        assert_eq!(dropped(b"  fl0: 1 2 3", "fl0"), None);
        assert_eq!(dropped(b" face |bytes    packets errs", "fl0"), None);
    }
}
