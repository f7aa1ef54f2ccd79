//! Reception of datagrams and lane messages: parsing, duplicate detection and dispatch.

use fastlane::table::messages::PUNT;
use fastlane_pfcp::ie::{FSeid, RecoveryTimeStamp};
use fastlane_pfcp::{Cause, Fault, HeaderError, Message, MessageType};

use super::admission::{Admission, SourceFault};
use super::association_server::{PendingRequest, Removal, RemovalStep};
use super::quotas::{self, EstablishmentOutcome};
use super::session_followers::SessionChange;
use super::{
    Discarded, NodeContext, RequestPath, admission, association_client, association_server,
    cause_of, drain, heartbeat, node_messages, peer_search, report_receivers, session_followers,
    user_plane,
};
use crate::pfcp::associations::association_record::unmapped;
use crate::pfcp::{Context, NodeName, Request, RequestKey, Tag};
use crate::rules::layout::message::{PathMessage, SessionEvent, kind};
use crate::session::SessionIndex;

/// Maximum number of messages handled in a datagram. More than one occurs only in bundles (TS
/// 29.244 clause 7.2.2.1).
const BUNDLE: usize = 32;

/// Handles a datagram.
pub(super) fn datagram(cx: &mut NodeContext<'_>, path: RequestPath, datagram: &[u8]) {
    let mut rest = datagram;
    for _ in 0..BUNDLE {
        match Message::parse(rest) {
            Ok((message, after)) => {
                rest = after;
                handle_message(cx, path, &message);
            }
            Err(error) => return no_message(cx, path, error),
        }
        if rest.is_empty() {
            return cx.node.keep_sequences();
        }
    }
    cx.node.statistics.discard(Discarded::Bundle);
    cx.node.keep_sequences();
}

/// Discards a datagram that cannot be parsed. A peer with another version is told so.
fn no_message(cx: &mut NodeContext<'_>, path: RequestPath, error: HeaderError) {
    match error {
        HeaderError::Version { message_type, sequence, .. } => {
            let is_answer = message_type == MessageType::VERSION_NOT_SUPPORTED_RESPONSE;
            if is_answer || !cx.node.versions.admit(cx.now) {
                return cx.node.statistics.discard(Discarded::Version);
            }
            cx.node.count_answer(MessageType::VERSION_NOT_SUPPORTED_RESPONSE, 0);
            cx.out.send(Some(path.local), path.from, node_messages::version(sequence));
        }
        HeaderError::TooShort | HeaderError::Length(_) => {
            cx.node.statistics.discard(Discarded::Malformed);
        }
        HeaderError::SeidFlag(_) => cx.node.statistics.discard(Discarded::SeidFlag),
    }
}

fn handle_message(cx: &mut NodeContext<'_>, path: RequestPath, message: &Message<'_>) {
    cx.node.usage.detours().end(path.from.ip());
    let message_type = message.header.message_type;
    *cx.node.statistics.received.entry(message_type.0).or_default() += 1;
    match message_type {
        MessageType::HEARTBEAT_REQUEST => heartbeat::heartbeat(cx, path, message),
        MessageType::PFD_MANAGEMENT_REQUEST
        | MessageType::ASSOCIATION_SETUP_REQUEST
        | MessageType::ASSOCIATION_UPDATE_REQUEST
        | MessageType::ASSOCIATION_RELEASE_REQUEST
        | MessageType::SESSION_SET_DELETION_REQUEST
        | MessageType::SESSION_ESTABLISHMENT_REQUEST
        | MessageType::SESSION_MODIFICATION_REQUEST
        | MessageType::SESSION_DELETION_REQUEST => request(cx, path, message),
        other if other.is_response() => answered(cx, path, message),
        _ => cx.node.statistics.discard(Discarded::MessageType),
    }
}

/// Handles a request once. A retransmission gets the stored response, also after its source has
/// lost the association.
fn request(cx: &mut NodeContext<'_>, path: RequestPath, message: &Message<'_>) {
    let RequestPath { from, local } = path;
    let key = RequestKey::of(from, message);
    if let Some(bytes) = given(cx, &key) {
        cx.node.statistics.repeated += 1;
        return cx.out.send(Some(local), from, bytes);
    }
    let admission = admission::check(cx, path, message);
    if let Admission::Refused(fault) = admission {
        let bytes = admission::refuse(cx, path, message, fault);
        return respond(cx, path, bytes);
    }
    let message_type = message.header.message_type;
    let done = if admission == Admission::Stranger {
        stranger_request(cx, path, key, message)
    } else if message_type.is_session() {
        session_request(cx, path, key, message)
    } else {
        let done = node_request(cx, path, key, message);
        done.inspect(|bytes| cx.node.answers.keep(cx.now, key, bytes.clone()))
    };
    respond(cx, path, done);
}

