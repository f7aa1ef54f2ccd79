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
//!
//! # Responses
//! Responses are ordered by age and indexed by request. The index takes two numbers per slot, which
//! form chains of slots with the same request hash. Lookups compare the record itself. A third
//! number links each response to the next newer one. A slot with an expired response is reused
//! before one that was never used. So only as much memory is touched as the responses of N1 times
//! T1 need.

mod codec;
pub mod record;

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};

use fastlane::table::TableError;
use zerocopy::FromZeros;

use self::codec::{FORMAT, decode, encode};
use self::record::{ANSWER, Array, BODY, PartChains, ResponseRecord, SessionPart, SessionRecord};
use crate::session::{Session, SessionIndex};
use crate::transactions::RequestKey;

pub use self::record::{AllocatedAddresses, Cells};

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
            sessions.get(answer.session).is_some_and(|it| it.version >= answer.version)
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

/// Slot number that means none.
const NONE: u32 = u32::MAX;
/// Maximum number of responses expired in one call, which exceeds the number written.
const EXPIRED: usize = 4;

struct Responses {
    table: Array<ResponseRecord>,
    /// Slots that were used and are free.
    free: Vec<u32>,
    /// Slots from here on were never used.
    end: u32,
    /// Slots of the oldest and the newest valid response, or [`NONE`].
    ends: [u32; 2],
    /// By slot: the next newer response.
    newer: Vec<u32>,
    /// By hash: the newest slot, or [`NONE`].
    heads: Vec<u32>,
    /// By slot: the next older response with the same request hash.
    chain: Vec<u32>,
    hasher: RandomState,
}

/// Response to be written.
#[derive(Clone, Copy, Debug)]
struct NewResponse<'a> {
    key: &'a RequestKey,
    bytes: &'a [u8],
    session: u32,
    version: u64,
    /// Time in nanoseconds of `CLOCK_MONOTONIC`.
    at: u64,
}

impl Responses {
    /// Opens the table. Keeps the responses that `counts` selects and whose parts are intact, and
    /// clears all others.
    fn open(
        cells: Cells<ResponseRecord>,
        parts: &mut PartChains,
        counts: impl Fn(&ResponseRecord) -> bool,
    ) -> Self {
        let table = Array(cells);
        let capacity = table.capacity();
        let mut this = Self {
            table,
            free: Vec::new(),
            end: 0,
            ends: [NONE; 2],
            newer: vec![NONE; capacity],
            heads: vec![NONE; capacity.next_power_of_two()],
            chain: vec![NONE; capacity],
            hasher: RandomState::new(),
        };
        let mut kept = Vec::new();
        for place in 0..capacity as u32 {
            let Some(record) = this.table.get(place) else { continue };
            let (at, version, length) = (record.at, record.version, record.length as usize);
            let rest = length.saturating_sub(ANSWER);
            if counts(record) && length <= 1 << 16 && parts.mark(record.part, rest, version) {
                kept.push((at, version, place));
            } else {
                this.table.clear(place);
            }
        }
        this.end = kept.iter().map(|(.., place)| place + 1).max().unwrap_or(0);
        this.free = (0..this.end).filter(|place| this.table.get(*place).is_none()).collect();
        kept.sort_unstable();
        kept.iter().for_each(|(.., place)| this.link(*place));
        this
    }

    /// Returns the highest version of a response.
    fn version(&self) -> u64 {
        self.table.0.iter().map(|(_, record)| record.version).max().unwrap_or(0)
    }

    /// Returns the maximum number of responses.
    #[cfg(test)]
    fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// Returns true if another response must overwrite a valid one.
    fn is_full(&self) -> bool {
        self.free.is_empty() && self.end as usize == self.table.capacity()
    }

    /// Expires some of the responses from before `since`, oldest first.
    fn expire(&mut self, since: u64, parts: &mut PartChains) {
        for _ in 0..EXPIRED {
            let oldest = self.ends[0];
            if self.table.get(oldest).is_none_or(|record| record.at >= since) {
                return;
            }
            self.forget(oldest, parts);
            self.free.push(oldest);
        }
    }

    /// Removes the oldest response. The caller takes its slot.
    fn forget(&mut self, oldest: u32, parts: &mut PartChains) {
        self.unlink(oldest);
        self.take_out(oldest, parts);
    }

    /// Returns a slot to write to, evicting the oldest response if necessary.
    fn place(&mut self, parts: &mut PartChains) -> u32 {
        if let Some(place) = self.free.pop() {
            return place;
        }
        if (self.end as usize) < self.table.capacity() {
            self.end += 1;
            return self.end - 1;
        }
        let oldest = self.ends[0];
        self.forget(oldest, parts);
        oldest
    }

