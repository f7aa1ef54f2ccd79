//! Counters of the PFCP server.

use std::collections::BTreeMap;

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
    /// Lane messages by kind.
    pub lane_messages: BTreeMap<u32, u64>,
    /// Datagrams that could not be sent.
    pub send_failed: u64,
    /// Failed table writes.
    pub table_failed: u64,
}

/// Reason why a datagram, or a message in it, was discarded without response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Discarded {
    /// Malformed message: too short, or its length differs from that of the datagram.
    Malformed,
    /// Other protocol version, beyond the rate limit of responses.
    Version,
    /// Unknown message type, or one that is not sent to a UPF.
    MessageType,
    /// Flag S does not match the message type.
    SeidFlag,
    /// Response without a request.
    Unsolicited,
    /// A mandatory IE is missing in a heartbeat or a response.
    MissingIe,
    /// Too many messages in a datagram.
    Bundle,
    /// Sessions of the association are being removed; the peer retransmits.
    Busy,
}

impl Discarded {
    /// All discard reasons.
    pub const ALL: [Self; 8] = [
        Self::Malformed,
        Self::Version,
        Self::MessageType,
        Self::SeidFlag,
        Self::Unsolicited,
        Self::MissingIe,
        Self::Bundle,
        Self::Busy,
    ];

    /// Returns the name used in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Version => "version",
            Self::MessageType => "message_type",
            Self::SeidFlag => "seid_flag",
            Self::Unsolicited => "unsolicited",
            Self::MissingIe => "missing_ie",
            Self::Bundle => "bundle",
            Self::Busy => "busy",
        }
    }
}

impl Statistics {
    /// Counts a discarded datagram or message.
    pub fn discard(&mut self, reason: Discarded) {
        *self.discarded.entry(reason).or_default() += 1;
    }
}
