//! Next-hop groups: the table `groups`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use fastlane_table::{AnyState, ArrayWriter, EntryId, Readers, Reset, SharedMemory, TableError};

use super::super::FallbackReason;
use super::super::message::Hop;
use super::super::model::{Model, Target};
use super::super::records::{FIRST_GROUP, GROUP_HOPS, GroupRecord};
use super::id_allocator::IdAllocator;
use super::next_hops::{NextHopKey, NextHops, Ports};

/// Next hops and MTU of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Content {
    mtu: u32,
    hops: Vec<Hop>,
}

#[derive(Debug)]
struct Entry {
    content: Content,
    users: u32,
}

/// Writer of the table `groups`.
#[derive(Debug)]
pub(super) struct NextHopGroups {
    writer: ArrayWriter<GroupRecord>,
    readers: Arc<Readers>,
    numbers: IdAllocator,
    pub(super) hops: NextHops,
    shared: bool,
    entries: HashMap<u32, Entry>,
    by_content: HashMap<Content, u32>,
    /// Groups with several hops, by interface; their records depend on which interfaces work.
    by_link: BTreeMap<u32, BTreeSet<u32>>,
    /// Lane state indexed by group id.
    counts: Vec<AnyState>,
    refusals: Vec<(&'static str, &'static str)>,
}

impl NextHopGroups {
    /// Attaches to an empty table. With `shared`, routes with equal next hops share a group.
    pub(super) fn attach(
        memory: &Arc<SharedMemory>,
        hops: NextHops,
        shared: bool,
        readers: &Arc<Readers>,
    ) -> Result<Self, TableError> {
        let mut writer = ArrayWriter::attach(memory, readers)?;
        for reason in FallbackReason::ALL {
            writer.set(reason as usize, &GroupRecord::fallback(reason as u8))?;
        }
        let numbers = IdAllocator::new(FIRST_GROUP, writer.capacity() as u32);
        Ok(Self {
            writer,
            readers: Arc::clone(readers),
            numbers,
            hops,
            shared,
            entries: HashMap::new(),
            by_content: HashMap::new(),
            by_link: BTreeMap::new(),
            counts: Vec::new(),
            refusals: Vec::new(),
        })
    }

    /// Returns the number of groups in use.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Registers lane state that is zeroed for a group id whenever a route gets it, and once now
    /// for the ids in use. Lanes must not run yet.
    pub(super) fn count_in(&mut self, counts: AnyState) {
        self.entries.keys().for_each(|number| counts.reset(EntryId(*number)));
        self.counts.push(counts);
    }

    /// Returns true if the group already has the contents of `target`.
    pub(super) fn is(&self, number: u32, target: &Target) -> bool {
        match (target, self.entries.get(&number)) {
            (Target::Fallback(reason), None) => number == *reason as u32,
            (Target::NextHops { hops, mtu }, Some(entry)) => {
                entry.content.mtu == *mtu && entry.content.hops == *hops
            }
            _ => false,
        }
    }

    /// Returns the id of a group for `target` and adds a user. `Err` is the fallback to publish
    /// instead when a table is full.
    pub(super) fn acquire(
        &mut self,
        target: Target,
        state: &Model,
        ports: &Ports,
    ) -> Result<u32, FallbackReason> {
        let content = match target {
            Target::Fallback(reason) => return Ok(reason as u32),
            Target::NextHops { hops, .. } if hops.len() > GROUP_HOPS => {
                return Ok(FallbackReason::Unsupported as u32);
            }
            Target::NextHops { hops, mtu } => Content { mtu, hops },
        };
        if let Some(number) = self.by_content.get(&content) {
            if let Some(entry) = self.entries.get_mut(number) {
                entry.users += 1;
            }
            return Ok(*number);
        }
        let Some(number) = self.numbers.take(&self.readers) else {
            self.refusals.push(("groups", "raise the mirror's number of groups"));
            return Err(FallbackReason::Incomplete);
        };
        // No lane has it in hand any more, and none has it yet.
        self.counts.iter().for_each(|counts| counts.reset(EntryId(number)));
        if let Err(reason) = self.fill(number, &content, state, ports) {
            self.numbers.give(number);
            return Err(reason);
        }
        if self.shared {
            self.by_content.insert(content.clone(), number);
        }
        self.entries.insert(number, Entry { content, users: 1 });
        Ok(number)
    }

    /// Replaces the next hops of a group that one route owns. Returns false if that is impossible
    /// and the route must acquire another group.
    pub(super) fn exchange(
        &mut self,
        number: u32,
        target: &Target,
        state: &Model,
        ports: &Ports,
    ) -> bool {
        let Target::NextHops { hops, mtu } = target else { return false };
        if self.shared || hops.len() > GROUP_HOPS || !self.entries.contains_key(&number) {
            return false;
        }
        let content = Content { mtu: *mtu, hops: hops.clone() };
        if self.fill(number, &content, state, ports).is_err() {
            return false;
        }
        let old = self.entries.insert(number, Entry { content, users: 1 });
        if let Some(old) = old {
            self.unlink(number, &old.content);
            self.link(number);
        }
        true
    }

