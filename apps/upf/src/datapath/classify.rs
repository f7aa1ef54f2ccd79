//! Packet classification and enforcement: the one module that applies rules to packets.
//!
//! A [`Classifier`] has the rules of the packet's session and the lane's counter slots. It neither
//! allocates nor fails. Its steps (TS 29.244 clause 5.2.1): find the first PDR by precedence that
//! matches; check gates; check URRs; check meters, all of which must conform before any is charged;
//! apply the FAR. A packet that is held is not counted: it is decided again when it is released.
//!
//! A packet that may be forwarded is not charged yet, since its next hop and a frame for it are not
//! known. Once they are, [`Classifier::charge`] checks quotas and meters again, which earlier
//! packets may have used up, and charges. ([`decide_simple`] leaves them to it altogether.) So URRs
//! count the octets of inner IP packets that leave. URRs with MBQE (clause 8.2.68) also count what
//! QoS enforcement or the FAR drops.
//!
//! An event is raised once per counter slot and version of the rules. The caller raises the
//! session's pending event if [`Decision::events`] is not 0.

mod apply_rule;
mod block_rules;
mod filter_match;
mod rate_meter;
mod simple_rules;
mod urr_limits;

use std::net::IpAddr;

use fastlane::table::LaneState;

use crate::rules::layout::counter_slots::WORDS;
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::session_rules::{
    Direction, Encapsulation, ForwardingAction, OuterPath, Rules, flag,
};
use crate::session::{InstanceId, PdrId, SessionIndex};

pub use block_rules::{Blocks, BlocksInTurn};
pub use urr_limits::{is_later, marker_due, marker_sent};

/// Decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision<'t> {
    /// Forward, hold or drop.
    pub action: Action<'t>,
    /// PDR that matched; 0: none.
    pub pdr: PdrId,
    /// Direction of the packet.
    pub direction: Direction,
    /// New events: bits of [`counter_slots::event`](crate::rules::layout::counter_slots::event). If
    /// not 0, the caller raises the session's pending event.
    pub events: u64,
    /// Counter slot of the last event.
    pub slot: u32,
    /// Destinations of copies (DUPL).
    pub copies: &'t [OuterPath],
    /// Charge that is due when it leaves.
    pub charge: Charge,
}

/// Result of charging a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeResult {
    /// Reason why it must not leave; `None`: it may leave.
    pub refused: Option<DropReason>,
    /// PDR that matched; 0: none.
    pub pdr: PdrId,
    /// New events, see [`Decision::events`].
    pub events: u64,
    /// Counter slot of the last event.
    pub slot: u32,
}

/// Decision of the short path: the packet may be forwarded.
#[derive(Clone, Copy, Debug)]
pub struct ForwardDecision<'t> {
    /// Path of the packet.
    pub path: Path<'t>,
    /// Direction of the packet.
    pub direction: Direction,
    /// Charge that is due when it leaves.
    pub charge: Charge,
}

/// Action for a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action<'t> {
    /// May be forwarded. It is charged when it leaves.
    Forward(Path<'t>),
    /// The packet is dropped.
    Drop(DropReason),
    /// Held and decided again later. It has not been counted.
    Hold(HoldLimits),
}

/// Limits of buffering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldLimits {
    /// Maximum number of packets of the session.
    pub packets: u16,
    /// Maximum time in ms.
    pub ms: u32,
}

/// Path of forwarded packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Path<'t> {
    /// Compiled FAR.
    pub forwarding: &'t ForwardingAction,
    /// IPv6 address of the far end, if the outer header is IPv6.
    pub peer6: &'t [u8; 16],
    /// Redirection, if the FAR has one.
    pub redirect: Option<Redirect<'t>>,
}

/// Redirection of HTTP requests (TS 29.244 clause 8.2.20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirect<'t> {
    /// To an address.
    Address(IpAddr),
    /// By a response with this URL.
    Url(&'t [u8]),
}

