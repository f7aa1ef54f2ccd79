//! Bulk removal of sessions, of an association or an FQ-CSID, in slices: heartbeats and other
//! associations are served in between.
//!
//! The requester gets its response after the last session. Other requests of the association are
//! discarded meanwhile and retransmitted after T1. Only a repeated release gets its response
//! earlier, because nothing can come in between. If the process is killed, its successor continues
//! when the request is retransmitted, or at once for an association that is marked as ending.

use std::net::IpAddr;

use fastlane_pfcp::ie::{CpPfcpEntityIpAddress, FqCsid};
use fastlane_pfcp::{Fault, Header, Ie};

use super::receive::Way;
use super::{Node, answer};
use crate::pfcp::peer::peers::{Given, Setup};
use crate::pfcp::sessions::is_in;
use crate::pfcp::{Outbox, RequestKey};
use crate::session::Session;
use crate::time::Now;

/// Sessions removed in one slice: about a millisecond.
const SLICE: u32 = 128;
/// Session indices examined in one slice.
const LOOKED_AT: u32 = 8192;

/// Bulk removal of an association's sessions, and the step that follows.
#[derive(Debug)]
pub(super) struct Removal {
    pub(super) place: u16,
    pub(super) which: Which,
    pub(super) then: Then,
    /// Request to which a response is sent at the end.
    pub(super) asked: Option<Asked>,
    /// Session index at which the search continues.
    pub(super) from: u32,
}

/// Request whose response is sent later.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) key: RequestKey,
    pub(super) header: Header,
    pub(super) way: Way,
}

/// Selection of sessions of an association.
#[derive(Debug)]
pub(super) enum Which {
    All,
    /// All sessions except the retained ones.
    Unless(Retained),
    /// Sessions with one of these FQ-CSIDs.
    Of(Vec<Vec<u8>>),
}

/// Step after a bulk removal.
#[derive(Debug)]
pub(super) enum Then {
    /// Set up the association again. The flag says whether sessions were retained.
    Begin(Setup, bool),
    /// Release the association.
    End,
    /// Store the recovery time stamp of a peer that restarted.
    Restored(u32),
    /// Send the response only.
    Answer,
}

/// Sessions to retain when an association is set up again (TS 29.244 table 7.4.4.1-2).
#[derive(Debug)]
pub(super) struct Retained {
    /// CP addresses of the retained sessions; empty retains all.
    pub(super) of: Vec<CpPfcpEntityIpAddress>,
}

impl Retained {
    fn has(&self, address: IpAddr) -> bool {
        let is = |it: &CpPfcpEntityIpAddress| match address {
            IpAddr::V4(address) => it.v4 == Some(address),
            IpAddr::V6(address) => it.v6 == Some(address),
        };
        self.of.is_empty() || self.of.iter().any(is)
    }
}

impl Which {
    fn has(&self, session: &Session) -> bool {
        match self {
            Self::All => true,
            Self::Unless(retained) => !retained.has(session.control.address),
            Self::Of(sets) => {
                let mut sets = sets.iter().filter_map(|set| FqCsid::decode(set).ok());
                sets.any(|set| is_in(session, &set))
            }
        }
    }
}

impl Node {
    /// Starts a removal. Returns the response if all sessions are removed at once, else it is sent
    /// later.
    pub(super) fn begin_removal(
        &mut self,
        now: Now,
        mut removal: Removal,
        out: &mut Outbox,
    ) -> Result<Option<Vec<u8>>, Fault> {
        if !self.remove_slice(now, &mut removal, out) {
            self.removals.push_back(removal);
            return Ok(None);
        }
        self.removed(now, &removal)
    }

    /// Continues the pending removals, one association after the other.
    pub(super) fn go_on_removing(&mut self, now: Now, out: &mut Outbox) {
        let Some(mut removal) = self.removals.pop_front() else { return };
        if !self.remove_slice(now, &mut removal, out) {
            return self.removals.push_back(removal);
        }
        let ended = self.removed(now, &removal);
        let Some(Asked { key, header, way }) = removal.asked else { return };
        let bytes = match ended {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return,
            Err(fault) => answer::refuse(header, &self.identity, fault),
        };
        self.answers.keep(now, key, bytes.clone());
        self.count_answer_of(&bytes);
        out.send(Some(way.local), way.from, bytes);
    }

    /// Returns true if sessions of an association are being removed.
    pub(super) fn is_removing(&self, place: u16) -> bool {
        self.removals.iter().any(|removal| removal.place == place)
    }

    /// Returns true if a session request must wait because sessions of its association are being
    /// removed.
    pub(super) fn is_removing_session(&self, peer: Option<u16>, seid: u64) -> bool {
        let is_one = |place: Option<u16>| place.is_some_and(|place| self.is_removing(place));
        !self.removals.is_empty() && (is_one(peer) || is_one(self.sessions.peer_of(seid)))
    }

    /// Removes a slice of sessions. Returns true if none is left.
    fn remove_slice(&mut self, now: Now, removal: &mut Removal, out: &mut Outbox) -> bool {
        let end = removal.from.saturating_add(LOOKED_AT);
        for _ in 0..SLICE {
            let (id, next) = self.sessions.next_of_peer(removal.from, end, removal.place);
            removal.from = next;
            let Some(id) = id else { return next >= self.sessions.capacity() };
            let meant = self.sessions.get(id).filter(|session| removal.which.has(session));
            if let Some(session) = meant {
                self.remove(now, session, out);
            }
        }
        removal.from >= self.sessions.capacity()
    }

    /// Runs the step after a removal and returns the response to the request.
    fn removed(&mut self, now: Now, removal: &Removal) -> Result<Option<Vec<u8>>, Fault> {
        let (place, asked) = (removal.place, removal.asked);
        let bytes = asked.map(|asked| match &removal.then {
            Then::Begin(_, are_kept) => self.accept_setup(asked.header, *are_kept),
            _ => self.accept(asked),
        });
        let given = asked.zip(bytes.as_ref());
        let given = given.map(|(asked, bytes)| Given { key: asked.key, bytes });
        match &removal.then {
            Then::Begin(setup, _) => self.begin(now, place, setup, given)?,
            Then::End => {
                let ended = self.ended(now, place, asked.is_some());
                ended.map_err(|error| self.system_failure(&error))?;
            }
            Then::Restored(recovery) => {
                let changed = self.peers.set_recovery(place, now, *recovery);
                self.check(changed);
                self.statistics.restorations += 1;
            }
            Then::Answer => {
                let kept = given.map(|given| self.peers.update(place, now, None, given));
                kept.transpose().map_err(|error| self.system_failure(&error))?;
            }
        }
        Ok(bytes)
    }
}
