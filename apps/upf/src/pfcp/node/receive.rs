//! Reception of datagrams and lane messages: parsing, duplicate detection and dispatch.

use std::net::{IpAddr, SocketAddr};

use fastlane_pfcp::{Cause, Fault, HeaderError, Message, MessageType};

use super::removal::{Asked, Removal, Then};
use super::statistics::Discarded;
use super::{Node, answer};
use crate::pfcp::peer::record::unmapped;
use crate::pfcp::{Context, Outbox, RequestKey};
use crate::rules::layout::message::{PathMessage, SessionEvent, kind};
use crate::time::Now;

/// Maximum number of messages handled in a datagram. More than one occurs only in bundles (TS
/// 29.244 clause 7.2.2.1).
const BUNDLE: usize = 32;

/// Source of a datagram and our address that it was sent to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) from: SocketAddr,
    pub(super) local: IpAddr,
}

impl Node {
    /// Handles a datagram sent by `from` to our address `local`.
    pub fn receive(
        &mut self,
        now: Now,
        local: IpAddr,
        from: SocketAddr,
        datagram: &[u8],
        out: &mut Outbox,
    ) {
        let way = Way { from, local };
        let mut rest = datagram;
        for _ in 0..BUNDLE {
            match Message::parse(rest) {
                Ok((message, after)) => {
                    rest = after;
                    self.message(now, way, &message, out);
                }
                Err(error) => return self.no_message(now, way, error, out),
            }
            if rest.is_empty() {
                return self.keep_sequences();
            }
        }
        self.statistics.discard(Discarded::Bundle);
        self.keep_sequences();
    }

    /// Discards a datagram that cannot be parsed. A peer with another version is told so.
    fn no_message(&mut self, now: Now, way: Way, error: HeaderError, out: &mut Outbox) {
        match error {
            HeaderError::Version { message_type, sequence, .. } => {
                let is_answer = message_type == MessageType::VERSION_NOT_SUPPORTED_RESPONSE;
                if is_answer || !self.versions.admit(now) {
                    return self.statistics.discard(Discarded::Version);
                }
                self.count_answer(MessageType::VERSION_NOT_SUPPORTED_RESPONSE, 0);
                out.send(Some(way.local), way.from, answer::version(sequence));
            }
            HeaderError::TooShort | HeaderError::Length(_) => {
                self.statistics.discard(Discarded::Malformed);
            }
            HeaderError::SeidFlag(_) => self.statistics.discard(Discarded::SeidFlag),
        }
    }

    fn message(&mut self, now: Now, way: Way, message: &Message<'_>, out: &mut Outbox) {
        let message_type = message.header.message_type;
        *self.statistics.received.entry(message_type.0).or_default() += 1;
        match message_type {
            MessageType::HEARTBEAT_REQUEST => self.heartbeat(now, way, message, out),
            MessageType::PFD_MANAGEMENT_REQUEST
            | MessageType::ASSOCIATION_SETUP_REQUEST
            | MessageType::ASSOCIATION_UPDATE_REQUEST
            | MessageType::ASSOCIATION_RELEASE_REQUEST
            | MessageType::SESSION_SET_DELETION_REQUEST
            | MessageType::SESSION_ESTABLISHMENT_REQUEST
            | MessageType::SESSION_MODIFICATION_REQUEST
            | MessageType::SESSION_DELETION_REQUEST => self.request(now, way, message, out),
            other if other.is_response() => self.answered(now, way, message, out),
            _ => self.statistics.discard(Discarded::MessageType),
        }
    }

    /// Handles a request once. A retransmission gets the stored response.
    fn request(&mut self, now: Now, way: Way, message: &Message<'_>, out: &mut Outbox) {
        let Way { from, local } = way;
        let message_type = message.header.message_type;
        let key = RequestKey::of(from, message);
        if let Some(bytes) = self.given(now, &key) {
            self.statistics.repeated += 1;
            return out.send(Some(local), from, bytes);
        }
        let done = if message_type.is_session() {
            self.session_request(now, way, key, message, out)
        } else {
            let done = self.node_request(now, way, key, message, out);
            done.inspect(|bytes| self.answers.keep(now, key, bytes.clone()))
        };
        if let Some(bytes) = done {
            self.count_answer_of(&bytes);
            out.send(Some(local), from, bytes);
        }
    }

    /// Returns the stored response to a retransmitted request.
    fn given(&mut self, now: Now, key: &RequestKey) -> Option<Vec<u8>> {
        if let Some(bytes) = self.answers.find(now, key) {
            return Some(bytes.to_owned());
        }
        if MessageType(key.message_type).is_session() {
            // A response from before the peer restarted belongs to another request.
            let begun = |place| self.peers.get(place).map_or(0, |found| found.begun);
            self.sessions.answer(now, key, &begun)
        } else {
            self.peers.answer(key, now, self.life).map(<[u8]>::to_owned)
        }
    }

