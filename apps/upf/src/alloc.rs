//! Allocation of session indices (UP SEIDs), TEIDs and UE addresses.
//!
//! All state follows from the session records: nothing here is stored, and a successor process
//! rebuilds it.
//!
//! The session index that has been free the longest is taken, in the shard with the fewest
//! sessions. The lower 8 bits of an index are its shard, which belongs to one lane. A freed index
//! is not reused for a while: packets for its old tunnel may be in flight, and a request about its
//! old session may be retransmitted. Its record holds the time since when it is free.
//!
//! An index starts with an unpredictable generation of TEIDs and counts up across all its sessions.
//! So a TEID is reused only after all others of its index; the record holds the count. Additional
//! tunnels of a session take further generations. They are found in the exact table, but no other
//! session can get them.
//!
//! Memory: four bytes per index, and a few per shard.
//!
//! # UE addresses
//! A pool has one bit per address, and the position of the search. A freed address is allocated
//! again only after all other free ones.
//!
//! A freed address stays in quarantine before another UE gets it: packets to the previous UE may be
//! in flight, in a preempted lane or in the network. If all free addresses are in quarantine,
//! allocation fails.
//!
//! A pool belongs to a network instance; pools of different instances may overlap. At most 2^24
//! addresses of a pool are allocated, which takes 4 MiB, and 8 octets more for each address in
//! quarantine.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::rules::layout::{TeidLayout, UeKey};
use crate::session::{InstanceId, Network, Prefix, SessionIndex};
use crate::store::{AllocatedAddresses, Store};

const SHARDS: usize = 256;
const NONE: u32 = u32::MAX;

/// Free session indices.
#[derive(Debug)]
pub struct SessionIndices {
    /// By index: the one that was freed after it.
    after: Vec<u32>,
    shards: Vec<Shard>,
    live: u32,
    /// Maximum number of sessions, at most the number of indices.
    limit: u32,
    /// Time before which no index can be reused, as far as known.
    none_before: u64,
}

#[derive(Clone, Copy, Debug)]
struct Shard {
    first: u32,
    last: u32,
    live: u32,
}

impl SessionIndices {
    /// Creates the free lists from the sessions of a store, of which there may be up to `limit`.
    #[must_use]
    pub fn open(store: &Store, limit: u32) -> Self {
        let capacity = store.capacity();
        let shards = vec![Shard { first: NONE, last: NONE, live: 0 }; SHARDS];
        let after = vec![NONE; capacity as usize];
        let mut this = Self { after, shards, live: 0, limit, none_before: 0 };
        let mut free = Vec::with_capacity(capacity as usize);
        for place in 0..capacity {
            match store.record(SessionIndex(place)).map(|record| record.gone_at()) {
                Some(None) => this.count(SessionIndex(place)),
                Some(Some(at)) => free.push((at, place)),
                None => free.push((0, place)),
            }
        }
        free.sort_unstable();
        free.iter().for_each(|(_, place)| this.append(*place));
        this
    }

    /// Returns the number of sessions.
    #[must_use]
    pub const fn live(&self) -> u32 {
        self.live
    }

    /// Returns the number of sessions in each shard.
    pub fn by_shard(&self) -> impl Iterator<Item = u32> {
        self.shards.iter().map(|shard| shard.live)
    }

    /// Takes an index that was freed before `until`, in nanoseconds of `CLOCK_MONOTONIC`. Returns
    /// `None` if there is none.
    pub fn take(&mut self, store: &Store, until: u64) -> Option<SessionIndex> {
        if until <= self.none_before || self.live >= self.limit {
            return None;
        }
        let mut is_unripe = [false; SHARDS];
        let mut soonest = u64::MAX;
        loop {
            let has_some =
                |(number, shard): &(usize, &Shard)| shard.first != NONE && !is_unripe[*number];
            let shards = self.shards.iter().enumerate().filter(has_some);
            let Some((number, shard)) = shards.min_by_key(|(_, shard)| shard.live) else {
                self.none_before = if soonest == u64::MAX { 0 } else { soonest };
                return None;
            };
            let place = shard.first;
            let gone = store.record(SessionIndex(place)).and_then(|record| record.gone_at());
            match gone.filter(|gone| *gone >= until) {
                Some(gone) => {
                    soonest = soonest.min(gone);
                    is_unripe[number] = true;
                }
                None => return Some(self.remove_first(number)),
            }
        }
    }