impl Path<'_> {
    /// Returns the outer header to add.
    #[inline]
    #[must_use]
    pub fn outer(&self) -> Option<Encapsulation> {
        self.forwarding.outer(self.peer6)
    }

    /// Returns true if a packet is redirected: not if it is exchanged with the redirect server
    /// already.
    #[inline]
    #[must_use]
    pub fn redirects(&self, direction: Direction, fields: &PacketFields) -> bool {
        self.redirect.is_some_and(|redirect| {
            let other = match direction {
                Direction::Uplink => fields.destination,
                Direction::Downlink => fields.source,
            };
            match redirect {
                Redirect::Address(to) => PacketFields::address(to) != (fields.family, other),
                Redirect::Url(_) => true,
            }
        })
    }
}

/// Classifier of the packets of one session: its rules and counter slots.
///
/// The rules are read once per packet. The session's own slot of `state` is accessed, and those of
/// its further URRs and QERs.
#[derive(Clone, Copy, Debug)]
pub struct Classifier<'t, 's, B> {
    /// Rules of the session.
    pub rules: &'t Rules,
    /// The session.
    pub session: SessionIndex,
    /// Access to its rule blocks.
    pub blocks: B,
    /// Counter slots of the lane.
    pub state: &'s LaneState<WORDS>,
    /// Time in ns of `CLOCK_MONOTONIC`.
    pub now: u64,
}

impl<'t, B: Blocks<'t>> Classifier<'t, '_, B> {
    /// Decides about a packet. A packet that may be forwarded is not charged yet.
    #[inline]
    #[must_use]
    pub fn decide(&self, fields: &PacketFields) -> Decision<'t> {
        if has_blocks(self.rules, fields.tunnel) {
            block_rules::decide(self, fields)
        } else {
            simple_rules::decide(self, fields)
        }
    }

    /// Decides about packets that only the meters of a block's rule can stop. `None` if
    /// [`decide`](Self::decide) has to decide.
    #[inline(always)]
    pub(crate) fn decide_by_block(&self, fields: &PacketFields) -> Option<ForwardDecision<'t>> {
        block_rules::decide_unlimited(self, fields)
    }

    /// Charges a packet that is about to leave if meters and quotas allow it. Nothing may keep it
    /// from leaving afterwards.
    ///
    /// The rules have the version that `charge` names.
    #[inline]
    #[must_use]
    pub fn charge(&self, charge: Charge) -> ChargeResult {
        match block_rules::charge_unlimited(self, charge) {
            Some(pdr) => ChargeResult { refused: None, pdr, events: 0, slot: 0 },
            None => self.check::<CHARGE>(charge),
        }
    }

    /// Checks if [`charge`](Self::charge) would let a packet pass. A quota that stops it raises an
    /// event.
    #[must_use]
    pub fn passes(&self, charge: Charge) -> ChargeResult {
        self.check::<CHECK>(charge)
    }

    /// Returns the reason that stops a packet which will not leave in any case. Quotas that it
    /// would use up are left unchanged.
    #[must_use]
    pub fn is_stopped(&self, charge: Charge) -> Option<DropReason> {
        self.check::<LOOK>(charge).refused
    }

    #[inline]
    fn check<const MODE: u8>(&self, charge: Charge) -> ChargeResult {
        if charge.is_simple() {
            simple_rules::charge::<MODE, B>(self, charge)
        } else {
            block_rules::charge::<MODE, B>(self, charge).into()
        }
    }

    /// Returns the path of the rule that matches, regardless of URRs and meters, for packets that
    /// this UPF originates. `None` if the rule does not forward, or redirects.
    #[must_use]
    pub fn own_path(&self, fields: &PacketFields) -> Option<Path<'t>> {
        if has_blocks(self.rules, fields.tunnel) {
            block_rules::own_path(self, fields)
        } else {
            simple_rules::own_path(self.rules, fields)
        }
    }

    /// Returns the path of a tunnel's packets by its first rule; `None` if they are dropped or
    /// held.
    #[must_use]
    pub fn tunnel_path(&self, teid: u32) -> Option<Path<'t>> {
        if self.rules.has_blocks() {
            block_rules::tunnel_path(self, teid)
        } else {
            simple_rules::tunnel_path(self.rules, teid)
        }
    }

    /// Returns the TEID of the first tunnel through which packets to the UE arrive: that of an
    /// intermediate UPF.
    #[must_use]
    pub fn downlink_tunnel(&self) -> Option<u32> {
        if self.rules.has_blocks() {
            block_rules::downlink_tunnel(self)
        } else {
            simple_rules::downlink_tunnel(self.rules)
        }
    }
}

