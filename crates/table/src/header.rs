//! Header: the first page of a table.
//!
//! A table is little-endian. It contains byte offsets from its first byte and slot numbers, never
//! pointers. The header consists of 64-bit words:
//!
//! ```text
//!  0 magic "FLtable1"    8 groups                16 size of a slot       24 next generation
//!  1 layout version: 2   9 lanes with a copy     17 buckets              25 writer's process id
//!  2 kind (Kind)        10 version of the types  18 overflow buckets     32..39 name, zero padded
//!  3 bytes of a key     11 hash seed             19 offset of the index
//!  4 bytes of a value   12 hash seed             20 offset of the data
//!  5 align of a value   13 (zero)                21 offset of the routes
//!  6 capacity           14 (zero)                22 length
//!  7 (zero)             15 slots                 23 generation
//! ```
//! Words 0 to 22 and the name never change; the magic is written last. `next generation` is 0 until
//! a writer has created a replacement table with that generation. A reader then gets the
//! replacement from whoever passed it this table. The writer's process id is for diagnosis only.

use std::sync::Arc;

use crate::layout::{Layout, PAGE};
use crate::spec::{Kind, Spec};
use crate::{SharedMemory, SharedWords, TableError};

const MAGIC: u64 = u64::from_le_bytes(*b"FLtable1");
const VERSION: u64 = 2;
/// Number of the first layout word.
const LAYOUT: usize = 15;
const GENERATION: usize = 23;
const NEXT_GENERATION: usize = 24;
const WRITER: usize = 25;
const NAME: usize = 32;
const NAME_BYTES: usize = 64;

/// Header of a table, checked against its memory.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) spec: Spec,
    pub(crate) layout: Layout,
    pub(crate) memory: Arc<SharedMemory>,
    /// Offset of the table in the memory, in bytes.
    pub(crate) base: usize,
    /// True if the table never had a writer, so that no lane can have read an entry.
    pub(crate) fresh: bool,
    words: SharedWords,
}

fn fields(spec: &Spec) -> [u64; 12] {
    [
        spec.kind as u64,
        spec.key as u64,
        spec.value as u64,
        spec.align as u64,
        spec.capacity as u64,
        0,
        spec.groups as u64,
        spec.lanes as u64,
        spec.type_hash,
        spec.seed[0],
        spec.seed[1],
        0,
    ]
}

impl Header {
    /// Writes the header of a new table at byte `base` of zeroed memory.
    pub(crate) fn write(
        memory: &Arc<SharedMemory>,
        base: usize,
        spec: &Spec,
        layout: &Layout,
    ) -> Result<(), TableError> {
        let words = SharedWords::new(memory, base / 8, PAGE / 8)
            .map_err(|_| TableError::NotATable("it has no room for a header".into()))?;
        let fields = [VERSION].into_iter().chain(fields(spec));
        for (index, field) in fields.enumerate() {
            words.store(1 + index, field);
        }
        for (index, (_, word)) in layout.words().into_iter().enumerate() {
            words.store(LAYOUT + index, word);
        }
        words.store(GENERATION, 1);
        let mut name = [0; NAME_BYTES];
        let bytes = spec.name.floor_char_boundary(NAME_BYTES - 1);
        name[..bytes].copy_from_slice(&spec.name.as_bytes()[..bytes]);
        words.store_bytes(NAME, &name);
        words.store_release(0, MAGIC);
        Ok(())
    }

    /// Reads and checks the header at byte `base`.
    pub(crate) fn read(memory: &Arc<SharedMemory>, base: usize) -> Result<Self, TableError> {
        let bad = |reason: &str| TableError::NotATable(reason.to_owned());
        let words =
            SharedWords::new(memory, base / 8, PAGE / 8).map_err(|_| bad("it has no header"))?;
        if words.load_acquire(0) != MAGIC {
            return Err(bad("wrong magic"));
        }
        if words.load(1) != VERSION {
            let reason = format!("layout version {}, expected {VERSION}", words.load(1));
            return Err(TableError::NotATable(reason));
        }
        let kind = Kind::from_word(words.load(2)).ok_or_else(|| bad("unknown kind"))?;
        let size = |index: usize| usize::try_from(words.load(index)).unwrap_or(usize::MAX);
        let mut name = Vec::new();
        words.load_bytes(NAME, NAME_BYTES / 8, &mut name);
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        let spec = Spec {
            name: String::from_utf8_lossy(&name[..end]).into_owned(),
            kind,
            key: size(3),
            value: size(4),
            align: size(5),
            capacity: size(6),
            groups: size(8),
            lanes: size(9),
            type_hash: words.load(10),
            seed: [words.load(11), words.load(12)],
        };
        let layout = Layout::of(&spec)?;
        for (index, (field, expected)) in layout.words().into_iter().enumerate() {
            let found = words.load(LAYOUT + index);
            if found != expected {
                return Err(TableError::Differs { table: spec.name, field, found, expected });
            }
        }
        if memory.len().saturating_sub(base) < layout.length {
            return Err(bad("the memory is smaller than its header says"));
        }
        let fresh = words.load(WRITER) == 0;
        Ok(Self { spec, layout, memory: Arc::clone(memory), base, fresh, words })
    }

    /// Reads the header of a table whose kind, key, value and alignment must equal those of
    /// `expected`.
    pub(crate) fn expect(
        memory: &Arc<SharedMemory>,
        base: usize,
        expected: &Spec,
    ) -> Result<Self, TableError> {
        let header = Self::read(memory, base)?;
        let names = ["kind", "key size", "value size", "alignment of a value"];
        let both = fields(&header.spec).into_iter().zip(fields(expected));
        for (field, (found, expected)) in names.into_iter().zip(both) {
            if found != expected {
                let table = header.spec.name;
                return Err(TableError::Differs { table, field, found, expected });
            }
        }
        Ok(header)
    }

    /// Reads the header as [`expect`](Self::expect) does, for a writer. Fails on read-only memory
    /// and records the process id.
    pub(crate) fn expect_writable(
        memory: &Arc<SharedMemory>,
        base: usize,
        expected: &Spec,
    ) -> Result<Self, TableError> {
        let header = Self::expect(memory, base, expected)?;
        if !memory.is_writable() {
            return Err(TableError::ReadOnly(header.spec.name));
        }
        header.words.store(WRITER, u64::from(std::process::id()));
        Ok(header)
    }

    pub(crate) fn name(&self) -> &str {
        &self.spec.name
    }

    pub(crate) fn generation(&self) -> u64 {
        self.words.load(GENERATION)
    }

    /// Returns the generation of the table that replaces this one, or 0 if none does.
    pub(crate) fn next_generation(&self) -> u64 {
        self.words.load(NEXT_GENERATION)
    }

    pub(crate) fn set_generation(&self, generation: u64) {
        self.words.store(GENERATION, generation);
    }

    pub(crate) fn supersede(&self, next: u64) {
        self.words.store_release(NEXT_GENERATION, next);
    }

    /// Returns the writer of the slots, or an error if the memory has another one.
    pub(crate) fn writing<T>(&self, slots: Option<T>) -> Result<T, TableError> {
        slots.ok_or_else(|| TableError::HasWriter(self.name().to_owned()))
    }

    /// Returns a part of the table, or an error if it does not lie inside the memory.
    pub(crate) fn part<T>(&self, part: Option<T>) -> Result<T, TableError> {
        part.ok_or_else(|| TableError::NotATable("its parts are not inside its memory".into()))
    }
}