/// Sends the response to a request, if there is one.
fn respond(cx: &mut NodeContext<'_>, path: RequestPath, bytes: Option<Vec<u8>>) {
    if let Some(bytes) = bytes {
        if cx.node.count_answer_of(&bytes) == Cause::PFCP_ENTITY_IN_CONGESTION.0 {
            cx.node.congested_at = Some(cx.now.monotonic);
        }
        cx.out.send(Some(path.local), path.from, bytes);
    }
}

/// Handles a request other than an association setup of a source without an association. Its
/// response is stored apart from those of peers, which a flood must not evict.
fn stranger_request(
    cx: &mut NodeContext<'_>,
    path: RequestPath,
    key: RequestKey,
    message: &Message<'_>,
) -> Option<Vec<u8>> {
    let done = match message.header.message_type {
        MessageType::PFD_MANAGEMENT_REQUEST => node_request(cx, path, key, message),
        _ => admission::refuse(cx, path, message, SourceFault::Unassociated),
    };
    done.inspect(|bytes| cx.node.answers_to_strangers.keep(cx.now, key, bytes.clone()))
}

/// Returns the stored response to a retransmitted request.
fn given(cx: &mut NodeContext<'_>, key: &RequestKey) -> Option<Vec<u8>> {
    if let Some(bytes) = cx.node.answers.find(cx.now, key) {
        return Some(bytes.to_owned());
    }
    if let Some(bytes) = cx.node.answers_to_strangers.find(cx.now, key) {
        return Some(bytes.to_owned());
    }
    if MessageType(key.message_type).is_session() {
        // A response from before the peer restarted belongs to another request.
        let begun = |index| cx.node.peers.get(index).map_or(0, |found| found.begun);
        cx.node.sessions.answer(cx.now, key, &begun)
    } else {
        cx.node.peers.answer(key, cx.now, cx.node.life).map(<[u8]>::to_owned)
    }
}

fn session_request(
    cx: &mut NodeContext<'_>,
    path: RequestPath,
    key: RequestKey,
    message: &Message<'_>,
) -> Option<Vec<u8>> {
    let is_new = message.header.message_type == MessageType::SESSION_ESTABLISHMENT_REQUEST;
    if is_new && cx.node.drain.is_active() {
        let bytes = node_messages::refuse_session(message, &cx.node.identity, drain::REFUSAL);
        // It is stored, so that a retransmission after the drain is refused, too.
        cx.node.answers.keep(cx.now, key, bytes.clone());
        return Some(bytes);
    }
    if let Some(overload) = cx.node.overload.as_mut().filter(|_| is_new)
        && let Err(told) = overload.admit(cx.now)
    {
        // It is stored, so that a retransmission is not admitted by chance.
        let bytes = node_messages::congestion(message, &cx.node.identity, &told);
        cx.node.answers.keep(cx.now, key, bytes.clone());
        return Some(bytes);
    }
    if let Some(bytes) = is_new.then(|| quotas::refuse(cx, message)).flatten() {
        cx.node.count_answer_of(&bytes);
        // Stored for the same reason. Sent here, since it does not say that the node is congested.
        cx.node.answers.keep(cx.now, key, bytes.clone());
        cx.out.send(Some(path.local), path.from, bytes);
        return None;
    }
    let found = NodeName::of(message).and_then(|name| cx.node.peers.find(&name));
    let index = found.map(|found| found.peer.index);
    if cx.node.is_removing_session(index, message.header.seid.unwrap_or(0)) {
        cx.node.statistics.discard(Discarded::Busy);
        return None;
    }
    let peer = found.filter(|found| !found.is_ending).map(|found| found.peer.clone());
    let (local, peer, answer_life) = (path.local, peer.as_ref(), cx.node.life);
    let context = Context { now: cx.now, key, local, peer, answer_life };
    let (bytes, change) = carry_out(cx, message, &context);
    if cause(&bytes) != Cause::REQUEST_ACCEPTED.0 {
        // A refused request changed nothing and is in no record. A retransmission is refused
        // again.
        cx.node.answers.keep(cx.now, key, bytes.clone());
    }
    let reports = cx.node.sessions.take_reported();
    session_followers::export(cx, &change, &reports);
    session_followers::changed(cx, &change);
    Some(bytes)
}

