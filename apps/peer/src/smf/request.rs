//! Encoding of the requests of an SMF, and decoding of establishment responses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane_pfcp::ie::{
    ApplyAction, CpFunctionFeatures, DestinationInterface, FSeid, FTeid, FarId, Gate, GateStatus,
    Mbr, MeasurementMethod, NetworkInstance, NodeId, OuterHeaderCreation, OuterHeaderRemoval,
    PdnType, PdrId, Precedence, QerId, Qfi, RecoveryTimeStamp, RedirectAddress,
    RedirectInformation, ReportingTriggers, SourceInterface, UeIpAddress, UrrId, VolumeThreshold,
    Volumes,
};
use fastlane_pfcp::{Group, Header, IeType, MessageType, Writer};

use super::{Established, Sessions};

// Identifiers of the rules of a session.
const UPLINK: PdrId = PdrId(1);
const DOWNLINK: PdrId = PdrId(2);
const TO_CORE: FarId = FarId(1);
const TO_ACCESS: FarId = FarId(2);
const QER: QerId = QerId(1);
const URR: UrrId = UrrId(1);

pub(super) fn node_id(address: IpAddr) -> NodeId<'static> {
    match address {
        IpAddr::V4(v4) => NodeId::V4(v4),
        IpAddr::V6(v6) => NodeId::V6(v6),
    }
}

fn message(header: Header, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut datagram = Vec::with_capacity(512);
    Writer::new(&mut datagram).message(header, body);
    datagram
}

pub(super) fn association(sequence: u32, local: IpAddr, started: u32) -> Vec<u8> {
    message(Header::node(MessageType::ASSOCIATION_SETUP_REQUEST, sequence), |w| {
        w.put(&node_id(local));
        w.put(&RecoveryTimeStamp(started));
        w.put(&(CpFunctionFeatures::LOAD | CpFunctionFeatures::OVRL));
    })
}

pub(super) fn release(sequence: u32, local: IpAddr) -> Vec<u8> {
    message(Header::node(MessageType::ASSOCIATION_RELEASE_REQUEST, sequence), |w| {
        w.put(&node_id(local));
    })
}

/// Returns the SMF's SEID of a session.
pub(super) const fn seid(index: u32) -> u64 {
    index as u64 + 1
}

/// Returns the TEID of a session at the base station.
pub(super) const fn downlink_teid(index: u32) -> u32 {
    index + 1
}

/// Encodes an establishment: two PDRs, two FARs, one QER with a rate, one URR with a volume
/// threshold.
pub(super) fn establish(sequence: u32, local: IpAddr, sessions: &Sessions, index: u32) -> Vec<u8> {
    let header = Header::session(MessageType::SESSION_ESTABLISHMENT_REQUEST, 0, sequence);
    message(header, |w| {
        w.put(&node_id(local));
        w.put(&f_seid(local, index));
        let user = user(sessions, index);
        w.group(IeType::CREATE_PDR, |w| uplink_pdr(w, sessions, user));
        w.group(IeType::CREATE_PDR, |w| downlink_pdr(w, sessions, user));
        w.group(IeType::CREATE_FAR, |w| {
            w.put(&TO_CORE);
            w.put(&ApplyAction::FORW);
            w.group(IeType::FORWARDING_PARAMETERS, |w| {
                w.put(&DestinationInterface::CORE);
                w.put(&NetworkInstance(sessions.core.as_bytes()));
                w.maybe(sessions.redirect.as_deref().map(redirection).as_ref());
            });
        });
        w.group(IeType::CREATE_FAR, |w| {
            w.put(&TO_ACCESS);
            w.put(&ApplyAction::FORW);
            w.group(IeType::FORWARDING_PARAMETERS, |w| to_gnb(w, sessions, downlink_teid(index)));
        });
        w.group(IeType::CREATE_URR, |w| {
            w.put(&URR);
            w.put(&MeasurementMethod::VOLUM);
            w.put(&ReportingTriggers::VOLTH);
            let total = Some(sessions.threshold);
            w.put(&VolumeThreshold(Volumes { total, ..Volumes::default() }));
        });
        w.group(IeType::CREATE_QER, |w| {
            w.put(&QER);
            w.put(&GateStatus { uplink: Gate::Open, downlink: Gate::Open });
            w.put(&Mbr { uplink: sessions.rate, downlink: sessions.rate });
            w.put(&Qfi(sessions.qfi));
        });
        w.put(&match (sessions.v4, sessions.v6) {
            (true, true) => PdnType::IPV4V6,
            (false, true) => PdnType::IPV6,
            _ => PdnType::IPV4,
        });
    })
}

