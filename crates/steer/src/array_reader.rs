//! Consecutive elements of a BPF array in one system call, by bpf(2): the loader reads one element
//! at a time.
#![allow(unsafe_code, reason = "bpf(2)")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::link::{GetInfo, OBJ_GET_INFO_BY_FD, call};

// Constants of linux/bpf.h.
const BPF_MAP_LOOKUP_BATCH: libc::c_int = 24;
const BPF_MAP_TYPE_ARRAY: u32 = 2;

/// First fields of `struct bpf_map_info`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct MapInfo {
    pub(crate) kind: u32,
    id: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

impl MapInfo {
    /// Returns what the kernel tells of a map.
    ///
    /// # Errors
    /// Returns the refusal of the kernel.
    pub(crate) fn of(map: BorrowedFd<'_>) -> io::Result<Self> {
        let mut info = Self::default();
        let mut request = GetInfo {
            descriptor: map.as_raw_fd() as u32,
            length: size_of::<Self>() as u32,
            info: (&raw mut info).expose_provenance() as u64,
        };
        // SAFETY: this command writes at most `length` octets to `info`, which outlives the call.
        // Every bit pattern is a valid value of it.
        unsafe { call(OBJ_GET_INFO_BY_FD, &mut request)? };
        Ok(info)
    }
}

/// `union bpf_attr` for BPF_MAP_LOOKUP_BATCH. The first four are addresses.
#[repr(C)]
struct Batch {
    /// Index before the first one; 0: begin with the first element.
    after: u64,
    last: u64,
    indexes: u64,
    values: u64,
    count: u32,
    map: u32,
    element_flags: u64,
    flags: u64,
}

/// Reader of a BPF array whose elements are `N` words.
#[derive(Debug)]
pub struct ArrayReader<const N: usize> {
    map: OwnedFd,
    length: u32,
}

impl<const N: usize> ArrayReader<N> {
    /// Creates a reader of a map.
    ///
    /// # Errors
    /// Returns `EINVAL` if the map is no array of such elements, and the refusal of the kernel.
    pub fn new(map: BorrowedFd<'_>) -> io::Result<Self> {
        let info = MapInfo::of(map)?;
        let is_such = info.kind == BPF_MAP_TYPE_ARRAY
            && info.key_size as usize == size_of::<u32>()
            && info.value_size as usize == size_of::<[u64; N]>();
        if !is_such {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self { map: map.try_clone_to_owned()?, length: info.max_entries })
    }

    /// Returns the number of elements of the array.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "the kernel has no empty arrays")]
    pub fn len(&self) -> u32 {
        self.length
    }

    /// Copies the elements from index `first` on to `values`. A program may be writing them: each
    /// is read by words, not at once.
    ///
    /// # Errors
    /// Returns `ENOENT` if the array has fewer elements, and the refusal of the kernel.
    pub fn read(&self, first: u32, values: &mut [[u64; N]]) -> io::Result<()> {
        let count = u32::try_from(values.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let end = first.checked_add(count);
        if end.is_none_or(|end| end > self.length) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if count == 0 {
            return Ok(());
        }
        let (mut after, mut last) = (first.wrapping_sub(1), 0_u32);
        let mut indexes = vec![0_u32; values.len()];
        let mut request = Batch {
            after: if first == 0 { 0 } else { (&raw mut after).expose_provenance() as u64 },
            last: (&raw mut last).expose_provenance() as u64,
            indexes: indexes.as_mut_ptr().expose_provenance() as u64,
            values: values.as_mut_ptr().expose_provenance() as u64,
            count,
            map: self.map.as_fd().as_raw_fd() as u32,
            element_flags: 0,
            flags: 0,
        };
        // SAFETY: this command reads `after` and writes an index to `last`, at most `count` indexes
        // and as many elements. All outlive the call; `new` has checked the sizes of both, and all
        // bit patterns are valid.
        unsafe { call(BPF_MAP_LOOKUP_BATCH, &mut request)? };
        if request.count == count { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}
