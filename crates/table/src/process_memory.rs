//! Private memory and code of this process: populated before the first packet, and locked.
//!
//! A lane also uses memory that is nobody's in particular: the heap of the application and of the
//! drivers, the stacks, the code of the program and its libraries. [`ProcessMemory`] finds all of
//! it in `/proc/self/smaps` (kernel: Documentation/filesystems/proc.rst).

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use rustix::io::Errno;

use crate::memory::{Populate, lock_range, map_large_blocks, populate_range};

/// Largest mapping without reserved memory (`MAP_NORESERVE`) that is taken for memory in use, in
/// bytes: a heap of the C library. Larger ones reserve addresses only.
const MAX_UNRESERVED: usize = 64 << 20;

/// Mappings of this process that its lanes may use.
#[derive(Debug)]
pub struct ProcessMemory {
    mappings: Vec<Mapping>,
}

/// Mapping that a lane may use.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapping {
    addresses: Range<usize>,
    kind: Kind,
    /// Bytes that have no page yet.
    missing: usize,
}

/// Kind of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Heap, stack or data, which only this process has.
    Private,
    /// Code and constants of the program or a library.
    Code,
    /// Memory that can be passed to another process, which is populated where it is created.
    Shared,
}

impl ProcessMemory {
    /// Makes the heap return large blocks that are freed from now on. A start needs tens of
    /// megabytes for a moment (the kernel's types, which the loader of BPF programs reads), and
    /// [`populate`](Self::populate) would provide the pages of what the heap keeps of them.
    pub fn return_freed() {
        map_large_blocks();
    }

    /// Reads the mappings of this process.
    ///
    /// # Errors
    /// Returns an error if `/proc` cannot be read.
    pub fn read() -> io::Result<Self> {
        Ok(Self { mappings: mappings(&std::fs::read_to_string("/proc/self/smaps")?) })
    }

    /// Returns the size of the private memory that has no page yet, in bytes.
    #[must_use]
    pub fn missing(&self) -> usize {
        let private = self.mappings.iter().filter(|mapping| mapping.kind == Kind::Private);
        private.map(|mapping| mapping.missing).sum()
    }

    /// Returns the size of all mappings, which [`lock`](Self::lock) locks, in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.mappings.iter().map(|mapping| mapping.addresses.len()).sum()
    }

    /// Provides the pages of private memory, and reads code and constants. A mapping that has ended
    /// since [`read`](Self::read) is passed over.
    ///
    /// # Errors
    /// Returns the first error. The other mappings are populated nevertheless.
    pub fn populate(&self) -> io::Result<()> {
        let mut result = Ok(());
        for mapping in &self.mappings {
            let populate = match mapping.kind {
                Kind::Private => Populate::Write,
                Kind::Code => Populate::Read,
                Kind::Shared => continue,
            };
            match populate_range(&mapping.addresses, populate) {
                // ENOMEM: not mapped any more. EFAULT: behind the end of its file.
                Ok(()) | Err(Errno::NOMEM | Errno::FAULT) => {}
                Err(error) => result = result.and(Err(error.into())),
            }
        }
        result
    }

    /// Locks all mappings into memory: a page that is resident, or becomes so, stays
    /// (`MLOCK_ONFAULT`).
    ///
    /// # Errors
    /// Returns the first error, which with a small `RLIMIT_MEMLOCK` is ENOMEM or EPERM. Mappings
    /// before it stay locked.
    pub fn lock(&self) -> io::Result<()> {
        self.mappings.iter().try_for_each(|mapping| Ok(lock_range(&mapping.addresses)?))
    }
}

/// Properties of a mapping, as far as they are read.
#[derive(Default)]
struct Entry<'a> {
    addresses: Range<usize>,
    permissions: &'a str,
    path: &'a str,
    resident: usize,
    flags: &'a str,
}

impl Entry<'_> {
    fn has_flag(&self, flag: &str) -> bool {
        self.flags.split_ascii_whitespace().any(|it| it == flag)
    }

    /// Returns the kind, or `None` for memory that no lane uses or the kernel does not page.
    fn kind(&self, programs: &BTreeSet<&str>) -> Option<Kind> {
        let unpaged = ["io", "pf", "ht"].iter().any(|flag| self.has_flag(flag));
        if unpaged || self.path.starts_with("[v") {
            return None;
        }
        let is_shared = self.permissions.ends_with('s');
        if is_shared {
            return self.path.starts_with("/memfd:").then_some(Kind::Shared);
        }
        if self.permissions.starts_with("rw") {
            let is_reserve = self.has_flag("nr") && self.addresses.len() > MAX_UNRESERVED;
            return (!is_reserve).then_some(Kind::Private);
        }
        (self.permissions.starts_with('r') && programs.contains(self.path)).then_some(Kind::Code)
    }
}

/// Returns the mappings in the text of `/proc/PID/smaps` that lanes may use.
fn mappings(smaps: &str) -> Vec<Mapping> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for line in smaps.lines() {
        if let Some(entry) = head(line) {
            entries.push(entry);
        } else if let (Some(entry), Some((name, value))) =
            (entries.last_mut(), line.split_once(':'))
        {
            match name {
                "Rss" => entry.resident = kibibytes(value),
                "VmFlags" => entry.flags = value,
                _ => {}
            }
        }
    }
    // The files that the process executes.
    let executed = entries.iter().filter(|entry| entry.permissions.contains('x'));
    let programs: BTreeSet<&str> =
        executed.map(|entry| entry.path).filter(|path| path.starts_with('/')).collect();
    let used = entries.iter().filter_map(|entry| {
        let (kind, addresses) = (entry.kind(&programs)?, entry.addresses.clone());
        let missing = addresses.len().saturating_sub(entry.resident);
        Some(Mapping { addresses, kind, missing })
    });
    used.collect()
}

