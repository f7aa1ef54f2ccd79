//! What is kept of sessions and of answers, across the death of this process.
//!
//! A session's record is the truth: one store of it is the commit, and what lanes read follows from
//! it. Before that, what the record needs is written where nothing refers to it yet: parts that
//! were free, and the answer to the request that changed the session, with the version that the
//! session is about to have. An answer counts only if the record has come to that version. So this
//! process may be killed between any two stores: the next one finds the session before or after the
//! request, and in the latter case the answer that belongs to it, byte for byte.
//!
//! Versions are numbers that grow with each commit of any session. A session that is gone leaves
//! its record behind, for as long as its place is not used again: it says which numbers the place
//! has given out, and since when it is free.
//!
//! Memory for 2^20 typical sessions: records 4 + 288 MiB (an eighth more slots than places, which
//! the exchange of values needs), 720,000 answers 3 + 147 MiB (those of N1 times T1 at 80,000 a
//! second), no parts; in the heap 10 MiB to find answers by, and a bit for each part. Of answers
//! and parts, which are many whatever the number of sessions, only as much is touched as is needed
//! at a time: at the pace of one thread 214 octets for each request of the last N1 times T1.

mod answers;
mod bits;
mod cells;
mod encoding;
#[cfg(test)]
pub(crate) mod fuse;
mod parts;
pub mod record;
mod remains;
mod stored;

use fastlane::table::TableError;
use zerocopy::FromZeros;

use self::answers::{Answers, Fresh, NOBODY};
use self::cells::Array;
pub use self::cells::Cells;
use self::encoding::{FORMAT, decode, encode};
use self::parts::Parts;
use self::record::{AnswerRecord, BODY, SessionPart, SessionRecord};
pub use self::remains::Given;
use crate::pfcp::RequestKey;
use crate::session::{Session, SessionId};

#[cfg(test)]
pub(crate) use self::encoding::tests::{any_session, typical};
#[cfg(test)]
pub(crate) use self::tests::Memory;

/// The most bytes of a session: 280 parts.
const LONGEST: usize = 1 << 16;

/// Why something cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// All parts are in use.
    #[error("all {parts} parts of sessions are in use; raise `sessions` or lower the limits")]
    NoPart {
        /// How many there are.
        parts: usize,
    },
    /// The rules are too many to be kept.
    #[error("a session of {length} bytes is too long to be kept; lower the limits of its rules")]
    TooLong {
        /// Its length.
        length: usize,
    },
    /// A table takes nothing.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// The tables of sessions and answers, for writing.
pub struct Store {
    sessions: Array<SessionRecord>,
    parts: Parts,
    answers: Answers,
    version: u64,
    buffer: Vec<u8>,
}

impl Store {
    /// Goes on with what the tables hold, after whoever wrote them, wherever that one was stopped.
    #[must_use]
    pub fn open(
        sessions: Cells<SessionRecord>,
        parts: Cells<SessionPart>,
        answers: Cells<AnswerRecord>,
    ) -> Self {
        let sessions = Array(sessions);
        let mut parts = Parts::open(parts);
        let mut version = 0;
        for (_, record) in sessions.0.iter() {
            version = version.max(record.version);
            let rest = (record.length as usize).saturating_sub(BODY);
            // A chain that is none is noticed when the session is read.
            parts.mark(record.part, rest.min(LONGEST), record.version);
        }
        let counts = |answer: &AnswerRecord| {
            let record = sessions.get(answer.session);
            answer.session == NOBODY || record.is_some_and(|it| it.version >= answer.version)
        };
        let answers = Answers::open(answers, &mut parts, counts);
        parts.sweep();
        let version = version.max(answers.version());
        Self { sessions, parts, answers, version, buffer: Vec::new() }
    }

    /// How many places there are.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.sessions.capacity() as u32
    }

    /// How many parts are free.
    #[must_use]
    pub const fn free_parts(&self) -> u32 {
        self.parts.free()
    }

    /// The version that the next commit has.
    pub const fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// The record of a place, if it was ever used.
    #[must_use]
    pub fn record(&self, id: SessionId) -> Option<&SessionRecord> {
        self.sessions.get(id.0)
    }

    /// The places that have a record, in order, from `from` on.
    pub fn places(&self, from: u32) -> impl Iterator<Item = (SessionId, &SessionRecord)> {
        (from..self.capacity())
            .filter_map(|place| Some((SessionId(place), self.sessions.get(place)?)))
    }

    /// The session in a place, unless it is gone, or what is there cannot be read.
    #[must_use]
    pub fn get(&self, id: SessionId) -> Option<Session> {
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

    /// Makes a session's new version the one that counts, together with the answer to the request
    /// that made it. `at` is now, in nanoseconds of `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    /// When there is no room; then nothing has changed, and the answer does not count.
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
            self.answers.write(Fresh { key, bytes, session, version, at }, &mut self.parts)
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

    /// Fills a record, and writes what it has no room for; gives 1 + the number of the first part.
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
            record.bury(session, at);
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

    /// Keeps an answer to a request that was about no session.
    ///
    /// # Errors
    /// When there is no room.
    pub fn remember(&mut self, key: &RequestKey, bytes: &[u8], at: u64) -> Result<(), StoreError> {
        let fresh = Fresh { key, bytes, session: NOBODY, version: self.version, at };
        let place = self.answers.write(fresh, &mut self.parts)?;
        self.answers.link(place);
        Ok(())
    }

    /// Whether there is room for another answer, besides all those that were made at or after
    /// `since`: nanoseconds of `CLOCK_MONOTONIC`. Older ones make room.
    pub fn make_room(&mut self, since: u64) -> bool {
        self.answers.expire(since, &mut self.parts);
        !self.answers.is_full()
    }

    /// The answer that a request had, if it had one at or after `since`, and since the association
    /// of its session had `begun`: nanoseconds of `CLOCK_MONOTONIC`.
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

/// A hash of a subscriber's identifier that is the same in each process, and never 0 (FNV-1a, RFC
/// 9923): only to look at fewer records when one is searched.
#[must_use]
pub fn subscriber(supi: &str) -> u32 {
    let hash = supi
        .bytes()
        .fold(0x811C_9DC5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.max(1)
}

#[cfg(test)]
mod tests;
