//! A connection as Linux tracks it.

use std::net::IpAddr;

/// Addresses, protocol and ports of the packets of one direction, as they arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionTuple {
    /// Source address.
    pub source: IpAddr,
    /// Destination address, of the same family.
    pub destination: IpAddr,
    /// IP protocol.
    pub protocol: u8,
    /// Source and destination port; zeros for protocols without ports.
    pub ports: [u16; 2],
}

/// Status bits of a connection (`IPS_*`, `linux/netfilter/nf_conntrack_common.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// An expectation of another connection created it.
    pub const EXPECTED: u32 = 1;
    /// Packets of both directions were seen.
    pub const SEEN_REPLY: u32 = 1 << 1;
    /// It is not removed early when the table is full.
    pub const ASSURED: u32 = 1 << 2;
    /// It is in the table.
    pub const CONFIRMED: u32 = 1 << 3;
    /// Sequence numbers of TCP are adjusted.
    pub const SEQUENCE_ADJUST: u32 = 1 << 6;
    /// It is being removed.
    pub const DYING: u32 = 1 << 9;
    /// Its timeout cannot be changed.
    pub const FIXED_TIMEOUT: u32 = 1 << 10;
    /// A flow table of Linux, or a device, handles its packets.
    pub const OFFLOAD: u32 = 1 << 14 | 1 << 15;

    /// Returns true if one of these bits is set.
    #[must_use]
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits != 0
    }
}

/// State of a TCP connection (`enum tcp_conntrack`, `linux/netfilter/nf_conntrack_tcp.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpState(pub u8);

impl TcpState {
    /// Both directions have acknowledged the handshake.
    pub const ESTABLISHED: Self = Self(3);

    /// Returns the name that conntrack(8) prints.
    #[must_use]
    pub fn name(self) -> &'static str {
        const NAMES: [&str; 10] = [
            "NONE",
            "SYN_SENT",
            "SYN_RECV",
            "ESTABLISHED",
            "FIN_WAIT",
            "CLOSE_WAIT",
            "LAST_ACK",
            "TIME_WAIT",
            "CLOSE",
            "SYN_SENT2",
        ];
        NAMES.get(usize::from(self.0)).copied().unwrap_or("UNKNOWN")
    }
}

/// Flags of the tracking of one TCP direction (`IP_CT_TCP_FLAG_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// Sequence numbers outside of the window are accepted.
    pub const BE_LIBERAL: u8 = 1 << 3;
    /// Data of this direction is not acknowledged yet; the timeout is shorter meanwhile.
    pub const DATA_UNACKNOWLEDGED: u8 = 1 << 4;
    /// The greatest acknowledgement is known; a RST before it is ignored.
    pub const MAX_ACK_SET: u8 = 1 << 5;

    /// Returns true if sequence numbers outside of the window are accepted.
    #[must_use]
    pub fn is_liberal(self) -> bool {
        self.0 & Self::BE_LIBERAL != 0
    }
}

/// State of TCP in a message. Events have it only if it may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpProgress {
    /// State of the connection.
    pub state: TcpState,
    /// Flags of the original and of the reply direction.
    pub flags: [TcpFlags; 2],
}

impl TcpProgress {
    /// Returns true if sequence numbers outside of the window are accepted in both directions.
    #[must_use]
    pub fn is_liberal(&self) -> bool {
        self.flags.iter().all(|flags| flags.is_liberal())
    }
}

/// A tracked connection: the fields of a ctnetlink message that concern forwarding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Number that Linux gives an entry (`CTA_ID`). A later entry of the same tuple most often has
    /// another one.
    pub id: u32,
    /// Packets of the side that began, as they arrive.
    pub original: ConnectionTuple,
    /// Packets of the other side, as they arrive: after NAT their addresses are not the original
    /// ones.
    pub reply: ConnectionTuple,
    /// Zones of the original and of the reply direction.
    pub zones: [u16; 2],
    /// Status bits.
    pub status: Status,
    /// The mark (`ct mark`).
    pub mark: u32,
    /// Time until Linux removes it without further packets, in seconds; `None` in messages without
    /// it, as of a removal.
    pub timeout: Option<u32>,
    /// True if a packet caused the message: then it has just renewed the timeout.
    pub is_refreshed: bool,
    /// State of TCP, if the message has it.
    pub tcp: Option<TcpProgress>,
    /// Helper that reads its payload; empty if there is none.
    pub helper: String,
    /// True if the message names the connection that expected this one.
    pub has_master: bool,
    /// True if Linux changes its TCP sequence numbers (`synproxy` or a helper).
    pub adjusts_sequence: bool,
    /// Packets and bytes of the original and of the reply direction, if Linux counts them
    /// (`net.netfilter.nf_conntrack_acct`).
    pub counters: [Option<[u64; 2]>; 2],
}
