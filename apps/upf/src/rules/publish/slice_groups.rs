//! Groups of sessions by slice and DNN: which group a session has, and the limits of held packets
//! of groups and associations.

use std::collections::BTreeMap;

use fastlane::table::TableError;

use super::{Tables, step};
use crate::config::slice_limits::{MAX_LIMITED, SliceLimits, SmfLimits};
use crate::rules::layout::slices::{
    DNN, HoldBudget, SliceGroup, SliceLabels, SliceRecord, kind, smf_entry,
};
use crate::session::{Network, SNssai, Session, Source};

/// Slice and DNN of sessions.
type Pair = (Option<SNssai>, String);

/// Groups that are given, and how to find them.
#[derive(Debug, Default)]
pub(super) struct SliceGroups {
    by_pair: BTreeMap<Pair, SliceGroup>,
    /// Groups of all further DNNs of a configured slice.
    rest: BTreeMap<SNssai, SliceGroup>,
    limits: Vec<SliceLimits>,
}

/// Returns the name that a session is counted by beside its slice: its DNN or, if the control plane
/// does not send one, its network instance, which is the DNN as well for most.
fn dnn_of(session: &Session, network: &Network) -> String {
    let instance = || {
        let of = |source: Option<Source>| {
            let mut pdrs = session.pdrs.iter();
            let found = pdrs.find(|pdr| source.is_none_or(|it| pdr.source == it))?;
            network.name(found.instance?)
        };
        of(Some(Source::Core)).or_else(|| of(None)).unwrap_or_default()
    };
    bounded(session.network.as_deref().unwrap_or_else(instance))
}

/// Returns at most as much of a DNN as a record has room for.
fn bounded(dnn: &str) -> String {
    dnn[..dnn.floor_char_boundary(DNN)].to_owned()
}

impl SliceGroups {
    /// Reads the groups that are given.
    pub(super) fn open(tables: &mut Tables) -> Self {
        let mut groups = Self::default();
        for (group, record) in [
            (SliceGroup::NONE, SliceRecord::new(None, kind::EXACT, "")),
            (SliceGroup::OTHER, SliceRecord::new(None, kind::OTHER, "")),
        ] {
            groups.write(tables, group, &record);
        }
        for group in SliceGroup::all() {
            if let Some(record) = tables.slices.get(group.index()).copied() {
                groups.note(group, &record);
            }
        }
        groups
    }

    /// Sets the limits of slices, and gives each of these a group for all its DNNs that will get
    /// none of their own.
    ///
    /// # Errors
    /// A limit of held packets could not be written, and stays as it was.
    pub(super) fn set_limits(
        &mut self,
        tables: &mut Tables,
        limits: &[SliceLimits],
    ) -> Result<(), TableError> {
        self.limits = limits.to_vec();
        for slice in limits {
            let slice = slice.s_nssai.s_nssai();
            if !self.rest.contains_key(&slice) {
                self.give(tables, &SliceRecord::new(Some(slice), kind::OTHER_DNN, ""));
            }
        }
        for group in SliceGroup::all() {
            if let Some(record) = tables.slices.get(group.index()).copied() {
                self.limit(tables, group, &record)?;
            }
        }
        Ok(())
    }

    fn note(&mut self, group: SliceGroup, record: &SliceRecord) {
        match (record.kind, record.slice()) {
            (kind::EXACT, slice) => {
                self.by_pair.insert((slice, record.dnn().to_owned()), group);
            }
            (kind::OTHER_DNN, Some(slice)) => {
                self.rest.insert(slice, group);
            }
            _ => {}
        }
    }

    /// Writes a record unless the table has it. Returns true if the table has it now.
    fn write(&self, tables: &mut Tables, group: SliceGroup, record: &SliceRecord) -> bool {
        if tables.slices.get(group.index()) == Some(record) {
            return true;
        }
        step();
        tables.slices.set(group.index(), record).is_ok()
    }

    /// Gives a record the next free group.
    fn give(&mut self, tables: &mut Tables, record: &SliceRecord) {
        let is_free = |group: &SliceGroup| tables.slices.get(group.index()).is_none();
        let free = SliceGroup::all().find(is_free);
        if let Some(group) = free.filter(|group| self.write(tables, *group, record)) {
            self.note(group, record);
            // The group has had none before, so there is room for it.
            let _ = self.limit(tables, group, record);
        }
    }

