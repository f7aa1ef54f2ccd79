//! Counters of the PFCP server.

use std::collections::BTreeMap;

use super::{Discarded, EstablishmentOutcome, SourceFault, UserPlaneOutcome};
use crate::rules::layout::slices::SliceLabels;

/// Counters of the PFCP server. They are monotonic during the life of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Received messages by message type, including discarded ones with a valid header.
    pub received: BTreeMap<u8, u64>,
    /// Responses sent by message type and cause (0 without one), without retransmissions.
    pub answered: BTreeMap<(u8, u8), u64>,
    /// Requests sent by message type, without retransmissions.
    pub requested: BTreeMap<u8, u64>,
    /// Responses received by message type and cause (0 without one).
    pub answers: BTreeMap<(u8, u8), u64>,
    /// Requests without response by message type.
    pub unanswered: BTreeMap<u8, u64>,
    /// Responses repeated for retransmitted requests.
    pub repeated: u64,
    /// Requests refused because of their source, by message type and reason.
    pub sources_refused: BTreeMap<(u8, SourceFault), u64>,
    /// Establishments by slice, DNN and outcome.
    pub establishments: BTreeMap<(SliceLabels, EstablishmentOutcome), u64>,
    /// Establishments refused because of the limits of their SMF, by the entry of `app.n4.limits`
    /// and limit.
    pub smfs_refused: BTreeMap<(String, EstablishmentOutcome), u64>,
    /// Discarded datagrams by reason.
    pub discarded: BTreeMap<Discarded, u64>,
    /// Associations set up.
    pub associations_up: u64,
    /// Associations released.
    pub associations_released: u64,
    /// Associations whose peer became silent.
    pub associations_lost: u64,
    /// Detected restarts of peers.
    pub restorations: u64,
    /// Sessions removed because their association ended or their peer restarted.
    pub sessions_removed: u64,
    /// GTP-U path failures.
    pub paths_failed: u64,
    /// GTP-U path recoveries.
    pub paths_recovered: u64,
    /// End markers that lanes could not send in time.
    pub end_markers_given_up: u64,
    /// GTP-U messages on N4 and packets for them, by outcome.
    pub user_plane: BTreeMap<UserPlaneOutcome, u64>,
    /// Lane messages by kind; packets count as the highest one.
    pub lane_messages: BTreeMap<u32, u64>,
    /// Datagrams that could not be sent.
    pub send_failed: u64,
    /// Failed table writes.
    pub table_failed: u64,
}

impl Statistics {
    /// Counts a discarded datagram or message.
    pub fn discard(&mut self, reason: Discarded) {
        *self.discarded.entry(reason).or_default() += 1;
    }
}
