//! Storage of sessions and responses that survives the death of this process.
//!
//! A session's record is the truth. Storing it is the commit, and the rules that lanes read follow
//! from it. Before the commit, the data that the record refers to is written to unused memory: free
//! parts, and the response to the request with the version that the session is about to have. A
//! response counts only if the record has reached that version. So this process may be killed
//! between any two stores. Its successor finds the session before or after the request, and in the
//! latter case the matching response, byte for byte.
//!
//! Versions increase with each commit of any session. A removed session leaves a tombstone until
//! its index is reused. The tombstone says which TEIDs the index has used, and since when it is
//! free.
//!
//! Memory for 2^20 typical sessions: records 4 + 288 MiB (an eighth more slots than indices, which
//! the exchange of values needs), 720,000 responses 3 + 147 MiB (those of N1 times T1 at 80,000 per
//! second), no parts. The heap holds 10 MiB of index for responses, and one bit per part. Of
//! responses and parts, only as much memory is touched as is in use: at the rate of one thread 214
//! octets per request of the last N1 times T1.

mod codec;
pub mod record;
mod responses;

use fastlane::table::TableError;
use zerocopy::FromZeros;

use self::codec::{FORMAT, decode, encode};
pub use self::record::{AllocatedAddresses, Cells};
use self::record::{Array, BODY, PartChains, ResponseRecord, SessionPart, SessionRecord};
use self::responses::{NO_SESSION, NewResponse, Responses};
use crate::session::{Session, SessionIndex};
use crate::transactions::RequestKey;

#[cfg(test)]
pub(crate) use self::codec::tests::{any_session, typical};
#[cfg(test)]
pub(crate) use self::tests::Memory;

/// Maximum length of an encoded session in bytes: 280 parts.
const LONGEST: usize = 1 << 16;

/// Error of storing a session or a response.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// All parts are in use.
    #[error("all {parts} parts of sessions are in use; raise `sessions` or lower the limits")]
    NoPart {
        /// Total number of parts.
        parts: usize,
    },
    /// The encoded session is too long.
    #[error("a session of {length} bytes is too long to be kept; lower the limits of its rules")]
    TooLong {
        /// Length in bytes.
        length: usize,
    },
    /// The table cannot be written.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// Writer of the tables of sessions and responses.
pub struct Store {
    sessions: Array<SessionRecord>,
    parts: PartChains,
    answers: Responses,
    version: u64,
    buffer: Vec<u8>,
}

impl Store {
    /// Opens the tables. Their last writer may have been stopped at any point.
    #[must_use]
    pub fn open(
        sessions: Cells<SessionRecord>,
        parts: Cells<SessionPart>,
        answers: Cells<ResponseRecord>,
    ) -> Self {
        let sessions = Array(sessions);
        let mut parts = PartChains::open(parts);
        let mut version = 0;
        for (_, record) in sessions.0.iter() {
            version = version.max(record.version);
            let rest = (record.length as usize).saturating_sub(BODY);
            // An invalid chain is detected when the session is read.
            parts.mark(record.part, rest.min(LONGEST), record.version);
        }
        let counts = |answer: &ResponseRecord| {
            let record = sessions.get(answer.session);
            answer.session == NO_SESSION || record.is_some_and(|it| it.version >= answer.version)
        };
        let answers = Responses::open(answers, &mut parts, counts);
        parts.sweep();
        let version = version.max(answers.version());
        Self { sessions, parts, answers, version, buffer: Vec::new() }
    }

