//! SDF filters and flow descriptions: the IPFilterRule of RFC 6733 clause 4.3.1 as TS 29.212 clause
//! 5.4.2 uses it.

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;

use fastlane_pfcp::{IeType, ie};

use super::Refusal;

/// Service data flow filter (clause 8.2.5). All present parts must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// SDF Filter ID, by which other PDRs of the session can refer to it.
    pub id: Option<u32>,
    /// Flow description: the 5-tuple.
    pub flow: Option<FlowDescription>,
    /// Type of service or traffic class: value and mask.
    pub tos: Option<(u8, u8)>,
    /// Security parameter index of IPsec.
    pub spi: Option<u32>,
    /// IPv6 flow label, 20 bits.
    pub flow_label: Option<u32>,
}

/// IP prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Network address; bits beyond the length are zero.
    pub address: IpAddr,
    /// Length in bits.
    pub length: u8,
}

/// Inclusive port ranges; empty matches all ports.
pub type Ports = Vec<(u16, u16)>;

/// Flow description `permit out PROTOCOL from REMOTE to LOCAL`, in downlink direction. For uplink
/// packets source and destination are exchanged (TS 29.244 clause 5.2.1A.2A).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowDescription {
    /// IP protocol; none for `ip`.
    pub protocol: Option<u8>,
    /// Remote prefix, after `from`; none for `any`.
    pub remote: Option<Prefix>,
    /// Remote ports.
    pub remote_ports: Ports,
    /// UE prefix, after `to`; none for `any` and `assigned`. The UE address of the PDR replaces
    /// `assigned`.
    pub local: Option<Prefix>,
    /// UE ports.
    pub local_ports: Ports,
}

impl FlowDescription {
    /// Parses `permit out PROTOCOL from ADDRESS [PORTS] to ADDRESS [PORTS]`.
    ///
    /// PROTOCOL is `ip`, a number, or one of `icmp`, `tcp`, `udp`, `ipv6-icmp` and `sctp`. ADDRESS
    /// is `any`, `assigned`, an IPv4 or IPv6 address, or a prefix; bits beyond the prefix length
    /// are ignored, as in RFC 6733. PORTS are comma-separated numbers and ranges, up to
    /// [`RANGES`](Self::RANGES). `deny`, `in`, `!` and options are refused (TS 29.212 clause
    /// 5.4.2).
    ///
    /// # Errors
    /// Returns the first error, with the correct form.
    pub fn parse(text: &str) -> Result<Self, FlowError> {
        parse(text)
    }

    /// Maximum number of port ranges per side.
    pub const RANGES: usize = 32;
    /// Maximum length of a description in octets.
    pub const LONGEST: usize = 1024;

    /// Returns true if every packet of the UE matches.
    #[must_use]
    pub fn is_any(&self) -> bool {
        *self == Self::default()
    }
}

impl Prefix {
    /// Creates a prefix with the bits beyond `length` cleared. Returns `None` if `length` exceeds
    /// the address size.
    #[must_use]
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(address) => {
                let behind = 32_u32.checked_sub(length.into())?;
                let mask = u32::MAX.checked_shl(behind).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(address) => {
                let behind = 128_u32.checked_sub(length.into())?;
                let mask = u128::MAX.checked_shl(behind).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
        };
        Some(Self { address, length })
    }

    /// Returns true if the prefix is a single address.
    #[must_use]
    pub const fn is_host(&self) -> bool {
        self.length == if self.address.is_ipv4() { 32 } else { 128 }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, length } = self;
        if self.is_host() { write!(to, "{address}") } else { write!(to, "{address}/{length}") }
    }
}

/// Writes the form that [`FlowDescription::parse`] reads.
impl fmt::Display for FlowDescription {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            Some(protocol) => write!(to, "permit out {protocol}")?,
            None => write!(to, "permit out ip")?,
        }
        to.write_str(" from ")?;
        end(to, self.remote, "any", &self.remote_ports)?;
        to.write_str(" to ")?;
        end(to, self.local, "assigned", &self.local_ports)
    }
}