    /// Removes a user of a group. The caller's table must not refer to it any more.
    pub(super) fn release(&mut self, number: u32) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        entry.users -= 1;
        if entry.users > 0 {
            return;
        }
        self.writer.clear(number as usize);
        self.numbers.give(number);
        if let Some(Entry { content, .. }) = self.entries.remove(&number) {
            if self.shared {
                self.by_content.remove(&content);
            }
            self.unlink(number, &content);
        }
    }

    /// Acquires the hops of a group and writes its record.
    fn fill(
        &mut self,
        number: u32,
        content: &Content,
        state: &Model,
        ports: &Ports,
    ) -> Result<(), FallbackReason> {
        let mut ids = Vec::with_capacity(content.hops.len());
        for hop in &content.hops {
            let Some(id) = self.hops.acquire(NextHopKey::of(hop), state, ports) else {
                self.refusals.push(("hops", "raise the mirror's number of hops"));
                break;
            };
            ids.push(id);
        }
        let whole = ids.len() == content.hops.len();
        if whole && self.writer.set(number as usize, &record(content, &ids, state)).is_ok() {
            self.note_choice(number, content);
            return Ok(());
        }
        content.hops.iter().take(ids.len()).for_each(|hop| self.hops.release(NextHopKey::of(hop)));
        Err(FallbackReason::Incomplete)
    }

    /// Notes the interfaces on which the record of a group depends. That of one hop that is not
    /// dead is the hop, whose own record follows its interface.
    fn note_choice(&mut self, number: u32, content: &Content) {
        for hop in content.hops.iter().filter(|hop| content.hops.len() > 1 || hop.dead) {
            self.by_link.entry(hop.link).or_default().insert(number);
        }
    }

    fn link(&mut self, number: u32) {
        let Some(content) = self.entries.get(&number).map(|entry| entry.content.clone()) else {
            return;
        };
        self.note_choice(number, &content);
    }

    /// Releases the hops of a group.
    fn unlink(&mut self, number: u32, content: &Content) {
        for hop in &content.hops {
            self.hops.release(NextHopKey::of(hop));
            if let Some(groups) = self.by_link.get_mut(&hop.link) {
                groups.remove(&number);
                if groups.is_empty() {
                    self.by_link.remove(&hop.link);
                }
            }
        }
    }

    /// Updates all records that depend on an interface: first the hops, then the groups with
    /// several hops.
    ///
    /// # Errors
    /// Returns an error if no slot is free because a lane has not finished its turn. The packets
    /// concerned go to Linux.
    pub(super) fn link_changed(
        &mut self,
        link: u32,
        state: &Model,
        ports: &Ports,
    ) -> Result<(), TableError> {
        let mut done = self.hops.link_changed(link, state, ports);
        let groups: Vec<u32> = self.by_link.get(&link).into_iter().flatten().copied().collect();
        for number in groups {
            done = done.and(self.refresh(number, state, ports));
        }
        done
    }

    fn refresh(&mut self, number: u32, state: &Model, ports: &Ports) -> Result<(), TableError> {
        let Some(Entry { content, .. }) = self.entries.get(&number) else { return Ok(()) };
        let mut numbers = Vec::with_capacity(content.hops.len());
        for hop in &content.hops {
            // They have been acquired: this finds their numbers.
            numbers.extend(self.hops.acquire(NextHopKey::of(hop), state, ports));
            self.hops.release(NextHopKey::of(hop));
        }
        let record = record(content, &numbers, state);
        if self.writer.get(number as usize) == Some(&record) {
            return Ok(());
        }
        let done = self.writer.set(number as usize, &record);
        if done.is_err() {
            self.writer.clear(number as usize);
        }
        done
    }

    /// Returns the tables that were full since the last call, with the remedy.
    pub(super) fn take_refusals(&mut self) -> Vec<(&'static str, &'static str)> {
        std::mem::take(&mut self.refusals)
    }

    /// Returns true if freed ids wait for the lanes.
    pub(super) fn has_room_soon(&self) -> bool {
        self.numbers.are_waiting() || self.hops.has_room_soon()
    }

    /// Starts the grace period of freed ids.
    pub(super) fn seal(&mut self) {
        self.numbers.seal(&self.readers);
        self.hops.seal();
    }
}

/// Builds a group record from the working hops. If none works, it has all hops, whose own records
/// give the reason.
fn record(content: &Content, numbers: &[u32], state: &Model) -> GroupRecord {
    let hops = || content.hops.iter().zip(numbers);
    let is_working = |hop: &Hop| !hop.dead && state.is_usable(hop.link);
    let working: Vec<(u32, u32)> = hops()
        .filter(|(hop, _)| is_working(hop))
        .map(|(hop, number)| (*number, hop.weight))
        .collect();
    if working.is_empty() && content.hops.iter().any(|hop| state.is_usable(hop.link)) {
        // Linux reports the hop as dead.
        return GroupRecord::fallback(FallbackReason::LinkDown as u8);
    }
    if working.is_empty() {
        let all: Vec<_> = hops().map(|(hop, number)| (*number, hop.weight)).collect();
        return GroupRecord::of(content.mtu, &all);
    }
    let mut links = content.hops.iter().filter(|hop| is_working(hop)).map(|hop| hop.link);
    let first = links.next();
    let is_divided = links.any(|link| Some(link) != first).into();
    GroupRecord { is_divided, ..GroupRecord::of(content.mtu, &working) }
}
