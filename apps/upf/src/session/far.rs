//! Forwarding action rules (TS 29.244 tables 7.5.2.3-1 to -3 and 7.5.4.3-1 to -3) and buffering
//! action rules (tables 7.5.2.6-1 and 7.5.4.11-1).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane_pfcp::ie::{self, FailedRuleId, OuterHeaderCreation, RedirectAddress};
use fastlane_pfcp::{Cause, Group, IeType};

use super::{BarId, Destination, FarId, InstanceId, Network, Refusal, Session};
use crate::time::SECOND;

/// Forwarding action rule (TS 29.244 table 7.5.2.3-1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Far {
    /// FAR ID.
    pub id: FarId,
    /// Apply Action flags.
    pub actions: Actions,
    /// Forwarding parameters, if packets are forwarded.
    pub forwarding: Option<Forwarding>,
    /// Duplicating parameters: the destinations of copies.
    pub duplicating: Vec<Forwarding>,
    /// BAR, if packets are buffered.
    pub bar: Option<BarId>,
    /// End markers due at tunnels that packets took before, the oldest first (SNDEM, clause
    /// 8.2.70).
    pub end_markers: Vec<EndMarker>,
}

/// End marker, sent once by the lane after its last packet to the old tunnel (TS 23.501 clause
/// 5.8.2.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndMarker {
    /// Old tunnel.
    pub to: OuterHeader,
    /// Network instance of the old tunnel, if given.
    pub instance: Option<InstanceId>,
    /// Version of the session that asks lanes for it: the first one, or a later one in which it is
    /// still due.
    pub version: u64,
    /// Time when it became due, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at: u64,
}

impl EndMarker {
    /// Time after which it is given up, in nanoseconds: a gNB that is unreachable for this long has
    /// no use for it.
    pub const PATIENCE: u64 = 10 * SECOND;
    /// Maximum number of a FAR. Each move of a user leaves one while its gNB is unreachable.
    const MOST: usize = 4;
}

/// Apply Action (clause 8.2.26).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Actions {
    /// DROP flag.
    pub drop: bool,
    /// FORW flag.
    pub forward: bool,
    /// BUFF flag.
    pub buffer: bool,
    /// NOCP: notify the control plane of the first buffered packet.
    pub notify: bool,
    /// DUPL flag.
    pub duplicate: bool,
}

/// Forwarding and duplicating parameters (tables 7.5.2.3-2 and 7.5.2.3-3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarding {
    /// Destination Interface.
    pub destination: Destination,
    /// Network instance in which packets leave, if given.
    pub instance: Option<InstanceId>,
    /// Outer header to add.
    pub outer: Option<OuterHeader>,
    /// Type of service or traffic class of the outer header: value and mask (clause 8.2.12).
    pub marking: Option<(u8, u8)>,
    /// Redirect information for HTTP requests (clause 8.2.20).
    pub redirect: Option<Redirect>,
}

/// Outer Header Creation (clause 8.2.56).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OuterHeader {
    /// TEID of the peer; none for plain UDP or IP.
    pub teid: Option<u32>,
    /// IPv4 address of the peer.
    pub v4: Option<Ipv4Addr>,
    /// IPv6 address of the peer, used if there is no IPv4 address.
    pub v6: Option<Ipv6Addr>,
    /// UDP port, for plain UDP.
    pub port: Option<u16>,
}

/// Redirect information (clause 8.2.20).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redirect {
    /// HTTP requests are redirected to this address. Packets to and from it pass.
    Address(IpAddr),
    /// Redirect addresses for IPv4 and for IPv6 packets.
    Both(Ipv4Addr, Ipv6Addr),
    /// HTTP requests are redirected to this URL (RFC 9110 clause 15.4.3).
    Url(String),
    /// SIP URI, without effect. Requests with one are refused; records of earlier versions may have
    /// one.
    Sip(String),
}

/// IEs of a FAR that are not supported: a second tunnel for each packet, and multicast.
const UNSUPPORTED_IN_FAR: [IeType; 4] = [
    IeType::REDUNDANT_TRANSMISSION_FORWARDING,
    IeType::MBS_MULTICAST_PARAMETERS,
    IeType::ADD_MBS_UNICAST_PARAMETERS,
    IeType::REMOVE_MBS_UNICAST_PARAMETERS,
];