fn redirection(url: &str) -> RedirectInformation<'_> {
    let (address_type, address) = (RedirectAddress::Url, url.as_bytes());
    RedirectInformation { address_type, address, other: b"" }
}

fn f_seid(local: IpAddr, index: u32) -> FSeid {
    let seid = FSeid { seid: seid(index), v4: None, v6: None };
    match local {
        IpAddr::V4(v4) => FSeid { v4: Some(v4), ..seid },
        IpAddr::V6(v6) => FSeid { v6: Some(v6), ..seid },
    }
}

fn user(sessions: &Sessions, index: u32) -> UeIpAddress {
    let given = sessions.first_user.map(|first| u32::from(first).wrapping_add(index));
    UeIpAddress {
        v4: given.filter(|_| sessions.v4).map(Ipv4Addr::from),
        choose_v4: sessions.v4 && given.is_none(),
        choose_v6: sessions.v6,
        ..UeIpAddress::default()
    }
}

fn uplink_pdr(w: &mut Writer<'_>, sessions: &Sessions, user: UeIpAddress) {
    w.put(&UPLINK);
    w.put(&Precedence(255));
    w.group(IeType::PDI, |w| {
        w.put(&SourceInterface::ACCESS);
        let (choose_v4, choose_v6) = (sessions.gnb.is_ipv4(), sessions.gnb.is_ipv6());
        w.put(&FTeid { choose_v4, choose_v6, ..FTeid::default() });
        w.put(&NetworkInstance(sessions.access.as_bytes()));
        w.put(&user);
        w.put(&Qfi(sessions.qfi));
    });
    // GTP-U/UDP/IP of either version, with its extension headers.
    w.put(&OuterHeaderRemoval { description: 6, extension_headers: 0 });
    w.put(&TO_CORE);
    w.put(&URR);
    w.put(&QER);
}

fn downlink_pdr(w: &mut Writer<'_>, sessions: &Sessions, user: UeIpAddress) {
    w.put(&DOWNLINK);
    w.put(&Precedence(255));
    w.group(IeType::PDI, |w| {
        w.put(&SourceInterface::CORE);
        w.put(&NetworkInstance(sessions.core.as_bytes()));
        w.put(&UeIpAddress { is_destination: true, ..user });
    });
    w.put(&TO_ACCESS);
    w.put(&URR);
    w.put(&QER);
}

fn to_gnb(w: &mut Writer<'_>, sessions: &Sessions, teid: u32) {
    w.put(&DestinationInterface::ACCESS);
    w.put(&NetworkInstance(sessions.access.as_bytes()));
    w.put(&match sessions.gnb {
        IpAddr::V4(v4) => OuterHeaderCreation::gtp_u_v4(teid, v4),
        IpAddr::V6(v6) => OuterHeaderCreation::gtp_u_v6(teid, v6),
    });
}

/// Encodes a modification: the downlink FAR gets its tunnel again, as after a handover.
pub(super) fn modify(sequence: u32, sessions: &Sessions, index: u32, upf: u64) -> Vec<u8> {
    let header = Header::session(MessageType::SESSION_MODIFICATION_REQUEST, upf, sequence);
    message(header, |w| {
        w.group(IeType::UPDATE_FAR, |w| {
            w.put(&TO_ACCESS);
            w.put(&ApplyAction::FORW);
            w.group(IeType::UPDATE_FORWARDING_PARAMETERS, |w| {
                to_gnb(w, sessions, downlink_teid(index));
            });
        });
    })
}

pub(super) fn delete(sequence: u32, upf: u64) -> Vec<u8> {
    message(Header::session(MessageType::SESSION_DELETION_REQUEST, upf, sequence), |_| {})
}

/// Decodes the session from the response to an establishment.
pub(super) fn established(answer: Group<'_>, sessions: &Sessions, index: u32) -> Established {
    let mut session = Established {
        seid: answer.find::<FSeid>().ok().flatten().map_or(0, |seid| seid.seid),
        v4: user(sessions, index).v4,
        ..Established::default()
    };
    for pdr in answer.groups(IeType::CREATED_PDR) {
        for teid in pdr.all::<FTeid>().flatten() {
            session.uplink = teid.teid;
            let v6: Option<Ipv6Addr> = teid.v6;
            session.upf = teid.v4.map(IpAddr::V4).or(v6.map(IpAddr::V6));
        }
        for user in pdr.all::<UeIpAddress>().flatten() {
            session.v4 = user.v4.or(session.v4);
            session.v6 = user.v6.or(session.v6);
        }
    }
    session
}
