//! Generation: one list of rules, compiled, as it lies in an area of the memory.
//!
//! ```text
//! byte 0   GenerationHeader
//!     ..   parts, each aligned to a cache line, where the header says
//! ```
#![allow(unsafe_code, reason = "the current area as plain bytes")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::cuts::{Root, TREES};
use super::intervals::LEVELS;
use crate::claims::WriterClaim;
use crate::header::Header;
use crate::layout::CACHE_LINE;
use crate::shared_slice::SharedSlice;
use crate::{Guard, SharedMemory, SharedWords, TableError};

/// Number of areas.
pub(crate) const AREAS: usize = 2;
/// Number of fields that are searched: addresses and ports.
pub(crate) const SEARCHED: usize = 4;

/// Array inside a generation.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Extent {
    /// Offset from the generation's first byte, in bytes.
    pub(crate) offset: u32,
    /// Number of elements.
    pub(crate) count: u32,
}

/// Search tree of a field.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct SearchHeader {
    pub(crate) nodes: Extent,
    pub(crate) levels: u64,
    pub(crate) starts: [u32; LEVELS],
}

/// Structures of the rules of an address family.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct FamilyHeader {
    /// Values of the rules, in order of priority.
    pub(crate) values: Extent,
    /// Search trees of source, destination, source port, destination port.
    pub(crate) searches: [SearchHeader; SEARCHED],
    /// Intervals of all protocols, then of all tags: 512 words of 16 bits.
    pub(crate) octets: Extent,
    /// Entries of all decision trees.
    pub(crate) entries: Extent,
    pub(crate) blocks: Extent,
    /// Number of decision trees.
    pub(crate) trees: u64,
    pub(crate) roots: [Root; TREES],
}

/// Header of a generation.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct GenerationHeader {
    /// Numbers of rules: IPv4, IPv6.
    pub(crate) rules: [u32; 2],
    /// The application's form of the list, in bytes.
    pub(crate) source: Extent,
    /// IPv4, IPv6.
    pub(crate) families: [FamilyHeader; 2],
}

/// Image of a generation that is being made.
#[derive(Debug)]
pub(crate) struct Image {
    bytes: Vec<u8>,
    limit: usize,
}

impl Image {
    /// Creates an image with room for its header, which may grow to `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { bytes: vec![0; size_of::<GenerationHeader>()], limit }
    }

    /// Appends an array.
    ///
    /// # Errors
    /// Returns the size that it would need if that is too much.
    pub(crate) fn append<T: IntoBytes + Immutable>(&mut self, all: &[T]) -> Result<Extent, usize> {
        let offset = self.bytes.len().next_multiple_of(CACHE_LINE);
        let end = offset + size_of_val(all);
        if end > self.limit {
            return Err(end);
        }
        self.bytes.resize(offset, 0);
        self.bytes.extend_from_slice(all.as_bytes());
        Ok(Extent { offset: offset as u32, count: all.len() as u32 })
    }

    /// Returns the number of bytes that are left.
    pub(crate) fn room(&self) -> usize {
        self.limit.saturating_sub(self.bytes.len())
    }

    /// Sets the header and returns the bytes.
    pub(crate) fn finish(mut self, header: &GenerationHeader) -> Vec<u8> {
        self.bytes[..size_of::<GenerationHeader>()].copy_from_slice(header.as_bytes());
        self.bytes
    }
}

/// Areas of a classifier.
#[derive(Clone, Debug)]
pub(crate) struct Areas {
    current: SharedSlice<AtomicU64>,
    start: NonNull<u8>,
    size: usize,
    /// Keeps the areas mapped.
    memory: Arc<SharedMemory>,
}

// SAFETY: the pointer is into the mapping, which any thread may use and `memory` keeps. Areas are
// shared as plain bytes only while nobody writes them (`Guard`).
unsafe impl Send for Areas {}
// SAFETY: as above.
unsafe impl Sync for Areas {}

