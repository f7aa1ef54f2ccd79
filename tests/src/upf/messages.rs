//! PFCP requests of the SMF: sessions with two or three PDRs and one FAR, URR and QER each.

use std::net::Ipv4Addr;

use fastlane_pfcp::ie::{
    ApnDnn, ApplyAction, DestinationInterface, FSeid, FTeid, FarId, Gate, GateStatus,
    MeasurementMethod, NetworkInstance, NodeId, OuterHeaderCreation, OuterHeaderRemoval, PdrId,
    Precedence, QerId, Qfi, RecoveryTimeStamp, ReportingTriggers, SNssai, SdfFilter,
    SourceInterface, TransportLevelMarking, UeIpAddress, UrrId, VolumeQuota, VolumeThreshold,
    Volumes,
};
use fastlane_pfcp::{Header, IeType, MessageType, Writer};

/// Address of the SMF.
pub const SMF: Ipv4Addr = Ipv4Addr::new(10, 40, 0, 2);

/// The rules of a session that a modification replaces as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleVersion {
    /// Address of the gNB.
    pub peer: Ipv4Addr,
    /// TEID at the gNB.
    pub teid: u32,
    /// Transport level marking: type of service of the outer header.
    pub tos: u8,
    /// QoS flow identifier of downlink packets; 0 if they have no PDU session container.
    pub qfi: u8,
    /// The downlink gate is open.
    pub is_open: bool,
    /// The downlink FAR buffers packets.
    pub is_buffering: bool,
}

/// Parameters of a session establishment.
#[derive(Clone, Copy, Debug)]
pub struct SessionRequest {
    /// SEID of the control plane.
    pub cp_seid: u64,
    /// Initial rules.
    pub version: RuleVersion,
    /// Volume threshold of the URR in octets.
    pub threshold: u64,
    /// The downlink has a second PDR with an SDF filter, so that its rules do not fit the form of
    /// one cache line.
    pub is_complex: bool,
    /// Network slice and DNN that the SMF names; `None` if it names neither.
    pub slice: Option<Slice>,
}

/// Network slice and DNN of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Network slice (S-NSSAI).
    pub s_nssai: SNssai,
    /// Data network name.
    pub dnn: &'static str,
}

impl SessionRequest {
    /// Creates the request for session `number` with one gNB and an open gate.
    #[must_use]
    pub fn open(number: u32, threshold: u64) -> Self {
        let version = RuleVersion {
            peer: Ipv4Addr::new(10, 30, 0, 2),
            teid: 0x1000 + number,
            tos: 4,
            qfi: 1,
            is_open: true,
            is_buffering: false,
        };
        Self { cp_seid: number.into(), version, threshold, is_complex: false, slice: None }
    }
}

/// Writes a message.
pub fn message(header: Header, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut datagram = Vec::with_capacity(512);
    Writer::new(&mut datagram).message(header, body);
    datagram
}

/// Writes an Association Setup Request of an SMF that started at `started`.
#[must_use]
pub fn associate(sequence: u32, started: u32) -> Vec<u8> {
    message(Header::node(MessageType::ASSOCIATION_SETUP_REQUEST, sequence), |w| {
        w.put(&NodeId::V4(SMF));
        w.put(&RecoveryTimeStamp(started));
    })
}

/// Writes an Association Release Request.
#[must_use]
pub fn release(sequence: u32) -> Vec<u8> {
    message(Header::node(MessageType::ASSOCIATION_RELEASE_REQUEST, sequence), |w| {
        w.put(&NodeId::V4(SMF));
    })
}

/// Writes a Heartbeat Request.
#[must_use]
pub fn heartbeat(sequence: u32, started: u32) -> Vec<u8> {
    message(Header::node(MessageType::HEARTBEAT_REQUEST, sequence), |w| {
        w.put(&RecoveryTimeStamp(started));
    })
}

