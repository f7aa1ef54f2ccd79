//! Blocks of external ports: which user has which, and when a block may have the next one.
//!
//! A session whose UE has an address that NAT translates gets one block when it is published first,
//! and keeps it until it is deleted. Owners and users are in the tables, so blocks survive this
//! process and, with the handover of the tables, that of the lanes. A block is written before the
//! user that refers to it and cleared after it. A process that is killed in between leaves at most
//! a block whose session has none or another one; [`NatBlocks::recover`] releases it.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::Ipv4Addr;

use super::nat_log::{BlockEvent, NatLog, log_warning};
use super::{Tables, step};
use crate::config::nat_plan::{BUCKET, NatPlan, NatPool};
use crate::rules::layout::UeKey;
use crate::rules::layout::nat_tables::{GENERATIONS, NatBlock, NatUser};
use crate::session::{Session, SessionIndex};
use crate::time::{Now, SECOND};

/// Free blocks of an interface.
#[derive(Debug)]
struct FreeBlocks {
    /// Blocks with the time of their release, the earliest first; 0 if they were never used.
    waiting: VecDeque<(u64, u32)>,
    /// Time that a block rests, in ns.
    rest: u64,
    log: NatLog,
}

/// Numbers of blocks and of their changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NatCounts {
    /// Blocks in use.
    pub used: u64,
    /// Blocks that another user may not get yet.
    pub resting: u64,
    /// All blocks.
    pub blocks: u64,
    /// Blocks allocated since the start of the process.
    pub allocated: u64,
    /// Blocks released since then.
    pub released: u64,
    /// Users without a block because none was free, since then.
    pub exhausted: u64,
    /// Lines that could not be written to the log, since then.
    pub log_failed: u64,
}

/// All blocks of external ports.
#[derive(Debug)]
pub(super) struct NatBlocks {
    plan: NatPlan,
    /// By interface, as in the plan.
    free: Vec<FreeBlocks>,
    random: RandomState,
    counts: NatCounts,
    clock: fn() -> Now,
}

/// Result of the assignment of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Assigned {
    /// The session has the block that it had, or needs none.
    Kept,
    /// It has a new block.
    New,
    /// None is free: its packets are dropped and counted.
    None,
}

/// Returns the address of a session that NAT of an interface translates.
fn translated(users: &[UeKey], pool: &NatPool) -> Option<u32> {
    users.iter().find_map(|key| {
        let [a, b, c, d, ..] = key.address;
        let address = u32::from_be_bytes([a, b, c, d]);
        let is_it = key.family == 4
            && key.instance == pool.instance
            && pool.inside.iter().any(|range| range.has(address));
        is_it.then_some(address)
    })
}

impl NatBlocks {
    /// Creates the blocks of a plan from what the tables say.
    pub(super) fn new(plan: NatPlan, tables: &Tables) -> Self {
        let mut this = Self {
            free: Vec::new(),
            random: RandomState::new(),
            counts: NatCounts { blocks: plan.blocks().into(), ..NatCounts::default() },
            clock: Now::read,
            plan,
        };
        for pool in &this.plan.pools {
            // Users of consecutive sessions get different addresses.
            let all = (0..pool.per_address).flat_map(|of_address| {
                let blocks = pool.first_block + of_address..pool.first_block + pool.blocks;
                blocks.step_by(pool.per_address as usize)
            });
            let mut waiting: Vec<(u64, u32)> = Vec::new();
            for number in all {
                match tables.nat_blocks.get(number as usize) {
                    Some(block) if block.owner().is_some() => this.counts.used += 1,
                    Some(block) => waiting.push((block.since, number)),
                    None => waiting.push((0, number)),
                }
            }
            waiting.sort_by_key(|(since, _)| *since);
            this.free.push(FreeBlocks {
                waiting: waiting.into(),
                rest: u64::from(pool.rest_s) * SECOND,
                log: NatLog::open(pool.log.as_deref()),
            });
        }
        this
    }

