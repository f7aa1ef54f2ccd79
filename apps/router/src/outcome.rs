//! Outcomes of packets and their names.

use fastlane::mirror::FallbackReason;

/// Outcome of a packet and its reason. The numbers index the lane state `causes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// Forwarded by the fast path.
    Forwarded = 0,
    /// Dropped by a rule of the access list or by its default.
    AclDrop = 1,
    /// Dropped: rules of the access list match ports, which this packet does not show.
    AclNoPorts = 2,
    /// Passed to Linux, like those that follow up to 17: a broadcast or multicast frame.
    Group = 3,
    /// A frame for another Ethernet address.
    OtherStation = 4,
    /// Neither IPv4 nor IPv6: ARP, a VLAN tag or anything else.
    EtherType = 5,
    /// The IP header is inconsistent with itself or with the frame.
    Malformed = 6,
    /// The IPv4 header checksum is wrong.
    Checksum = 7,
    /// IPv4 options are present.
    Options = 8,
    /// An IPv6 hop-by-hop header is present, which every router must process.
    HopByHop = 9,
    /// The time to live or hop limit expires here.
    TimeToLive = 10,
    /// The source must not be forwarded: multicast, loopback, "this network" or link-local.
    Source = 11,
    /// The source is an address of this host.
    OwnSource = 12,
    /// The route back to the source uses another interface (`rp_filter`).
    ReversePath = 13,
    /// Forwarding is disabled in Linux (`ip_forward`, `forwarding`).
    ForwardingOff = 14,
    /// Longer than the MTU of the route.
    TooLong = 15,
    /// It would leave by the ingress interface: Linux sends an ICMP redirect.
    SameInterface = 16,
    /// The mirror does not know the interface yet.
    UnknownInterface = 17,
    /// Dropped: red for a `police` rule of the access list.
    AclPolice = 18,
    /// Passed to Linux, like those that follow up to 28: no flow is known for the packet, which
    /// opens no TCP connection.
    NoFlow = 19,
    /// The protocol has no flows: neither TCP nor UDP.
    FlowProtocol = 20,
    /// A fragment, or a packet with IPv6 extension headers, shows no ports and thus no flow.
    FlowNoPorts = 21,
    /// TCP opens a connection, with or without a flow, or acknowledges nothing in one.
    TcpOpen = 22,
    /// TCP ends a connection.
    TcpClose = 23,
    /// An earlier packet of this direction ended the connection.
    FlowClosing = 24,
    /// The packet did not arrive by the interface of the route back to its source.
    FlowInterface = 25,
    /// The slow path does not permit flows: it is not running, or Linux judges them again.
    FlowsPaused = 26,
    /// The interface belongs to a VRF, whose routes the mirror does not hold.
    Vrf = 27,
    /// The route of a flow leads to another interface than before, and the rules of Linux judge it
    /// again; or it leads to several, of which Linux selects one.
    FlowExit = 28,
    /// Passed to Linux by the mirror. The number of the [`FallbackReason`] is added.
    Mirror = 32,
}

/// Capacity of the lane state, more than the greatest number.
pub const CAUSES: usize = 64;

impl Outcome {
    /// All outcomes except [`Mirror`](Self::Mirror), in numeric order.
    pub const OWN: [Self; 29] = [
        Self::Forwarded,
        Self::AclDrop,
        Self::AclNoPorts,
        Self::Group,
        Self::OtherStation,
        Self::EtherType,
        Self::Malformed,
        Self::Checksum,
        Self::Options,
        Self::HopByHop,
        Self::TimeToLive,
        Self::Source,
        Self::OwnSource,
        Self::ReversePath,
        Self::ForwardingOff,
        Self::TooLong,
        Self::SameInterface,
        Self::UnknownInterface,
        Self::AclPolice,
        Self::NoFlow,
        Self::FlowProtocol,
        Self::FlowNoPorts,
        Self::TcpOpen,
        Self::TcpClose,
        Self::FlowClosing,
        Self::FlowInterface,
        Self::FlowsPaused,
        Self::Vrf,
        Self::FlowExit,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Forwarded => "forwarded",
            Self::AclDrop => "drop_acl",
            Self::AclNoPorts => "drop_acl_no_ports",
            Self::Group => "linux_group",
            Self::OtherStation => "linux_other_station",
            Self::EtherType => "linux_ethertype",
            Self::Malformed => "linux_malformed",
            Self::Checksum => "linux_checksum",
            Self::Options => "linux_options",
            Self::HopByHop => "linux_hop_by_hop",
            Self::TimeToLive => "linux_time_to_live",
            Self::Source => "linux_source",
            Self::OwnSource => "linux_own_source",
            Self::ReversePath => "linux_reverse_path",
            Self::ForwardingOff => "linux_forwarding_off",
            Self::TooLong => "linux_too_long",
            Self::SameInterface => "linux_same_interface",
            Self::UnknownInterface => "linux_unknown_interface",
            Self::AclPolice => "drop_acl_police",
            Self::NoFlow => "linux_no_flow",
            Self::FlowProtocol => "linux_flow_protocol",
            Self::FlowNoPorts => "linux_flow_no_ports",
            Self::TcpOpen => "linux_tcp_open",
            Self::TcpClose => "linux_tcp_close",
            Self::FlowClosing => "linux_flow_closing",
            Self::FlowInterface => "linux_flow_interface",
            Self::FlowsPaused => "linux_flows_paused",
            Self::Vrf => "linux_vrf",
            Self::FlowExit => "linux_flow_exit",
            Self::Mirror => "linux_route",
        }
    }
}

/// Returns the number under which packets are counted that the mirror leaves to Linux.
#[must_use]
pub fn of_mirror(reason: FallbackReason) -> u32 {
    Outcome::Mirror as u32 + reason as u32
}

/// Returns every number in use with its name.
pub fn names() -> impl Iterator<Item = (u32, String)> {
    let own = Outcome::OWN.into_iter().map(|cause| (cause as u32, cause.name().to_owned()));
    let mirror = FallbackReason::ALL.into_iter();
    own.chain(mirror.map(|reason| (of_mirror(reason), format!("linux_{}", reason.name()))))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_and_names_are_unique_and_in_range() {
        let all: Vec<_> = names().collect();
        let numbers: BTreeSet<u32> = all.iter().map(|(number, _)| *number).collect();
        let names: BTreeSet<&str> = all.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!((numbers.len(), names.len()), (all.len(), all.len()));
        assert!(numbers.iter().all(|number| (*number as usize) < CAUSES));
        for (index, outcome) in Outcome::OWN.into_iter().enumerate() {
            assert_eq!(outcome as usize, index);
        }
    }
}
