//! Parts of a memory that were written. Whoever reads the rest makes the kernel provide pages of
//! zeros for it.

use std::ops::Range;
use std::os::fd::AsFd;

use rustix::fs::SeekFrom;

use crate::SharedMemory;

/// Returns the parts of a range of bytes that may contain anything but zeros, in ascending order
/// (`SEEK_DATA` and `SEEK_HOLE`, lseek(2)). Returns the whole range if the kernel knows no parts.
pub(crate) fn written(memory: &SharedMemory, bytes: Range<usize>) -> Vec<Range<usize>> {
    if cfg!(miri) {
        return vec![bytes];
    }
    let seek = |position| rustix::fs::seek(memory.as_fd(), position).map(|at| at as usize);
    let (mut parts, mut from) = (Vec::new(), bytes.start);
    while from < bytes.end {
        let start = match seek(SeekFrom::Data(from as u64)) {
            Ok(start) => start.max(from),
            Err(rustix::io::Errno::NXIO) => break,
            Err(_) => return vec![bytes],
        };
        let Ok(end) = seek(SeekFrom::Hole(start as u64)) else { return vec![bytes] };
        if start >= bytes.end || end <= start {
            break;
        }
        parts.push(start..end.min(bytes.end));
        from = end;
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::memory::page_size;
    use crate::shared_slice::SharedSlice;

    #[test]
    fn only_pages_that_were_written_are_parts() {
        let page = page_size();
        let memory = Arc::new(SharedMemory::create("written", 8 * page).unwrap());
        let words = SharedSlice::<AtomicU64>::new(&memory, 0, memory.len() / 8).unwrap();
        assert_eq!(written(&memory, 0..memory.len()), []);
        for number in [1, 2, 5] {
            words[number * page / 8 + 3].store(1, Ordering::Relaxed);
        }
        assert_eq!(written(&memory, 0..memory.len()), [page..3 * page, 5 * page..6 * page]);
        assert_eq!(
            written(&memory, 2 * page + 8..6 * page).first(),
            Some(&(2 * page + 8..3 * page))
        );
        assert_eq!(written(&memory, 6 * page..8 * page), []);
    }
}
