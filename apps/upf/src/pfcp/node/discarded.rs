//! Reasons why datagrams are discarded without a response.

/// Reason why a datagram, or a message in it, was discarded without response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Discarded {
    /// Malformed message: shorter than its header, or longer than the datagram.
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
