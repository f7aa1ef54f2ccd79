//! Associations that this node sets up, with the configured control planes (TS 29.244 clause
//! 6.2.6.3), and node reports to control planes.

use std::net::IpAddr;

use fastlane_pfcp::ie::{
    CpFunctionFeatures, NodeId, NodeReportType, RecoveryTimeStamp, RemoteGtpUPeer,
};
use fastlane_pfcp::{Cause, Fault, Header, IeType, Message, MessageType};

use super::association_server::{Removal, RemovalScope, RemovalStep};
use super::{NodeContext, RequestPath, admission, association_server, node_messages};
use crate::config::N4;
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

#[derive(Debug, Default)]
struct Initiation {
    /// Addresses of the peer in a family of N4. A name has none until it is resolved.
    addresses: Vec<IpAddr>,
    /// Number of failed attempts; it selects the address.
    failures: usize,
    /// Time of the next attempt, in nanoseconds of `CLOCK_MONOTONIC`; 0: at once.
    due: u64,
    pause: u64,
    is_asked: bool,
    /// The peer has restarted and lost the association that this node knows.
    must_renew: bool,
}

impl Initiation {
    fn is_idle(&self) -> bool {
        !self.is_asked && !self.addresses.is_empty()
    }
}

impl Initiations {
    /// Creates one attempt per configured peer. Those with an address are due at once.
    pub(super) fn new(n4: &N4, now: Now) -> Self {
        let one = |peer: &String| Initiation {
            addresses: peer.parse().into_iter().collect(),
            due: now.monotonic,
            pause: FIRST,
            ..Initiation::default()
        };
        Self { all: n4.peers.iter().map(one).collect() }
    }

    /// Replaces the addresses of a peer that is configured by name. Other ones are tried at once:
    /// the pause is that of failures at the old ones.
    pub(super) fn set_addresses(&mut self, index: usize, addresses: Vec<IpAddr>) {
        if let Some(found) = self.all.get_mut(index)
            && found.addresses != addresses
        {
            (found.addresses, found.failures) = (addresses, 0);
            (found.due, found.pause) = (0, FIRST);
        }
    }

    /// Returns a due attempt and schedules the next one.
    fn next(&mut self, now: Now) -> Option<usize> {
        let is_due = |it: &Initiation| it.is_idle() && it.due <= now.monotonic;
        let index = self.all.iter().position(is_due)?;
        self.all[index].due = now.monotonic.saturating_add(LAST);
        Some(index)
    }

    fn asked(&mut self, index: usize) {
        if let Some(found) = self.all.get_mut(index) {
            found.is_asked = true;
        }
    }

    fn failed(&mut self, now: Now, index: usize) {
        if let Some(found) = self.all.get_mut(index) {
            found.is_asked = false;
            found.failures = found.failures.wrapping_add(1);
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
        let is_its = |it: &&mut Initiation| it.is_idle() && it.addresses.contains(&address);
        for found in self.all.iter_mut().filter(is_its) {
            found.due = now.monotonic.saturating_add(found.pause);
        }
    }

    /// Schedules a new attempt after a peer with this address has restarted, unless it makes one
    /// itself before.
    pub(super) fn restarted(&mut self, now: Now, address: IpAddr) {
        let is_its = |it: &&mut Initiation| it.is_idle() && it.addresses.contains(&address);
        for found in self.all.iter_mut().filter(is_its) {
            (found.must_renew, found.pause) = (true, FIRST);
            found.due = now.monotonic.saturating_add(FIRST);
        }
    }

    /// Notes that an association with this address has begun.
    pub(super) fn begun(&mut self, address: IpAddr) {
        for found in self.all.iter_mut().filter(|it| it.addresses.contains(&address)) {
            found.must_renew = false;
        }
    }

    /// Makes all attempts due at once, after a drain.
    pub(super) fn resume(&mut self, now: Now) {
        for found in self.all.iter_mut().filter(|it| !it.is_asked) {
            (found.due, found.pause) = (now.monotonic, FIRST);
        }
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        self.all.iter().filter(|it| it.is_idle()).map(|it| it.due).min()
    }
}

/// Sends setup requests for configured associations that do not exist, or no more for a peer that
/// has restarted, unless the node drains.
pub(super) fn initiate(cx: &mut NodeContext<'_>) {
    if cx.node.drain.is_active() {
        return;
    }
    while let Some(index) = cx.node.initiations.next(cx.now) {
        let found = &cx.node.initiations.all[index];
        let is_there = |address: &IpAddr| cx.node.peers.known_at(*address).next().is_some();
        let address = found.addresses[found.failures % found.addresses.len()];
        if !found.must_renew && found.addresses.iter().any(is_there) {
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
            tracing::warn!("no association with {}: {fault}", path.from.ip());
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
    let alternatives = association_server::alternatives(cx.node, &group)?.unwrap_or_default();
    let smf_set = association_server::smf_set(&group)?.unwrap_or_default();
    let address = path.from;
    let setup = Setup { node_id, recovery, address, local, features, alternatives, smf_set };
    let known = cx.node.peers.find(&setup.node_id).filter(|found| found.down.is_none());
    if known.is_some_and(|found| !admission::speaks_for(cx.node, address.ip(), found)) {
        let cause = Cause::REQUEST_REJECTED;
        return Err(Fault::of(cause, IeType::NODE_ID));
    }
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
