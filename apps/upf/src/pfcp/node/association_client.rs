//! Associations that this node sets up, with the configured control planes (TS 29.244 clause
//! 6.2.6.3), and node reports to control planes.

use std::net::IpAddr;

use fastlane_pfcp::ie::{
    CpFunctionFeatures, NodeId, NodeReportType, RecoveryTimeStamp, RemoteGtpUPeer,
};
use fastlane_pfcp::{Cause, Fault, Header, IeType, Message, MessageType};

use super::association_server::{Removal, RemovalScope, RemovalStep};
use super::{NodeContext, RequestPath, association_server, node_messages};
use crate::pfcp::associations::Setup;
use crate::pfcp::paths::PathEvent;
use crate::pfcp::{NodeName, Request, Tag};
use crate::time::{Now, SECOND};

/// First and longest interval between attempts, in nanoseconds. It doubles after each failure.
const FIRST: u64 = SECOND;
const LAST: u64 = 60 * SECOND;

/// Attempts to set up associations.
#[derive(Debug)]
pub(super) struct Initiations {
    all: Vec<Initiation>,
}

#[derive(Debug)]
struct Initiation {
    address: IpAddr,
    due: u64,
    pause: u64,
    is_asked: bool,
}

impl Initiations {
    /// Creates one attempt per address, all due at once.
    pub(super) fn new(addresses: &[IpAddr], now: Now) -> Self {
        let due = now.monotonic;
        let one =
            |address: &IpAddr| Initiation { address: *address, due, pause: FIRST, is_asked: false };
        Self { all: addresses.iter().map(one).collect() }
    }

    /// Returns a due attempt and schedules the next one.
    fn next(&mut self, now: Now) -> Option<(usize, IpAddr)> {
        let is_due = |it: &&mut Initiation| !it.is_asked && it.due <= now.monotonic;
        let (index, found) = self.all.iter_mut().enumerate().find(|(_, it)| is_due(it))?;
        found.due = now.monotonic.saturating_add(LAST);
        Some((index, found.address))
    }

    fn asked(&mut self, index: usize) {
        if let Some(found) = self.all.get_mut(index) {
            found.is_asked = true;
        }
    }

    fn failed(&mut self, now: Now, index: usize) {
        if let Some(found) = self.all.get_mut(index) {
            found.is_asked = false;
            found.due = now.monotonic.saturating_add(found.pause);
            found.pause = (found.pause * 2).min(LAST);
        }
    }

    fn done(&mut self, now: Now, index: usize) {
        if let Some(found) = self.all.get_mut(index) {
            found.is_asked = false;
            found.pause = FIRST;
            found.due = now.monotonic.saturating_add(LAST);
        }
    }

    /// Schedules a new attempt after an association with this address has ended.
    pub(super) fn ended(&mut self, now: Now, address: IpAddr) {
        for found in self.all.iter_mut().filter(|it| it.address == address && !it.is_asked) {
            found.due = now.monotonic.saturating_add(found.pause);
        }
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        self.all.iter().filter(|it| !it.is_asked).map(|it| it.due).min()
    }
}

/// Sends setup requests for configured associations that do not exist.
pub(super) fn initiate(cx: &mut NodeContext<'_>) {
    while let Some((index, address)) = cx.node.initiations.next(cx.now) {
        if cx.node.peers.at(address).next().is_some() {
            continue;
        }
        let sequence = cx.node.requests.sequence();
        let header = Header::node(MessageType::ASSOCIATION_SETUP_REQUEST, sequence);
        let bytes = node_messages::message(header, |to| {
            to.put(&cx.node.identity.node_id.ie());
            association_server::introduce(cx.node, to);
        });
        let to = (address, cx.node.settings.n4.port).into();
        let request = Request { bytes, sequence, to, local: None, tag: Tag::Setup(index) };
        if cx.send(request) {
            cx.node.initiations.asked(index);
        }
    }
}

/// Handles a setup response.
pub(super) fn initiated(
    cx: &mut NodeContext<'_>,
    path: RequestPath,
    index: usize,
    message: &Message<'_>,
) {
    match accepted(cx, path, message) {
        Ok(()) => cx.node.initiations.done(cx.now, index),
        Err(fault) => {
            tracing::warn!("{} refused the association setup: {fault}", path.from.ip());
            cx.node.initiations.failed(cx.now, index);
        }
    }
}

fn accepted(
    cx: &mut NodeContext<'_>,
    path: RequestPath,
    message: &Message<'_>,
) -> Result<(), Fault> {
    let group = message.group();
    let node_id = NodeName::from(group.need::<NodeId<'_>>()?);
    let cause = group.need::<Cause>()?;
    if !cause.is_accepted() {
        return Err(Fault { cause, offending: None });
    }
    let RecoveryTimeStamp(recovery) = group.need()?;
    let features = group.find::<CpFunctionFeatures>()?.unwrap_or_default().0;
    let local = Some(path.local);
    let setup = Setup { node_id, recovery, address: path.from, local, features };
    let index = association_server::index(cx.node, cx.now, &setup.node_id)?;
    if cx.node.is_removing(index) {
        let cause = Cause::REQUEST_REJECTED;
        return Err(Fault { cause, offending: None });
    }
    // If the peer set up the association itself in between, the time stamp is equal and its
    // sessions stay.
    let is_old = cx.node.peers.get(index).is_some_and(|found| found.peer.recovery != recovery);
    let from = if is_old { 0 } else { u32::MAX };
    let then = RemovalStep::Begin(setup, false);
    let removal = Removal { index, which: RemovalScope::All, then, asked: None, from };
    association_server::begin_removal(cx, removal).map(|_| ())
}

/// Handles a setup request without response.
pub(super) fn not_initiated(cx: &mut NodeContext<'_>, index: usize) {
    cx.node.initiations.failed(cx.now, index);
}

/// Sends a user plane path failure or recovery report (table 7.4.5.1-1).
pub(super) fn report_path(cx: &mut NodeContext<'_>, index: u16, event: &PathEvent) {
    let Some(found) = cx.node.peers.get(index).filter(|found| found.peer.is_up) else { return };
    let (to, local) = (found.peer.address, found.peer.local);
    let (report_type, group) = if event.has_failed {
        (NodeReportType::UPFR, IeType::USER_PLANE_PATH_FAILURE_REPORT)
    } else {
        (NodeReportType::UPRR, IeType::USER_PLANE_PATH_RECOVERY_REPORT)
    };
    let mut remote = RemoteGtpUPeer::default();
    match event.route.remote {
        IpAddr::V4(address) => remote.v4 = Some(address),
        IpAddr::V6(address) => remote.v6 = Some(address),
    }
    let sequence = cx.node.requests.sequence();
    let header = Header::node(MessageType::NODE_REPORT_REQUEST, sequence);
    let bytes = node_messages::message(header, |to| {
        to.put(&cx.node.identity.node_id.ie());
        to.put(&report_type);
        to.group(group, |to| to.put(&remote));
    });
    cx.send(Request { bytes, sequence, to, local, tag: Tag::NodeReport(index) });
}

/// Logs a path failure or recovery and reports it to the control planes that use the path.
pub(super) fn path_event(cx: &mut NodeContext<'_>, event: &PathEvent) {
    let (counter, what) = if event.has_failed {
        (&mut cx.node.statistics.paths_failed, "does not answer any more")
    } else {
        (&mut cx.node.statistics.paths_recovered, "answers again")
    };
    *counter += 1;
    tracing::info!("GTP-U path to {}: the peer {what}", event.route.remote);
    for index in &event.peers {
        report_path(cx, *index, event);
    }
}