/// IEs of forwarding parameters that are not supported: changed packets, answers in the name of
/// users, and traffic endpoints.
const UNSUPPORTED_IN_PARAMETERS: [IeType; 5] = [
    IeType::HEADER_ENRICHMENT,
    IeType::REDUNDANT_TRANSMISSION_FORWARDING,
    IeType::IP_ADDRESS_AND_PORT_NUMBER_REPLACEMENT,
    IeType::PROXYING,
    IeType::TRAFFIC_ENDPOINT_ID,
];

/// Reads Create FAR.
pub(crate) fn create(group: &Group<'_>, network: &Network) -> Result<Far, Refusal> {
    Refusal::any_unsupported(group, &UNSUPPORTED_IN_FAR)?;
    let id = group.need::<ie::FarId>()?.0;
    let failed = FailedRuleId::Far(id);
    let actions = actions(group.need::<ie::ApplyAction>()?)?;
    let parameters = group.group(IeType::FORWARDING_PARAMETERS);
    let forwarding = parameters.map(|it| read_forwarding(&it, network, failed)).transpose()?;
    let copies = group.groups(IeType::DUPLICATING_PARAMETERS);
    let duplicating =
        copies.map(|it| read_forwarding(&it, network, failed)).collect::<Result<_, _>>();
    let bar = group.find::<ie::BarId>()?.map(|bar| bar.0);
    let end_markers = Vec::new();
    let far = Far { id, actions, forwarding, duplicating: duplicating?, bar, end_markers };
    check(&far)?;
    Ok(far)
}

/// Checks that the FAR has the parameters that its action needs.
fn check(far: &Far) -> Result<(), Refusal> {
    let missing = |ie| Err(Refusal::of(Cause::CONDITIONAL_IE_MISSING, ie));
    if far.actions.forward && far.forwarding.is_none() {
        return missing(IeType::FORWARDING_PARAMETERS);
    }
    if far.actions.duplicate && far.duplicating.is_empty() {
        return missing(IeType::DUPLICATING_PARAMETERS);
    }
    let forwarding = far.forwarding.iter().filter(|_| far.actions.forward);
    let copies = far.duplicating.iter().filter(|_| far.actions.duplicate);
    forwarding.chain(copies).filter_map(|it| it.outer.as_ref()).try_for_each(check_outer_header)
}

/// Moment of a request: the version of the session after it, and the time in nanoseconds of
/// `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) version: u64,
    pub(crate) at: u64,
}

/// Applies Update FAR; absent IEs change nothing.
pub(crate) fn update(
    far: &mut Far,
    group: &Group<'_>,
    network: &Network,
    now: Moment,
) -> Result<(), Refusal> {
    Refusal::any_unsupported(group, &UNSUPPORTED_IN_FAR)?;
    let failed = FailedRuleId::Far(far.id);
    if let Some(action) = group.find::<ie::ApplyAction>()? {
        far.actions = actions(action)?;
    }
    if let Some(bar) = group.find::<ie::BarId>()? {
        far.bar = Some(bar.0);
    }
    // Some SMFs send the parameters of Create FAR.
    let parameters = group.group(IeType::UPDATE_FORWARDING_PARAMETERS);
    let parameters = parameters.or_else(|| group.group(IeType::FORWARDING_PARAMETERS));
    if let Some(parameters) = parameters {
        let before = far.forwarding.clone();
        match &mut far.forwarding {
            Some(forwarding) => change(forwarding, &parameters, network, failed)?,
            none => *none = Some(read_forwarding(&parameters, network, failed)?),
        }
        let flags = parameters.find::<ie::PfcpsmreqFlags>()?.unwrap_or_default();
        if flags.has(ie::PfcpsmreqFlags::SNDEM) {
            far.end_markers.extend(end_marker(before, far.forwarding.as_ref(), now));
        }
        // Packets take this tunnel again.
        let taken = far.forwarding.as_ref().and_then(|forwarding| forwarding.outer);
        far.end_markers.retain(|marker| Some(marker.to) != taken);
    }
    let mut copies = group.groups(IeType::UPDATE_DUPLICATING_PARAMETERS).peekable();
    if copies.peek().is_some() {
        far.duplicating =
            copies.map(|it| read_forwarding(&it, network, failed)).collect::<Result<_, _>>()?;
    }
    check(far)
}

