//! Associations and their peers: indexed in memory, stored in the table `peers`.

pub mod association_record;

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use fastlane::table::TableError;
use zerocopy::FromZeros;

pub use self::association_record::ALTERNATIVES;
use self::association_record::{
    ANSWER, AssociationRecord, Endpoint, StoredResponse, mapped, state,
};
use crate::pfcp::{NodeName, RequestKey};
use crate::store::Cells;
use crate::time::Now;

/// Peer of an association.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Association index, less than the capacity of the table `peers`. `Session::peer` refers to
    /// it.
    pub index: u16,
    /// Node ID.
    pub node_id: NodeName,
    /// Recovery time stamp, in seconds since 1900.
    pub recovery: u32,
    /// Address for our requests.
    pub address: SocketAddr,
    /// Our address that the peer sends to.
    pub local: Option<IpAddr>,
    /// CP Function Features (clause 8.2.58): octets as received, octet 5 lowest.
    pub features: u64,
    /// The peer responds. Its sessions may stay for a time when it does not.
    pub is_up: bool,
}

/// An association with its state in this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Association {
    /// Peer of the association.
    pub peer: Peer,
    /// Time of the setup, in nanoseconds of `CLOCK_REALTIME`.
    pub since: u64,
    /// Time when the peer became silent, in nanoseconds of `CLOCK_MONOTONIC`.
    pub down: Option<u64>,
    /// Time when the peer was first heard after its last start, in nanoseconds of
    /// `CLOCK_MONOTONIC`. Responses sent before do not answer its requests.
    pub begun: u64,
    /// The sessions of the association are being removed.
    pub is_ending: bool,
    /// Further addresses of the peer: Alternative SMF IP Addresses (clause 8.2.140).
    pub alternatives: Vec<IpAddr>,
    /// SMF Set ID (clause 8.2.141) in lower case; empty without one.
    pub smf_set: Vec<u8>,
}

impl Association {
    /// Returns true if the peer has announced this address, or set the association up from it.
    #[must_use]
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.peer.address.ip() == address || self.alternatives.contains(&address)
    }
}

/// Parameters of an association.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Node ID.
    pub node_id: NodeName,
    /// Recovery time stamp of the peer.
    pub recovery: u32,
    /// Address for our requests.
    pub address: SocketAddr,
    /// Our address that the peer sends to.
    pub local: Option<IpAddr>,
    /// CP Function Features, octet 5 lowest.
    pub features: u64,
    /// Alternative SMF IP Addresses; at most [`ALTERNATIVES`] are stored.
    pub alternatives: Vec<IpAddr>,
    /// SMF Set ID in lower case; empty without one.
    pub smf_set: Vec<u8>,
}

/// Values that an association update changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssociationUpdate {
    /// CP Function Features, octet 5 lowest.
    pub features: Option<u64>,
    /// Alternative SMF IP Addresses, which replace those before.
    pub alternatives: Option<Vec<IpAddr>>,
    /// SMF Set ID in lower case.
    pub smf_set: Option<Vec<u8>>,
}

/// Response stored with an association, to be repeated after a restart.
#[derive(Clone, Copy, Debug)]
pub struct AssociationResponse<'a> {
    /// Key of the request.
    pub key: RequestKey,
    /// Encoded response.
    pub bytes: &'a [u8],
}