    fn remove_first(&mut self, number: usize) -> SessionIndex {
        let shard = &mut self.shards[number];
        let place = shard.first;
        shard.first = self.after[place as usize];
        if shard.first == NONE {
            shard.last = NONE;
        }
        self.count(SessionIndex(place));
        SessionIndex(place)
    }

    fn count(&mut self, id: SessionIndex) {
        self.shards[id.0 as usize % SHARDS].live += 1;
        self.live += 1;
    }

    /// Returns an unused index that [`take`](Self::take) gave out. It becomes the first again.
    pub fn untake(&mut self, id: SessionIndex) {
        self.none_before = 0;
        let shard = &mut self.shards[id.0 as usize % SHARDS];
        self.after[id.0 as usize] = shard.first;
        if shard.first == NONE {
            shard.last = id.0;
        }
        shard.first = id.0;
        shard.live -= 1;
        self.live -= 1;
    }

    /// Frees the index of a session whose record is a tombstone.
    pub fn give_back(&mut self, id: SessionIndex) {
        self.shards[id.0 as usize % SHARDS].live -= 1;
        self.live -= 1;
        self.append(id.0);
    }

    fn append(&mut self, place: u32) {
        self.after[place as usize] = NONE;
        let shard = &mut self.shards[place as usize % SHARDS];
        match shard.last {
            NONE => shard.first = place,
            last => self.after[last as usize] = place,
        }
        shard.last = place;
    }
}

/// Returns the generation of an index that was never used.
#[must_use]
pub fn first_generation(id: SessionIndex) -> u32 {
    // The standard library's hasher has a random key from the kernel.
    RandomState::new().hash_one(id.0) as u32
}

/// Bit of the TEIDs that are allocated here. Control planes that allocate TEIDs themselves count
/// from 1, so the two do not meet.
const ALLOCATED: u32 = 1 << 31;

/// Returns the next free TEID of an index, not all ones (TS 29.281 clause 5.1). Returns `None` if
/// TEIDs chosen by the control plane occupy all of them.
pub fn next_teid(
    shape: TeidLayout,
    id: SessionIndex,
    generation: &mut u32,
    is_taken: impl Fn(u32) -> bool,
) -> Option<u32> {
    let tries = (shape.generations() / 2).min(1 << 16);
    (0..tries).find_map(|_| {
        let teid = shape.teid(id, *generation) | ALLOCATED;
        *generation = generation.wrapping_add(1);
        Some(teid).filter(|teid| *teid != u32::MAX && !is_taken(*teid))
    })
}

/// Maximum number of addresses of a pool.
const MOST: u64 = 1 << 24;

/// Maximum number of addresses released from quarantine in one call.
const RESTED: usize = 64;

/// Address family of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4 address.
    V4,
    /// IPv6 /64 prefix.
    V6,
}

/// All address pools.
#[derive(Debug)]
pub struct Addresses {
    pools: Vec<Pool>,
    /// Duration of the quarantine in nanoseconds.
    rest: u64,
}

#[derive(Debug)]
struct Pool {
    instance: InstanceId,
    family: Family,
    /// Addresses are allocated here; otherwise they are only known.
    allocates: bool,
    /// First address of the pool; for IPv6 the upper 64 bits.
    first: u64,
    /// Bitmap of addresses that are in use or in quarantine.
    used: Vec<u64>,
    /// Bitmap of addresses in quarantine.
    resting: Vec<u64>,
    /// Addresses in quarantine with the time when they were freed.
    since: VecDeque<(u32, Moment)>,
    count: u32,
    free: u32,
    next: u32,
    /// Time when the address before `next` was allocated, as found at a restart.
    latest: u64,
}

/// Time of `CLOCK_MONOTONIC` in units of 17 ms. It wraps after more than two years.
#[derive(Clone, Copy, Debug)]
struct Moment(u32);

impl Moment {
    /// Converts nanoseconds.
    const fn of(now: u64) -> Self {
        Self((now >> 24) as u32)
    }

    /// Returns true if more than `rest` nanoseconds have passed since.
    const fn is_before(self, now: u64, rest: u64) -> bool {
        let steps = Self::of(now).0.wrapping_sub(self.0);
        rest == 0 || steps as u64 > rest >> 24
    }
}

impl Addresses {
    /// Creates an empty set of pools with a quarantine of `rest` nanoseconds.
    #[must_use]
    pub fn resting(rest: u64) -> Self {
        Self { pools: Vec::new(), rest }
    }