/// Returns the end marker for the tunnel that packets no longer take, if there was one.
fn end_marker(
    before: Option<Forwarding>,
    after: Option<&Forwarding>,
    now: Moment,
) -> Option<EndMarker> {
    let before = before?;
    let to = before.outer.filter(|outer| check_outer_header(outer).is_ok())?;
    let is_other = after.and_then(|after| after.outer) != Some(to);
    let Moment { version, at } = now;
    is_other.then_some(EndMarker { to, instance: before.instance, version, at })
}

/// Prepares the end markers of a session for a request to change it. If lanes have sent those that
/// were due before (`is_due` is false), they are forgotten. Otherwise the next version asks for
/// them again, together with those that the request adds. Returns the number of those given up: too
/// old, or too many.
pub(crate) fn renew_end_markers(session: &mut Session, is_due: bool, at: u64) -> u64 {
    let mut given_up = 0;
    for far in &mut session.fars {
        let markers = &mut far.end_markers;
        if !is_due {
            markers.clear();
        }
        let before = markers.len();
        markers.retain(|marker| at < marker.at.saturating_add(EndMarker::PATIENCE));
        // The request may add one.
        let surplus = (markers.len() + 1).saturating_sub(EndMarker::MOST);
        markers.drain(..surplus);
        given_up += before - markers.len();
        markers.iter_mut().for_each(|marker| marker.version = session.version);
    }
    given_up as u64
}

/// Reads Apply Action: exactly one of drop, forward and buffer (clause 8.2.26).
fn actions(action: ie::ApplyAction) -> Result<Actions, Refusal> {
    use ie::ApplyAction as Flag;
    let known = Flag::DROP | Flag::FORW | Flag::BUFF | Flag::NOCP | Flag::DUPL;
    let two_octets = 0xFFFF;
    if action.0 & two_octets & !known.0 != 0 {
        return Err(Refusal::unsupported(IeType::APPLY_ACTION));
    }
    let actions = Actions {
        drop: action.has(Flag::DROP),
        forward: action.has(Flag::FORW),
        buffer: action.has(Flag::BUFF),
        notify: action.has(Flag::NOCP),
        duplicate: action.has(Flag::DUPL),
    };
    let one = [actions.drop, actions.forward, actions.buffer];
    let is_sound =
        one.into_iter().filter(|flag| *flag).count() == 1 && (actions.buffer || !actions.notify);
    if is_sound { Ok(actions) } else { Err(Refusal::incorrect(IeType::APPLY_ACTION)) }
}

/// Reads forwarding or duplicating parameters.
fn read_forwarding(
    group: &Group<'_>,
    network: &Network,
    failed: FailedRuleId,
) -> Result<Forwarding, Refusal> {
    let destination = destination(group.need::<ie::DestinationInterface>()?)?;
    let mut forwarding =
        Forwarding { destination, instance: None, outer: None, marking: None, redirect: None };
    change(&mut forwarding, group, network, failed)?;
    Ok(forwarding)
}

/// Replaces the parameters whose IEs are present.
fn change(
    forwarding: &mut Forwarding,
    group: &Group<'_>,
    network: &Network,
    failed: FailedRuleId,
) -> Result<(), Refusal> {
    if let Some(interface) = group.find::<ie::DestinationInterface>()? {
        forwarding.destination = destination(interface)?;
    }
    if let Some(instance) = network.instance_of(group, failed)? {
        forwarding.instance = Some(instance);
    }
    if let Some(outer) = group.find::<OuterHeaderCreation>()? {
        forwarding.outer = Some(outer_header(&outer));
    }
    if let Some(marking) = group.find::<ie::TransportLevelMarking>()? {
        forwarding.marking = Some((marking.value, marking.mask));
    }
    if let Some(redirect) = group.find::<ie::RedirectInformation<'_>>()? {
        forwarding.redirect = Some(self::redirect(&redirect)?);
    }
    if group.has(IeType::FORWARDING_POLICY) {
        let cause = Cause::INVALID_FORWARDING_POLICY;
        return Err(Refusal::of(cause, IeType::FORWARDING_POLICY));
    }
    Refusal::any_unsupported(group, &UNSUPPORTED_IN_PARAMETERS)
}

