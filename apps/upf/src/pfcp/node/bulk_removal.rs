//! Bulk removal of sessions, of an association or an FQ-CSID, in slices: heartbeats and other
//! associations are served in between.
//!
//! The requester gets its response after the last session. Other requests of the association are
//! discarded meanwhile and retransmitted after T1. Only a repeated release gets its response
//! earlier, because nothing can come in between. If the process is killed, its successor continues
//! when the request is retransmitted, or at once for an association that is marked as ending.

use std::net::IpAddr;

use fastlane_pfcp::ie::{CpPfcpEntityIpAddress, FqCsid};
use fastlane_pfcp::{Header, Ie};

use super::{NodeContext, RequestPath, session_handlers};
use crate::pfcp::RequestKey;
use crate::pfcp::associations::Setup;
use crate::pfcp::sessions::is_in;
use crate::session::Session;

/// Sessions removed in one slice: about a millisecond.
const SLICE: u32 = 128;
/// Session indices examined in one slice.
const LOOKED_AT: u32 = 8192;

/// Bulk removal of an association's sessions, and the step that follows.
#[derive(Debug)]
pub(super) struct Removal {
    pub(super) index: u16,
    pub(super) which: RemovalScope,
    pub(super) then: RemovalStep,
    /// Request to which a response is sent at the end.
    pub(super) asked: Option<PendingRequest>,
    /// Session index at which the search continues.
    pub(super) from: u32,
}

/// Request whose response is sent later.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRequest {
    pub(super) key: RequestKey,
    pub(super) header: Header,
    pub(super) path: RequestPath,
}

/// Selection of sessions of an association.
#[derive(Debug)]
pub(super) enum RemovalScope {
    All,
    /// All sessions except the retained ones.
    Unless(Retained),
    /// Sessions with one of these FQ-CSIDs.
    Of(Vec<Vec<u8>>),
}

/// Step after a bulk removal.
#[derive(Debug)]
pub(super) enum RemovalStep {
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

impl RemovalScope {
    fn has(&self, session: &Session) -> bool {
        match self {
            Self::All => true,
            Self::Unless(retained) => !retained.has(session.cp_fseid.address),
            Self::Of(sets) => {
                let mut sets = sets.iter().filter_map(|set| FqCsid::decode(set).ok());
                sets.any(|set| is_in(session, &set))
            }
        }
    }
}

/// Removes a slice of sessions. Returns true if none is left.
pub(super) fn remove_slice(cx: &mut NodeContext<'_>, removal: &mut Removal) -> bool {
    let end = removal.from.saturating_add(LOOKED_AT);
    for _ in 0..SLICE {
        let (id, next) = cx.node.sessions.next_of_peer(removal.from, end, removal.index);
        removal.from = next;
        let Some(id) = id else { return next >= cx.node.sessions.capacity() };
        let meant = cx.node.sessions.get(id).filter(|session| removal.which.has(session));
        if let Some(session) = meant {
            session_handlers::remove(cx, session);
        }
    }
    removal.from >= cx.node.sessions.capacity()
}
