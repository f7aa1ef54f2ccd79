//! Our requests and their outcome; node reports.

use std::net::IpAddr;

use fastlane_pfcp::ie::{NodeReportType, RemoteGtpUPeer};
use fastlane_pfcp::{Header, IeType, MessageType};

use super::{NodeContext, node_messages};
use crate::pfcp::paths::PathEvent;
use crate::pfcp::{Request, Tag};

/// Sends a user plane path failure or recovery report (table 7.4.5.1-1).
pub(super) fn report_path(cx: &mut NodeContext<'_>, place: u16, event: &PathEvent) {
    let Some(found) = cx.node.peers.get(place).filter(|found| found.peer.is_up) else { return };
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
    cx.send(Request { bytes, sequence, to, local, tag: Tag::NodeReport(place) });
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
    for place in &event.peers {
        report_path(cx, *place, event);
    }
}
