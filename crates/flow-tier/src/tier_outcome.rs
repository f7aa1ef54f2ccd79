//! Outcomes of packets in the kernel tier and their names.

/// Outcome of a packet and its reason. The numbers index the table `outcomes`; the names are those
/// of the router's lanes where both have the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TierOutcome {
    /// Forwarded by the kernel tier.
    Forwarded,
    /// Passed to Linux, like those that follow up to `PartialChecksum`: a broadcast or multicast
    /// frame.
    Group,
    /// A frame for another Ethernet address.
    OtherStation,
    /// Neither IPv4 nor IPv6.
    EtherType,
    /// A header is inconsistent with itself or with the frame.
    Malformed,
    /// The IPv4 header checksum is wrong.
    Checksum,
    /// IPv4 options are present.
    Options,
    /// The time to live or hop limit expires here.
    TimeToLive,
    /// The source must not be forwarded: multicast, loopback, "this network" or link-local.
    Source,
    /// The source is an address of this host, or has no route.
    OwnSource,
    /// Forwarding is disabled in Linux.
    ForwardingOff,
    /// Longer than the MTU of the route, or a frame in several buffers.
    TooLong,
    /// It would leave by the ingress interface: Linux sends an ICMP redirect.
    SameInterface,
    /// The interface is no port of the tier.
    UnknownInterface,
    /// No flow is known for the packet, which opens no TCP connection.
    NoFlow,
    /// The protocol has no flows: neither TCP nor UDP.
    FlowProtocol,
    /// A fragment or a packet without ports.
    FlowNoPorts,
    /// TCP opens a connection, with or without a flow, or acknowledges nothing in one.
    TcpOpen,
    /// TCP ends a connection.
    TcpClose,
    /// An earlier packet of this direction ended the connection.
    FlowClosing,
    /// The packet did not arrive by the interface of the route back to its source.
    FlowInterface,
    /// The route leads to another interface than before: the rules of Linux judge the flow again.
    FlowExit,
    /// There may be a flow, but the slow path does not permit any: it is not running, or Linux
    /// judges them again.
    FlowsPaused,
    /// The next hop's Ethernet address is unknown.
    NoNeighbour,
    /// A blackhole route.
    Blackhole,
    /// An unreachable route.
    Unreachable,
    /// A prohibiting route.
    Prohibit,
    /// The destination is an address of this host, multicast or broadcast, or has no route.
    NotForwarded,
    /// The egress interface is no port of the tier.
    NotOurPort,
    /// A route with an encapsulation, or another one that the tier does not support.
    Unsupported,
    /// The checksum is to be completed by a device: Linux does that.
    PartialChecksum,
    /// Dropped: the egress interface was removed.
    NoExit,
}

/// Packets and bytes with an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutcomeCount {
    /// The outcome.
    pub outcome: TierOutcome,
    /// Number of packets.
    pub packets: u64,
    /// Their bytes, from the Ethernet header on.
    pub octets: u64,
}

impl TierOutcome {
    /// All outcomes in numeric order.
    pub const ALL: [Self; 32] = [
        Self::Forwarded,
        Self::Group,
        Self::OtherStation,
        Self::EtherType,
        Self::Malformed,
        Self::Checksum,
        Self::Options,
        Self::TimeToLive,
        Self::Source,
        Self::OwnSource,
        Self::ForwardingOff,
        Self::TooLong,
        Self::SameInterface,
        Self::UnknownInterface,
        Self::NoFlow,
        Self::FlowProtocol,
        Self::FlowNoPorts,
        Self::TcpOpen,
        Self::TcpClose,
        Self::FlowClosing,
        Self::FlowInterface,
        Self::FlowExit,
        Self::FlowsPaused,
        Self::NoNeighbour,
        Self::Blackhole,
        Self::Unreachable,
        Self::Prohibit,
        Self::NotForwarded,
        Self::NotOurPort,
        Self::Unsupported,
        Self::PartialChecksum,
        Self::NoExit,
    ];

    /// Returns the name for counters, in snake case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Forwarded => "forwarded",
            Self::Group => "linux_group",
            Self::OtherStation => "linux_other_station",
            Self::EtherType => "linux_ethertype",
            Self::Malformed => "linux_malformed",
            Self::Checksum => "linux_checksum",
            Self::Options => "linux_options",
            Self::TimeToLive => "linux_time_to_live",
            Self::Source => "linux_source",
            Self::OwnSource => "linux_own_source",
            Self::ForwardingOff => "linux_forwarding_off",
            Self::TooLong => "linux_too_long",
            Self::SameInterface => "linux_same_interface",
            Self::UnknownInterface => "linux_unknown_interface",
            Self::NoFlow => "linux_no_flow",
            Self::FlowProtocol => "linux_flow_protocol",
            Self::FlowNoPorts => "linux_flow_no_ports",
            Self::TcpOpen => "linux_tcp_open",
            Self::TcpClose => "linux_tcp_close",
            Self::FlowClosing => "linux_flow_closing",
            Self::FlowInterface => "linux_flow_interface",
            Self::FlowExit => "linux_flow_exit",
            Self::FlowsPaused => "linux_flows_paused",
            Self::NoNeighbour => "linux_no_neighbour",
            Self::Blackhole => "linux_blackhole",
            Self::Unreachable => "linux_unreachable",
            Self::Prohibit => "linux_prohibit",
            Self::NotForwarded => "linux_not_forwarded",
            Self::NotOurPort => "linux_not_our_port",
            Self::Unsupported => "linux_unsupported",
            Self::PartialChecksum => "linux_partial_checksum",
            Self::NoExit => "drop_no_exit",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_those_of_the_program() {
        let source = include_str!("../bpf/flows.bpf.c");
        let (_, rest) = source.split_once("enum outcome {").expect("the enumeration");
        let (names, _) = rest.split_once("OUTCOMES").expect("its end");
        let names: Vec<String> = names
            .split(',')
            .map(|name| name.trim().to_lowercase().replace('_', ""))
            .filter(|name| !name.is_empty())
            .collect();
        let ours = TierOutcome::ALL.map(|outcome| format!("{outcome:?}").to_lowercase());
        assert_eq!(names, ours);
        for (index, outcome) in TierOutcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index);
        }
    }
}
