//! Our requests and their outcome; node reports.

use std::net::IpAddr;

use fastlane_pfcp::ie::{NodeReportType, RemoteGtpUPeer};
use fastlane_pfcp::{Header, IeType, Message, MessageType};

use super::receive::Way;
use super::{Node, answer};
use crate::pfcp::path::PathEvent;
use crate::pfcp::{Outbox, Request, Tag};
use crate::time::Now;

impl Node {
    /// Sends a request. Returns false if too many requests wait for a response.
    pub(super) fn send(&mut self, now: Now, request: Request, out: &mut Outbox) -> bool {
        let message_type = request.bytes.get(1).copied().unwrap_or(0);
        let is_sent = self.requests.send(now, request, out).is_ok();
        if is_sent {
            *self.statistics.requested.entry(message_type).or_default() += 1;
        }
        is_sent
    }

    /// Sends a user plane path failure or recovery report (table 7.4.5.1-1).
    pub(super) fn report_path(
        &mut self,
        now: Now,
        place: u16,
        event: &PathEvent,
        out: &mut Outbox,
    ) {
        let Some(found) = self.peers.get(place).filter(|found| found.peer.is_up) else { return };
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
        let sequence = self.requests.sequence();
        let header = Header::node(MessageType::NODE_REPORT_REQUEST, sequence);
        let bytes = answer::message(header, |to| {
            to.put(&self.identity.node_id.ie());
            to.put(&report_type);
            to.group(group, |to| to.put(&remote));
        });
        self.send(now, Request { bytes, sequence, to, local, tag: Tag::NodeReport(place) }, out);
    }

    /// Handles the response to one of our requests.
    pub(super) fn told(
        &mut self,
        now: Now,
        way: Way,
        tag: Tag,
        message: &Message<'_>,
        out: &mut Outbox,
    ) {
        match tag {
            Tag::Heartbeat(place) => self.is_there(now, place, message, out),
            Tag::Setup(place) => self.initiated(now, way, place, message, out),
            Tag::Report(id) => self.reported(now, id, message, out),
            Tag::Association(_) | Tag::NodeReport(_) => {}
        }
    }

    /// Handles a request that got no response or was cancelled.
    pub(super) fn given_up(&mut self, now: Now, tag: Tag, sequence: u32, out: &mut Outbox) {
        let message_type = match tag {
            Tag::Heartbeat(_) => MessageType::HEARTBEAT_REQUEST,
            Tag::Setup(_) => MessageType::ASSOCIATION_SETUP_REQUEST,
            Tag::Association(_) => MessageType::ASSOCIATION_RELEASE_REQUEST,
            Tag::NodeReport(_) => MessageType::NODE_REPORT_REQUEST,
            Tag::Report(_) => MessageType::SESSION_REPORT_REQUEST,
        };
        *self.statistics.unanswered.entry(message_type.0).or_default() += 1;
        match tag {
            Tag::Heartbeat(place) => self.is_not_there(now, place, out),
            Tag::Setup(place) => self.not_initiated(now, place),
            Tag::Report(id) => {
                self.usage(now, out, |usage, on| usage.given_up(on, id, sequence));
            }
            Tag::Association(_) | Tag::NodeReport(_) => {}
        }
    }
}