/// Decides about most packets without going through memory. `None` if a [`Classifier`] has to
/// decide.
#[inline(always)]
pub fn decide_simple<'t>(rules: &'t Rules, fields: &PacketFields) -> Option<ForwardDecision<'t>> {
    if has_blocks(rules, fields.tunnel) { None } else { simple_rules::decide_simple(rules, fields) }
}

/// Charges most packets. If it returns false it has done nothing, and
/// [`Classifier::charge`] has to charge.
#[inline(always)]
pub fn charge_simple(
    rules: &Rules,
    charge: Charge,
    session: SessionIndex,
    state: &LaneState<WORDS>,
    now: u64,
) -> bool {
    charge.is_simple() && simple_rules::charge_simple(rules, charge, session, state, now)
}

/// Returns true if blocks decide, by the cache line that the packet's direction most often has.
#[inline(always)]
const fn has_blocks(rules: &Rules, tunnel: Option<u32>) -> bool {
    rules.has_blocks_for(if tunnel.is_some() { Direction::Uplink } else { Direction::Downlink })
}

/// Returns true if a tunnel belongs to the session. False for a late packet whose session index has
/// been reused.
#[inline]
#[must_use]
pub fn has_tunnel<'t>(rules: &'t Rules, blocks: &impl Blocks<'t>, teid: u32) -> bool {
    if has_blocks(rules, Some(teid)) {
        return block_rules::has_tunnel(rules, blocks, teid);
    }
    rules.uplink.common.is_by(Some(teid)) || rules.downlink.common.is_by(Some(teid))
}

impl<'t> Decision<'t> {
    fn drop(reason: DropReason, pdr: PdrId, direction: Direction) -> Self {
        let charge = Charge::default();
        Self {
            action: Action::Drop(reason),
            pdr,
            direction,
            events: 0,
            slot: 0,
            copies: &[],
            charge,
        }
    }
}

impl From<Decision<'_>> for ChargeResult {
    fn from(decision: Decision<'_>) -> Self {
        let Decision { action, pdr, events, slot, .. } = decision;
        let refused = match action {
            Action::Forward(_) => None,
            Action::Drop(reason) => Some(reason),
            Action::Hold(_) => Some(DropReason::HoldLimit), // a held packet is never charged
        };
        Self { refused, pdr, events, slot }
    }
}

/// Flags with which a rule forwards nothing.
const SHUT: u32 = flag::DROP | flag::HOLD | flag::CLOSED;

/// Mode: a packet whose next hop is unknown. Volume limits stop it only if they were reached
/// before.
const LOOK: u8 = 0;
/// Mode: check a packet that could leave.
const CHECK: u8 = 1;
/// Mode: charge a packet if it may leave.
const CHARGE: u8 = 2;

/// Charge that is due when a packet leaves, with the rule that decided.
///
/// Two words that are passed in registers. Fields of their own sizes would be stored one by one and
/// read back together, which stalls store forwarding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// Lower 32 bits of the version of the rules; length of the inner packet in octets.
    amount: u64,
    /// 1 + index of the block, or 0 for the simple form. From bit 32 the index of the rule in the
    /// block, from bit 48 the index of the path there, from bit 56 the direction.
    by: u64,
}

impl Charge {
    /// Creates the charge of the simple form.
    #[inline(always)]
    const fn new(version: u32, length: u32, direction: Direction) -> Self {
        let amount = (version as u64) << 32 | length as u64;
        Self { amount, by: (direction as u64) << 56 }
    }