/// Error of creating or changing an association.
#[derive(Debug, thiserror::Error)]
pub enum AssociationError {
    /// All association indices are in use.
    #[error("all {0} association slots are in use; raise the capacity of the table `peers`")]
    Full(usize),
    /// The table could not be written.
    #[error("an association cannot be stored: {0}")]
    Table(#[from] TableError),
}

/// All associations, and the writer of their table.
pub struct Associations {
    table: Cells<AssociationRecord>,
    slots: Vec<Option<Association>>,
    /// One more than the highest index that has had a record: a flood of strangers asks for a
    /// stored response with each datagram, and the table has room for many peers.
    end: usize,
    by_name: HashMap<NodeName, u16>,
    /// Associations by the addresses of their peers, alternatives included.
    by_address: HashMap<IpAddr, Vec<u16>>,
    /// Associations that are down or ending; these are few.
    troubled: BTreeSet<u16>,
}

impl Associations {
    /// Opens the associations of the table. Records that no program of this release wrote are
    /// removed.
    pub fn open(mut table: Cells<AssociationRecord>) -> Self {
        let capacity = table.capacity().min(usize::from(u16::MAX));
        let mut slots: Vec<Option<Association>> = vec![None; capacity];
        let mut by_name = HashMap::new();
        let mut troubled = BTreeSet::new();
        for (slot, at) in slots.iter_mut().enumerate() {
            let Some(record) = table.get(slot).copied() else { continue };
            if record.state == state::RELEASED {
                continue;
            }
            match association(slot as u16, &record) {
                Some(found) if !by_name.contains_key(&found.peer.node_id) => {
                    by_name.insert(found.peer.node_id.clone(), slot as u16);
                    if !found.peer.is_up {
                        troubled.insert(slot as u16);
                    }
                    *at = Some(found);
                }
                _ => drop(table.clear(slot)),
            }
        }
        let end = table.iter().last().map_or(0, |(slot, _)| slot + 1);
        let mut this = Self { table, slots, end, by_name, by_address: HashMap::new(), troubled };
        let all: Vec<u16> = this.iter().map(|found| found.peer.index).collect();
        all.into_iter().for_each(|index| this.add_addresses(index));
        this
    }