/// Writes a Session Establishment Request.
#[must_use]
pub fn establish(sequence: u32, request: &SessionRequest) -> Vec<u8> {
    let header = Header::session(MessageType::SESSION_ESTABLISHMENT_REQUEST, 0, sequence);
    message(header, |w| {
        w.put(&NodeId::V4(SMF));
        w.put(&FSeid { seid: request.cp_seid, v4: Some(SMF), v6: None });
        w.group(IeType::CREATE_PDR, uplink_pdr);
        w.group(IeType::CREATE_PDR, |w| downlink_pdr(w, 2, None));
        if request.is_complex {
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
            far(w, &request.version, IeType::FORWARDING_PARAMETERS);
        });
        w.group(IeType::CREATE_URR, |w| {
            w.put(&UrrId(1));
            w.put(&MeasurementMethod::VOLUM);
            w.put(&ReportingTriggers::VOLTH);
            let total = Some(request.threshold);
            w.put(&VolumeThreshold(Volumes { total, ..Volumes::default() }));
        });
        w.group(IeType::CREATE_QER, |w| qer(w, &request.version));
        w.maybe(request.slice.map(|slice| ApnDnn(slice.dnn.as_bytes())).as_ref());
        w.maybe(request.slice.map(|slice| slice.s_nssai).as_ref());
    })
}

/// Puts the address of another SMF in the place of [`SMF`], as Node ID and in the F-SEID.
#[must_use]
pub fn of_smf(mut datagram: Vec<u8>, address: Ipv4Addr) -> Vec<u8> {
    let octets = SMF.octets();
    for at in 0..datagram.len().saturating_sub(octets.len()) + 1 {
        if let Some(found) = datagram.get_mut(at..at + octets.len()).filter(|it| **it == octets) {
            found.copy_from_slice(&address.octets());
        }
    }
    datagram
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
        let ue = UeIpAddress { is_destination: true, choose_v4: true, ..UeIpAddress::default() };
        w.put(&ue);
        w.maybe(
            flow.map(|flow| SdfFilter { flow_description: Some(flow), ..SdfFilter::default() })
                .as_ref(),
        );
    });
    w.put(&FarId(2));
    w.put(&UrrId(1));
    w.put(&QerId(1));
}

fn far(w: &mut Writer<'_>, version: &RuleVersion, parameters: IeType) {
    w.put(&FarId(2));
    if version.is_buffering {
        w.put(&ApplyAction::BUFF);
        return;
    }
    w.put(&ApplyAction::FORW);
    w.group(parameters, |w| {
        w.put(&DestinationInterface::ACCESS);
        w.put(&NetworkInstance(b"access"));
        w.put(&OuterHeaderCreation::gtp_u_v4(version.teid, version.peer));
        w.put(&TransportLevelMarking { value: version.tos, mask: 0xfc });
    });
}

fn qer(w: &mut Writer<'_>, version: &RuleVersion) {
    let downlink = if version.is_open { Gate::Open } else { Gate::Closed };
    w.put(&QerId(1));
    w.put(&GateStatus { uplink: Gate::Open, downlink });
    w.maybe((version.qfi > 0).then_some(&Qfi(version.qfi)));
}

/// Writes a Session Modification Request that replaces FAR and QER.
#[must_use]
pub fn modify(sequence: u32, up_seid: u64, version: &RuleVersion) -> Vec<u8> {
    let header = Header::session(MessageType::SESSION_MODIFICATION_REQUEST, up_seid, sequence);
    message(header, |w| {
        w.group(IeType::UPDATE_FAR, |w| {
            far(w, version, IeType::UPDATE_FORWARDING_PARAMETERS);
        });
        w.group(IeType::UPDATE_QER, |w| qer(w, version));
    })
}

/// Writes a Session Modification Request that grants a volume quota of `quota` octets.
#[must_use]
pub fn set_quota(sequence: u32, up_seid: u64, quota: u64) -> Vec<u8> {
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

/// Writes a Session Modification Request that queries the URR.
#[must_use]
pub fn query(sequence: u32, up_seid: u64) -> Vec<u8> {
    let header = Header::session(MessageType::SESSION_MODIFICATION_REQUEST, up_seid, sequence);
    message(header, |w| w.group(IeType::QUERY_URR, |w| w.put(&UrrId(1))))
}

/// Writes a Session Deletion Request.
#[must_use]
pub fn delete(sequence: u32, up_seid: u64) -> Vec<u8> {
    message(Header::session(MessageType::SESSION_DELETION_REQUEST, up_seid, sequence), |_| {})
}