fn destination(interface: ie::DestinationInterface) -> Result<Destination, Refusal> {
    match interface {
        ie::DestinationInterface::ACCESS => Ok(Destination::Access),
        ie::DestinationInterface::CORE => Ok(Destination::Core),
        ie::DestinationInterface::SGI_LAN => Ok(Destination::SgiLan),
        ie::DestinationInterface::CP_FUNCTION => Ok(Destination::Control),
        _ => Err(Refusal::unsupported(IeType::DESTINATION_INTERFACE)),
    }
}

/// Reads Outer Header Creation. It is judged when packets take it (see [`check_outer_header`]):
/// SMFs send FARs that drop or buffer with the tunnel of nobody. A header with VLAN tags has no
/// TEID here, since it cannot be built.
fn outer_header(outer: &OuterHeaderCreation) -> OuterHeader {
    let is_tagged = outer.c_tag.is_some() || outer.s_tag.is_some();
    OuterHeader {
        teid: outer.teid.filter(|_| !is_tagged),
        v4: outer.v4.filter(|address| !address.is_unspecified()),
        v6: outer.v6.filter(|address| !address.is_unspecified()),
        port: outer.port,
    }
}

/// Checks that an outer header can be built: GTP-U to a tunnel. UDP or IP alone is not supported.
fn check_outer_header(outer: &OuterHeader) -> Result<(), Refusal> {
    match outer.teid {
        None => Err(Refusal::unsupported(IeType::OUTER_HEADER_CREATION)),
        Some(teid) if teid == 0 || outer.v4.is_none() && outer.v6.is_none() => {
            Err(Refusal::incorrect(IeType::OUTER_HEADER_CREATION))
        }
        Some(_) => Ok(()),
    }
}

fn redirect(information: &ie::RedirectInformation<'_>) -> Result<Redirect, Refusal> {
    let text = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).ok().filter(|text| !text.is_empty());
        text.map(str::to_owned).ok_or(Refusal::incorrect(IeType::REDIRECT_INFORMATION))
    };
    let address = |bytes: &[u8]| {
        let parsed = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<IpAddr>().ok());
        parsed.ok_or(Refusal::incorrect(IeType::REDIRECT_INFORMATION))
    };
    match information.address_type {
        RedirectAddress::V4 | RedirectAddress::V6 => {
            Ok(Redirect::Address(address(information.address)?))
        }
        RedirectAddress::V4V6 => {
            match (address(information.address)?, address(information.other)?) {
                (IpAddr::V4(v4), IpAddr::V6(v6)) | (IpAddr::V6(v6), IpAddr::V4(v4)) => {
                    Ok(Redirect::Both(v4, v6))
                }
                _ => Err(Refusal::incorrect(IeType::REDIRECT_INFORMATION)),
            }
        }
        // The URL is copied into a response header unchanged (RFC 3986: no blanks, no control
        // characters).
        RedirectAddress::Url if !information.address.iter().all(u8::is_ascii_graphic) => {
            Err(Refusal::incorrect(IeType::REDIRECT_INFORMATION))
        }
        RedirectAddress::Url => Ok(Redirect::Url(text(information.address)?)),
        RedirectAddress::SipUri => Err(Refusal::unsupported(IeType::REDIRECT_INFORMATION)),
    }
}

/// Buffering action rule (table 7.5.2.6-1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffering {
    /// BAR ID.
    pub id: BarId,
    /// Delay from the first packet to the downlink data notification, in ms (clause 8.2.28: units
    /// of 50 ms).
    pub notification_delay_ms: u32,
    /// Maximum number of buffered packets (Suggested Buffering Packets Count, clause 8.2.100).
    pub packets: Option<u32>,
    /// Maximum buffering time in ms (DL Buffering Duration of a report response, clause 8.2.47).
    pub duration_ms: Option<u64>,
}

/// Applies Create BAR or Update BAR; absent IEs change nothing.
pub(crate) fn apply_bar(bar: &mut Buffering, group: &Group<'_>) -> Result<(), Refusal> {
    if let Some(delay) = group.find::<ie::DownlinkDataNotificationDelay>()? {
        bar.notification_delay_ms = u32::from(delay.0) * 50;
    }
    if let Some(count) = group.find::<ie::SuggestedBufferingPacketsCount>()? {
        bar.packets = Some(u32::from(count.0));
    }
    Ok(())
}
