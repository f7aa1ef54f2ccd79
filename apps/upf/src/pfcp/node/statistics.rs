//! What is counted.

use std::collections::BTreeMap;

/// Counters of the PFCP server. They only grow while the process lives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Messages received, by message type; those that were discarded are among them if their
    /// header could be read.
    pub received: BTreeMap<u8, u64>,
    /// Answers given to requests, by their message type and cause (0 for those without one).
    /// Repeated ones are not among them.
    pub answered: BTreeMap<(u8, u8), u64>,
    /// Requests sent, by message type, each once.
    pub requested: BTreeMap<u8, u64>,
    /// Answers to our requests, by message type and cause (0 for those without one).
    pub answers: BTreeMap<(u8, u8), u64>,
    /// Requests of ours that nobody answered, by message type.
    pub unanswered: BTreeMap<u8, u64>,
    /// Answers repeated for retransmitted requests.
    pub repeated: u64,
    /// Datagrams discarded, by the reason.
    pub discarded: BTreeMap<Discarded, u64>,
    /// Associations that were set up.
    pub associations_up: u64,
    /// Associations that were released.
    pub associations_released: u64,
    /// Associations whose peer was not heard any more.
    pub associations_lost: u64,
    /// Times that a peer was found to have started again.
    pub restorations: u64,
    /// Sessions that were removed because their association ended or their peer started again.
    pub sessions_removed: u64,
    /// GTP-U paths that failed.
    pub paths_failed: u64,
    /// GTP-U paths that came back.
    pub paths_recovered: u64,
    /// End markers that lanes could not send in time.
    pub end_markers_given_up: u64,
    /// Messages of lanes by kind.
    pub lane_messages: BTreeMap<u32, u64>,
    /// Datagrams that could not be sent.
    pub send_failed: u64,
    /// Changes that could not be written to the tables.
    pub table_failed: u64,
}

/// Why a datagram, or a message in one, was discarded without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Discarded {
    /// It is no message: too short, or its length is not that of the datagram.
    Malformed,
    /// Another version of the protocol, after more answers than are given in a second.
    Version,
    /// A message type that is unknown, or not for a UPF.
    MessageType,
    /// The flag S is not as the message type needs.
    SeidFlag,
    /// An answer that nobody has asked for.
    Unsolicited,
    /// A heartbeat or another answer without what it must have.
    MissingIe,
    /// More messages in a datagram than are taken.
    Bundle,
    /// Sessions of the association are going; it asks again.
    Busy,
}

impl Discarded {
    /// All reasons.
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

    /// Its name in metrics.
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
    /// Counts a datagram or message that is discarded.
    pub fn discard(&mut self, reason: Discarded) {
        *self.discarded.entry(reason).or_default() += 1;
    }
}