    /// Returns true if no interface has NAT.
    pub(super) fn is_empty(&self) -> bool {
        self.plan.pools.is_empty()
    }

    /// Returns the interface and the address of the user that a session's block is for.
    fn wanted(&self, users: &[UeKey]) -> Option<(usize, u32)> {
        let mut pools = self.plan.pools.iter().enumerate();
        pools.find_map(|(index, pool)| Some((index, translated(users, pool)?)))
    }

    /// Returns true if a session has its block, needs none, or one is free.
    pub(super) fn has_room(&self, tables: &Tables, id: SessionIndex, users: &[UeKey]) -> bool {
        let Some((pool, inside)) = self.wanted(users) else { return true };
        self.current(tables, id, pool, inside).is_some() || self.is_free(pool)
    }

    fn is_free(&self, pool: usize) -> bool {
        let now = (self.clock)().monotonic;
        let free = self.free.get(pool);
        free.is_some_and(|free| free.waiting.front().is_some_and(|it| free.is_rested(it.0, now)))
    }

    /// Returns the user of a session if its block is the one that the tables and the plan say.
    fn current<'t>(
        &self,
        tables: &'t Tables,
        id: SessionIndex,
        pool: usize,
        inside: u32,
    ) -> Option<&'t NatUser> {
        let user = tables.nat_users.get(id.0 as usize).filter(|user| user.inside == inside)?;
        let block = tables.nat_blocks.get(user.block as usize)?;
        let planned = self.plan.pools.get(pool)?.block(user.block)?;
        let is_sound = block.owner() == Some(id)
            && (block.inside, block.generation) == (inside, user.generation)
            && planned.address == Ipv4Addr::from(user.external)
            && (planned.first_port, planned.bucket) == (user.first_port, user.bucket)
            && user.buckets == self.plan.pools.get(pool)?.ports / BUCKET;
        is_sound.then_some(user)
    }

    /// Gives a session the block that it needs, before its rules are published, and takes one that
    /// it needs no more.
    pub(super) fn assign(
        &mut self,
        tables: &mut Tables,
        session: &Session,
        users: &[UeKey],
    ) -> Assigned {
        if self.is_empty() {
            return Assigned::Kept;
        }
        let wanted = self.wanted(users);
        if let Some((pool, inside)) = wanted
            && self.current(tables, session.id, pool, inside).is_some()
        {
            return Assigned::Kept;
        }
        self.release(tables, session);
        let Some((pool, inside)) = wanted else { return Assigned::Kept };
        if self.allocate(tables, session, pool, inside).is_some() {
            return Assigned::New;
        }
        self.counts.exhausted += 1;
        log_warning(&format!("session {}: no block of external ports is free", session.id.0));
        Assigned::None
    }

    fn allocate(
        &mut self,
        tables: &mut Tables,
        session: &Session,
        pool: usize,
        inside: u32,
    ) -> Option<()> {
        let now = (self.clock)();
        let planned = self.plan.pools.get(pool)?;
        let free = self.free.get_mut(pool)?;
        let first = free.waiting.front().copied()?;
        if !free.is_rested(first.0, now.monotonic) {
            return None;
        }
        let number = first.1;
        let block = planned.block(number)?;
        let before = tables.nat_blocks.get(number as usize).map_or(0, |block| block.generation);
        let generation = before % (GENERATIONS - 1) + 1;
        let owned = NatBlock {
            inside,
            session: session.id.0,
            since: now.monotonic,
            generation,
            reserved: [0; 3],
        };
        let user = NatUser {
            inside,
            external: block.address.to_bits(),
            block: number,
            bucket: block.bucket,
            buckets: planned.ports / BUCKET,
            key: self.random.hash_one((number, generation, now.monotonic)) as u32,
            first_port: block.first_port,
            generation,
            reserved: 0,
        };
        // A line too many does no harm, one that is missing does.
        free.log.write(&BlockEvent { session, user: &user, is_allocated: true, real: now.real });
        step();
        tables.nat_blocks.set(number as usize, &owned).ok()?;
        step();
        if tables.nat_users.set(session.id.0 as usize, &user).is_err() {
            let free = NatBlock { inside: 0, session: 0, ..owned };
            let _ = tables.nat_blocks.set(number as usize, &free);
            return None;
        }
        free.waiting.pop_front();
        self.counts.used += 1;
        self.counts.allocated += 1;
        Some(())
    }

    /// Releases the block of a session, if it has one. It rests before another user gets it.
    pub(super) fn release(&mut self, tables: &mut Tables, session: &Session) {
        if self.is_empty() {
            return;
        }
        let index = session.id.0 as usize;
        let Some(user) = tables.nat_users.get(index).copied() else { return };
        let now = (self.clock)();
        let pool = self.plan.pools.iter().position(|pool| pool.block(user.block).is_some());
        if let Some(free) = pool.and_then(|pool| self.free.get_mut(pool)) {
            free.log.write(&BlockEvent {
                session,
                user: &user,
                is_allocated: false,
                real: now.real,
            });
        }
        step();
        tables.nat_users.clear(index);
        let block = tables.nat_blocks.get(user.block as usize).copied();
        if block.is_some_and(|block| block.owner() == Some(session.id)) {
            self.free_block(tables, user.block, now);
        }
    }

    /// Marks a block as free from now on.
    fn free_block(&mut self, tables: &mut Tables, number: u32, now: Now) {
        let Some(block) = tables.nat_blocks.get(number as usize).copied() else { return };
        let free = NatBlock { inside: 0, session: 0, since: now.monotonic, ..block };
        step();
        if tables.nat_blocks.set(number as usize, &free).is_err() {
            return; // recovery releases it, since its session has no such block
        }
        self.counts.used = self.counts.used.saturating_sub(1);
        self.counts.released += 1;
        let pool = self.plan.pools.iter().position(|pool| pool.block(number).is_some());
        if let Some(free) = pool.and_then(|pool| self.free.get_mut(pool)) {
            free.waiting.push_back((now.monotonic, number));
        }
    }

    /// Releases what a former process has left: blocks whose sessions do not exist, or have another
    /// block. `exists` returns true if there is a session at an index.
    pub(super) fn recover(
        &mut self,
        tables: &mut Tables,
        mut exists: impl FnMut(SessionIndex) -> bool,
    ) -> usize {
        if self.is_empty() {
            return 0;
        }
        let now = (self.clock)();
        let mut gone = |(index, _): &(usize, &NatUser)| !exists(SessionIndex(*index as u32));
        let users: Vec<usize> =
            tables.nat_users.iter().filter(|it| gone(it)).map(|(index, _)| index).collect();
        for index in users {
            step();
            tables.nat_users.clear(index);
        }
        let is_left = |(number, block): &(usize, &NatBlock)| {
            block.owner().is_some_and(|owner| {
                let user = tables.nat_users.get(owner.0 as usize);
                !user.is_some_and(|user| {
                    (user.block as usize, user.generation) == (*number, block.generation)
                })
            })
        };
        let left: Vec<usize> =
            tables.nat_blocks.iter().filter(is_left).map(|(number, _)| number).collect();
        for number in &left {
            self.free_block(tables, *number as u32, now);
        }
        left.len()
    }

    /// Returns the numbers of blocks.
    pub(super) fn counts(&self) -> NatCounts {
        let now = (self.clock)().monotonic;
        let resting = self.free.iter().flat_map(|free| {
            // Sorted by the time of their release.
            let rested = free.waiting.partition_point(|it| free.is_rested(it.0, now));
            free.waiting.range(rested..)
        });
        let log_failed = self.free.iter().map(|free| free.log.failed()).sum();
        NatCounts { resting: resting.count() as u64, log_failed, ..self.counts }
    }
}

impl FreeBlocks {
    /// Returns true if a block may have another user.
    const fn is_rested(&self, since: u64, now: u64) -> bool {
        since == 0 || since.saturating_add(self.rest) <= now
    }
}

#[cfg(test)]
mod tests;