fn end(
    to: &mut fmt::Formatter<'_>,
    prefix: Option<Prefix>,
    any: &str,
    ports: &[(u16, u16)],
) -> fmt::Result {
    match prefix {
        Some(prefix) => write!(to, "{prefix}")?,
        None => to.write_str(any)?,
    }
    for (place, (first, last)) in ports.iter().enumerate() {
        to.write_str(if place == 0 { " " } else { "," })?;
        if first == last { write!(to, "{first}")? } else { write!(to, "{first}-{last}")? }
    }
    Ok(())
}

/// Reads an SDF Filter (clause 8.2.5). One with only an ID refers to another filter.
pub(crate) fn read(filter: &ie::SdfFilter<'_>) -> Result<Filter, Refusal> {
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
pub(crate) fn is_reference(filter: &Filter) -> bool {
    filter.id.is_some() && *filter == Filter { id: filter.id, ..Filter::default() }
}

/// Error of parsing a flow description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// The description is too long.
    #[error(
        "the flow description has {0} octets; the maximum is {most}",
        most = FlowDescription::LONGEST
    )]
    TooLong(usize),
    /// Another word was expected.
    #[error(
        "`{found}` where {expected} is expected in a flow description; for example `permit out ip \
         from any to assigned`"
    )]
    Unexpected {
        /// Word found; `the end` if the text ends.
        found: String,
        /// Expected word.
        expected: &'static str,
    },
    /// An IPFilterRule element that flow descriptions must not contain.
    #[error("`{word}` is not allowed in a flow description (TS 29.212 clause 5.4.2): {instead}")]
    NotAllowed {
        /// Element found.
        word: String,
        /// Replacement for the element.
        instead: &'static str,
    },
    /// Invalid address.
    #[error("`{0}` is no address; write `any`, `assigned`, an address, or one with a length")]
    Address(String),
    /// Invalid ports.
    #[error("`{0}` are no ports; write numbers and ranges, as `80,443,8000-8080`")]
    Ports(String),
    /// Too many port ranges for a lane to match.
    #[error("{0} port ranges; the maximum is {most}", most = FlowDescription::RANGES)]
    TooManyPorts(usize),
    /// The two ends have different address families.
    #[error("one end has an IPv4 address and the other an IPv6 address: no packet has both")]
    Families,
    /// Ports for a protocol that has none.
    #[error(
        "protocol {0} has no ports; name protocol 6, 17, 33, 132 or 136, or leave the ports out"
    )]
    NoPorts(u8),
}

/// Words of the description.
struct Words<'a>(std::iter::Peekable<std::str::SplitAsciiWhitespace<'a>>);

impl<'a> Words<'a> {
    fn expect(&mut self, word: &'static str) -> Result<(), FlowError> {
        match self.0.next() {
            Some(found) if found.eq_ignore_ascii_case(word) => Ok(()),
            found => Err(unexpected(found, word)),
        }
    }

    fn next(&mut self, expected: &'static str) -> Result<&'a str, FlowError> {
        self.0.next().ok_or_else(|| unexpected(None, expected))
    }
}

fn unexpected(found: Option<&str>, expected: &'static str) -> FlowError {
    FlowError::Unexpected { found: found.map_or_else(|| "the end".to_owned(), shown), expected }
}

/// Returns the first 64 characters of a word, for an error message.
fn shown(word: &str) -> String {
    word.chars().take(64).collect()
}

fn parse(text: &str) -> Result<FlowDescription, FlowError> {
    if text.len() > FlowDescription::LONGEST {
        return Err(FlowError::TooLong(text.len()));
    }
    let mut words = Words(text.split_ascii_whitespace().peekable());
    action(&mut words)?;
    let protocol = protocol(words.next("a protocol")?)?;
    words.expect("from")?;
    let (remote, remote_ports) = endpoint(&mut words)?;
    words.expect("to")?;
    let (local, local_ports) = endpoint(&mut words)?;
    if let Some(word) = words.0.next() {
        let instead = "leave options out; type of service, flow label and index have IEs";
        return Err(FlowError::NotAllowed { word: shown(word), instead });
    }
    let families = remote.zip(local).map(|(one, other)| (one.address, other.address));
    if families.is_some_and(|(one, other)| one.is_ipv4() != other.is_ipv4()) {
        return Err(FlowError::Families);
    }
    if let Some(protocol) = protocol.filter(|_| !remote_ports.is_empty() || !local_ports.is_empty())
        && !has_ports(protocol)
    {
        return Err(FlowError::NoPorts(protocol));
    }
    Ok(FlowDescription { protocol, remote, remote_ports, local, local_ports })
}

/// Returns true for TCP, UDP, DCCP, SCTP and UDP-Lite.
const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 33 | 132 | 136)
}