/// Parses the first line of an entry: `START-END PERMISSIONS OFFSET DEVICE INODE PATH`.
fn head(line: &str) -> Option<Entry<'_>> {
    let (addresses, rest) = line.split_once(' ')?;
    let (start, end) = addresses.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let mut words = rest.splitn(5, ' ');
    let permissions = words.next()?;
    let path = words.nth(3).unwrap_or_default();
    let path = path.trim_start_matches(|letter: char| letter == ' ' || letter.is_ascii_digit());
    Some(Entry {
        addresses: address(start)?..address(end)?,
        permissions,
        path: path.trim_start(),
        ..Entry::default()
    })
}

/// Parses a size such as `  12 kB`, in bytes.
fn kibibytes(value: &str) -> usize {
    let number = value.split_ascii_whitespace().next().and_then(|word| word.parse().ok());
    number.unwrap_or(0_usize) << 10
}

/// Returns the minor page faults of the calling thread (proc(5), `stat`).
#[cfg(test)]
pub(crate) fn page_faults() -> u64 {
    // The first call can fault itself.
    let read = || std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    drop(read());
    let text = read();
    let (_, fields) = text.rsplit_once(')').unwrap();
    fields.split_ascii_whitespace().nth(7).unwrap().parse().unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_told_apart() {
        let smaps = "\
00400000-00402000 r--p 00000000 fe:00 1182                               /usr/bin/app
Rss:                   4 kB
VmFlags: rd mr mw me sd
00402000-00404000 r-xp 00002000 fe:00 1182                               /usr/bin/app
Rss:                   8 kB
VmFlags: rd ex mr mw me sd
00404000-00405000 rw-p 00004000 fe:00 1182                               /usr/bin/app
Rss:                   4 kB
VmFlags: rd wr mr mw me ac sd
01000000-01010000 rw-p 00000000 00:00 0                                  [heap]
Rss:                  16 kB
VmFlags: rd wr mr mw me ac sd
7f0000000000-7f0000021000 rw-p 00000000 00:00 0
Rss:                   4 kB
VmFlags: rd wr mr mw me nr sd
7f0000021000-7f0004000000 ---p 00000000 00:00 0
Rss:                   0 kB
VmFlags: mr mw me nr sd
7e0000000000-7e8000000000 rw-p 00000000 00:00 0
Rss:                   0 kB
VmFlags: rd wr mr mw me nr sd
7f1000000000-7f1000010000 rw-s 00000000 00:01 2051          /memfd:fastlane-pool (deleted)
Rss:                   0 kB
VmFlags: rd wr sh mr mw me ms sd
7f1000020000-7f1000030000 rw-s 00000000 00:09 7             socket:[77]
Rss:                   0 kB
VmFlags: rd wr sh mr mw me ms sd
7f2000000000-7f2000010000 r--p 00000000 fe:00 99                         /data/large file
Rss:                   0 kB
VmFlags: rd mr mw me sd
7ffc00000000-7ffc00004000 r--p 00000000 00:00 0                          [vvar]
Rss:                   0 kB
VmFlags: rd mr pf io de dd sd
";
        let found = mappings(smaps);
        let kinds: Vec<_> =
            found.iter().map(|it| (it.addresses.start, it.kind, it.missing)).collect();
        assert_eq!(
            kinds,
            [
                (0x40_0000, Kind::Code, 0x1000),
                (0x40_2000, Kind::Code, 0),
                (0x40_4000, Kind::Private, 0),
                (0x100_0000, Kind::Private, 0xc000),
                (0x7f00_0000_0000, Kind::Private, 0x2_0000),
                (0x7f10_0000_0000, Kind::Shared, 0x1_0000),
            ]
        );
    }

    #[test]
    fn private_memory_is_touched_without_a_page_fault_once_populated() {
        // Zeroed memory of more than 32 MiB is mapped anew and not touched: mallopt(3),
        // `M_MMAP_THRESHOLD`. Less may come from a heap that other tests have used.
        const LENGTH: usize = 40 << 20;
        let mut heap = vec![0_u8; LENGTH];
        let memory = ProcessMemory::read().unwrap();
        let range = heap.as_ptr().addr()..heap.as_ptr().addr() + LENGTH;
        let inside = |mapping: &&Mapping| {
            mapping.addresses.start <= range.start && range.end <= mapping.addresses.end
        };
        let mapping = memory.mappings.iter().find(inside).expect("the heap is found").clone();
        assert!(mapping.missing >= LENGTH / 2, "{mapping:?}");
        assert!(memory.missing() >= mapping.missing);
        ProcessMemory { mappings: vec![mapping] }.populate().unwrap();
        let before = page_faults();
        heap.iter_mut().step_by(4096).for_each(|byte| *byte = std::hint::black_box(1));
        assert_eq!(page_faults() - before, 0);
    }
}
