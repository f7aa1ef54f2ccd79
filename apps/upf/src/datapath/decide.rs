//! Packet classification and enforcement: the one module that applies rules to packets.
//!
//! [`decide`] takes the rules of the packet's session, the packet's fields and the lane's counter
//! slots. It neither allocates nor fails. Its steps (TS 29.244 clause 5.2.1): find the first PDR by
//! precedence that matches; check gates; check URRs; check meters, all of which must conform before
//! any is charged; apply the FAR. A packet that is held is not counted: it is decided again when it
//! is released.
//!
//! A packet that may be forwarded is not charged yet, since its next hop and a frame for it are not
//! known. Once they are, [`charge`] checks quotas and meters again, which earlier packets may have
//! used up, and charges. ([`decide_at_once`] leaves them to it altogether.) So URRs count the
//! octets of inner IP packets that leave. URRs with MBQE (clause 8.2.68) also count what QoS
//! enforcement or the FAR drops.
//!
//! An event is raised once per counter slot and version of the rules. The caller raises the
//! session's pending event if [`Decision::events`] is not 0.

mod account;
mod apply;
mod blocks;
mod charge;
mod find;
mod meter;
mod redirect;
mod simple;
mod subject;

use std::net::IpAddr;

use fastlane::table::LaneState;

use crate::rules::layout::cause::Cause;
use crate::rules::layout::rules::{Block, Direction, Outer, OuterPath, Rules, Way, flag};
use crate::rules::layout::state::WORDS;
use crate::session::{PdrId, SessionId};

pub use account::{is_later, marker_due, marker_sent};
pub use blocks::{Blocks, InTurn};
pub use charge::Charge;
pub use subject::{Ports, Subject};

/// Decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision<'t> {
    /// Forward, hold or drop.
    pub fate: Fate<'t>,
    /// PDR that matched; 0: none.
    pub pdr: PdrId,
    /// Direction of the packet.
    pub direction: Direction,
    /// New events: bits of [`state::event`](crate::rules::layout::state::event). If not 0, the caller
    /// raises the session's pending event.
    pub events: u64,
    /// Counter slot of the last event.
    pub line: u32,
    /// Destinations of copies (DUPL).
    pub copies: &'t [OuterPath],
    /// Charge that is due when it leaves.
    pub charge: Charge,
}

/// Result of charging a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// Reason why it must not leave; `None`: it may leave.
    pub refused: Option<Cause>,
    /// PDR that matched; 0: none.
    pub pdr: PdrId,
    /// New events, see [`Decision::events`].
    pub events: u64,
    /// Counter slot of the last event.
    pub line: u32,
}

/// Decision of the short path: the packet may be forwarded.
#[derive(Clone, Copy, Debug)]
pub struct Passing<'t> {
    /// Path of the packet.
    pub path: Path<'t>,
    /// Direction of the packet.
    pub direction: Direction,
    /// Charge that is due when it leaves.
    pub charge: Charge,
}

/// Action for a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate<'t> {
    /// May be forwarded. It is charged when it leaves.
    Forward(Path<'t>),
    /// The packet is dropped.
    Drop(Cause),
    /// Held and decided again later. It has not been counted.
    Hold(Hold),
}

/// Limits of buffering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Maximum number of packets of the session.
    pub packets: u16,
    /// Maximum time in ms.
    pub ms: u32,
}

/// Path of forwarded packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Path<'t> {
    /// Compiled FAR.
    pub way: &'t Way,
    /// IPv6 address of the far end, if the outer header is IPv6.
    pub peer6: &'t [u8; 16],
    /// Redirection, if the FAR has one.
    pub redirect: Option<Redirect<'t>>,
}

/// Redirection of HTTP requests (TS 29.244 clause 8.2.20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirect<'t> {
    /// To an address.
    To(IpAddr),
    /// By a response with this URL.
    Url(&'t [u8]),
}

impl Path<'_> {
    /// Returns the outer header to add.
    #[inline]
    #[must_use]
    pub fn outer(&self) -> Option<Outer> {
        self.way.outer(self.peer6)
    }

    /// Returns true if a packet is redirected: not if it is exchanged with the redirect server
    /// already.
    #[inline]
    #[must_use]
    pub fn redirects(&self, direction: Direction, subject: &Subject) -> bool {
        self.redirect.is_some_and(|redirect| {
            let other = match direction {
                Direction::Up => subject.destination,
                Direction::Down => subject.source,
            };
            match redirect {
                Redirect::To(to) => Subject::address(to) != (subject.family, other),
                Redirect::Url(_) => true,
            }
        })
    }
}

/// Decides about a packet. A packet that may be forwarded is not charged yet.
///
/// `rules` are those of `session`, read once for this packet; `now` is `CLOCK_MONOTONIC` in ns. The
/// session's own slot of `state` is accessed, and those of its further URRs and QERs.
#[inline]
pub fn decide<'t>(
    rules: &'t Rules,
    blocks: &impl Blocks<'t>,
    subject: &Subject,
    session: SessionId,
    state: &LaneState<WORDS>,
    now: u64,
) -> Decision<'t> {
    if has_blocks(rules, subject.tunnel) {
        find::decide(rules, blocks, subject, session, state, now)
    } else {
        simple::decide(rules, subject, session, state, now)
    }
}