    /// Writes a response, evicting the oldest one if necessary, and returns its slot. It is found
    /// only after it is [linked](Self::link).
    fn write(&mut self, fresh: NewResponse<'_>, parts: &mut PartChains) -> Result<u32, StoreError> {
        let (begin, rest) = fresh.bytes.split_at(fresh.bytes.len().min(ANSWER));
        let part = parts.write(rest, fresh.version)?;
        let mut record = ResponseRecord::new_zeroed();
        let (peer, port) = address_of(fresh.key);
        (record.peer, record.port) = (peer, port);
        (record.sequence, record.message_type) = (fresh.key.sequence, fresh.key.message_type);
        record.digest = fresh.key.digest;
        (record.at, record.version, record.session) = (fresh.at, fresh.version, fresh.session);
        (record.part, record.length) = (part, fresh.bytes.len() as u32);
        record.bytes[..begin.len()].copy_from_slice(begin);
        let place = self.place(parts);
        if let Err(error) = self.table.set(place, &record) {
            parts.give_up(part);
            self.free.push(place);
            return Err(error.into());
        }
        Ok(place)
    }

    /// Removes a response that was written and not linked.
    fn take_back(&mut self, place: u32, parts: &mut PartChains) {
        self.take_out(place, parts);
        self.free.push(place);
    }

    fn take_out(&mut self, place: u32, parts: &mut PartChains) {
        let part = self.table.get(place).map_or(0, |record| record.part);
        self.table.clear(place);
        parts.give_up(part);
    }

    /// Returns the newest response to a request if `counts` accepts it.
    fn find(
        &self,
        key: &RequestKey,
        parts: &PartChains,
        counts: impl FnOnce(&ResponseRecord) -> bool,
    ) -> Option<Vec<u8>> {
        let (peer, port) = address_of(key);
        let mut place = self.heads[self.bucket(&peer, port, key.sequence, key.message_type)];
        while let Some(record) = self.table.get(place) {
            let is_it = (record.peer, record.port, record.digest) == (peer, port, key.digest)
                && (record.sequence, record.message_type) == (key.sequence, key.message_type);
            if is_it {
                return Some(record).filter(|it| counts(it)).and_then(|it| bytes(it, parts));
            }
            place = self.chain[place as usize];
        }
        None
    }

    /// Makes a response valid, as the newest one.
    fn link(&mut self, place: u32) {
        let Some(bucket) = self.bucket_of(place) else { return };
        self.chain[place as usize] = self.heads[bucket];
        self.heads[bucket] = place;
        self.newer[place as usize] = NONE;
        match self.newer.get_mut(self.ends[1] as usize) {
            Some(newer) => *newer = place,
            None => self.ends[0] = place,
        }
        self.ends[1] = place;
    }

    /// Removes the oldest response from the index.
    fn unlink(&mut self, oldest: u32) {
        let Some(bucket) = self.bucket_of(oldest) else { return };
        self.ends[0] = self.newer[oldest as usize];
        if self.ends[0] == NONE {
            self.ends[1] = NONE;
        }
        let after = self.chain[oldest as usize];
        let mut at = self.heads[bucket];
        if at == oldest {
            self.heads[bucket] = after;
            return;
        }
        while let Some(next) = self.chain.get(at as usize).copied() {
            if next == oldest {
                self.chain[at as usize] = after;
                return;
            }
            at = next;
        }
    }

    fn bucket_of(&self, place: u32) -> Option<usize> {
        let record = self.table.get(place)?;
        Some(self.bucket(&record.peer, record.port, record.sequence, record.message_type))
    }

    fn bucket(&self, peer: &[u8; 16], port: u16, sequence: u32, message_type: u8) -> usize {
        let hash = self.hasher.hash_one((peer, port, sequence, message_type));
        hash as usize & (self.heads.len() - 1)
    }
}

fn bytes(record: &ResponseRecord, parts: &PartChains) -> Option<Vec<u8>> {
    let length = record.length as usize;
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(&record.bytes[..length.min(ANSWER)]);
    let rest = length - bytes.len();
    parts.read(record.part, rest, record.version, &mut bytes).then_some(bytes)
}

fn address_of(key: &RequestKey) -> ([u8; 16], u16) {
    let address: Ipv6Addr = match key.peer.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    (address.octets(), key.peer.port())
}

#[cfg(test)]
mod tests;
