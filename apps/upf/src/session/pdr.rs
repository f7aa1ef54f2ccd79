//! Packet detection rules (TS 29.244 tables 7.5.2.2-1, 7.5.2.2-2 and 7.5.4.2-1).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane_pfcp::ie::{self, FailedRuleId};
use fastlane_pfcp::{Cause, Fault, Group, Ie, IeType};

use super::sdf_filter::{self, Filter, Prefix};
use super::{FarId, InstanceId, Network, PdrId, QerId, Refusal, Session, Source, UrrId};

/// A packet detection rule (TS 29.244 clause 5.2.1, tables 7.5.2.2-1 and 7.5.2.2-2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pdr {
    /// PDR ID.
    pub id: PdrId,
    /// Precedence; the lowest value is matched first (clause 8.2.11).
    pub precedence: u32,
    /// Source Interface of its packets.
    pub source: Source,
    /// Network instance in which the packets arrive, if given.
    pub instance: Option<InstanceId>,
    /// Local F-TEID by which the packets arrive.
    pub tunnel: Option<LocalTunnel>,
    /// UE addresses that the packets have as source or destination.
    pub user: Option<UserAddress>,
    /// Framed routes behind the UE (clause 5.16), IPv4 or IPv6.
    pub framed: Vec<Prefix>,
    /// SDF filters, of which one must match; empty matches all.
    pub filters: Vec<Filter>,
    /// QFIs, of which one must be the packet's; empty matches all.
    pub qfis: Vec<u8>,
    /// Outer header to remove.
    pub removal: Option<Removal>,
    /// FAR for its packets.
    pub far: FarId,
    /// QERs, all of which apply.
    pub qers: Vec<QerId>,
    /// URRs, all of which count.
    pub urrs: Vec<UrrId>,
    /// Names of activated predefined rules.
    pub predefined: Vec<String>,
}

/// Local F-TEID (clause 8.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTunnel {
    /// Tunnel endpoint identifier.
    pub teid: u32,
    /// Our IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// Our IPv6 address.
    pub v6: Option<Ipv6Addr>,
    /// This UPF allocated the TEID and also frees it.
    pub is_ours: bool,
    /// CHOOSE ID with which it was requested: another PDR of the session with it gets this F-TEID.
    pub choose_id: Option<u8>,
}

/// UE addresses in a network instance (clause 8.2.62).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserAddress {
    /// IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// IPv6 prefix and its length in bits, 64 by default.
    pub v6: Option<(Ipv6Addr, u8)>,
    /// This UPF allocated the addresses from a pool, to which they return.
    pub is_ours: bool,
}

/// Outer Header Removal (clause 8.2.64).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Description: 0 GTP-U/UDP/IPv4, 1 GTP-U/UDP/IPv6, 2 UDP/IPv4, 3 UDP/IPv6, 4 IPv4, 5 IPv6, 6
    /// GTP-U/UDP/IP.
    pub description: u8,
    /// The PDU session container is removed too (octet 6, bit 1).
    pub extension: bool,
}

/// PDI of a request, before any allocation.
#[derive(Clone, Debug)]
pub(crate) struct Pdi {
    pub(crate) source: Source,
    pub(crate) instance: Option<InstanceId>,
    pub(crate) tunnel: Option<ie::FTeid>,
    pub(crate) user: Option<ie::UeIpAddress>,
    /// The F-TEID of an updated PDR stays.
    pub(crate) keeps_tunnel: bool,
    /// The UE address of an updated PDR stays.
    pub(crate) keeps_user: bool,
    framed: Vec<Prefix>,
    filters: Vec<Filter>,
    qfis: Vec<u8>,
}