    fn session_request(
        &mut self,
        now: Now,
        way: Way,
        key: RequestKey,
        message: &Message<'_>,
        out: &mut Outbox,
    ) -> Option<Vec<u8>> {
        let is_new = message.header.message_type == MessageType::SESSION_ESTABLISHMENT_REQUEST;
        if let Some(overload) = self.overload.as_mut().filter(|_| is_new)
            && let Err(told) = overload.admit(now)
        {
            // It is stored, so that a retransmission is not admitted by chance.
            let bytes = answer::congestion(message, &self.identity, &told);
            self.answers.keep(now, key, bytes.clone());
            return Some(bytes);
        }
        let found = answer::node_id(message).and_then(|name| self.peers.find(&name));
        let place = found.map(|found| found.peer.place);
        if self.is_removing_session(place, message.header.seid.unwrap_or(0)) {
            self.statistics.discard(Discarded::Busy);
            return None;
        }
        let peer = found.filter(|found| !found.is_ending).map(|found| found.peer.clone());
        let (local, peer, answer_life) = (way.local, peer.as_ref(), self.life);
        let context = Context { now, key, local, peer, answer_life };
        let (bytes, followed) = self.carry_out(message, &context);
        if answer::cause(&bytes) != Cause::REQUEST_ACCEPTED.0 {
            // A refused request changed nothing and is in no record. A retransmission is refused
            // again.
            self.answers.keep(now, key, bytes.clone());
        }
        self.changed(now, &followed, out);
        Some(bytes)
    }

    /// Handles a node related request. Returns no response if it is sent later or the peer has to
    /// retransmit.
    fn node_request(
        &mut self,
        now: Now,
        way: Way,
        key: RequestKey,
        message: &Message<'_>,
        out: &mut Outbox,
    ) -> Option<Vec<u8>> {
        let header = message.header;
        if let Err(fault) = message.check() {
            return Some(answer::refuse(header, &self.identity, fault));
        }
        let asked = Asked { key, header, way };
        if self.waits(asked, message) {
            return None;
        }
        let carried_out = match header.message_type {
            MessageType::ASSOCIATION_SETUP_REQUEST => self.set_up(now, asked, message, out),
            MessageType::ASSOCIATION_UPDATE_REQUEST => self.update(now, key, message).map(Some),
            MessageType::ASSOCIATION_RELEASE_REQUEST => self.release(now, asked, message, out),
            MessageType::SESSION_SET_DELETION_REQUEST => self.remove_set(now, asked, message, out),
            _ => Ok(Some(answer::refuse_pfds(header))),
        };
        carried_out.unwrap_or_else(|fault| Some(answer::refuse(header, &self.identity, fault)))
    }

    /// Returns true if a request must wait because sessions of its association are being removed.
    fn waits(&mut self, asked: Asked, message: &Message<'_>) -> bool {
        if self.removals.is_empty() {
            return false;
        }
        let found = answer::node_id(message).and_then(|name| self.peers.find(&name));
        let place = found.map(|found| found.peer.place);
        let same = |removal: &&Removal| Some(removal.place) == place;
        let Some(removal) = self.removals.iter().find(same) else { return false };
        let is_release = asked.header.message_type == MessageType::ASSOCIATION_RELEASE_REQUEST;
        if is_release && matches!(removal.then, Then::End) {
            return false;
        }
        if removal.asked.is_some_and(|it| it.key == asked.key) {
            self.statistics.repeated += 1;
        } else {
            self.statistics.discard(Discarded::Busy);
        }
        true
    }

    /// Handles a response to one of our requests.
    fn answered(&mut self, now: Now, way: Way, message: &Message<'_>, out: &mut Outbox) {
        let (message_type, sequence) = (message.header.message_type, message.header.sequence);
        let Some(tag) = self.requests.answered(way.from, sequence, message_type.0) else {
            return self.statistics.discard(Discarded::Unsolicited);
        };
        let cause = answer::cause_of(message);
        *self.statistics.answers.entry((message_type.0, cause)).or_default() += 1;
        if message_type == MessageType::VERSION_NOT_SUPPORTED_RESPONSE {
            // The peer will not understand a retransmission either.
            return self.given_up(now, tag, sequence, out);
        }
        self.told(now, way, tag, message, out);
    }

    /// Handles a lane message of a kind with its body.
    pub fn lane_message(&mut self, now: Now, of_kind: u32, body: &[u8], out: &mut Outbox) {
        use zerocopy::FromBytes;
        *self.statistics.lane_messages.entry(of_kind.min(kind::PROBE)).or_default() += 1;
        let path = || PathMessage::read_from_bytes(body).ok();
        match of_kind {
            kind::EVENT => {
                if let Ok(event) = SessionEvent::read_from_bytes(body) {
                    self.usage(now, out, |usage, on| usage.event(on, &event));
                }
            }
            kind::ERROR_INDICATION => {
                if let Some(message) = path() {
                    self.usage(now, out, |usage, on| usage.error_indication(on, &message));
                }
            }
            kind::ECHO_RESPONSE => {
                let event = path().and_then(|message| self.paths.answered(&message));
                if let Some(event) = event {
                    self.path_event(now, &event, out);
                }
            }
            kind::NEIGHBOUR => {
                if let Some(message) = path() {
                    out.find_out(unmapped(message.peer));
                }
            }
            _ => {}
        }
        self.keep_sequences();
    }

    fn count_answer(&mut self, message_type: MessageType, cause: u8) {
        *self.statistics.answered.entry((message_type.0, cause)).or_default() += 1;
    }

    pub(super) fn count_answer_of(&mut self, bytes: &[u8]) {
        if let Ok((message, _)) = Message::parse(bytes) {
            self.count_answer(message.header.message_type, answer::cause_of(&message));
        }
    }
}

/// Fault of a request without an association.
pub(super) const NO_ASSOCIATION: Fault =
    Fault { cause: Cause::NO_ESTABLISHED_PFCP_ASSOCIATION, offending: None };