    /// Adds a pool without allocated addresses.
    pub fn add(&mut self, instance: InstanceId, prefix: Prefix, allocates: bool) {
        let (family, first, count) = match prefix.address {
            IpAddr::V4(address) => {
                let size = 1_u64 << (32 - u64::from(prefix.length.min(32)));
                // The network address and the broadcast address are excluded.
                let (skip, less) = if size > 2 { (1, 2) } else { (0, 0) };
                (Family::V4, u64::from(address.to_bits()) + skip, size - less)
            }
            IpAddr::V6(address) => {
                let bits = 64 - u32::from(prefix.length.min(64));
                let size = 1_u64.checked_shl(bits).unwrap_or(u64::MAX);
                (Family::V6, (address.to_bits() >> 64) as u64, size)
            }
        };
        let count = count.min(MOST);
        let words = if allocates { count.div_ceil(64) } else { 0 };
        let count = count as u32;
        let [used, resting] = [0, 0].map(|word| vec![word; words as usize]);
        let pool = Pool {
            instance,
            family,
            allocates,
            first,
            used,
            resting,
            since: VecDeque::new(),
            count,
            free: count,
            next: 0,
            latest: 0,
        };
        self.pools.push(pool);
    }

    /// Returns true if addresses of a network instance are allocated here.
    #[must_use]
    pub fn has(&self, instance: InstanceId, family: Family) -> bool {
        self.pools.iter().any(|pool| pool.is(instance, family) && pool.allocates)
    }

    /// Returns the network instance of all pools of a family, if there is exactly one.
    #[must_use]
    pub fn only_instance(&self, family: Family) -> Option<InstanceId> {
        let of_family = |pool: &&Pool| pool.family == family && pool.allocates;
        let mut instances = self.pools.iter().filter(of_family).map(|pool| pool.instance);
        let first = instances.next()?;
        instances.all(|other| other == first).then_some(first)
    }

    /// Returns the network instance whose pool provides an address. It is `named` if that is a data
    /// network, else that of the session's other rules, else the only one with a pool, else the
    /// default. `None` if it has no pool.
    #[must_use]
    pub fn pool_of(
        &self,
        network: &Network,
        named: Option<InstanceId>,
        of_others: Option<InstanceId>,
        family: Family,
    ) -> Option<InstanceId> {
        let named = named.filter(|it| network.is_data_network(*it)).or(of_others).or(named);
        let named = named.and_then(|it| network.domain(it));
        let instance = named.or_else(|| self.only_instance(family));
        let instance = instance.unwrap_or_else(|| network.data_network());
        self.has(instance, family).then_some(instance)
    }

    /// Allocates an IPv4 address at the time `now`, in nanoseconds of `CLOCK_MONOTONIC`. Returns
    /// `None` if all are in use or in quarantine.
    pub fn take_v4(&mut self, instance: InstanceId, now: u64) -> Option<Ipv4Addr> {
        self.take(instance, Family::V4, now).map(|address| Ipv4Addr::from_bits(address as u32))
    }

    /// Allocates a /64 prefix, like [`take_v4`](Self::take_v4).
    pub fn take_v6(&mut self, instance: InstanceId, now: u64) -> Option<Ipv6Addr> {
        let address = self.take(instance, Family::V6, now)?;
        Some(Ipv6Addr::from_bits(u128::from(address) << 64))
    }

    fn take(&mut self, instance: InstanceId, family: Family, now: u64) -> Option<u64> {
        let mut pools = self.pools.iter_mut().filter(|pool| pool.is(instance, family));
        pools.find_map(|pool| pool.take(now, self.rest))
    }

    /// Marks an address as used by a session, whoever allocated it.
    pub fn claim(&mut self, key: &UeKey) {
        self.each(key, Pool::claim);
    }

    /// Frees an allocated address that no UE has used.
    pub fn give_back(&mut self, key: &UeKey) {
        self.each(key, |pool, place| pool.mark(place, false));
    }

    /// Frees an address that a UE used until `now`, in nanoseconds of `CLOCK_MONOTONIC`. It enters
    /// quarantine.
    pub fn put_to_rest(&mut self, key: &UeKey, now: u64) {
        self.each(key, |pool, place| pool.put_to_rest(place, now));
    }

    fn each(&mut self, key: &UeKey, mut what: impl FnMut(&mut Pool, u32)) {
        let (family, address) = of_key(key);
        for pool in self.pools.iter_mut().filter(|pool| pool.is(key.instance, family)) {
            if let Some(place) = pool.place(address) {
                what(pool, place);
            }
        }
    }