impl Areas {
    pub(crate) fn new(header: &Header) -> Result<Self, TableError> {
        let (layout, memory) = (header.layout, &header.memory);
        let current = header.part(SharedSlice::new(memory, layout.index, 1))?;
        let end = layout.data + AREAS * layout.stride;
        header.part((end <= memory.len()).then_some(()))?;
        // SAFETY: inside the mapping, as checked above.
        let start = unsafe { memory.start().add(layout.data) };
        Ok(Self { current, start, size: layout.stride, memory: Arc::clone(memory) })
    }

    /// Returns the current generation, or `None` before the first one.
    #[inline]
    pub(crate) fn generation<'t>(&'t self, _guard: &'t Guard) -> Option<Generation<'t>> {
        let area = (self.current[0].load(Ordering::Relaxed) as usize).wrapping_sub(1);
        if area >= AREAS {
            return None;
        }
        // Orders the reads of the generation after the load of its number. A fence instead of an
        // acquiring load: memory that is mapped read-only allows relaxed loads only.
        fence(Ordering::Acquire);
        // SAFETY: inside the mapping (`new`), which `self` keeps. The area was published before its
        // number was read, so it is not written until the lane has finished its turn, which the
        // guard's borrow excludes for 't.
        let bytes = unsafe {
            std::slice::from_raw_parts(self.start.add(area * self.size).as_ptr(), self.size)
        };
        Generation::new(bytes)
    }
}

/// Areas of a classifier, for its writer.
#[derive(Debug)]
pub(crate) struct AreaWriter {
    /// Dropped before `areas`, which keep the memory mapped.
    _claim: WriterClaim,
    areas: Areas,
    words: SharedWords,
    /// Offset of the first area, in words.
    data: usize,
    guard: Guard,
}

impl AreaWriter {
    /// Returns an error if the memory already has a writer.
    pub(crate) fn new(header: &Header, areas: Areas) -> Result<Self, TableError> {
        let claim = header.writing(areas.memory.mapping().claim_writing())?;
        let words = SharedWords::new(&areas.memory, 0, areas.memory.len() / 8);
        let words = header.part(words.ok())?;
        // SAFETY: the guard is lent by `generation` only, together with `self`, and areas are
        // written only through a `&mut self`, of which the claim allows one per table. So nobody
        // writes while the guard is borrowed.
        let guard = unsafe { Guard::new() };
        Ok(Self { _claim: claim, areas, words, data: header.layout.data / 8, guard })
    }

    /// Returns the current generation, or `None` before the first one.
    pub(crate) fn generation(&self) -> Option<Generation<'_>> {
        self.areas.generation(&self.guard)
    }

    /// Returns the number of the current area, if it exists.
    pub(crate) fn current(&self) -> Option<u32> {
        let area = (self.areas.current[0].load(Ordering::Relaxed) as usize).checked_sub(1)?;
        (area < AREAS).then_some(area as u32)
    }

    /// Writes a generation to an area that no lane reads, and publishes it.
    pub(crate) fn publish(&mut self, area: u32, image: &[u8]) {
        self.words.store_bytes(self.data + area as usize * self.areas.size / 8, image);
        self.areas.current[0].store(u64::from(area) + 1, Ordering::Release);
    }
}

/// Generation, as readers see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Generation<'t> {
    bytes: &'t [u8],
    pub(crate) header: &'t GenerationHeader,
}

impl<'t> Generation<'t> {
    fn new(bytes: &'t [u8]) -> Option<Self> {
        let (header, _) = GenerationHeader::ref_from_prefix(bytes).ok()?;
        Some(Self { bytes, header })
    }

    /// Returns an array, or an empty one if it is not inside the generation.
    #[inline]
    pub(crate) fn array<T: FromBytes + Immutable>(&self, extent: Extent) -> &'t [T] {
        let part = self.bytes.get(extent.offset as usize..).unwrap_or_default();
        let array = <[T]>::ref_from_prefix_with_elems(part, extent.count as usize);
        array.map_or(&[], |(array, _)| array)
    }
}
