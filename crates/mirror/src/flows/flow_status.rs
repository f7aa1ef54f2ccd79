//! Status of the follower, by which lanes know that it lives.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::flow_policy::{FlowPolicy, REFUSALS, Refusal};

/// Maximum length of the path of pins in bytes, plus one.
const PATH_ROOM: usize = 256;

/// Value of the record `offload`, which the follower replaces several times per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FlowStatus {
    /// Time of the last replacement, in nanoseconds of `CLOCK_MONOTONIC`.
    pub heartbeat: u64,
    /// Time after which lanes leave everything to Linux, in nanoseconds.
    pub grace: u64,
    /// 1 if lanes may forward flows, 0 while the rules of Linux judge all connections again.
    pub is_active: u64,
    /// Conditions for flows, for tools: [`FlowPolicy`].
    pub mark: u32,
    /// Bits of the mark that count.
    pub mask: u32,
    /// 1 if UDP without packets of the other side is forwarded.
    pub one_way: u64,
    /// Rules by which the flows were judged, for a successor: the generation of the nftables rules
    /// plus 1, or 0 if it is unknown.
    pub rules: u64,
    /// Counters of the follower.
    pub statistics: FlowStatistics,
    /// Pins of the tier inside the kernel, for tools.
    pub pins: PinsPath,
}

/// Path of a directory with pins, up to the first zero byte; empty without a tier inside the
/// kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PinsPath([u8; PATH_ROOM]);

impl Default for PinsPath {
    fn default() -> Self {
        Self([0; PATH_ROOM])
    }
}

impl PinsPath {
    /// Stores a path. Returns `None` if it is too long.
    #[must_use]
    pub fn new(path: &Path) -> Option<Self> {
        let octets = path.as_os_str().as_bytes();
        let mut room = [0; PATH_ROOM];
        room[..PATH_ROOM - 1].get_mut(..octets.len())?.copy_from_slice(octets);
        Some(Self(room))
    }

    /// Returns the path; `None` without a tier.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        let length = self.0.iter().position(|octet| *octet == 0).unwrap_or(self.0.len());
        (length > 0).then(|| Path::new(OsStr::from_bytes(&self.0[..length])))
    }
}

impl FlowStatus {
    /// Returns the conditions for flows.
    #[must_use]
    pub fn policy(&self) -> FlowPolicy {
        FlowPolicy { mark: self.mark, mask: self.mask, one_way: self.one_way == 1 }
    }

    /// Returns true if lanes may forward flows.
    #[inline]
    #[must_use]
    pub fn permits(&self, now: u64) -> bool {
        self.is_active == 1 && now.saturating_sub(self.heartbeat) <= self.grace
    }
}

impl FlowStatistics {
    /// Returns the counters with their names, those of refusals last.
    pub fn named(&self) -> impl Iterator<Item = (String, u64)> {
        let Self { flows, added, removed, full, tier_full, events, lost, resyncs, .. } = *self;
        let Self { touched, refreshed, rejudged, refused, .. } = *self;
        let plain = [
            ("offload_flows", flows),
            ("offload_added", added),
            ("offload_removed", removed),
            ("offload_full", full),
            ("offload_tier_full", tier_full),
            ("offload_events", events),
            ("offload_lost", lost),
            ("offload_resyncs", resyncs),
            ("offload_touched", touched),
            ("offload_refreshed", refreshed),
            ("offload_rejudged", rejudged),
        ];
        let plain = plain.into_iter().map(|(name, count)| (name.to_owned(), count));
        let refused = Refusal::ALL.into_iter().zip(refused);
        plain.chain(refused.map(|(it, count)| (format!("offload_refused_{}", it.name()), count)))
    }
}

/// Counters of a follower.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct FlowStatistics {
    /// Number of flows in the table.
    pub flows: u64,
    /// Number of flows that were added so far.
    pub added: u64,
    /// Number of flows that were removed so far.
    pub removed: u64,
    /// Number of flows that found no room.
    pub full: u64,
    /// Number of directions of flows that found no room in the tier inside the kernel. The tier
    /// counts them, not the follower.
    pub tier_full: u64,
    /// Number of events received.
    pub events: u64,
    /// Number of times that events were lost, and everything was read again.
    pub lost: u64,
    /// Number of times that all connections were read.
    pub resyncs: u64,
    /// Number of connections that were prepared for the fast path.
    pub touched: u64,
    /// Number of timeouts that were refreshed.
    pub refreshed: u64,
    /// Number of changes of the rule set, after which Linux judged all flows again.
    pub rejudged: u64,
    /// Number of events of connections that Linux handles, by [`Refusal`](super::Refusal).
    pub refused: [u64; REFUSALS],
}
