//! Node related messages of PFCP.

use fastlane_pfcp::ie::{
    Duration5, FSeid, Metric, OffendingIe, RecoveryTimeStamp, SequenceNumber, Timer,
};
use fastlane_pfcp::{Cause, Fault, Header, IeType, Message, MessageType, Writer};

use super::identity::Identity;
use crate::pfcp::NodeName;
use crate::pfcp::overload::OverloadControl;
use crate::time::SECOND;

/// Encodes a message.
pub(super) fn message(header: Header, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    Writer::new(&mut bytes).message(header, body);
    bytes
}

/// Returns the header of the response to a node related request.
const fn header(request: Header) -> Header {
    Header::node(MessageType(request.message_type.0.wrapping_add(1)), request.sequence)
}

/// Encodes a response with Node ID and Cause, followed by `more`.
pub(super) fn answer(
    request: Header,
    identity: &Identity,
    cause: Cause,
    more: impl FnOnce(&mut Writer<'_>),
) -> Vec<u8> {
    message(header(request), |to| {
        to.put(&identity.node_id.ie());
        to.put(&cause);
        more(to);
    })
}

/// Encodes a response that refuses a node related request.
pub(super) fn refuse(request: Header, identity: &Identity, fault: Fault) -> Vec<u8> {
    let offending = fault.offending.map(|ie_type| OffendingIe(ie_type.0));
    let is_setup = request.message_type == MessageType::ASSOCIATION_SETUP_REQUEST;
    // A setup response must contain it (table 7.4.4.2-1).
    let recovery = is_setup.then_some(RecoveryTimeStamp(identity.recovery));
    answer(request, identity, fault.cause, |to| {
        to.maybe(offending.as_ref());
        to.maybe(recovery.as_ref());
    })
}

/// Encodes a heartbeat response (table 7.4.2.2-1).
pub(super) fn heartbeat(request: Header, identity: &Identity) -> Vec<u8> {
    message(header(request), |to| to.put(&RecoveryTimeStamp(identity.recovery)))
}

/// Encodes the refusal of PFD management, which is not supported (table 7.4.3.2-1; the feature PFDM
/// is not announced).
pub(super) fn refuse_pfds(request: Header) -> Vec<u8> {
    message(header(request), |to| to.put(&Cause::SERVICE_NOT_SUPPORTED))
}

/// Encodes Version Not Supported (clause 7.6.2).
pub(super) fn version(sequence: u32) -> Vec<u8> {
    message(Header::node(MessageType::VERSION_NOT_SUPPORTED_RESPONSE, sequence), |_| {})
}

/// Returns the CP SEID of an establishment request, for the response header; 0 if absent.
fn control_seid(request: &Message<'_>) -> u64 {
    request.group().find::<FSeid>().ok().flatten().map_or(0, |it| it.seid)
}

/// Encodes the refusal of an establishment above the rate limit (table 7.5.3.1-1).
pub(super) fn congestion(
    request: &Message<'_>,
    identity: &Identity,
    told: &OverloadControl,
) -> Vec<u8> {
    let (answer_type, sequence) =
        (MessageType::SESSION_ESTABLISHMENT_RESPONSE, request.header.sequence);
    message(Header::session(answer_type, control_seid(request), sequence), |to| {
        to.put(&identity.node_id.ie());
        to.put(&Cause::PFCP_ENTITY_IN_CONGESTION);
        to.group(IeType::OVERLOAD_CONTROL_INFORMATION, |to| {
            to.put(&SequenceNumber(told.sequence));
            to.put(&Metric(told.metric));
            to.put(&Timer(Duration5::at_least((told.validity / SECOND) as u32)));
        });
    })
}

/// Returns the cause of a response; 0 if it has none.
pub(super) fn cause_of(message: &Message<'_>) -> u8 {
    message.group().find::<Cause>().ok().flatten().map_or(0, |cause| cause.0)
}

/// Returns the cause of an encoded response; 0 if it has none.
pub(super) fn cause(bytes: &[u8]) -> u8 {
    Message::parse(bytes).map_or(0, |(message, _)| cause_of(&message))
}

/// Returns the Node ID of a message, if it has a valid one.
pub(super) fn node_id(message: &Message<'_>) -> Option<NodeName> {
    let found = message.group().find::<fastlane_pfcp::ie::NodeId<'_>>();
    found.ok().flatten().map(NodeName::from)
}

/// Fault of a request without an association.
pub(super) const NO_ASSOCIATION: Fault =
    Fault { cause: Cause::NO_ESTABLISHED_PFCP_ASSOCIATION, offending: None };