    /// Returns the number of session indices.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.sessions.capacity() as u32
    }

    /// Returns the number of free parts.
    #[must_use]
    pub const fn free_parts(&self) -> u32 {
        self.parts.free()
    }

    /// Returns the version for the next commit.
    pub const fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// Returns the record of an index, if it was ever used.
    #[must_use]
    pub fn record(&self, id: SessionIndex) -> Option<&SessionRecord> {
        self.sessions.get(id.0)
    }

    /// Returns the records from the index `from` on, in order.
    pub fn places(&self, from: u32) -> impl Iterator<Item = (SessionIndex, &SessionRecord)> {
        (from..self.capacity())
            .filter_map(|place| Some((SessionIndex(place), self.sessions.get(place)?)))
    }

    /// Returns the session with an index. Returns `None` if it was removed or its record cannot be
    /// decoded.
    #[must_use]
    pub fn get(&self, id: SessionIndex) -> Option<Session> {
        let record = self.record(id).filter(|record| record.is_live())?;
        let length = record.length as usize;
        if length <= BODY {
            return decode(id, record, &record.body[..length]);
        }
        let mut bytes = Vec::with_capacity(length.min(LONGEST));
        bytes.extend_from_slice(&record.body);
        let rest = length - BODY;
        let is_whole =
            rest <= LONGEST && self.parts.read(record.part, rest, record.version, &mut bytes);
        if is_whole { decode(id, record, &bytes) } else { None }
    }

    /// Commits a version of a session together with the response to the request that made it. `at`
    /// is the time in nanoseconds of `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    /// There is no space; nothing has changed then, and the response does not count.
    pub fn commit(
        &mut self,
        session: &Session,
        answer: Option<(&RequestKey, &[u8])>,
        at: u64,
    ) -> Result<(), StoreError> {
        let mut record = SessionRecord::new_zeroed();
        let rest = self.encode(session, at, &mut record)?;
        record.part = rest;
        let written = answer.map(|(key, bytes)| {
            let (session, version) = (session.id.0, session.version);
            self.answers.write(NewResponse { key, bytes, session, version, at }, &mut self.parts)
        });
        let written = written.transpose().inspect_err(|_| self.parts.give_up(rest))?;
        let before = self.record(session.id).map_or(0, |record| record.part);
        if let Err(error) = self.sessions.set(session.id.0, &record) {
            self.parts.give_up(rest);
            if let Some(place) = written {
                self.answers.take_back(place, &mut self.parts);
            }
            return Err(error.into());
        }
        if let Some(place) = written {
            self.answers.link(place);
        }
        self.parts.give_up(before);
        self.version = self.version.max(session.version);
        Ok(())
    }

    /// Fills a record and writes the remainder to parts. Returns 1 + the index of the first part.
    fn encode(
        &mut self,
        session: &Session,
        at: u64,
        record: &mut SessionRecord,
    ) -> Result<u32, StoreError> {
        record.seid = session.seid;
        record.version = session.version;
        record.generation = session.generation;
        record.peer = session.peer;
        record.format = FORMAT;
        if session.is_deleted {
            record.make_tombstone(session, at);
            return Ok(0);
        }
        record.subscriber = session.supi.as_deref().map_or(0, subscriber);
        let bytes = encode(session, std::mem::take(&mut self.buffer));
        let (begin, rest) = bytes.split_at(bytes.len().min(BODY));
        record.length = bytes.len() as u32;
        record.body[..begin.len()].copy_from_slice(begin);
        let part = match rest.len() {
            0 => Ok(0),
            1..LONGEST => self.parts.write(rest, session.version),
            length => Err(StoreError::TooLong { length }),
        };
        self.buffer = bytes;
        part
    }

    /// Stores a response that belongs to no session.
    ///
    /// # Errors
    /// There is no space.
    pub fn remember(&mut self, key: &RequestKey, bytes: &[u8], at: u64) -> Result<(), StoreError> {
        let fresh = NewResponse { key, bytes, session: NO_SESSION, version: self.version, at };
        let place = self.answers.write(fresh, &mut self.parts)?;
        self.answers.link(place);
        Ok(())
    }

    /// Evicts responses from before `since`, in nanoseconds of `CLOCK_MONOTONIC`. Returns true if
    /// there is space for another response.
    pub fn make_room(&mut self, since: u64) -> bool {
        self.answers.expire(since, &mut self.parts);
        !self.answers.is_full()
    }

    /// Returns the response to a request if it was sent at or after `since` and after its session's
    /// association began (`begun`), in nanoseconds of `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn answer(
        &self,
        key: &RequestKey,
        since: u64,
        begun: &dyn Fn(u16) -> u64,
    ) -> Option<Vec<u8>> {
        self.answers.find(key, &self.parts, |answer| {
            let peer = self.sessions.get(answer.session).map(|record| record.peer);
            answer.at >= since.max(peer.map_or(0, begun))
        })
    }
}

/// Returns a hash of a SUPI that is equal in each process and never 0 (FNV-1a, RFC 9923). It
/// reduces the number of records to search.
#[must_use]
pub fn subscriber(supi: &str) -> u32 {
    let hash = supi
        .bytes()
        .fold(0x811C_9DC5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.max(1)
}

#[cfg(test)]
mod tests;
