//! Fields of the outer header of a packet: by the rules, and by the packet between tunnels.

use super::classify::Path;
use super::encap::{Container, GtpuFields};
use super::lookup::UePacket;
use crate::rules::layout::session_rules::{Direction, Encapsulation};
use crate::session::Destination;

/// Builds the per-packet fields of the outer header.
#[inline(always)]
pub(crate) fn gtpu_fields(tos: u8, path: &Path<'_>, teid: u32, direction: Direction) -> GtpuFields {
    let forwarding = path.forwarding;
    let container = match (forwarding.qfi(), direction) {
        (None, _) => Container::NONE,
        (Some(qfi), Direction::Uplink) if forwarding.destination() != Destination::Access => {
            Container::uplink(qfi)
        }
        // Packets that return to the access network are on their way to the user, too.
        (Some(qfi), _) => {
            Container::downlink(qfi, forwarding.is_reflective(), forwarding.paging_policy())
        }
    };
    GtpuFields { tos: forwarding.marked(tos), teid, container }
}

/// Returns the congestion mark of the outer header of a relayed message. It must reach the final
/// decapsulation, which drops what may not be marked (RFC 6040 clause 4.2).
#[inline]
pub(crate) const fn congestion_to_relay(ecn: u8) -> u8 {
    if ecn == 3 { ecn } else { 0 }
}

/// Returns true if a GTP-U message is relayed with its extension headers: between tunnels, unless
/// the rules remove or replace its container.
#[inline]
pub(crate) fn is_relayed(ue_packet: &UePacket, path: &Path<'_>) -> bool {
    let forwarding = path.forwarding;
    ue_packet.tunnel.is_some()
        && matches!(path.outer(), Some(Encapsulation::Gtpu(..)))
        && forwarding.qfi().is_none()
        && !forwarding.removes_extension()
}

/// Returns true if this UPF is an IP hop of the packet: decapsulated or encapsulated, but not both.
/// Between tunnels the inner packet is not changed (TS 23.501 clause 5.6.4: the UE's IP link ends
/// at the anchor).
#[inline]
pub(crate) fn is_ip_hop(ue_packet: &UePacket, path: &Path<'_>) -> bool {
    ue_packet.tunnel.is_some() != path.outer().is_some()
}
