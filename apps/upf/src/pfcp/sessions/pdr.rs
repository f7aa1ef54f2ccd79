//! Packet detection rules (TS 29.244 tables 7.5.2.2-1, 7.5.2.2-2 and 7.5.4.2-1).

use std::net::IpAddr;

use fastlane_pfcp::ie::{self, FailedRuleId};
use fastlane_pfcp::{Cause, Fault, Group, Ie, IeType};

use super::network::Network;
use super::refusal::Refusal;
use crate::session::{
    Filter, FlowDescription, InstanceId, Pdr, Prefix, Removal, Source, UserAddress,
};

/// PDI of a request, before any allocation.
#[derive(Clone, Debug)]
pub(super) struct Pdi {
    pub(super) source: Source,
    pub(super) instance: Option<InstanceId>,
    pub(super) tunnel: Option<ie::FTeid>,
    pub(super) user: Option<ie::UeIpAddress>,
    framed: Vec<Prefix>,
    filters: Vec<Filter>,
    qfis: Vec<u8>,
}

/// IEs of a PDI that are not supported.
const UNSUPPORTED: [IeType; 3] = [
    IeType::ETHERNET_PACKET_FILTER,
    IeType::TRAFFIC_ENDPOINT_ID,
    IeType::ETHERNET_PDU_SESSION_INFORMATION,
];

/// Reads Create PDR, except its PDI.
pub(super) fn create(group: &Group<'_>) -> Result<Pdr, Refusal> {
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
pub(super) fn update(pdr: &mut Pdr, group: &Group<'_>) -> Result<(), Refusal> {
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
pub(super) fn detection(
    group: &Group<'_>,
    network: &Network,
    failed: FailedRuleId,
) -> Result<Pdi, Refusal> {
    if let Some(unsupported) = UNSUPPORTED.into_iter().find(|ie| group.has(*ie)) {
        return Err(Refusal::unsupported(unsupported));
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
    let unknown = Refusal::rule_by(failed, IeType::NETWORK_INSTANCE);
    let name = group.find::<ie::NetworkInstance<'_>>()?;
    let instance = name.map(|name| network.instance(name).ok_or(unknown)).transpose()?;
    let filters = group.all::<ie::SdfFilter<'_>>();
    Ok(Pdi {
        source,
        instance,
        tunnel: group.find()?,
        user: group.find()?,
        framed: framed(group)?,
        filters: filters.map(|it| filter(&it?)).collect::<Result<_, _>>()?,
        qfis: numbers(group, |it: ie::Qfi| it.0)?,
    })
}

impl Pdi {
    /// Copies the parts that need no allocation into `pdr`.
    pub(super) fn fill(self, pdr: &mut Pdr) {
        pdr.source = self.source;
        pdr.instance = self.instance;
        pdr.framed = self.framed;
        pdr.filters = self.filters;
        pdr.qfis = self.qfis;
    }
}

/// Returns the length of a UE IPv6 prefix, 64 by default.
pub(super) const fn prefix_length(address: &ie::UeIpAddress) -> Result<u8, Refusal> {
    match (address.prefix_length, address.prefix_delegation_bits) {
        (Some(length @ 1..=128), _) => Ok(length),
        (None, Some(bits @ 0..=63)) => Ok(64 - bits),
        (None, None) => Ok(64),
        _ => Err(Refusal::incorrect(IeType::UE_IP_ADDRESS)),
    }
}

/// Returns the UE addresses that the control plane chose. Addresses to be allocated are absent.
pub(super) fn user_address(address: &ie::UeIpAddress) -> Result<UserAddress, Refusal> {
    let length = prefix_length(address)?;
    let network = |address: std::net::Ipv6Addr| {
        let kept = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
        (std::net::Ipv6Addr::from_bits(address.to_bits() & kept), length)
    };
    let is_no_host = |v4: std::net::Ipv4Addr| {
        v4.is_unspecified() || v4.is_broadcast() || v4.is_multicast() || v4.is_loopback()
    };
    if address.v4.is_some_and(is_no_host) {
        return Err(Refusal::incorrect(IeType::UE_IP_ADDRESS));
    }
    Ok(UserAddress { v4: address.v4, v6: address.v6.map(network), is_ours: false })
}

/// Reads an SDF Filter (clause 8.2.5). One with only an ID refers to another filter.
fn filter(filter: &ie::SdfFilter<'_>) -> Result<Filter, Refusal> {
    let wrong = Refusal::incorrect(IeType::SDF_FILTER);
    let description = |bytes| {
        let text = std::str::from_utf8(bytes).ok()?;
        FlowDescription::parse(text).ok()
    };
    let flow = filter.flow_description.map(|bytes| description(bytes).ok_or(wrong)).transpose()?;
    let filter = Filter {
        id: filter.filter_id,
        flow,
        tos: filter.tos_traffic_class.map(|[value, mask]| (value, mask)),
        spi: filter.security_parameter_index,
        flow_label: filter.flow_label.map(|label| label & 0xF_FFFF),
    };
    if filter == Filter::default() { Err(wrong) } else { Ok(filter) }
}

/// Returns true if the filter consists of its ID only.
pub(super) fn is_reference(filter: &Filter) -> bool {
    filter.id.is_some() && *filter == Filter { id: filter.id, ..Filter::default() }
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