/// Handles a session request. Returns the response and the session before and after.
fn carry_out(
    cx: &mut NodeContext<'_>,
    message: &Message<'_>,
    context: &Context<'_>,
) -> (Vec<u8>, SessionChange) {
    let seid = message.header.seid.unwrap_or(0);
    match message.header.message_type {
        MessageType::SESSION_ESTABLISHMENT_REQUEST => {
            let bytes = cx.node.sessions.establish(message, context);
            let after = established(&bytes).and_then(|id| cx.node.sessions.get(id));
            let outcome = match &after {
                Some(_) => EstablishmentOutcome::Accepted,
                None => EstablishmentOutcome::Refused,
            };
            quotas::count(cx, message, outcome, after.as_ref());
            (bytes, SessionChange { before: None, after })
        }
        MessageType::SESSION_MODIFICATION_REQUEST => {
            let before = cx.node.sessions.find(seid);
            let bytes = cx.node.sessions.modify(message, context);
            let after = before.as_ref().and_then(|before| cx.node.sessions.get(before.id));
            (bytes, SessionChange { before, after })
        }
        _ => {
            let before = cx.node.sessions.find(seid);
            let unheard = before.as_ref().map(|before| cx.usage(|usage, _| usage.unheard(before)));
            let unheard = unheard.unwrap_or_default();
            let bytes = cx.node.sessions.delete(message, context, &unheard);
            let after = before.as_ref().and_then(|before| cx.node.sessions.get(before.id));
            (bytes, SessionChange { before, after })
        }
    }
}

/// Returns the session that a response says was established.
fn established(bytes: &[u8]) -> Option<SessionIndex> {
    let (message, _) = Message::parse(bytes).ok()?;
    if cause_of(&message) != Cause::REQUEST_ACCEPTED.0 {
        return None;
    }
    let FSeid { seid, .. } = message.group().find().ok()??;
    Some(SessionIndex(seid as u32))
}

/// Returns the cause of an encoded response; 0 if it has none.
fn cause(bytes: &[u8]) -> u8 {
    Message::parse(bytes).map_or(0, |(message, _)| cause_of(&message))
}

/// Handles a node related request. Returns no response if it is sent later or the peer has to
/// retransmit.
fn node_request(
    cx: &mut NodeContext<'_>,
    path: RequestPath,
    key: RequestKey,
    message: &Message<'_>,
) -> Option<Vec<u8>> {
    let header = message.header;
    if let Err(fault) = message.check() {
        return Some(node_messages::refuse(header, &cx.node.identity, fault));
    }
    let asked = PendingRequest { key, header, path };
    if waits(cx, asked, message) {
        return None;
    }
    let carried_out = match header.message_type {
        MessageType::ASSOCIATION_SETUP_REQUEST if cx.node.drain.is_active() => {
            Err(refuse_setup(cx, message))
        }
        MessageType::ASSOCIATION_SETUP_REQUEST => association_server::set_up(cx, asked, message),
        MessageType::ASSOCIATION_UPDATE_REQUEST => {
            association_server::update(cx, key, message).map(Some)
        }
        MessageType::ASSOCIATION_RELEASE_REQUEST => association_server::release(cx, asked, message),
        MessageType::SESSION_SET_DELETION_REQUEST => {
            association_server::remove_set(cx, asked, message)
        }
        _ => Ok(Some(node_messages::refuse_pfds(header))),
    };
    carried_out
        .unwrap_or_else(|fault| Some(node_messages::refuse(header, &cx.node.identity, fault)))
}

/// Refuses an association setup during a drain. If the peer has restarted, its association and its
/// sessions end.
fn refuse_setup(cx: &mut NodeContext<'_>, message: &Message<'_>) -> Fault {
    let found = NodeName::of(message).and_then(|name| cx.node.peers.find(&name));
    let stamp = message.group().need::<RecoveryTimeStamp>();
    if let Some((found, RecoveryTimeStamp(recovery))) = found.zip(stamp.ok())
        && heartbeat::is_newer(recovery, found.peer.recovery)
        && !found.is_ending
    {
        let ended = association_server::end(cx, found.peer.index, None);
        cx.node.check(ended);
    }
    Fault { cause: drain::REFUSAL, offending: None }
}

