//! Decision whether lanes may forward the packets of a connection.

use crate::conntrack::{Connection, Status, TcpState};
use crate::ipsec::IpsecPolicies;

const TCP: u8 = libc::IPPROTO_TCP as u8;
const UDP: u8 = libc::IPPROTO_UDP as u8;

/// Conditions for connections whose packets lanes may forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowPolicy {
    /// Value of the mark within the mask.
    pub mark: u32,
    /// Bits of the mark that count.
    pub mask: u32,
    /// True if UDP without packets of the other side is forwarded.
    pub one_way: bool,
}

/// Suitability of a connection for the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suitability {
    /// Lanes may forward its packets.
    Fast,
    /// Lanes may, once Linux accepts sequence numbers outside of its TCP windows, or has reported
    /// the state.
    Unprepared,
    /// Linux handles it, for this reason.
    Refused(Refusal),
}

/// Reason why Linux handles a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Refusal {
    /// The mark does not have the value that selects flows.
    Mark,
    /// The protocol is neither TCP nor UDP.
    Protocol,
    /// A helper reads the payload, or another connection expected this one.
    Helper,
    /// Linux changes TCP sequence numbers.
    SequenceNumbers,
    /// TCP is not established.
    NotEstablished,
    /// No packet of the other side was seen.
    Unreplied,
    /// A flow table of Linux, or a device, handles it.
    Offloaded,
    /// Its timeout cannot be changed, so Linux would not see that it is in use.
    FixedTimeout,
    /// It is being removed, or not in the table of Linux yet.
    Unconfirmed,
    /// An IPsec policy may transform or drop its packets.
    Ipsec,
}

/// Number of refusals.
pub const REFUSALS: usize = 10;

impl Refusal {
    /// All reasons in numeric order.
    pub const ALL: [Self; REFUSALS] = [
        Self::Mark,
        Self::Protocol,
        Self::Helper,
        Self::SequenceNumbers,
        Self::NotEstablished,
        Self::Unreplied,
        Self::Offloaded,
        Self::FixedTimeout,
        Self::Unconfirmed,
        Self::Ipsec,
    ];

    /// Returns the name for counters, in snake case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mark => "mark",
            Self::Protocol => "protocol",
            Self::Helper => "helper",
            Self::SequenceNumbers => "sequence_numbers",
            Self::NotEstablished => "not_established",
            Self::Unreplied => "unreplied",
            Self::Offloaded => "offloaded",
            Self::FixedTimeout => "fixed_timeout",
            Self::Unconfirmed => "unconfirmed",
            Self::Ipsec => "ipsec",
        }
    }

    /// Returns the reason as a sentence for people.
    #[must_use]
    pub fn explanation(self) -> &'static str {
        match self {
            Self::Mark => "its mark does not select it: a rule must set `ct mark`",
            Self::Protocol => "its protocol is neither TCP nor UDP",
            Self::Helper => "a helper reads its payload, or another connection expected it",
            Self::SequenceNumbers => "Linux changes its TCP sequence numbers",
            Self::NotEstablished => "TCP is not established, or it is being closed",
            Self::Unreplied => "the other side has not replied; `one-way` permits that for UDP",
            Self::Offloaded => "a flow table of Linux, or a device, handles it",
            Self::FixedTimeout => "its timeout is fixed, so it could not be refreshed",
            Self::Unconfirmed => "Linux removes it, or has not confirmed it yet",
            Self::Ipsec => "an IPsec policy (`ip xfrm policy`) covers it",
        }
    }
}

impl FlowPolicy {
    /// Returns true if a mark selects a connection.
    #[must_use]
    pub fn selects(&self, mark: u32) -> bool {
        mark & self.mask == self.mark & self.mask
    }

    /// Returns the suitability of a connection beside the IPsec policies of Linux.
    #[must_use]
    pub fn judge(&self, connection: &Connection, ipsec: &IpsecPolicies) -> Suitability {
        let (status, protocol) = (connection.status, connection.original.protocol);
        let refused = if !self.selects(connection.mark) {
            Some(Refusal::Mark)
        } else if !matches!(protocol, TCP | UDP) {
            Some(Refusal::Protocol)
        } else if status.has(Status::DYING) || !status.has(Status::CONFIRMED) {
            Some(Refusal::Unconfirmed)
        } else if status.has(Status::OFFLOAD) {
            Some(Refusal::Offloaded)
        } else if !connection.helper.is_empty()
            || connection.has_master
            || status.has(Status::EXPECTED)
        {
            Some(Refusal::Helper)
        } else if connection.adjusts_sequence || status.has(Status::SEQUENCE_ADJUST) {
            Some(Refusal::SequenceNumbers)
        } else if status.has(Status::FIXED_TIMEOUT) {
            Some(Refusal::FixedTimeout)
        } else if ipsec.cover(&connection.original, &connection.reply) {
            Some(Refusal::Ipsec)
        } else {
            None
        };
        match refused {
            Some(reason) => Suitability::Refused(reason),
            None if protocol == TCP => Self::judge_tcp(connection),
            None if !status.has(Status::SEEN_REPLY) && !self.one_way => {
                Suitability::Refused(Refusal::Unreplied)
            }
            None => Suitability::Fast,
        }
    }

    fn judge_tcp(connection: &Connection) -> Suitability {
        if !connection.status.has(Status::ASSURED) {
            return Suitability::Refused(Refusal::NotEstablished);
        }
        match connection.tcp {
            None => Suitability::Unprepared,
            Some(tcp) if tcp.state != TcpState::ESTABLISHED => {
                Suitability::Refused(Refusal::NotEstablished)
            }
            Some(tcp) if tcp.is_liberal() => Suitability::Fast,
            Some(_) => Suitability::Unprepared,
        }
    }
}