    /// Returns the associations.
    pub fn iter(&self) -> impl Iterator<Item = &Association> {
        self.slots.iter().flatten()
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns true if there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns the maximum number of associations.
    #[must_use]
    pub fn capacity(&self) -> u16 {
        u16::try_from(self.slots.len()).unwrap_or(u16::MAX)
    }

    /// Returns the association with an index.
    #[must_use]
    pub fn get(&self, index: u16) -> Option<&Association> {
        self.slots.get(usize::from(index))?.as_ref()
    }

    /// Returns the association with a Node ID.
    #[must_use]
    pub fn find(&self, node_id: &NodeName) -> Option<&Association> {
        self.get(*self.by_name.get(node_id)?)
    }

    /// Returns the associations with a peer address. Several Node IDs can share an address.
    pub fn at(&self, address: IpAddr) -> impl Iterator<Item = &Association> {
        self.known_at(address).filter(move |found| found.peer.address.ip() == address)
    }

    /// Returns the associations with a peer that has this address, alternatives included.
    pub fn known_at(&self, address: IpAddr) -> impl Iterator<Item = &Association> {
        let indices = self.by_address.get(&address).map_or(&[][..], Vec::as_slice);
        indices.iter().filter_map(|index| self.get(*index))
    }

    fn add_addresses(&mut self, index: u16) {
        for address in self.addresses_of(index) {
            self.by_address.entry(address).or_default().push(index);
        }
    }

    fn remove_addresses(&mut self, index: u16) {
        for address in self.addresses_of(index) {
            let Some(indices) = self.by_address.get_mut(&address) else { continue };
            indices.retain(|other| *other != index);
            if indices.is_empty() {
                self.by_address.remove(&address);
            }
        }
    }

    /// Returns the addresses of a peer, each once.
    fn addresses_of(&self, index: u16) -> Vec<IpAddr> {
        let Some(found) = self.get(index) else { return Vec::new() };
        let mut all = found.alternatives.clone();
        all.push(found.peer.address.ip());
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns the index of a Node ID, or a free one.
    ///
    /// # Errors
    /// All indices are in use.
    pub fn index(&self, node_id: &NodeName, now: Now, life: u64) -> Result<u16, AssociationError> {
        if let Some(index) = self.by_name.get(node_id) {
            return Ok(*index);
        }
        let is_free = |slot: &usize| {
            self.slots[*slot].is_none()
                && self.table.get(*slot).is_none_or(|record| is_over(record, now, life))
        };
        let free = (0..self.slots.len()).find(is_free);
        // If nothing else is free, a released association with responses that might be repeated is
        // overwritten.
        let free = free.or_else(|| self.slots.iter().position(Option::is_none));
        free.map(|slot| slot as u16).ok_or(AssociationError::Full(self.slots.len()))
    }

    /// Creates or replaces an association, and stores the response.
    ///
    /// # Errors
    /// The table cannot be written; nothing has changed then.
    pub fn set_up(
        &mut self,
        index: u16,
        setup: &Setup,
        now: Now,
        answer: Option<AssociationResponse<'_>>,
    ) -> Result<(), AssociationError> {
        let slot = usize::from(index);
        let mut record = AssociationRecord::new(&setup.node_id);
        record.begun = now.monotonic;
        if let Some(before) = self.table.get(slot) {
            record.answers = before.answers;
            let is_same = before.state != state::RELEASED
                && before.recovery == setup.recovery
                && before.node_id().as_ref() == Some(&setup.node_id);
            record.begun = if is_same { before.begun } else { now.monotonic };
        }
        record.features = setup.features;
        record.since = now.real;
        record.state = state::UP;
        record.recovery = setup.recovery;
        record.address = Endpoint::of(setup.address);
        record.local = setup.local.map_or([0; 16], mapped);
        record.set_alternatives(&setup.alternatives);
        record.set_smf_set(&setup.smf_set);
        keep(&mut record, answer, now);
        self.table.set(slot, &record)?;
        self.end = self.end.max(slot + 1);
        self.forget(index);
        self.by_name.insert(setup.node_id.clone(), index);
        self.slots[slot] = association(index, &record);
        self.add_addresses(index);
        Ok(())
    }

    /// Changes the record of an association.
    fn change(
        &mut self,
        index: u16,
        change: impl FnOnce(&mut AssociationRecord),
    ) -> Result<(), AssociationError> {
        let slot = usize::from(index);
        let Some(mut record) = self.table.get(slot).copied() else { return Ok(()) };
        change(&mut record);
        self.table.set(slot, &record)?;
        if record.state == state::RELEASED {
            self.forget(index);
            return Ok(());
        }
        let changed = association(index, &record);
        if changed.as_ref().is_some_and(|changed| !changed.peer.is_up) {
            self.troubled.insert(index);
        } else {
            self.troubled.remove(&index);
        }
        self.remove_addresses(index);
        self.slots[slot] = changed;
        self.add_addresses(index);
        Ok(())
    }

    /// Removes an association from the memory of this process.
    fn forget(&mut self, index: u16) {
        self.troubled.remove(&index);
        self.remove_addresses(index);
        let before = self.slots.get_mut(usize::from(index)).and_then(Option::take);
        if let Some(before) = before {
            self.by_name.remove(&before.peer.node_id);
        }
    }

    /// Returns the associations that are down or ending.
    pub fn troubled(&self) -> impl Iterator<Item = &Association> {
        self.troubled.iter().filter_map(|index| self.get(*index))
    }

    /// Stores a response, and the values of an update.
    ///
    /// # Errors
    /// The table cannot be written; nothing has changed then.
    pub fn update(
        &mut self,
        index: u16,
        now: Now,
        update: &AssociationUpdate,
        answer: AssociationResponse<'_>,
    ) -> Result<(), AssociationError> {
        self.change(index, |record| {
            record.features = update.features.unwrap_or(record.features);
            if let Some(alternatives) = &update.alternatives {
                record.set_alternatives(alternatives);
            }
            if let Some(smf_set) = &update.smf_set {
                record.set_smf_set(smf_set);
            }
            keep(record, Some(answer), now);
        })
    }

    /// Stores the recovery time stamp of a restarted peer.
    ///
    /// # Errors
    /// The table cannot be written; nothing has changed then.
    pub fn set_recovery(
        &mut self,
        index: u16,
        now: Now,
        recovery: u32,
    ) -> Result<(), AssociationError> {
        self.change(index, |record| {
            (record.recovery, record.begun) = (recovery, now.monotonic);
        })
    }

    /// Moves an association to an alternative address of its peer, which answers with this recovery
    /// time stamp. The address before becomes an alternative one.
    ///
    /// # Errors
    /// The table cannot be written; nothing has changed then.
    pub fn move_to(
        &mut self,
        index: u16,
        address: SocketAddr,
        local: IpAddr,
        recovery: u32,
    ) -> Result<(), AssociationError> {
        self.change(index, |record| {
            let before = record.address.socket().ip();
            let mut others = record.alternatives();
            others.retain(|other| *other != address.ip());
            others.insert(0, before);
            record.set_alternatives(&others);
            record.address = Endpoint::of(address);
            record.local = mapped(local);
            (record.state, record.down, record.recovery) = (state::UP, 0, recovery);
        })
    }

    /// Marks the peer as heard (`None`) or as silent since a time.
    ///
    /// # Errors
    /// The table cannot be written; nothing has changed then.
    pub fn set_down(&mut self, index: u16, down: Option<u64>) -> Result<(), AssociationError> {
        self.change(index, |record| {
            record.state = if down.is_some() { state::DOWN } else { state::UP };
            record.down = down.unwrap_or(0);
        })
    }

    /// Marks the association as ending and stores the response. If the process is killed, its
    /// successor continues with the removal and has the response.
    ///
    /// # Errors
    /// The table cannot be written; nothing has changed then.
    pub fn begin_end(
        &mut self,
        index: u16,
        now: Now,
        answer: Option<AssociationResponse<'_>>,
    ) -> Result<(), AssociationError> {
        self.change(index, |record| {
            record.state = state::ENDING;
            keep(record, answer, now);
        })
    }

    /// Releases the association. Its responses are kept while they may be repeated.
    ///
    /// # Errors
    /// The table cannot be written; nothing has changed then.
    pub fn release(&mut self, index: u16) -> Result<(), AssociationError> {
        self.change(index, |record| record.state = state::RELEASED)
    }

    /// Returns the response that was sent to a request at most `life` nanoseconds ago.
    #[must_use]
    pub fn answer(&self, key: &RequestKey, now: Now, life: u64) -> Option<&[u8]> {
        let peer = Endpoint::of(key.peer);
        let records = (0..self.end).filter_map(|slot| self.table.get(slot));
        let mut kept = records.flat_map(|record| &record.answers).filter(|answer| {
            answer.sequence == key.sequence
                && answer.message_type == u16::from(key.message_type)
                && answer.digest == key.digest
                && answer.peer == peer
                && lives(answer, now, life)
        });
        kept.next().map(StoredResponse::bytes)
    }
}

impl std::fmt::Debug for Associations {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_list().entries(self.slots.iter().flatten()).finish()
    }
}

fn lives(answer: &StoredResponse, now: Now, life: u64) -> bool {
    answer.at != 0 && now.monotonic.saturating_sub(answer.at) < life
}

/// Returns true if a record is released and none of its responses may be repeated.
fn is_over(record: &AssociationRecord, now: Now, life: u64) -> bool {
    record.state == state::RELEASED && !record.answers.iter().any(|it| lives(it, now, life))
}

fn association(index: u16, record: &AssociationRecord) -> Option<Association> {
    let (is_up, down, is_ending) = match record.state {
        state::UP => (true, None, false),
        state::DOWN => (false, Some(record.down), false),
        state::ENDING => (false, None, true),
        _ => return None,
    };
    let peer = Peer {
        index,
        node_id: record.node_id()?,
        recovery: record.recovery,
        address: record.address.socket(),
        local: record.local(),
        features: record.features,
        is_up,
    };
    let (since, begun) = (record.since, record.begun);
    let (alternatives, smf_set) = (record.alternatives(), record.smf_set().to_owned());
    Some(Association { peer, since, down, begun, is_ending, alternatives, smf_set })
}

/// Stores a response in front of the others. A response that is too long is not stored: a
/// retransmission is handled again.
fn keep(record: &mut AssociationRecord, answer: Option<AssociationResponse<'_>>, now: Now) {
    let Some(AssociationResponse { key, bytes }) = answer else { return };
    if bytes.len() > ANSWER {
        return;
    }
    let mut kept = StoredResponse::new_zeroed();
    kept.at = now.monotonic.max(1);
    kept.peer = Endpoint::of(key.peer);
    (kept.sequence, kept.digest) = (key.sequence, key.digest);
    kept.message_type = key.message_type.into();
    kept.length = bytes.len() as u16;
    kept.bytes[..bytes.len()].copy_from_slice(bytes);
    record.answers.rotate_right(1);
    record.answers[0] = kept;
}