fn action(words: &mut Words<'_>) -> Result<(), FlowError> {
    let not = |word: &str, instead| Err(FlowError::NotAllowed { word: shown(word), instead });
    match words.next("permit")? {
        word if word.eq_ignore_ascii_case("permit") => {}
        word if word.eq_ignore_ascii_case("deny") => {
            return not(word, "a PDR with a FAR that drops does that");
        }
        word => return Err(unexpected(Some(word), "permit")),
    }
    match words.next("out")? {
        word if word.eq_ignore_ascii_case("out") => Ok(()),
        word if word.eq_ignore_ascii_case("in") => {
            not(word, "write `out`; for packets from the user both ends are exchanged")
        }
        word => Err(unexpected(Some(word), "out")),
    }
}

/// Protocols that are known by their names (IANA, "Protocol Numbers"). RFC 6733 has only numbers.
const PROTOCOLS: [(&str, u8); 5] =
    [("icmp", 1), ("tcp", 6), ("udp", 17), ("ipv6-icmp", 58), ("sctp", 132)];

fn protocol(word: &str) -> Result<Option<u8>, FlowError> {
    if word.eq_ignore_ascii_case("ip") {
        return Ok(None);
    }
    if word.starts_with('!') {
        return negated(word);
    }
    let named = PROTOCOLS.iter().find(|(name, _)| word.eq_ignore_ascii_case(name));
    let number = named.map(|(_, number)| *number);
    let number = number.or_else(|| word.parse().ok().filter(|_| is_number(word)));
    number.map(Some).ok_or_else(|| unexpected(Some(word), "a protocol, by number or name,"))
}

fn negated<T>(word: &str) -> Result<T, FlowError> {
    let instead = "`!` is not to be used; another PDR with a lower precedence value takes what is \
                   not meant";
    Err(FlowError::NotAllowed { word: shown(word), instead })
}

/// Returns true if the word consists of digits only. `parse` alone would accept a sign.
fn is_number(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_digit())
}

fn endpoint(words: &mut Words<'_>) -> Result<(Option<Prefix>, Ports), FlowError> {
    let prefix = address(words.next("an address")?)?;
    let is_port = |word: &&str| word.starts_with(|it: char| it.is_ascii_digit() || it == ',');
    let found = match words.0.next_if(is_port) {
        Some(word) => ports(word)?,
        None => Ports::new(),
    };
    Ok((prefix, found))
}

fn address(word: &str) -> Result<Option<Prefix>, FlowError> {
    if word.eq_ignore_ascii_case("any") || word.eq_ignore_ascii_case("assigned") {
        return Ok(None);
    }
    if word.starts_with('!') {
        return negated(word);
    }
    let no_address = || FlowError::Address(shown(word));
    let (address, length) = match word.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (word, None),
    };
    let address: IpAddr = address.parse().map_err(|_| no_address())?;
    let length = match length {
        Some(length) if is_number(length) => length.parse().map_err(|_| no_address())?,
        Some(_) => return Err(no_address()),
        None if address.is_ipv4() => 32,
        None => 128,
    };
    let prefix = Prefix::new(address, length).ok_or_else(no_address)?;
    // `0.0.0.0/0` matches only IPv4 packets, so it is kept.
    Ok(Some(prefix))
}

fn ports(word: &str) -> Result<Ports, FlowError> {
    let no_ports = || FlowError::Ports(shown(word));
    let count = word.split(',').count();
    if count > FlowDescription::RANGES {
        return Err(FlowError::TooManyPorts(count));
    }
    let port =
        |text: &str| text.parse::<u16>().ok().filter(|_| is_number(text)).ok_or_else(no_ports);
    let range = |text: &str| {
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (port(first)?, port(last)?),
            None => (port(text)?, port(text)?),
        };
        if first > last { Err(no_ports()) } else { Ok((first, last)) }
    };
    word.split(',').map(range).collect()
}
