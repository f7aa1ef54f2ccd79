//! Session messages: parts that all requests share, and responses (TS 29.244 clauses 7.5.2 to
//! 7.5.7).

use std::net::IpAddr;

use fastlane_pfcp::ie::{self, FSeid, FTeid, FailedRuleId, UeIpAddress};
use fastlane_pfcp::{Cause, Fault, Group, Header, IeType, Message, MessageType, Writer};

use super::draft::Created;
use crate::pfcp::NodeName;
use crate::rules::publish::PublishError;
use crate::session::{CpFSeid, Pdr, Refusal, Session};
use crate::store::StoreError;

/// Header fields of a session response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Response<'a> {
    pub(super) message_type: MessageType,
    /// CP SEID of the session; 0 if it is unknown.
    pub(super) seid: u64,
    pub(super) sequence: u32,
    /// Our Node ID, for an establishment response.
    pub(super) node: Option<&'a NodeName>,
}

impl Response<'_> {
    /// Returns a response that refuses the request.
    pub(super) fn refused(self, refusal: &Refusal) -> Vec<u8> {
        self.write(refusal.cause, |w| {
            w.maybe(refusal.offending.map(|ie| ie::OffendingIe(ie.0)).as_ref());
            w.maybe(refusal.failed.as_ref());
        })
    }

    /// Returns a response with `cause` and the IEs that `rest` appends.
    pub(super) fn write(self, cause: Cause, rest: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        let header = Header::session(self.message_type, self.seid, self.sequence);
        Writer::new(&mut bytes).message(header, |w| {
            w.maybe(self.node.map(NodeName::ie).as_ref());
            w.put(&cause);
            rest(w);
        });
        bytes
    }
}

/// Returns our F-SEID, in the address family of the request.
pub(super) fn up_seid(seid: u64, local: IpAddr) -> FSeid {
    match local {
        IpAddr::V4(address) => FSeid { seid, v4: Some(address), v6: None },
        IpAddr::V6(address) => FSeid { seid, v4: None, v6: Some(address) },
    }
}

/// Appends Created PDR and Updated PDR with the allocated F-TEID and UE IP address.
pub(super) fn created(w: &mut Writer<'_>, all: &[Created]) {
    for it in all {
        let group = if it.is_update { IeType::UPDATED_PDR } else { IeType::CREATED_PDR };
        w.group(group, |w| {
            w.put(&ie::PdrId(it.pdr));
            if let Some(tunnel) = it.tunnel {
                let (teid, v4, v6) = (tunnel.teid, tunnel.v4, tunnel.v6);
                w.put(&FTeid { teid, v4, v6, ..FTeid::default() });
            }
            if let Some((user, is_destination)) = it.user {
                let (v4, v6) = (user.v4, user.v6.map(|(prefix, _)| prefix));
                w.put(&UeIpAddress { v4, v6, is_destination, ..UeIpAddress::default() });
            }
        });
    }
}

/// IEs of a session that are not supported: multi-access, time-sensitive networks, Ethernet,
/// traffic endpoints, L2TP, multicast, reliable data service, paging by DSCP. Trace Information is
/// judged by its content.
const UNSUPPORTED: [IeType; 15] = [
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
    IeType::MBS_SESSION_N4_CONTROL_INFORMATION,
    IeType::L2TP_SESSION_INFORMATION,
    IeType::PROVIDE_ATSSS_CONTROL_INFORMATION,
    IeType::PROVIDE_RDS_CONFIGURATION_INFORMATION,
    IeType::DSCP_TO_PPI_CONTROL_INFORMATION,
];

/// Checks that a request is well-formed and contains no unsupported IE.
pub(super) fn check(message: &Message<'_>) -> Result<(), Refusal> {
    message.check()?;
    let group = message.group();
    Refusal::any_unsupported(&group, &UNSUPPORTED)?;
    match group.raw(IeType::TRACE_INFORMATION) {
        // A null length ends the trace (table 7.5.4.1-1). There is none.
        None | Some([]) => Ok(()),
        Some(_) => Err(Refusal::unsupported(IeType::TRACE_INFORMATION)),
    }
}

/// Returns the CP F-SEID of an F-SEID IE. Of two addresses it is the one in the family of our own,
/// `local`, which can be reached.
pub(super) fn cp_fseid(seid: &FSeid, local: IpAddr) -> Result<CpFSeid, Refusal> {
    let (v4, v6) = (seid.v4.map(IpAddr::V4), seid.v6.map(IpAddr::V6));
    let address = if local.is_ipv4() { v4.or(v6) } else { v6.or(v4) };
    let address = address.ok_or(Refusal::incorrect(IeType::F_SEID))?;
    Ok(CpFSeid { seid: seid.seid, address })
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

/// Returns the DNN as text.
pub(in crate::pfcp) fn network(group: &Group<'_>) -> Result<Option<String>, Fault> {
    Ok(group.find::<ie::ApnDnn<'_>>()?.map(|name| name_of(name.0)))
}

/// Returns the name of a network as text: labels joined with dots, or the text itself.
pub(in crate::pfcp) fn name_of(name: &[u8]) -> String {
    labels(name).unwrap_or_else(|| String::from_utf8_lossy(name).into_owned())
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
    let answer = Response { message_type: answer, seid: 0, sequence, node: None };
    answer.refused(&Refusal::because(Cause::SESSION_CONTEXT_NOT_FOUND))
}

/// Returns the refusal for a session that could not be published.
pub(super) fn refused_by(error: &PublishError, session: &Session) -> Refusal {
    let pdr_with = |has: &dyn Fn(&Pdr) -> bool| {
        let pdr = session.pdrs.iter().find(|pdr| has(pdr)).or(session.pdrs.first());
        FailedRuleId::Pdr(pdr.map_or(0, |pdr| pdr.id))
    };
    match error {
        PublishError::Compile(error) => {
            let failed = match (error.pdr(), error.far()) {
                (Some(pdr), _) => FailedRuleId::Pdr(pdr),
                (_, Some(far)) => FailedRuleId::Far(far),
                _ => pdr_with(&|_| true),
            };
            Refusal { offending: error.offending(), ..Refusal::rule(failed) }
        }
        PublishError::Tunnel { teid, .. } => {
            let has = |pdr: &Pdr| pdr.tunnel.is_some_and(|tunnel| tunnel.teid == *teid);
            Refusal::rule_by(pdr_with(&has), IeType::F_TEID)
        }
        PublishError::User { .. } => {
            Refusal::rule_by(pdr_with(&|pdr| pdr.user.is_some()), IeType::UE_IP_ADDRESS)
        }
        PublishError::Network { route, .. } => {
            let ie = if route.address.is_ipv4() {
                IeType::FRAMED_ROUTE
            } else {
                IeType::FRAMED_IPV6_ROUTE
            };
            Refusal::rule_by(pdr_with(&|pdr| !pdr.framed.is_empty()), ie)
        }
        PublishError::Table(_) | PublishError::Exhausted(_) | PublishError::NatExhausted => {
            Refusal::because(Cause::NO_RESOURCES_AVAILABLE)
        }
    }
}

/// Returns the refusal for a session that could not be stored.
pub(super) fn refusal_of(error: &StoreError) -> Refusal {
    tracing::warn!("{error}");
    Refusal::because(match error {
        StoreError::NoPart { .. } | StoreError::TooLong { .. } => Cause::NO_RESOURCES_AVAILABLE,
        StoreError::Table(_) => Cause::SYSTEM_FAILURE,
    })
}
