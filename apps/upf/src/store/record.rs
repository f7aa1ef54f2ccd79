//! What the tables of the slow half hold: plain old data of fixed size.
//!
//! Values are 8 bytes short of a power of two or a multiple of a cache line, since a slot of an
//! array has 8 bytes of its own: a session's record lies on four lines.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a session's encoding that its record has room for.
pub const BODY: usize = 208;
/// Bytes of what did not fit elsewhere, in one part.
pub const PART: usize = 232;
/// Bytes of an answer that its record has room for.
pub const ANSWER: usize = 128;

/// `Array<SessionRecord>` by place. What is in it now is what is true.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SessionRecord {
    /// Its number at this end.
    pub seid: u64,
    /// Its version.
    pub version: u64,
    /// What the next tunnel identifier of this place begins with.
    pub generation: u32,
    /// 1 + the number of the first part; 0: it has none.
    pub part: u32,
    /// A hash of the subscriber's identifier, to be found by; 0: it has none.
    pub subscriber: u32,
    /// Bytes of the encoding.
    pub length: u32,
    /// The place of the association.
    pub peer: u16,
    /// The version of the encoding.
    pub format: u8,
    /// Bit 0: the session is gone, and the encoding is when it went.
    pub flags: u8,
    /// Zero.
    pub reserved: u32,
    /// How the encoding begins.
    pub body: [u8; BODY],
}

/// `Array<SessionPart>`: further bytes of a session or of an answer.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SessionPart {
    /// 1 + the number of the next part; 0: this is the last.
    pub next: u32,
    /// The bytes of `bytes` that count.
    pub length: u32,
    /// The version of the session that it was written for.
    pub version: u64,
    /// The bytes.
    pub bytes: [u8; PART],
}

/// `Array<AnswerRecord>`, a ring: answers that may have to be repeated.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AnswerRecord {
    /// When it was made: nanoseconds of `CLOCK_MONOTONIC`.
    pub at: u64,
    /// It counts if the session's record has this version or a later one.
    pub version: u64,
    /// The session; all ones: it belongs to none, and counts.
    pub session: u32,
    /// The sequence number of the request.
    pub sequence: u32,
    /// 1 + the number of the part that goes on; 0: all of it is here.
    pub part: u32,
    /// Bytes of the answer.
    pub length: u32,
    /// Who asked; an IPv4 address is mapped into IPv6 (RFC 4291 clause 2.5.5.2).
    pub peer: [u8; 16],
    /// The port that the request came from.
    pub port: u16,
    /// The type of the request.
    pub message_type: u8,
    /// Zero.
    pub reserved: u8,
    /// The digest of the request.
    pub digest: u32,
    /// The answer, or how it begins.
    pub bytes: [u8; ANSWER],
}

const _: () = assert!(size_of::<SessionRecord>() == 248 && size_of::<SessionPart>() == 248);
const _: () = assert!(size_of::<AnswerRecord>() == 184);
