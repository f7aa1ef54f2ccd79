//! Stored responses, ordered by age and indexed by request.
//!
//! The index takes two numbers per slot, which form chains of slots with the same request hash.
//! Lookups compare the record itself. A third number links each response to the next newer one. A
//! slot with an expired response is reused before one that was never used. So only as much memory
//! is touched as the responses of N1 times T1 need.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};

use zerocopy::FromZeros;

use super::StoreError;
use super::record::{ANSWER, Array, Cells, PartChains, ResponseRecord};
use crate::transactions::RequestKey;

/// Session of a response that belongs to none.
pub(super) const NO_SESSION: u32 = u32::MAX;
const NONE: u32 = u32::MAX;
/// Maximum number of responses expired in one call, which exceeds the number written.
const EXPIRED: usize = 4;

pub(super) struct Responses {
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
pub(super) struct NewResponse<'a> {
    pub(super) key: &'a RequestKey,
    pub(super) bytes: &'a [u8],
    pub(super) session: u32,
    pub(super) version: u64,
    /// Time in nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) at: u64,
}

impl Responses {
    /// Opens the table. Keeps the responses that `counts` selects and whose parts are intact, and
    /// clears all others.
    pub(super) fn open(
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
    pub(super) fn version(&self) -> u64 {
        self.table.0.iter().map(|(_, record)| record.version).max().unwrap_or(0)
    }

    /// Returns the maximum number of responses.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// Returns true if another response must overwrite a valid one.
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty() && self.end as usize == self.table.capacity()
    }

    /// Expires some of the responses from before `since`, oldest first.
    pub(super) fn expire(&mut self, since: u64, parts: &mut PartChains) {
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
    pub(super) fn write(
        &mut self,
        fresh: NewResponse<'_>,
        parts: &mut PartChains,
    ) -> Result<u32, StoreError> {
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
    pub(super) fn take_back(&mut self, place: u32, parts: &mut PartChains) {
        self.take_out(place, parts);
        self.free.push(place);
    }

    fn take_out(&mut self, place: u32, parts: &mut PartChains) {
        let part = self.table.get(place).map_or(0, |record| record.part);
        self.table.clear(place);
        parts.give_up(part);
    }

    /// Returns the newest response to a request if `counts` accepts it.
    pub(super) fn find(
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
    pub(super) fn link(&mut self, place: u32) {
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