/// Returns true if a request must wait because sessions of its association are being removed.
fn waits(cx: &mut NodeContext<'_>, asked: PendingRequest, message: &Message<'_>) -> bool {
    if cx.node.removals.is_empty() {
        return false;
    }
    let found = NodeName::of(message).and_then(|name| cx.node.peers.find(&name));
    let index = found.map(|found| found.peer.index);
    let same = |removal: &&Removal| Some(removal.index) == index;
    let Some(removal) = cx.node.removals.iter().find(same) else { return false };
    let is_release = asked.header.message_type == MessageType::ASSOCIATION_RELEASE_REQUEST;
    if is_release && matches!(removal.then, RemovalStep::End) {
        return false;
    }
    if removal.asked.is_some_and(|it| it.key == asked.key) {
        cx.node.statistics.repeated += 1;
    } else {
        cx.node.statistics.discard(Discarded::Busy);
    }
    true
}

/// Handles a response to one of our requests.
fn answered(cx: &mut NodeContext<'_>, path: RequestPath, message: &Message<'_>) {
    let (message_type, sequence) = (message.header.message_type, message.header.sequence);
    let Some(request) = cx.node.requests.answered(path.from, sequence, message_type.0) else {
        return cx.node.statistics.discard(Discarded::Unsolicited);
    };
    let cause = cause_of(message);
    *cx.node.statistics.answers.entry((message_type.0, cause)).or_default() += 1;
    if message_type == MessageType::VERSION_NOT_SUPPORTED_RESPONSE {
        // The peer will not understand a retransmission either.
        return given_up(cx, &request);
    }
    told(cx, path, &request, message);
}

/// Handles the response to one of our requests.
fn told(cx: &mut NodeContext<'_>, path: RequestPath, request: &Request, message: &Message<'_>) {
    match request.tag {
        Tag::Heartbeat(index) => heartbeat::handle_response(cx, index, message),
        Tag::Alternative(index) => peer_search::found(cx, path, index, message),
        Tag::Setup(index) => association_client::initiated(cx, path, index, message),
        Tag::Report(_) => report_receivers::reported(cx, path, request, message),
        Tag::Association(index) => drain::answered(cx, index, message),
        Tag::NodeReport(_) => {}
    }
}

/// Handles a request that got no response or was cancelled.
pub(super) fn given_up(cx: &mut NodeContext<'_>, request: &Request) {
    let message_type = match request.tag {
        Tag::Heartbeat(_) | Tag::Alternative(_) => MessageType::HEARTBEAT_REQUEST,
        Tag::Setup(_) => MessageType::ASSOCIATION_SETUP_REQUEST,
        Tag::Association(_) => MessageType::ASSOCIATION_UPDATE_REQUEST,
        Tag::NodeReport(_) => MessageType::NODE_REPORT_REQUEST,
        Tag::Report(_) => MessageType::SESSION_REPORT_REQUEST,
    };
    *cx.node.statistics.unanswered.entry(message_type.0).or_default() += 1;
    match request.tag {
        Tag::Heartbeat(index) => heartbeat::handle_silence(cx, index),
        Tag::Alternative(index) => {
            if cx.node.heartbeats.is_search_over(index) {
                heartbeat::lost(cx, index);
            }
        }
        Tag::Setup(index) => association_client::not_initiated(cx, index),
        Tag::Report(id) => {
            if !report_receivers::redirect(cx, id, request) {
                cx.usage(|usage, on| usage.given_up(on, id, request.sequence));
            }
        }
        Tag::Association(index) => drain::given_up(cx, index),
        Tag::NodeReport(_) => {}
    }
}

/// Handles a lane message of a kind with its body.
pub(super) fn lane_message(cx: &mut NodeContext<'_>, of_kind: u32, body: &[u8]) {
    use zerocopy::FromBytes;
    *cx.node.statistics.lane_messages.entry(of_kind.min(kind::PROBE)).or_default() += 1;
    let path = || PathMessage::read_from_bytes(body).ok();
    match of_kind {
        kind::EVENT => {
            if let Ok(event) = SessionEvent::read_from_bytes(body) {
                cx.usage(|usage, on| usage.event(on, &event));
            }
        }
        kind::ERROR_INDICATION => {
            if let Some(message) = path() {
                cx.usage(|usage, on| usage.error_indication(on, &message));
            }
        }
        kind::ECHO_RESPONSE => {
            let event = path().and_then(|message| cx.node.paths.answered(&message));
            if let Some(event) = event {
                association_client::path_event(cx, &event);
            }
        }
        kind::NEIGHBOUR => {
            if let Some(message) = path() {
                cx.out.find_out(unmapped(message.peer));
            }
        }
        PUNT => user_plane::punted(cx, body),
        _ => {}
    }
    cx.node.keep_sequences();
}
