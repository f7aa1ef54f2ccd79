//! Parts that all session requests have in common.

use fastlane_pfcp::ie::{self, FSeid};
use fastlane_pfcp::{Cause, Fault, Group, IeType, Message, MessageType};

use super::answer::Answer;
use super::refusal::Refusal;
use crate::session::CpSeid;

/// IEs of a session that are not supported: multi-access, time-sensitive networks, Ethernet,
/// traffic endpoints, L2TP, multicast.
const UNSUPPORTED: [IeType; 10] = [
    IeType::CREATE_TRAFFIC_ENDPOINT,
    IeType::UPDATE_TRAFFIC_ENDPOINT,
    IeType::REMOVE_TRAFFIC_ENDPOINT,
    IeType::ETHERNET_PDU_SESSION_INFORMATION,
    IeType::CREATE_MAR,
    IeType::UPDATE_MAR,
    IeType::CREATE_SRR,
    IeType::CREATE_BRIDGE_INFO_FOR_TSC,
    IeType::L2TP_TUNNEL_INFORMATION,
    IeType::MBS_SESSION_N4MB_CONTROL_INFORMATION,
];

/// Checks that a request is well-formed and contains no unsupported IE.
pub(super) fn check(message: &Message<'_>) -> Result<(), Refusal> {
    message.check()?;
    let group = message.group();
    match UNSUPPORTED.into_iter().find(|ie| group.has(*ie)) {
        Some(unsupported) => Err(Refusal::unsupported(unsupported)),
        None => Ok(()),
    }
}

/// Returns the CP F-SEID of an F-SEID IE.
pub(super) fn control(seid: &FSeid) -> Result<CpSeid, Refusal> {
    let address = seid.v4.map(Into::into).or(seid.v6.map(Into::into));
    let address = address.ok_or(Refusal::incorrect(IeType::F_SEID))?;
    Ok(CpSeid { seid: seid.seid, address })
}

/// Returns the CP SEID for the response to an establishment; 0 if the request has none.
pub(super) fn seid_of(group: &Group<'_>) -> u64 {
    group.find::<FSeid>().ok().flatten().map_or(0, |seid| seid.seid)
}

/// Returns the SUPI, or the digits of the IMSI (TS 29.244 clause 8.2.101).
pub(super) fn supi(group: &Group<'_>) -> Result<Option<String>, Fault> {
    let Some(user) = group.find::<ie::UserId<'_>>()? else { return Ok(None) };
    let text = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).ok()?;
        Some(text.strip_prefix("imsi-").unwrap_or(text).to_owned())
    };
    Ok(user.supi.and_then(text).or_else(|| user.imsi.map(digits)).filter(|supi| !supi.is_empty()))
}

/// Returns TBCD digits, lower four bits first, up to the first filler (TS 29.274 clause 8.3).
fn digits(octets: &[u8]) -> String {
    let halves = octets.iter().flat_map(|octet| [octet & 0xF, octet >> 4]);
    halves.map_while(|half| char::from_digit(half.into(), 10)).collect()
}

/// Returns the DNN as text: labels joined with dots, or the text itself.
pub(super) fn network(group: &Group<'_>) -> Result<Option<String>, Fault> {
    let Some(name) = group.find::<ie::ApnDnn<'_>>()? else { return Ok(None) };
    Ok(Some(labels(name.0).unwrap_or_else(|| String::from_utf8_lossy(name.0).into_owned())))
}

fn labels(octets: &[u8]) -> Option<String> {
    let mut rest = octets.strip_suffix(&[0]).unwrap_or(octets);
    let mut text = String::new();
    while let Some((length, after)) = rest.split_first() {
        let (label, next) = after.split_at_checked((*length).into())?;
        if !text.is_empty() {
            text.push('.');
        }
        text.push_str(std::str::from_utf8(label).ok().filter(|label| !label.is_empty())?);
        rest = next;
    }
    Some(text).filter(|text| !text.is_empty())
}

/// Returns the response to a request for an unknown session.
pub(super) fn unknown_session(message: &Message<'_>, answer: MessageType) -> Vec<u8> {
    let sequence = message.header.sequence;
    let answer = Answer { message_type: answer, seid: 0, sequence, node: None };
    answer.refused(&Refusal::because(Cause::SESSION_CONTEXT_NOT_FOUND))
}
