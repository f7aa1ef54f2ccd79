//! What becomes of a packet: the one place where rules are applied.
//!
//! [`decide`] is given the rules of the packet's session, what is known of the packet, and the
//! lane's words; it neither allocates nor fails. What it does in order (TS 29.244 clause 5.2.1):
//! the first PDR by precedence that matches; gates; what URRs say; meters, all of which must
//! conform before any is charged; then the FAR. URRs count the octets of inner IP packets that
//! pass; those with MBQE (clause 8.2.68) also what QoS enforcement or the FAR drops. A packet that
//! is held is not counted: it is decided again when it is released.
//!
//! An event is raised once per line of state and version of the rules. The caller raises the
//! session's pending event when [`Decision::events`] says that there is a new one.

mod account;
mod apply;
mod blocks;
mod find;
mod meter;
mod redirect;
mod simple;
mod subject;

use std::net::IpAddr;

use fastlane::table::LaneState;

use crate::model::{PdrId, SessionId};
use crate::shared::cause::Cause;
use crate::shared::rules::{Block, Direction, Outer, OuterPath, Rules, Way};
use crate::shared::state::WORDS;

pub use account::{marker_due, marker_sent};
pub use blocks::{Blocks, InTurn};
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
    /// New events: bits of [`state::event`](crate::shared::state::event). If there are any, the
    /// session's pending event is to be raised.
    pub events: u64,
    /// The line of state with the last of them.
    pub line: u32,
    /// Where copies go (DUPL).
    pub copies: &'t [OuterPath],
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate<'t> {
    /// It is sent on. It has been counted.
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
    /// To this address, and port.
    To(IpAddr, Option<u16>),
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
}

/// Says what becomes of a packet, and charges it if it passes.
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
    if rules.has_blocks() {
        find::decide(rules, blocks, subject, session, state, now)
    } else {
        simple::decide(rules, subject, session, state, now)
    }
}

/// Whether a tunnel is one of the session's: false for a packet that comes too late, after the
/// place was given to another.
#[inline]
#[must_use]
pub fn has_tunnel<'t>(rules: &'t Rules, blocks: &impl Blocks<'t>, teid: u32) -> bool {
    if rules.has_blocks() {
        return find::has_tunnel(rules, blocks, teid);
    }
    [&rules.up.side, &rules.down.side].iter().any(|side| side.is_by(Some(teid)))
}

impl<'t> Decision<'t> {
    fn drop(cause: Cause, pdr: PdrId, direction: Direction) -> Self {
        Self { fate: Fate::Drop(cause), pdr, direction, events: 0, line: 0, copies: &[] }
    }
}

/// Blocks in memory of one's own, by place: for tests and tools.
impl<'t> Blocks<'t> for &'t [Block] {
    fn block(&self, place: usize) -> Option<&'t Block> {
        self.get(place)
    }
}

#[cfg(test)]
mod tests;
