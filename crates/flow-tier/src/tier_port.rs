//! Interfaces of the tier, and the places where it takes their packets.

use fastlane_netlink::runs_xdp;
use fastlane_steer::{XdpMode, has_tcx};

use crate::encoding::{self, Entrance};

/// Place where the tier takes the packets of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierHook {
    /// XDP, before Linux makes a socket buffer of a frame; in the mode that is named.
    Xdp(XdpMode),
    /// The ingress of the interface (tcx, Linux 6.6 and later), where packets are socket buffers.
    /// A capture on the interface sees all of them. Filters of `tc` and rules of the family
    /// `netdev` see what the tier leaves to Linux. Several packets may be in one buffer, which
    /// Linux divides as it sends it.
    Ingress,
}

/// Kind of an interface, by which the tier chooses its hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceKind {
    /// Its frames are those of a driver that runs XDP programs.
    Device,
    /// Its driver runs none, as that of a bridge or VLAN and of some cards. Linux would run an XDP
    /// program on socket buffers, which it first makes linear and often copies.
    WithoutXdp,
    /// It is made of others: a bond or team. Its driver runs XDP programs on the members, by which
    /// no flow arrives.
    Aggregate,
    /// It gets what another interface of this machine sends (veth): socket buffers, of which an XDP
    /// program needs a copy.
    Pair,
}

impl InterfaceKind {
    /// Returns the kind of an interface, from its index and the kind that `ip -d link` shows
    /// (IFLA_INFO_KIND of rtnetlink; empty for a card).
    #[must_use]
    pub fn of(index: u32, kind: &str) -> Self {
        match kind {
            "bond" | "team" => Self::Aggregate,
            "veth" => Self::Pair,
            // Linux before 6.3 does not tell; there the driver is tried.
            _ if !runs_xdp(index).unwrap_or(true) => Self::WithoutXdp,
            _ => Self::Device,
        }
    }
}

/// An interface of the tier: flows arrive on it and leave by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierPort {
    /// Name of the interface.
    pub interface: String,
    /// Index of the interface.
    pub index: u32,
    /// Ethernet address of the interface.
    pub mac: [u8; 6],
    /// Zone of the connection tracking.
    pub zone: u16,
    /// Place of the program; `None`: the one that fits the kind.
    pub hook: Option<TierHook>,
    /// Kind of the interface.
    pub kind: InterfaceKind,
    /// True if packets may leave by this interface if they arrived on it.
    pub forwards_back: bool,
    /// True if Linux takes IPv6 packets from it (`disable_ipv6` is 0).
    pub takes_ipv6: bool,
    /// True if no flow may leave by this interface: Linux delays or changes what does, or routes it
    /// by what the program's lookup does not know.
    pub is_closed: bool,
    /// True if lanes have the interface too: they get what the tier does not forward.
    pub has_lanes: bool,
}

impl TierPort {
    /// Returns the entrance of the program; what it does not forward goes to the program at an
    /// index of `lanes`, or else to Linux.
    pub(crate) fn entrance(&self, lanes: Option<u16>) -> Entrance {
        let flag = |is, flag| if is { flag } else { 0 };
        let flags = flag(self.forwards_back, encoding::FORWARDS_BACK)
            | flag(self.takes_ipv6, encoding::TAKES_IPV6);
        Entrance { interface: self.index, mac: self.mac, zone: self.zone, flags, lanes }
    }

    /// Returns true if the program may work in the driver.
    pub(crate) fn may_be_native(&self) -> bool {
        !self.is_at_ingress() && self.hook != Some(TierHook::Xdp(XdpMode::Generic))
    }

    /// Returns true if the tier takes the packets of the interface at its ingress. If lanes have it
    /// too, they and the tier share an XDP program.
    pub(crate) fn is_at_ingress(&self) -> bool {
        match self.hook {
            _ if self.has_lanes => false,
            None => self.kind != InterfaceKind::Device && has_tcx(),
            hook => hook == Some(TierHook::Ingress),
        }
    }
}
