//! Records of the control plane process, plain old data of fixed size, and chains of parts for what
//! exceeds a record.
//!
//! Values are 8 bytes short of a power of two or a multiple of a cache line, because an array slot
//! has 8 bytes of its own. A session record lies on four cache lines. The tombstone of a removed
//! session holds the time of removal and its addresses, so that they are not the first to be
//! allocated after a restart.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::DerefMut;

use fastlane::table::{ArrayWriter, TableError, Value};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::StoreError;
use crate::session::{InstanceId, Session, Source};

/// Flag of a tombstone.
pub(super) const DELETED: u8 = 1;
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
        crate::tests::fail_if_due();
        self.0.set(index as usize, value)
    }

    pub(super) fn clear(&mut self, index: u32) {
        #[cfg(test)]
        crate::tests::fail_if_due();
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

/// UE addresses allocated to a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatedAddresses {
    /// Time of establishment, in nanoseconds since 1970.
    pub established: u64,
    /// Network instance towards the data network, if given.
    pub instance: Option<InstanceId>,
    /// IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// Address within the IPv6 prefix.
    pub v6: Option<Ipv6Addr>,
}

impl AllocatedAddresses {
    /// Returns the addresses allocated to a session.
    #[must_use]
    pub fn to(session: &Session) -> Self {
        let ours = || session.pdrs.iter().filter_map(|pdr| pdr.user).filter(|user| user.is_ours);
        let outside =
            session.pdrs.iter().filter(|it| matches!(it.source, Source::Core | Source::SgiLan));
        Self {
            established: session.established,
            instance: outside.filter_map(|pdr| pdr.instance).next(),
            v4: ours().find_map(|user| user.v4),
            v6: ours().find_map(|user| user.v6).map(|(address, _)| address),
        }
    }
}

/// Length of a tombstone in bytes: time of removal, time of establishment, network instance (all
/// ones for none), both addresses (zero for none).
const LENGTH: usize = 8 + 8 + 2 + 4 + 16;

impl SessionRecord {
    /// Returns true if the record holds a session, not a tombstone.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        self.flags & DELETED == 0
    }

    /// Turns the record into the tombstone of a session removed `at`, in nanoseconds of
    /// `CLOCK_MONOTONIC`.
    pub(super) fn make_tombstone(&mut self, session: &Session, at: u64) {
        let given = AllocatedAddresses::to(session);
        self.flags = DELETED;
        self.length = LENGTH as u32;
        self.body[..8].copy_from_slice(&at.to_le_bytes());
        self.body[8..16].copy_from_slice(&given.established.to_le_bytes());
        let v4 = given.v4.unwrap_or(Ipv4Addr::UNSPECIFIED);
        let instance = given.instance.unwrap_or(InstanceId::MAX);
        self.body[16..18].copy_from_slice(&instance.to_le_bytes());
        self.body[18..22].copy_from_slice(&v4.octets());
        let v6 = given.v6.unwrap_or(Ipv6Addr::UNSPECIFIED);
        self.body[22..LENGTH].copy_from_slice(&v6.octets());
    }

    /// Returns the time of removal of a tombstone, in nanoseconds of `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn gone_at(&self) -> Option<u64> {
        let at = self.body.first_chunk().copied().map(u64::from_le_bytes);
        at.filter(|_| !self.is_live())
    }

    /// Returns the addresses of the removed session, if the record is a tombstone.
    #[must_use]
    pub fn had(&self) -> Option<AllocatedAddresses> {
        let bytes = |at: usize| self.body.get(at..).filter(|_| !self.is_live());
        let v4 = Ipv4Addr::from(*bytes(18)?.first_chunk::<4>()?);
        let v6 = Ipv6Addr::from(*bytes(22)?.first_chunk::<16>()?);
        let instance = InstanceId::from_le_bytes(*bytes(16)?.first_chunk()?);
        Some(AllocatedAddresses {
            established: u64::from_le_bytes(*bytes(8)?.first_chunk()?),
            instance: Some(instance).filter(|it| *it != InstanceId::MAX),
            v4: Some(v4).filter(|it| !it.is_unspecified()),
            v6: Some(v6).filter(|it| !it.is_unspecified()),
        })
    }
}

/// Chains of parts, which hold what exceeds a record, with a bitmap of the parts in use.
pub(super) struct PartChains {
    table: Array<SessionPart>,
    used: Vec<u64>,
    free: u32,
    /// No part in a word before that of this one is free.
    next: u32,
}

