//! Answers that may have to be repeated: a ring, and an index of it by request.
//!
//! The index is two numbers for each place of the ring: chains of places whose requests hash to
//! the same. What is compared is the record itself.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};

use zerocopy::FromZeros;

use super::StoreError;
use super::cells::{Array, Cells};
use super::parts::Parts;
use super::record::{ANSWER, AnswerRecord};
use crate::slow::RequestKey;

/// An answer that belongs to no session.
pub(super) const NOBODY: u32 = u32::MAX;
const NONE: u32 = u32::MAX;

pub(super) struct Answers {
    table: Array<AnswerRecord>,
    /// The place that is written next.
    next: u32,
    /// By hash: the newest place, or [`NONE`].
    heads: Vec<u32>,
    /// By place: the next older one.
    chain: Vec<u32>,
    hasher: RandomState,
}

/// An answer before it is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fresh<'a> {
    pub(super) key: &'a RequestKey,
    pub(super) bytes: &'a [u8],
    pub(super) session: u32,
    pub(super) version: u64,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) at: u64,
}

impl Answers {
    /// Keeps those that `counts` says and whose parts are there; clears all others.
    pub(super) fn open(
        cells: Cells<AnswerRecord>,
        parts: &mut Parts,
        counts: impl Fn(&AnswerRecord) -> bool,
    ) -> Self {
        let table = Array(cells);
        let capacity = table.capacity();
        let heads = vec![NONE; capacity.next_power_of_two()];
        let chain = vec![NONE; capacity];
        let mut this = Self { table, next: 0, heads, chain, hasher: RandomState::new() };
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
        kept.sort_unstable();
        this.next = kept.last().map_or(0, |(.., place)| (place + 1) % capacity as u32);
        kept.iter().for_each(|(.., place)| this.link(*place));
        this
    }

    /// The greatest version of any.
    pub(super) fn version(&self) -> u64 {
        self.table.0.iter().map(|(_, record)| record.version).max().unwrap_or(0)
    }

    /// How many there can be.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// Whether the oldest answer, in whose place the next one goes, was made at or after `since`.
    pub(super) fn is_full(&self, since: u64) -> bool {
        self.table.get(self.next).is_some_and(|record| record.at >= since)
    }

    /// Writes one in the place of the oldest; gives its place. It is not found before it is
    /// [linked](Self::link).
    pub(super) fn write(&mut self, fresh: Fresh<'_>, parts: &mut Parts) -> Result<u32, StoreError> {
        let (begin, rest) = fresh.bytes.split_at(fresh.bytes.len().min(ANSWER));
        let part = parts.write(rest, fresh.version)?;
        let mut record = AnswerRecord::new_zeroed();
        let (peer, port) = address_of(fresh.key);
        (record.peer, record.port) = (peer, port);
        (record.sequence, record.message_type) = (fresh.key.sequence, fresh.key.message_type);
        record.digest = fresh.key.digest;
        (record.at, record.version, record.session) = (fresh.at, fresh.version, fresh.session);
        (record.part, record.length) = (part, fresh.bytes.len() as u32);
        record.bytes[..begin.len()].copy_from_slice(begin);
        let place = self.next;
        self.unlink(place);
        let before = self.table.get(place).map_or(0, |record| record.part);
        if let Err(error) = self.table.set(place, &record) {
            parts.give_up(part);
            return Err(error.into());
        }
        parts.give_up(before);
        self.next = (place + 1) % self.table.capacity() as u32;
        Ok(place)
    }

    /// Takes one back that was written and never came to count.
    pub(super) fn take_back(&mut self, place: u32, parts: &mut Parts) {
        let part = self.table.get(place).map_or(0, |record| record.part);
        self.table.clear(place);
        parts.give_up(part);
    }

    /// The newest answer to a request, if it still counts.
    pub(super) fn find(
        &self,
        key: &RequestKey,
        parts: &Parts,
        counts: impl FnOnce(&AnswerRecord) -> bool,
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

    /// Says that an answer counts.
    pub(super) fn link(&mut self, place: u32) {
        if let Some(bucket) = self.bucket_of(place) {
            self.chain[place as usize] = self.heads[bucket];
            self.heads[bucket] = place;
        }
    }

    fn unlink(&mut self, place: u32) {
        let Some(bucket) = self.bucket_of(place) else { return };
        let after = self.chain[place as usize];
        let mut at = self.heads[bucket];
        if at == place {
            self.heads[bucket] = after;
            return;
        }
        while let Some(next) = self.chain.get(at as usize).copied() {
            if next == place {
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

fn bytes(record: &AnswerRecord, parts: &Parts) -> Option<Vec<u8>> {
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
