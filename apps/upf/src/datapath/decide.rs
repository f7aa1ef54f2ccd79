//! What becomes of a packet: the one place where rules are applied.
//!
//! [`decide`] is given the rules of the packet's session, what is known of the packet, and the
//! lane's words; it neither allocates nor fails. What it does in order (TS 29.244 clause 5.2.1):
//! the first PDR by precedence that matches; gates; what URRs say; meters, all of which must
//! conform before any is charged; then the FAR. A packet that is held is not counted: it is decided
//! again when it is released.
//!
//! One that may be sent on is not charged either: whether there is a way for it, and a frame, is
//! not known yet. When it is, [`charge`] looks at quotas and meters, which packets before it may
//! have used up, and charges. ([`decide_at_once`] leaves them to it altogether.) So URRs count the
//! octets of inner IP packets that leave; those with MBQE (clause 8.2.68) also what QoS enforcement
//! or the FAR drops.
//!
//! An event is raised once per line of state and version of the rules. The caller raises the
//! session's pending event when [`Decision::events`] says that there is a new one.

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

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision<'t> {
    /// That.
    pub fate: Fate<'t>,
    /// The number of the PDR that matched; 0: none.
    pub pdr: PdrId,
    /// From or to the user.
    pub direction: Direction,
    /// New events: bits of [`state::event`](crate::rules::layout::state::event). If there are any, the
    /// session's pending event is to be raised.
    pub events: u64,
    /// The line of state with the last of them.
    pub line: u32,
    /// Where copies go (DUPL).
    pub copies: &'t [OuterPath],
    /// What is charged when it leaves.
    pub charge: Charge,
}

/// What came of charging a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// Why it does not leave; nothing: it does.
    pub refused: Option<Cause>,
    /// As in [`Decision`].
    pub pdr: PdrId,
    /// As in [`Decision`].
    pub events: u64,
    /// As in [`Decision`].
    pub line: u32,
}

/// A packet that may be sent on, as its line alone says.
#[derive(Clone, Copy, Debug)]
pub struct Passing<'t> {
    /// Where.
    pub path: Path<'t>,
    /// From or to the user.
    pub direction: Direction,
    /// What is charged when it leaves.
    pub charge: Charge,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate<'t> {
    /// It may be sent on. It is charged when it is.
    Forward(Path<'t>),
    /// It is dropped.
    Drop(Cause),
    /// It is kept and decided again later. It has not been counted.
    Hold(Hold),
}

/// How packets are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The most packets of the session.
    pub packets: u16,
    /// For how long, in ms.
    pub ms: u32,
}

/// Where a packet is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Path<'t> {
    /// Where.
    pub way: &'t Way,
    /// The IPv6 address that the way may need.
    pub peer6: &'t [u8; 16],
    /// Where it is sent instead.
    pub redirect: Option<Redirect<'t>>,
}

/// Where web requests are sent instead (TS 29.244 clause 8.2.20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirect<'t> {
    /// To this address.
    To(IpAddr),
    /// They are answered with this URL.
    Url(&'t [u8]),
}

impl Path<'_> {
    /// The outer header that is put on.
    #[inline]
    #[must_use]
    pub fn outer(&self) -> Option<Outer> {
        self.way.outer(self.peer6)
    }

    /// Whether a packet goes elsewhere instead: not if it is between the user and there already.
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

/// Says what becomes of a packet. One that may be sent on is not charged yet.
///
/// `rules` are those of `session`, read once for this packet; `now` is `CLOCK_MONOTONIC` in ns. The
/// session's own line of `state` is touched, and those of its further URRs and QERs.
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

/// What [`decide`] says of most packets, with nothing else to be done: nothing of it goes through
/// memory. `None`: [`decide`] says.
#[inline(always)]
pub fn decide_at_once<'t>(rules: &'t Rules, subject: &Subject) -> Option<Passing<'t>> {
    if has_blocks(rules, subject.tunnel) { None } else { simple::decide_at_once(rules, subject) }
}

/// What [`charge`] does with most packets. False, and nothing was done: [`charge`] says.
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

/// Whether all is decided by blocks, as the line says that the packet's direction most often has.
#[inline(always)]
const fn has_blocks(rules: &Rules, tunnel: Option<u32>) -> bool {
    rules.has_blocks_for(if tunnel.is_some() { Direction::Up } else { Direction::Down })
}

/// Charges a packet that is about to leave, if meters and quotas let it pass: nothing may keep it
/// from leaving any more then.
///
/// `rules` are of the version that `charge` names.
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

/// Whether [`charge`] would let a packet pass. If a quota stops it, that is an event.
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

/// Whether a packet would pass that is not going to: whoever it stops for was stopped before. Of
/// one that would use a quota up, the quota is left as it is.
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

/// Where the rule that matches sends packets, whatever URRs and meters say: for packets of our own,
/// which nobody offered. `None`: it does not forward, or redirects.
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

/// Whether a tunnel is one of the session's: false for a packet that comes too late, after the
/// place was given to another.
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
            Fate::Hold(_) => Some(Cause::HoldLimit), // not what may be charged
        };
        Self { refused, pdr, events, line }
    }
}

/// A rule with one of these flags forwards nothing now.
const SHUT: u32 = flag::DROP | flag::HOLD | flag::CLOSED;

/// A packet is judged whose way is not known: of limits of octets only those stop it that have been
/// reached before.
const LOOK: u8 = 0;
/// One is judged that could leave.
const CHECK: u8 = 1;
/// One is charged that leaves if it may.
const CHARGE: u8 = 2;

/// Blocks in memory of one's own, by place: for tests and tools.
impl<'t> Blocks<'t> for &'t [Block] {
    fn block(&self, place: usize) -> Option<&'t Block> {
        self.get(place)
    }
}

#[cfg(test)]
mod tests;
