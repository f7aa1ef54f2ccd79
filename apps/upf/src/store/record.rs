//! Records of the control plane process: plain old data of fixed size.
//!
//! Values are 8 bytes short of a power of two or a multiple of a cache line, because an array slot
//! has 8 bytes of its own. A session record lies on four cache lines.

use std::ops::DerefMut;

use fastlane::table::{ArrayWriter, TableError, Value};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a session's encoding that fit its record.
pub const BODY: usize = 208;
/// Bytes of one part.
pub const PART: usize = 232;
/// Bytes of a response that fit its record.
pub const ANSWER: usize = 128;

/// Writer of an array, owned or shared.
pub type Cells<V> = Box<dyn DerefMut<Target = ArrayWriter<V>> + Send>;

/// Array with a failpoint before each operation.
pub(super) struct Array<V: 'static>(pub(super) Cells<V>);

impl<V: Value> Array<V> {
    pub(super) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    pub(super) fn get(&self, index: u32) -> Option<&V> {
        self.0.get(index as usize)
    }

    pub(super) fn set(&mut self, index: u32, value: &V) -> Result<(), TableError> {
        #[cfg(test)]
        crate::failpoint::fail_if_due();
        self.0.set(index as usize, value)
    }

    pub(super) fn clear(&mut self, index: u32) {
        #[cfg(test)]
        crate::failpoint::fail_if_due();
        self.0.clear(index as usize);
    }
}

/// Session record, in an `Array<SessionRecord>` by session index. Its current value is the truth.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SessionRecord {
    /// UP SEID.
    pub seid: u64,
    /// Version of the session.
    pub version: u64,
    /// Generation of the next TEID of this index.
    pub generation: u32,
    /// 1 + the index of the first part; 0 if there is none.
    pub part: u32,
    /// Hash of the SUPI, for lookup; 0 if there is none.
    pub subscriber: u32,
    /// Length of the encoding in bytes.
    pub length: u32,
    /// Association index.
    pub peer: u16,
    /// Version of the encoding.
    pub format: u8,
    /// Bit 0: the record is a tombstone, and `body` describes the removed session.
    pub flags: u8,
    /// Reserved, zero.
    pub reserved: u32,
    /// First bytes of the encoding.
    pub body: [u8; BODY],
}

/// Further bytes of a session or of a response, in an `Array<SessionPart>`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SessionPart {
    /// 1 + the index of the next part; 0 for the last part.
    pub next: u32,
    /// Number of valid bytes in `bytes`.
    pub length: u32,
    /// Version of the session that it was written for.
    pub version: u64,
    /// Content of the part.
    pub bytes: [u8; PART],
}

/// Response that may be repeated, in an `Array<ResponseRecord>`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ResponseRecord {
    /// Time when it was sent, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at: u64,
    /// Version of the session from which on the response is valid.
    pub version: u64,
    /// Session index; all ones for a response that belongs to no session and is valid.
    pub session: u32,
    /// Sequence number of the request.
    pub sequence: u32,
    /// 1 + the index of the part with further bytes; 0 if there is none.
    pub part: u32,
    /// Length of the response in bytes.
    pub length: u32,
    /// Source address of the request; IPv4 is mapped into IPv6 (RFC 4291 clause 2.5.5.2).
    pub peer: [u8; 16],
    /// Source port of the request.
    pub port: u16,
    /// Message type of the request.
    pub message_type: u8,
    /// Reserved, zero.
    pub reserved: u8,
    /// Digest of the request.
    pub digest: u32,
    /// First bytes of the response.
    pub bytes: [u8; ANSWER],
}

const _: () = assert!(size_of::<SessionRecord>() == 248 && size_of::<SessionPart>() == 248);
const _: () = assert!(size_of::<ResponseRecord>() == 184);
