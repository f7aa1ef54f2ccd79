//! Counters of slices and DNNs, as lanes have counted, with the numbers of sessions.

use fastlane::table::State;

use crate::pfcp::sessions::Sessions;
use crate::rules::layout::drop_reason::{DROP_REASONS, DropReason};
use crate::rules::layout::slices::{
    SLICE_WORDS, SliceGroup, SliceLabels, SliceRecord, forwarded_words, kind, outcome_word,
};

/// Counters of one group of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SliceCounts {
    /// Slice and DNN.
    pub labels: SliceLabels,
    /// Number of sessions.
    pub sessions: usize,
    /// Packets and octets forwarded, by direction.
    pub forwarded: [[u64; 2]; 2],
    /// Packets by other outcomes, as far as there are any.
    pub outcomes: Vec<(DropReason, u64)>,
}

impl SliceCounts {
    /// Returns the number of dropped packets.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.drops().map(|(_, packets)| packets).sum()
    }

    /// Returns dropped packets by reason.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> {
        self.outcomes.iter().copied().filter(|(reason, _)| reason.is_drop())
    }

    fn is_empty(&self) -> bool {
        let none = Self { labels: self.labels.clone(), ..Self::default() };
        *self == none
    }

    /// Returns the counters of all groups in use, sorted by slice and DNN. `counters` are those of
    /// the lanes, if the fast path is attached.
    pub(crate) fn all(sessions: &Sessions, counters: Option<&State<SLICE_WORDS>>) -> Vec<Self> {
        let read = |(group, record): (SliceGroup, SliceRecord)| {
            let words = counters.map_or([0; SLICE_WORDS], |it| it.read(group.entry()));
            let outcomes = DROP_REASONS.iter().map(|it| (*it, words[outcome_word(*it)]));
            let counts = Self {
                labels: record.labels(),
                sessions: sessions.in_group(group),
                forwarded: [0, 1].map(|it| forwarded_words(it).map(|word| words[word])),
                outcomes: outcomes.filter(|(_, packets)| *packets > 0).collect(),
            };
            // A group in which others are put together, or one without names, may have none.
            let is_named = record.kind == kind::EXACT && counts.labels != SliceLabels::default();
            (is_named || !counts.is_empty()).then_some(counts)
        };
        let mut all: Vec<Self> = sessions.published().slices().all().filter_map(read).collect();
        all.sort_unstable_by(|one, other| one.labels.cmp(&other.labels));
        all
    }
}
