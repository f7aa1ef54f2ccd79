//! Node related messages of PFCP: the identity and features that this node announces, and its
//! responses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane_pfcp::ie::{
    Duration5, FSeid, Metric, NetworkInstance, OffendingIe, RecoveryTimeStamp, SequenceNumber,
    Timer, UpFunctionFeatures, UserPlaneIpResourceInformation,
};
use fastlane_pfcp::{Cause, Fault, Header, IeType, Message, MessageType, Writer};

use crate::config::{Interface, Role, Settings, TeidChoice};
use crate::pfcp::NodeName;
use crate::pfcp::overload::OverloadControl;
use crate::time::SECOND;

/// Identity that this node announces to its peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Node ID.
    pub node_id: NodeName,
    /// Recovery time stamp, in seconds since 1900.
    pub recovery: u32,
    /// UP Function Features.
    pub features: UpFunctionFeatures,
    resources: Vec<Resource>,
}

/// Address from which control planes may allocate F-TEIDs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Resource {
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
    instance: Option<String>,
}

impl Identity {
    /// Creates the identity from settings.
    #[must_use]
    pub fn new(settings: &Settings, recovery: u32) -> Self {
        Self {
            node_id: NodeName::parse(&settings.node_id),
            recovery,
            features: features(settings),
            resources: Resource::all(settings),
        }
    }

    /// Appends the addresses from which control planes may allocate F-TEIDs.
    pub fn put_resources(&self, to: &mut Writer<'_>) {
        for Resource { v4, v6, instance } in &self.resources {
            let instance = instance.as_ref().map(|it| NetworkInstance(it.as_bytes()));
            let (v4, v6) = (*v4, *v6);
            to.put(&UserPlaneIpResourceInformation { v4, v6, instance, ..Default::default() });
        }
    }
}

/// Returns the supported features (TS 29.244 clause 8.2.25).
fn features(settings: &Settings) -> UpFunctionFeatures {
    type Up = UpFunctionFeatures;
    let always = Up::DDND
        | Up::DLBD
        | Up::TREU
        | Up::EMPU
        | Up::UDBC
        | Up::QUOAC
        | Up::FRRT
        | Up::ADPDP
        | Up::SSET
        | Up::MNOP
        | Up::BUNDL
        | Up::VTIME;
    let with = |features: Up, wanted: bool, more| if wanted { features | more } else { features };
    let chosen = with(always, settings.teid == TeidChoice::Upf, Up::FTUP);
    // An SMF Set ID proves nothing: members of a set must be configured.
    let chosen = with(chosen, !settings.n4.is_open(), Up::MPAS);
    // IP6PL is absent: it means several UE addresses in a PDI, too. Prefixes of other lengths than
    // 64 may come from the control plane all the same.
    with(chosen, settings.pools.iter().any(|pool| pool.allocate), Up::UEIP)
}

impl Resource {
    /// Returns the addresses of interfaces with tunnels if control planes allocate TEIDs. Release
    /// 15 control planes ask for addresses in this path (clause 8.2.82 there).
    fn all(settings: &Settings) -> Vec<Self> {
        if settings.teid == TeidChoice::Upf {
            return Vec::new();
        }
        let tunnels = settings.interfaces.values().filter(|it| it.role != Role::N6);
        let resource = |interface: &Interface, instance: Option<&String>| Self {
            v4: interface.addresses.iter().find_map(|address| match address {
                IpAddr::V4(address) => Some(*address),
                IpAddr::V6(_) => None,
            }),
            v6: interface.addresses.iter().find_map(|address| match address {
                IpAddr::V6(address) => Some(*address),
                IpAddr::V4(_) => None,
            }),
            instance: instance.cloned(),
        };
        // One for each network instance, or one for all.
        let named = |it: &Interface| match it.network_instances.as_slice() {
            [] => vec![resource(it, None)],
            names => names.iter().map(|name| resource(it, Some(name))).collect(),
        };
        tunnels.flat_map(named).collect()
    }
}

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

/// Encodes the refusal of a session related request, without SEID unless it is an establishment.
pub(super) fn refuse_session(request: &Message<'_>, identity: &Identity, cause: Cause) -> Vec<u8> {
    let Header { message_type, sequence, .. } = request.header;
    let is_new = message_type == MessageType::SESSION_ESTABLISHMENT_REQUEST;
    let seid = if is_new { control_seid(request) } else { 0 };
    let answer_type = MessageType(message_type.0.wrapping_add(1));
    message(Header::session(answer_type, seid, sequence), |to| {
        // Only the response to an establishment has a Node ID (table 7.5.3.1-1).
        to.maybe(is_new.then(|| identity.node_id.ie()).as_ref());
        to.put(&cause);
    })
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

/// Fault of a request without an association.
pub(super) const NO_ASSOCIATION: Fault =
    Fault { cause: Cause::NO_ESTABLISHED_PFCP_ASSOCIATION, offending: None };
