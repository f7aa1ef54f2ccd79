//! What the SMF of these stories writes: one rule of each kind and two PDRs.

use std::net::Ipv4Addr;

use fastlane_pfcp::ie::{
    ApplyAction, DestinationInterface, FSeid, FTeid, FarId, Gate, GateStatus, MeasurementMethod,
    NetworkInstance, NodeId, OuterHeaderCreation, OuterHeaderRemoval, PdrId, Precedence, QerId,
    Qfi, RecoveryTimeStamp, ReportingTriggers, SdfFilter, SourceInterface, TransportLevelMarking,
    UeIpAddress, UrrId, VolumeQuota, VolumeThreshold, Volumes,
};
use fastlane_pfcp::{Header, IeType, MessageType, Writer};

/// The SMF's address.
pub(crate) const SMF: Ipv4Addr = Ipv4Addr::new(10, 40, 0, 2);

/// What of a session's rules the stories change: a version of them is all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// The base station and the tunnel there.
    pub(crate) peer: Ipv4Addr,
    pub(crate) teid: u32,
    /// The marking of the outer header: the type of service.
    pub(crate) marking: u8,
    pub(crate) qfi: u8,
    /// The gate to the user.
    pub(crate) is_open: bool,
    /// Packets to the user are held.
    pub(crate) is_held: bool,
}

/// A session as it is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) cp_seid: u64,
    pub(crate) version: Version,
    /// The URR reports after so many octets.
    pub(crate) threshold: u64,
    /// Its downlink rules have a filter and a second PDR: they do not fit a line.
    pub(crate) is_complex: bool,
}

pub(crate) fn message(header: Header, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut datagram = Vec::with_capacity(512);
    Writer::new(&mut datagram).message(header, body);
    datagram
}

pub(crate) fn associate(sequence: u32, started: u32) -> Vec<u8> {
    message(Header::node(MessageType::ASSOCIATION_SETUP_REQUEST, sequence), |w| {
        w.put(&NodeId::V4(SMF));
        w.put(&RecoveryTimeStamp(started));
    })
}

pub(crate) fn heartbeat(sequence: u32, started: u32) -> Vec<u8> {
    message(Header::node(MessageType::HEARTBEAT_REQUEST, sequence), |w| {
        w.put(&RecoveryTimeStamp(started));
    })
}

pub(crate) fn establish(sequence: u32, wish: &Wish) -> Vec<u8> {
    let header = Header::session(MessageType::SESSION_ESTABLISHMENT_REQUEST, 0, sequence);
    message(header, |w| {
        w.put(&NodeId::V4(SMF));
        w.put(&FSeid { seid: wish.cp_seid, v4: Some(SMF), v6: None });
        w.group(IeType::CREATE_PDR, uplink_pdr);
        w.group(IeType::CREATE_PDR, |w| downlink_pdr(w, 2, None));
        if wish.is_complex {
            let flow = b"permit out 17 from any 4000-4999 to assigned";
            w.group(IeType::CREATE_PDR, |w| downlink_pdr(w, 3, Some(flow)));
        }
        w.group(IeType::CREATE_FAR, |w| {
            w.put(&FarId(1));
            w.put(&ApplyAction::FORW);
            w.group(IeType::FORWARDING_PARAMETERS, |w| {
                w.put(&DestinationInterface::CORE);
                w.put(&NetworkInstance(b"internet"));
            });
        });
        w.group(IeType::CREATE_FAR, |w| {
            far(w, &wish.version, IeType::FORWARDING_PARAMETERS);
        });
        w.group(IeType::CREATE_URR, |w| {
            w.put(&UrrId(1));
            w.put(&MeasurementMethod::VOLUM);
            w.put(&ReportingTriggers::VOLTH);
            let total = Some(wish.threshold);
            w.put(&VolumeThreshold(Volumes { total, ..Volumes::default() }));
        });
        w.group(IeType::CREATE_QER, |w| qer(w, &wish.version));
    })
}

