//! Programs that another program calls at its end (tail calls), in a BPF array, by bpf(2).
#![allow(unsafe_code, reason = "bpf(2)")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::array_reader::MapInfo;
use crate::link::call;

// Constants of linux/bpf.h.
const BPF_MAP_LOOKUP_ELEM: libc::c_int = 1;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_TYPE_PROG_ARRAY: u32 = 3;

/// `union bpf_attr` for commands about an element.
#[repr(C)]
struct Element {
    map: u32,
    padding: u32,
    /// Address of the index.
    key: u64,
    /// Address of a descriptor or an id.
    value: u64,
    flags: u64,
}

/// Array of programs. The kernel empties it when its last descriptor is closed and its last pin is
/// removed.
#[derive(Debug)]
pub struct ProgramArray(OwnedFd);

impl ProgramArray {
    /// Takes a map.
    ///
    /// # Errors
    /// Returns `EINVAL` if the map is no array of programs, and the refusal of the kernel.
    pub fn new(map: BorrowedFd<'_>) -> io::Result<Self> {
        if MapInfo::of(map)?.kind != BPF_MAP_TYPE_PROG_ARRAY {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self(map.try_clone_to_owned()?))
    }

    fn request(&self, index: &mut u32, value: &mut u32) -> Element {
        Element {
            map: self.0.as_fd().as_raw_fd() as u32,
            padding: 0,
            key: (&raw mut *index).expose_provenance() as u64,
            value: (&raw mut *value).expose_provenance() as u64,
            flags: 0,
        }
    }

    /// Sets the program at an index.
    ///
    /// # Errors
    /// Returns `EINVAL` if the program is of another type than those that use the array, and the
    /// refusal of the kernel.
    pub fn set(&mut self, mut index: u32, program: BorrowedFd<'_>) -> io::Result<()> {
        let mut descriptor = program.as_raw_fd() as u32;
        let mut request = self.request(&mut index, &mut descriptor);
        // SAFETY: this command reads an index and a descriptor of four octets each, as an array of
        // programs has them. Both outlive the call.
        unsafe { call(BPF_MAP_UPDATE_ELEM, &mut request)? };
        Ok(())
    }

    /// Returns the id of the program at an index.
    ///
    /// # Errors
    /// Returns `ENOENT` if there is none, and the refusal of the kernel.
    pub fn get(&self, mut index: u32) -> io::Result<u32> {
        let mut id = 0;
        let mut request = self.request(&mut index, &mut id);
        // SAFETY: this command reads an index and writes an id of four octets each, as an array of
        // programs has them. Both outlive the call.
        unsafe { call(BPF_MAP_LOOKUP_ELEM, &mut request)? };
        Ok(id)
    }
}