    /// Returns the charge by a rule of a block, which is given as 1 + its index.
    const fn by_rule(self, block: u32, rule: u16) -> Self {
        let kept = self.by & 0xffff << 48;
        Self { by: kept | (rule as u64) << 32 | block as u64, ..self }
    }

    /// Returns the charge by a path of the block.
    const fn by_path(self, path: u8) -> Self {
        Self { by: self.by & !(0xff << 48) | (path as u64) << 48, ..self }
    }

    /// Returns the lower 32 bits of the version of the rules.
    #[inline(always)]
    pub(crate) const fn version(self) -> u32 {
        (self.amount >> 32) as u32
    }

    /// Returns the length of the inner packet in octets.
    #[inline(always)]
    const fn length(self) -> u32 {
        self.amount as u32
    }

    /// Returns true if the simple form decided.
    #[inline(always)]
    const fn is_simple(self) -> bool {
        self.by as u32 == 0
    }

    /// Returns the index of the block.
    const fn block(self) -> Option<usize> {
        match (self.by as u32).checked_sub(1) {
            Some(index) => Some(index as usize),
            None => None,
        }
    }

    /// Returns the index of the rule in the block.
    const fn rule(self) -> usize {
        (self.by >> 32 & 0xffff) as usize
    }

    /// Returns the index of the path in the block.
    const fn path(self) -> u8 {
        (self.by >> 48) as u8
    }

    /// Returns the direction.
    #[inline(always)]
    const fn direction(self) -> Direction {
        if self.by >> 56 == Direction::Uplink as u64 {
            Direction::Uplink
        } else {
            Direction::Downlink
        }
    }
}

/// Fields of a packet that PDRs match, with its ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketFields {
    /// Local TEID; `None`: it arrived without a tunnel.
    pub tunnel: Option<u32>,
    /// Network instance of the ingress.
    pub instance: InstanceId,
    /// QoS flow of its PDU session container.
    pub qfi: Option<u8>,
    /// IP version of the inner packet, 4 or 6.
    pub family: u8,
    /// Source: first bit most significant, an IPv4 address in the upper 32 bits.
    pub source: u128,
    /// Destination, in the same form.
    pub destination: u128,
    /// Protocol behind extension headers.
    pub protocol: u8,
    /// Type of service or traffic class.
    pub tos: u8,
    /// Ports of the transport header.
    pub ports: Ports,
    /// Security parameter index of ESP or AH.
    pub spi: Option<u32>,
    /// IPv6 flow label.
    pub flow_label: u32,
    /// Length of the inner IP packet with its header, in octets.
    pub length: u32,
}

/// Ports of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// Source and destination port; of a later fragment those of the first one, if it was seen.
    Known(u16, u16),
    /// The protocol has no ports.
    None,
    /// A later fragment whose first one was not seen: nothing behind its IP header is known.
    Unknown,
}

impl PacketFields {
    /// Returns the family and bits of an address in the form of this struct.
    #[must_use]
    pub fn address(address: IpAddr) -> (u8, u128) {
        match address {
            IpAddr::V4(address) => (4, u128::from(address.to_bits()) << 96),
            IpAddr::V6(address) => (6, address.to_bits()),
        }
    }
}

impl PacketFields {
    /// Returns true for a possible Router Solicitation, whose source is link-local or unspecified
    /// (RFC 4861 clause 4.1).
    #[inline]
    #[must_use]
    pub const fn is_solicitation(&self) -> bool {
        let is_local = self.source >> 118 == 0xFE80 >> 6 || self.source == 0;
        self.family == 6 && self.protocol == 58 && is_local
    }

    /// Returns true for a possible Router Advertisement: to all nodes or a link-local address.
    #[inline]
    #[must_use]
    pub const fn is_advertisement(&self) -> bool {
        let to = self.destination;
        let is_local = to >> 118 == 0xFE80 >> 6 || to >> 120 == 0xFF;
        self.family == 6 && self.protocol == 58 && is_local
    }
}

#[cfg(test)]
mod tests;