fn uplink_pdr(w: &mut Writer<'_>) {
    w.put(&PdrId(1));
    w.put(&Precedence(255));
    w.group(IeType::PDI, |w| {
        w.put(&SourceInterface::ACCESS);
        w.put(&FTeid { choose_v4: true, ..FTeid::default() });
        w.put(&NetworkInstance(b"access"));
        w.put(&UeIpAddress { choose_v4: true, ..UeIpAddress::default() });
    });
    w.put(&OuterHeaderRemoval { description: 6, extension_headers: 0 });
    w.put(&FarId(1));
    w.put(&UrrId(1));
    w.put(&QerId(1));
}

fn downlink_pdr(w: &mut Writer<'_>, number: u16, flow: Option<&[u8]>) {
    w.put(&PdrId(number));
    w.put(&Precedence(if flow.is_some() { 10 } else { 255 }));
    w.group(IeType::PDI, |w| {
        w.put(&SourceInterface::CORE);
        w.put(&NetworkInstance(b"internet"));
        let user = UeIpAddress { is_destination: true, choose_v4: true, ..UeIpAddress::default() };
        w.put(&user);
        w.maybe(
            flow.map(|flow| SdfFilter { flow_description: Some(flow), ..SdfFilter::default() })
                .as_ref(),
        );
    });
    w.put(&FarId(2));
    w.put(&UrrId(1));
    w.put(&QerId(1));
}

fn far(w: &mut Writer<'_>, version: &Version, parameters: IeType) {
    w.put(&FarId(2));
    if version.is_held {
        w.put(&ApplyAction::BUFF);
        return;
    }
    w.put(&ApplyAction::FORW);
    w.group(parameters, |w| {
        w.put(&DestinationInterface::ACCESS);
        w.put(&NetworkInstance(b"access"));
        w.put(&OuterHeaderCreation::gtp_u_v4(version.teid, version.peer));
        w.put(&TransportLevelMarking { value: version.marking, mask: 0xfc });
    });
}

fn qer(w: &mut Writer<'_>, version: &Version) {
    let downlink = if version.is_open { Gate::Open } else { Gate::Closed };
    w.put(&QerId(1));
    w.put(&GateStatus { uplink: Gate::Open, downlink });
    w.put(&Qfi(version.qfi));
}

/// All of a version, in one modification.
pub(crate) fn change(sequence: u32, up_seid: u64, version: &Version) -> Vec<u8> {
    let header = Header::session(MessageType::SESSION_MODIFICATION_REQUEST, up_seid, sequence);
    message(header, |w| {
        w.group(IeType::UPDATE_FAR, |w| {
            far(w, version, IeType::UPDATE_FORWARDING_PARAMETERS);
        });
        w.group(IeType::UPDATE_QER, |w| qer(w, version));
    })
}

/// The URR lets so many octets pass from now on.
pub(crate) fn limit(sequence: u32, up_seid: u64, quota: u64) -> Vec<u8> {
    let header = Header::session(MessageType::SESSION_MODIFICATION_REQUEST, up_seid, sequence);
    message(header, |w| {
        w.group(IeType::UPDATE_URR, |w| {
            w.put(&UrrId(1));
            w.put(&MeasurementMethod::VOLUM);
            w.put(&ReportingTriggers::VOLQU);
            w.put(&VolumeQuota(Volumes { total: Some(quota), ..Volumes::default() }));
        });
    })
}

/// What has the URR counted?
pub(crate) fn query(sequence: u32, up_seid: u64) -> Vec<u8> {
    let header = Header::session(MessageType::SESSION_MODIFICATION_REQUEST, up_seid, sequence);
    message(header, |w| w.group(IeType::QUERY_URR, |w| w.put(&UrrId(1))))
}

pub(crate) fn delete(sequence: u32, up_seid: u64) -> Vec<u8> {
    message(Header::session(MessageType::SESSION_DELETION_REQUEST, up_seid, sequence), |_| {})
}
