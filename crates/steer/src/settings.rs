//! Settings and counts of the eBPF programs.

/// Settings of the programs besides the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum length of claimed frames in octets, from the Ethernet header on and including VLAN
    /// tags. Longer frames are left to Linux and counted.
    pub max_length: u32,
    /// Mark (`skb->mark`, SO_MARK) of frames that re-enter; 0 for none.
    pub mark: u32,
    /// Index of the interface on which frames re-enter; 0 to leave them to a later filter.
    pub reenter_ifindex: u32,
}

/// Frames counted by the programs since they were loaded, summed over the CPUs.
///
/// `fastlane_xdp` and `fastlane_select` count each frame they see exactly once, in one of the first
/// four counters. Several AF_PACKET sockets that are not in one fanout group each count it once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames claimed for the fast path.
    pub claimed: u64,
    /// Frames left to Linux because no rule matched.
    pub passed: u64,
    /// Claimed frames left to Linux because no AF_XDP socket is on the queue.
    pub uncovered: u64,
    /// Claimed frames left to Linux because they exceed [`Settings::max_length`].
    pub too_long: u64,
    /// Frames sent by the re-entry TAP to the interface's ingress.
    pub reentered: u64,
}