    /// Writes the limit of held packets of a group.
    fn limit(
        &self,
        tables: &mut Tables,
        group: SliceGroup,
        record: &SliceRecord,
    ) -> Result<(), TableError> {
        let slice = record.slice();
        let is_it = |it: &SliceLimits| Some(it.s_nssai.s_nssai()) == slice;
        let found = self.limits.iter().position(is_it).and_then(|index| {
            let packets = self.limits.get(index)?.held_packets_per_lane?;
            Some(HoldBudget { number: 1 + index as u32, packets })
        });
        set_budget(tables, group.index(), found)
    }

    /// Returns the group of a slice and a DNN.
    pub(super) fn find(&self, slice: Option<SNssai>, dnn: &str) -> SliceGroup {
        let exact = self.by_pair.get(&(slice, bounded(dnn)));
        let rest = || self.rest.get(&slice?);
        exact.or_else(rest).copied().unwrap_or(SliceGroup::OTHER)
    }

    /// Returns the group of a session.
    pub(super) fn of(&self, session: &Session, network: &Network) -> SliceGroup {
        self.find(session.s_nssai, &dnn_of(session, network))
    }

    /// Returns the group of a session, which gets one if there is a free one.
    pub(super) fn assign(
        &mut self,
        tables: &mut Tables,
        session: &Session,
        network: &Network,
    ) -> SliceGroup {
        let pair = (session.s_nssai, dnn_of(session, network));
        if !self.by_pair.contains_key(&pair) {
            self.give(tables, &SliceRecord::new(pair.0, kind::EXACT, &pair.1));
        }
        self.find(pair.0, &pair.1)
    }
}

/// Groups that sessions are counted in, with the tables.
#[derive(Clone, Copy)]
pub struct SliceTables<'a> {
    pub(super) groups: &'a SliceGroups,
    pub(super) tables: &'a Tables,
    pub(super) network: &'a Network,
}

impl<'a> SliceTables<'a> {
    /// Returns the group that a session is counted in.
    #[must_use]
    pub fn group_of(self, session: &Session) -> SliceGroup {
        self.groups.of(session, self.network)
    }

    /// Returns the group of a slice and a DNN.
    #[must_use]
    pub fn find(self, slice: Option<SNssai>, dnn: &str) -> SliceGroup {
        self.groups.find(slice, dnn)
    }

    /// Returns all groups that sessions have got, with their slices and DNNs.
    pub fn all(self) -> impl Iterator<Item = (SliceGroup, SliceRecord)> + 'a {
        let record = move |group: SliceGroup| self.tables.slices.get(group.index()).copied();
        SliceGroup::all().filter_map(move |group| Some((group, record(group)?)))
    }

    /// Returns slice and DNN of a group, as text.
    #[must_use]
    pub fn labels(self, group: SliceGroup) -> SliceLabels {
        let record = self.tables.slices.get(group.index());
        record.map(SliceRecord::labels).unwrap_or_default()
    }
}

/// Groups that sessions are counted in, with the tables, for changes.
pub struct SliceTablesMut<'a> {
    pub(super) groups: &'a mut SliceGroups,
    pub(super) tables: &'a mut Tables,
    pub(super) network: &'a Network,
}

impl SliceTablesMut<'_> {
    /// Sets the limits of slices.
    ///
    /// # Errors
    /// A limit of held packets could not be written, and stays as it was.
    pub fn set_limits(&mut self, limits: &[SliceLimits]) -> Result<(), TableError> {
        self.groups.set_limits(self.tables, limits)
    }

    /// Sets the limit of held packets of an association by the entry of `app.n4.limits` that covers
    /// it, with the index of the entry.
    ///
    /// # Errors
    /// It could not be written, and stays as it was.
    pub fn limit_smf(
        &mut self,
        peer: u16,
        entry: Option<(usize, &SmfLimits)>,
    ) -> Result<(), TableError> {
        let budget = entry.and_then(|(index, entry)| {
            let number = (1 + MAX_LIMITED + index) as u32;
            Some(HoldBudget { number, packets: entry.held_packets_per_lane? })
        });
        set_budget(self.tables, smf_entry(peer), budget)
    }

    /// Gives a session its group, if it has none yet and there is a free one.
    pub(super) fn assign(&mut self, session: &Session) -> SliceGroup {
        self.groups.assign(self.tables, session, self.network)
    }
}

/// Writes a limit of held packets, or removes it.
fn set_budget(
    tables: &mut Tables,
    index: usize,
    budget: Option<HoldBudget>,
) -> Result<(), TableError> {
    let before = tables.hold_budgets.get(index).copied();
    if before == budget {
        return Ok(());
    }
    step();
    let Some(budget) = budget else {
        tables.hold_budgets.clear(index);
        return Ok(());
    };
    tables.hold_budgets.set(index, &budget)
}
