//! What becomes of packets, by name.

use fastlane::mirror::FallbackReason;

/// What became of a packet, and why. The numbers are entries of the lane state `causes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// Forwarded.
    Forwarded = 0,
    /// Dropped: a rule of the access list says so, or what it says by default.
    AclDrop = 1,
    /// Dropped: the access list asks for ports, and this packet does not show them.
    AclNoPorts = 2,
    /// To Linux, as all that follow: a frame for all or for a group.
    Group = 3,
    /// A frame for another station.
    OtherStation = 4,
    /// Neither IPv4 nor IPv6: ARP, a VLAN, anything else.
    EtherType = 5,
    /// The IP header contradicts itself or the frame.
    Malformed = 6,
    /// The checksum of the IPv4 header is wrong.
    Checksum = 7,
    /// IPv4 options.
    Options = 8,
    /// An IPv6 hop-by-hop header, which every router must look at.
    HopByHop = 9,
    /// The time to live, or the hop limit, ends here.
    TimeToLive = 10,
    /// No source that may be forwarded: a group, the loopback, this network, one link.
    Source = 11,
    /// The source is an address of this host.
    OwnSource = 12,
    /// The way back to the source is another than the one that it came by (`rp_filter`).
    ReversePath = 13,
    /// Linux is told not to forward (`ip_forward`, `forwarding`).
    ForwardingOff = 14,
    /// Longer than the way out allows.
    TooLong = 15,
    /// It would leave by the interface that it came from: Linux tells its sender of a better way.
    SameInterface = 16,
    /// The interface is not known to the mirror yet.
    UnknownInterface = 17,
    /// To Linux: the mirror says so. The number of its [`FallbackReason`] is added.
    Mirror = 32,
}

/// How many numbers there are, at least.
pub const CAUSES: usize = 64;

impl Cause {
    /// All but [`Mirror`](Self::Mirror), in the order of their numbers.
    pub const OWN: [Self; 18] = [
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
            Self::Mirror => "linux_route",
        }
    }
}

/// The number under which packets are counted that the mirror leaves to Linux.
#[must_use]
pub fn of_mirror(reason: FallbackReason) -> u32 {
    Cause::Mirror as u32 + reason as u32
}

/// Every number that is in use, with its name for people and programs.
pub fn names() -> impl Iterator<Item = (u32, String)> {
    let own = Cause::OWN.into_iter().map(|cause| (cause as u32, cause.name().to_owned()));
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
        for (place, cause) in Cause::OWN.into_iter().enumerate() {
            assert_eq!(cause as usize, place);
        }
    }
}