/// Decides about most packets without going through memory. `None` if [`decide`] has to decide.
#[inline(always)]
pub fn decide_at_once<'t>(rules: &'t Rules, subject: &Subject) -> Option<Passing<'t>> {
    if has_blocks(rules, subject.tunnel) { None } else { simple::decide_at_once(rules, subject) }
}

/// Charges most packets. If it returns false it has done nothing, and [`charge`] has to charge.
#[inline(always)]
pub fn charge_at_once(
    rules: &Rules,
    charge: Charge,
    session: SessionId,
    state: &LaneState<WORDS>,
    now: u64,
) -> bool {
    charge.is_by_line() && simple::charge_at_once(rules, charge, session, state, now)
}

/// Returns true if blocks decide, by the cache line that the packet's direction most often has.
#[inline(always)]
const fn has_blocks(rules: &Rules, tunnel: Option<u32>) -> bool {
    rules.has_blocks_for(if tunnel.is_some() { Direction::Up } else { Direction::Down })
}

/// Charges a packet that is about to leave if meters and quotas allow it. Nothing may keep it from
/// leaving afterwards.
///
/// `rules` have the version that `charge` names.
#[inline]
pub fn charge<'t>(
    rules: &'t Rules,
    blocks: &impl Blocks<'t>,
    charge: Charge,
    session: SessionId,
    state: &LaneState<WORDS>,
    now: u64,
) -> Charged {
    look::<CHARGE>(rules, blocks, charge, session, state, now)
}

/// Checks if [`charge`] would let a packet pass. A quota that stops it raises an event.
pub fn passes<'t>(
    rules: &'t Rules,
    blocks: &impl Blocks<'t>,
    charge: Charge,
    session: SessionId,
    state: &LaneState<WORDS>,
    now: u64,
) -> Charged {
    look::<CHECK>(rules, blocks, charge, session, state, now)
}

/// Returns the reason that stops a packet which will not leave in any case. Quotas that it would
/// use up are left unchanged.
pub fn is_stopped<'t>(
    rules: &'t Rules,
    blocks: &impl Blocks<'t>,
    charge: Charge,
    session: SessionId,
    state: &LaneState<WORDS>,
    now: u64,
) -> Option<Cause> {
    look::<LOOK>(rules, blocks, charge, session, state, now).refused
}

#[inline]
fn look<'t, const MODE: u8>(
    rules: &'t Rules,
    blocks: &impl Blocks<'t>,
    charge: Charge,
    session: SessionId,
    state: &LaneState<WORDS>,
    now: u64,
) -> Charged {
    if charge.is_by_line() {
        simple::charge::<MODE>(rules, charge, session, state, now)
    } else {
        find::charge::<MODE>(blocks, charge, session, state, now).into()
    }
}

/// Returns the path of the rule that matches, regardless of URRs and meters, for packets that this
/// UPF originates. `None` if the rule does not forward, or redirects.
pub fn own_path<'t>(
    rules: &'t Rules,
    blocks: &impl Blocks<'t>,
    subject: &Subject,
    session: SessionId,
) -> Option<Path<'t>> {
    if has_blocks(rules, subject.tunnel) {
        find::own_path(rules, blocks, subject, session)
    } else {
        simple::own_path(rules, subject)
    }
}

/// Returns true if a tunnel belongs to the session. False for a late packet whose session index has
/// been reused.
#[inline]
#[must_use]
pub fn has_tunnel<'t>(rules: &'t Rules, blocks: &impl Blocks<'t>, teid: u32) -> bool {
    if has_blocks(rules, Some(teid)) {
        return find::has_tunnel(rules, blocks, teid);
    }
    rules.up.side.is_by(Some(teid)) || rules.down.side.is_by(Some(teid))
}

impl<'t> Decision<'t> {
    fn drop(cause: Cause, pdr: PdrId, direction: Direction) -> Self {
        let charge = Charge::default();
        Self { fate: Fate::Drop(cause), pdr, direction, events: 0, line: 0, copies: &[], charge }
    }
}

impl From<Decision<'_>> for Charged {
    fn from(decision: Decision<'_>) -> Self {
        let Decision { fate, pdr, events, line, .. } = decision;
        let refused = match fate {
            Fate::Forward(_) => None,
            Fate::Drop(cause) => Some(cause),
            Fate::Hold(_) => Some(Cause::HoldLimit), // a held packet is never charged
        };
        Self { refused, pdr, events, line }
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

/// Blocks in private memory by index, for tests and tools.
impl<'t> Blocks<'t> for &'t [Block] {
    fn block(&self, place: usize) -> Option<&'t Block> {
        self.get(place)
    }
}

#[cfg(test)]
mod tests;