impl PartChains {
    /// Opens the table. No part is in use until it is [marked](Self::mark).
    pub(super) fn open(cells: Cells<SessionPart>) -> Self {
        let table = Array(cells);
        let count = table.capacity();
        let mut used = vec![0; count.div_ceil(64)];
        if let Some(last) = used.last_mut().filter(|_| !count.is_multiple_of(64)) {
            *last = u64::MAX << (count % 64);
        }
        Self { table, used, free: count as u32, next: 0 }
    }

    /// Returns the number of free parts.
    pub(super) const fn free(&self) -> u32 {
        self.free
    }

    fn is_used(&self, part: u32) -> bool {
        self.used.get(part as usize / 64).is_none_or(|word| word >> (part % 64) & 1 == 1)
    }

    /// Marks a chain as used. Returns false and marks nothing if the chain is invalid or overlaps
    /// another.
    pub(super) fn mark(&mut self, first: u32, length: usize, version: u64) -> bool {
        let Some(chain) = self.chain(first, length, version) else { return false };
        let mut sorted = chain.clone();
        sorted.sort_unstable();
        let is_sound = sorted.windows(2).all(|pair| pair[0] != pair[1])
            && chain.iter().all(|part| !self.is_used(*part));
        if is_sound {
            chain.iter().for_each(|part| self.take(*part));
        }
        is_sound
    }

    /// Clears all unmarked parts, which a killed writer left behind.
    pub(super) fn sweep(&mut self) {
        for part in 0..self.table.capacity() as u32 {
            if !self.is_used(part) && self.table.get(part).is_some() {
                self.table.clear(part);
            }
        }
    }

    /// Returns the indices of a chain's parts, exactly as many as the length needs.
    fn chain(&self, first: u32, length: usize, version: u64) -> Option<Vec<u32>> {
        let mut chain = Vec::new();
        let mut place = first;
        for _ in 0..length.div_ceil(PART) {
            let number = place.checked_sub(1)?;
            let part = self.table.get(number).filter(|part| part.version == version)?;
            chain.push(number);
            place = part.next;
        }
        (place == 0).then_some(chain)
    }

    /// Writes bytes to free parts. Returns 1 + the index of the first part, or 0 for no bytes.
    pub(super) fn write(&mut self, bytes: &[u8], version: u64) -> Result<u32, StoreError> {
        let count = bytes.len().div_ceil(PART);
        if count > self.free as usize {
            return Err(StoreError::NoPart { parts: self.table.capacity() });
        }
        let mut next = 0;
        for chunk in bytes.chunks(PART).rev() {
            let number = self.find();
            let mut part = SessionPart::new_zeroed();
            part.bytes[..chunk.len()].copy_from_slice(chunk);
            (part.next, part.length, part.version) = (next, chunk.len() as u32, version);
            if let Err(error) = self.table.set(number, &part) {
                self.give_up(next);
                return Err(error.into());
            }
            self.take(number);
            next = number + 1;
        }
        Ok(next)
    }

    /// Appends the bytes of a chain to `to`. Returns false if the chain is invalid.
    pub(super) fn read(&self, first: u32, length: usize, version: u64, to: &mut Vec<u8>) -> bool {
        let Some(chain) = self.chain(first, length, version) else { return false };
        let end = to.len() + length;
        for part in chain.iter().filter_map(|number| self.table.get(*number)) {
            to.extend_from_slice(&part.bytes[..PART.min(end - to.len())]);
        }
        to.len() == end
    }

    /// Frees a chain that nothing refers to any more.
    pub(super) fn give_up(&mut self, first: u32) {
        let mut place = first;
        while let Some(number) = place.checked_sub(1).filter(|number| self.is_used(*number)) {
            place = self.table.get(number).map_or(0, |part| part.next);
            self.table.clear(number);
            if let Some(word) = self.used.get_mut(number as usize / 64) {
                *word &= !(1 << (number % 64));
                self.free += 1;
                self.next = self.next.min(number);
            }
        }
    }

    fn take(&mut self, part: u32) {
        if let Some(word) = self.used.get_mut(part as usize / 64) {
            *word |= 1 << (part % 64);
            self.free -= 1;
        }
    }

    /// Returns a free part, one of the first, so that little memory is touched. One must be free.
    fn find(&mut self) -> u32 {
        let words = self.used.len() as u32;
        let start = self.next / 64;
        let word = (0..words).map(|step| (start + step) % words);
        let word = word.map(|word| (word, !self.used[word as usize])).find(|(_, free)| *free != 0);
        let part = word.map_or(0, |(word, free)| word * 64 + free.trailing_zeros());
        self.next = part;
        part
    }
}