    /// Restores the addresses of a session at a restart. `gone` is the time of its removal, if it
    /// was removed. The search continues after the last allocation; recently freed addresses enter
    /// quarantine.
    pub fn resume(&mut self, given: &AllocatedAddresses, gone: Option<u64>) {
        let v4 = given.v4.map(|it| (Family::V4, u64::from(it.to_bits())));
        let v6 = given.v6.map(|it| (Family::V6, (it.to_bits() >> 64) as u64));
        for (family, address) in v4.into_iter().chain(v6) {
            let is_there = |of: &Pool| given.instance.is_none_or(|it| it == of.instance);
            let pools = self.pools.iter_mut().filter(|pool| pool.family == family);
            for pool in pools.filter(|pool| is_there(pool)) {
                let Some(place) = pool.place(address) else { continue };
                if given.established >= pool.latest {
                    pool.next = place + 1;
                    pool.latest = given.established;
                }
                if let Some(gone) = gone.filter(|_| !pool.is_used(place)) {
                    pool.mark(place, true);
                    pool.put_to_rest(place, gone);
                }
            }
        }
    }

    /// Returns network instance, family, used and free addresses of each pool. Addresses in
    /// quarantine count as free.
    pub fn usage(&self) -> impl Iterator<Item = (InstanceId, Family, u32, u32)> {
        let of = |pool: &Pool| {
            let free = pool.free + pool.since.len() as u32;
            (pool.instance, pool.family, pool.count - free, free)
        };
        self.pools.iter().filter(|pool| pool.allocates).map(of)
    }
}

fn of_key(key: &UeKey) -> (Family, u64) {
    let upper = u64::from_be_bytes(key.address);
    if key.family == 6 { (Family::V6, upper) } else { (Family::V4, upper >> 32) }
}

impl Pool {
    fn is(&self, instance: InstanceId, family: Family) -> bool {
        self.instance == instance && self.family == family
    }

    fn place(&self, address: u64) -> Option<u32> {
        let place = u32::try_from(address.checked_sub(self.first)?).ok()?;
        (place < self.count && self.allocates).then_some(place)
    }

    fn mark(&mut self, place: u32, is_used: bool) {
        let Some(word) = self.used.get_mut(place as usize / 64) else { return };
        let bit = 1 << (place % 64);
        match (*word & bit != 0, is_used) {
            (false, true) => self.free -= 1,
            (true, false) => self.free += 1,
            _ => return,
        }
        *word ^= bit;
    }

    fn is_used(&self, place: u32) -> bool {
        self.used.get(place as usize / 64).is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    fn claim(&mut self, place: u32) {
        let Some(word) = self.resting.get_mut(place as usize / 64) else { return };
        let bit = 1 << (place % 64);
        if *word & bit != 0 {
            // The control plane chose the address, so it ends the quarantine.
            *word &= !bit;
            self.since.retain(|(other, _)| *other != place);
        }
        self.mark(place, true);
    }

    /// Moves a used address into quarantine.
    fn put_to_rest(&mut self, place: u32, now: u64) {
        let is_used = self.is_used(place);
        let Some(word) = self.resting.get_mut(place as usize / 64).filter(|_| is_used) else {
            return;
        };
        let bit = 1 << (place % 64);
        if *word & bit == 0 {
            *word |= bit;
            self.since.push_back((place, Moment::of(now)));
        }
    }

    /// Frees addresses whose quarantine is over.
    fn wake(&mut self, now: u64, rest: u64) {
        for _ in 0..RESTED {
            let Some((place, since)) = self.since.front().copied() else { return };
            if !since.is_before(now, rest) {
                return;
            }
            self.since.pop_front();
            if let Some(word) = self.resting.get_mut(place as usize / 64) {
                *word &= !(1 << (place % 64));
            }
            self.mark(place, false);
        }
    }

    fn take(&mut self, now: u64, rest: u64) -> Option<u64> {
        self.wake(now, rest);
        if self.free == 0 || !self.allocates {
            return None;
        }
        let place = self.find(self.next).or_else(|| self.find(0))?;
        self.mark(place, true);
        self.next = place + 1;
        Some(self.first + u64::from(place))
    }

    /// Returns the first free position at or after `from`.
    fn find(&self, from: u32) -> Option<u32> {
        let start = from as usize / 64;
        let begun = (1_u64 << (from % 64)) - 1;
        let words = self.used.iter().enumerate().skip(start);
        let mut free =
            words.map(|(at, word)| (at, !(if at == start { word | begun } else { *word })));
        let (at, word) = free.find(|(_, free)| *free != 0)?;
        let place = at as u32 * 64 + word.trailing_zeros();
        (place < self.count).then_some(place)
    }
}

#[cfg(test)]
mod tests;