/// IEs of a PDI that are not supported: they would match other packets than the PDI does without
/// them.
const UNSUPPORTED_IN_PDI: [IeType; 8] = [
    IeType::ETHERNET_PACKET_FILTER,
    IeType::TRAFFIC_ENDPOINT_ID,
    IeType::ETHERNET_PDU_SESSION_INFORMATION,
    IeType::REDUNDANT_TRANSMISSION_DETECTION,
    IeType::IP_MULTICAST_ADDRESSING_INFO,
    IeType::DNS_QUERY_FILTER,
    IeType::MBS_SESSION_IDENTIFIER,
    IeType::AREA_SESSION_ID,
];

/// IEs of a PDR that are not supported: activation and deactivation at a time (the feature DPDRA is
/// not announced), multicast, multi-access, delay reports.
const UNSUPPORTED_IN_PDR: [IeType; 7] = [
    IeType::ACTIVATION_TIME,
    IeType::DEACTIVATION_TIME,
    IeType::PACKET_REPLICATION_AND_DETECTION,
    IeType::IP_MULTICAST_ADDRESSING_INFO,
    IeType::MAR_ID,
    IeType::MPTCP_APPLICABLE_INDICATION,
    IeType::TRANSPORT_DELAY_REPORTING,
];

/// Reads Create PDR, except its PDI.
pub(crate) fn create(group: &Group<'_>) -> Result<Pdr, Refusal> {
    Refusal::any_unsupported(group, &UNSUPPORTED_IN_PDR)?;
    let id = group.need::<ie::PdrId>()?.0;
    let precedence = group.need::<ie::Precedence>()?.0;
    let predefined = names(group, |name: ie::ActivatePredefinedRules<'_>| name.text())?;
    let far = match group.find::<ie::FarId>()? {
        Some(far) => far.0,
        None => return Err(Refusal::of(Cause::CONDITIONAL_IE_MISSING, IeType::FAR_ID)),
    };
    Ok(Pdr {
        id,
        precedence,
        source: Source::Access,
        instance: None,
        tunnel: None,
        user: None,
        framed: Vec::new(),
        filters: Vec::new(),
        qfis: Vec::new(),
        removal: removal(group)?,
        far,
        qers: numbers(group, |it: ie::QerId| it.0)?,
        urrs: numbers(group, |it: ie::UrrId| it.0)?,
        predefined,
    })
}

/// Applies Update PDR, except its PDI. Absent IEs change nothing; a list replaces the earlier list.
pub(crate) fn update(pdr: &mut Pdr, group: &Group<'_>) -> Result<(), Refusal> {
    Refusal::any_unsupported(group, &UNSUPPORTED_IN_PDR)?;
    if let Some(precedence) = group.find::<ie::Precedence>()? {
        pdr.precedence = precedence.0;
    }
    if let Some(far) = group.find::<ie::FarId>()? {
        pdr.far = far.0;
    }
    if let Some(removal) = removal(group)? {
        pdr.removal = Some(removal);
    }
    let (qers, urrs) =
        (numbers(group, |it: ie::QerId| it.0)?, numbers(group, |it: ie::UrrId| it.0)?);
    if !qers.is_empty() {
        pdr.qers = qers;
    }
    if !urrs.is_empty() {
        pdr.urrs = urrs;
    }
    let gone = names(group, |name: ie::DeactivatePredefinedRules<'_>| name.text())?;
    pdr.predefined.retain(|name| !gone.contains(name));
    for name in names(group, |name: ie::ActivatePredefinedRules<'_>| name.text())? {
        if !pdr.predefined.contains(&name) {
            pdr.predefined.push(name);
        }
    }
    Ok(())
}

/// Reads the PDI of a PDR.
pub(crate) fn detection(
    group: &Group<'_>,
    network: &Network,
    failed: FailedRuleId,
) -> Result<Pdi, Refusal> {
    Refusal::any_unsupported(group, &UNSUPPORTED_IN_PDI)?;
    // Several addresses need the feature IP6PL, which is not announced.
    if group.all::<ie::UeIpAddress>().nth(1).is_some() {
        return Err(Refusal::unsupported(IeType::UE_IP_ADDRESS));
    }
    if group.has(IeType::APPLICATION_ID) {
        return Err(Refusal::of(Cause::UNKNOWN_APPLICATION_ID, IeType::APPLICATION_ID));
    }
    let source = match group.need::<ie::SourceInterface>()? {
        ie::SourceInterface::ACCESS => Source::Access,
        ie::SourceInterface::CORE => Source::Core,
        ie::SourceInterface::SGI_LAN => Source::SgiLan,
        ie::SourceInterface::CP_FUNCTION => Source::Control,
        _ => return Err(Refusal::unsupported(IeType::SOURCE_INTERFACE)),
    };
    let instance = network.instance_of(group, failed)?;
    let filters = group.all::<ie::SdfFilter<'_>>();
    Ok(Pdi {
        source,
        instance,
        tunnel: group.find()?,
        user: group.find()?,
        keeps_tunnel: false,
        keeps_user: false,
        framed: framed(group)?,
        filters: filters.map(|it| sdf_filter::read(&it?)).collect::<Result<_, _>>()?,
        qfis: numbers(group, |it: ie::Qfi| it.0)?,
    })
}

impl Pdi {
    /// Completes the PDI of an Update PDR from the PDR as it was (docs/why/0022-partial-pdi.md).
    ///
    /// A PDI that has neither F-TEID nor UE address says only which of the PDR's packets are meant:
    /// what identifies them stays. A PDI for packets from the access network keeps its F-TEID also
    /// if it has a UE address, because without one no packet matches. The SDF filters are always
    /// those of the PDI.
    pub(crate) fn complete(&mut self, before: &Pdr) {
        if self.source != before.source || self.tunnel.is_some() {
            return;
        }
        let is_partial = self.user.is_none();
        self.keeps_tunnel = is_partial || matches!(self.source, Source::Access | Source::Control);
        if !is_partial {
            return;
        }
        self.keeps_user = true;
        self.instance = self.instance.or(before.instance);
        if self.framed.is_empty() {
            self.framed.clone_from(&before.framed);
        }
        if self.qfis.is_empty() {
            self.qfis.clone_from(&before.qfis);
        }
    }

    /// Copies the parts that need no allocation into `pdr`.
    pub(crate) fn fill(self, pdr: &mut Pdr) {
        pdr.source = self.source;
        pdr.instance = self.instance;
        pdr.framed = self.framed;
        pdr.filters = self.filters;
        pdr.qfis = self.qfis;
    }
}

/// Checks that packets can reach a PDR: by its F-TEID, or from the data network by a UE address or
/// framed route of any such PDR of the session in the same network.
pub(crate) fn check_reachable(
    session: &Session,
    pdr: &Pdr,
    network: &Network,
) -> Result<(), Refusal> {
    let missing = |ie| Err(Refusal::rule_by(FailedRuleId::Pdr(pdr.id), ie));
    let is_from_n6 =
        |pdr: &Pdr| pdr.tunnel.is_none() && matches!(pdr.source, Source::Core | Source::SgiLan);
    if pdr.tunnel.is_some() {
        return Ok(());
    }
    if !is_from_n6(pdr) {
        return missing(IeType::F_TEID);
    }
    let domain = |pdr: &Pdr| pdr.instance.and_then(|instance| network.domain(instance));
    let meets = |other: &Pdr| match (domain(pdr), domain(other)) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    };
    let has_address = |pdr: &Pdr| {
        let user = pdr.user.unwrap_or_default();
        user.v4.is_some() || user.v6.is_some() || !pdr.framed.is_empty()
    };
    let mut all = session.pdrs.iter();
    let is_found = all.any(|other| is_from_n6(other) && has_address(other) && meets(other));
    if is_found { Ok(()) } else { missing(IeType::UE_IP_ADDRESS) }
}

/// Returns the length of a UE IPv6 prefix, 64 by default.
pub(crate) const fn prefix_length(address: &ie::UeIpAddress) -> Result<u8, Refusal> {
    match (address.prefix_length, address.prefix_delegation_bits) {
        (Some(length @ 1..=128), _) => Ok(length),
        (None, Some(bits @ 0..=63)) => Ok(64 - bits),
        (None, None) => Ok(64),
        _ => Err(Refusal::incorrect(IeType::UE_IP_ADDRESS)),
    }
}

/// Returns the UE addresses that the control plane chose. Addresses to be allocated are absent.
pub(crate) fn user_address(address: &ie::UeIpAddress) -> Result<UserAddress, Refusal> {
    let length = prefix_length(address)?;
    let network = |address: Ipv6Addr| {
        let kept = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
        (Ipv6Addr::from_bits(address.to_bits() & kept), length)
    };
    let is_no_host = |v4: Ipv4Addr| {
        v4.is_unspecified() || v4.is_broadcast() || v4.is_multicast() || v4.is_loopback()
    };
    if address.v4.is_some_and(is_no_host) {
        return Err(Refusal::incorrect(IeType::UE_IP_ADDRESS));
    }
    Ok(UserAddress { v4: address.v4, v6: address.v6.map(network), is_ours: false })
}

fn removal(group: &Group<'_>) -> Result<Option<Removal>, Refusal> {
    let Some(removal) = group.find::<ie::OuterHeaderRemoval>()? else { return Ok(None) };
    match removal.description {
        0..=6 => {
            let extension = removal.extension_headers & 1 != 0;
            Ok(Some(Removal { description: removal.description, extension }))
        }
        _ => Err(Refusal::unsupported(IeType::OUTER_HEADER_REMOVAL)),
    }
}

/// Reads Framed Route and Framed IPv6 Route (clauses 8.2.110 and 8.2.112). The prefix ends at the
/// first space; gateway and metrics are ignored (RFC 2865 section 5.22).
fn framed(group: &Group<'_>) -> Result<Vec<Prefix>, Refusal> {
    let mut prefixes = Vec::new();
    for route in group.all::<ie::FramedRoute<'_>>() {
        let prefix = route?.text().and_then(|text| prefix(text, false));
        prefixes.push(prefix.ok_or(Refusal::incorrect(IeType::FRAMED_ROUTE))?);
    }
    for route in group.all::<ie::FramedIpv6Route<'_>>() {
        let prefix = route?.text().and_then(|text| prefix(text, true));
        prefixes.push(prefix.ok_or(Refusal::incorrect(IeType::FRAMED_IPV6_ROUTE))?);
    }
    Ok(prefixes)
}

fn prefix(text: &str, is_v6: bool) -> Option<Prefix> {
    let first = text.split_ascii_whitespace().next()?;
    let (address, length) = first.split_once('/').map_or((first, None), |(a, l)| (a, Some(l)));
    let address: IpAddr = address.parse().ok()?;
    let bits = if is_v6 { 128 } else { 32 };
    let length: u8 = length.map_or(Some(bits), |length| length.parse().ok())?;
    let fits = address.is_ipv6() == is_v6 && (1..=bits).contains(&length);
    fits.then(|| Prefix::new(address, length)).flatten()
}

/// Returns the distinct numbers of one IE type.
fn numbers<'a, T: Ie<'a>, N: PartialEq>(
    group: &Group<'a>,
    number: impl Fn(T) -> N,
) -> Result<Vec<N>, Fault> {
    let mut numbers = Vec::new();
    for ie in group.all::<T>() {
        let number = number(ie?);
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    Ok(numbers)
}

/// Returns the distinct names of one IE type.
fn names<'a, T: Ie<'a>>(
    group: &Group<'a>,
    text: impl Fn(T) -> Option<&'a str>,
) -> Result<Vec<String>, Refusal> {
    let unknown = Refusal::of(Cause::UNKNOWN_PRE_DEFINED_RULE, T::TYPE);
    let mut names: Vec<String> = Vec::new();
    for ie in group.all::<T>() {
        let name = text(ie?).ok_or(unknown)?;
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}
