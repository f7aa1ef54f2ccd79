//! Rules of an author: [`Rule`], and [`Rules`], the list that is checked once when it is created.

use std::{fmt, net::IpAddr};

use thiserror::Error;

mod containment;
mod matcher;
mod plain_ipv4;

use matcher::{FrameKey, RuleMatcher};
use plain_ipv4::{PlainIpv4, PlainRule};

/// Maximum number of rules in a list: the size of the table that the eBPF programs scan per frame.
pub const MAX_RULES: usize = 64;

/// EtherType of IPv4 (IEEE 802 numbers).
pub(crate) const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub(crate) const IPV6: u16 = 0x86dd;
/// EtherType of IEEE 802.1Q tags.
pub(crate) const TAG: u16 = 0x8100;
/// EtherTypes of VLAN tags: IEEE 802.1Q and 802.1ad.
pub(crate) const VLAN: [u16; 2] = [TAG, 0x88a8];
/// Bits of the VLAN identifier in a tag, and the greatest one (IEEE 802.1Q 9.6).
pub(crate) const VLAN_BITS: u16 = 0x0fff;
const MAX_VLAN: u16 = 4094;
/// Minimum EtherType; a lower value is an IEEE 802.3 length.
const ETHERTYPE_MIN: u16 = 0x0600;
/// IP protocol numbers (IANA).
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
/// UDP port of GTP-U (3GPP TS 29.281 4.4.2).
pub(crate) const GTP_U_PORT: u16 = 2152;

/// Fields that can be known of a frame: the `KNOWS_*` bits of `bpf/steer.bpf.c`.
mod knows {
    pub(super) const IPV4: u32 = 1;
    pub(super) const IPV6: u32 = 1 << 1;
    pub(super) const PROTOCOL: u32 = 1 << 2;
    pub(super) const UDP: u32 = 1 << 3;
    pub(super) const TCP: u32 = 1 << 4;
    pub(super) const GTP_U: u32 = 1 << 5;
}

/// Conjunction of conditions: every field that is set must match.
///
/// Up to two VLAN tags are skipped, so `ethertype` is the one after them. The outermost tag decides
/// which rules of a list are compared at all, see [`vlan`](Rule::vlan).
///
/// # Examples
/// ```
/// use fastlane_steer::{Rule, Rules};
///
/// let gtp = Rule { gtp_u: true, ..Rule::default() };
/// let dns = Rule { udp_port: Some(53.into()), ..Rule::default() };
/// let rules = Rules::new(vec![gtp, dns])?;
/// assert!(!rules.matches(&[0; 60]));
/// # Ok::<(), fastlane_steer::RuleError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// VLAN identifier of the outermost tag, which is an IEEE 802.1Q tag. Frames of a VLAN that a
    /// rule of the list names are compared with the rules that name it only. All other frames,
    /// tagged or not, are compared with the rules that name none; without such rules they are
    /// claimed.
    pub vlan: Option<u16>,
    /// EtherType after the VLAN tags, in host byte order. Only needs Ethernet in the frame.
    pub ethertype: Option<u16>,
    /// IP protocol; for IPv6 the next header after the extension headers.
    pub protocol: Option<u8>,
    /// Prefix of the IP source address.
    pub source: Option<Prefix>,
    /// Prefix of the IP destination address.
    pub destination: Option<Prefix>,
    /// UDP destination port.
    pub udp_port: Option<PortRange>,
    /// TCP destination port.
    pub tcp_port: Option<PortRange>,
    /// GTP-U: UDP destination port 2152, GTP version 1, protocol type 1 (3GPP TS 29.281 5.1).
    pub gtp_u: bool,
    /// IP fragments too, the first and the later ones. They match by the fields that every fragment
    /// has: EtherType, addresses, and the protocol that the rule names or implies. Ports and the
    /// GTP-U header are not compared.
    pub fragments: bool,
}

/// IP prefix. The bits of `address` after `length` must be zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Network address.
    pub address: IpAddr,
    /// Number of bits that must match: 0 to 32 for IPv4, 0 to 128 for IPv6.
    pub length: u8,
}

/// Range of ports from `first` to `last`, both included, in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// Lowest port that matches.
    pub first: u16,
    /// Highest port that matches.
    pub last: u16,
}

/// Fault of a rule. Fields are named as in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RuleFault {
    /// Rule without any field.
    #[error("names no field; to take every frame, give no rules at all")]
    Empty,
    /// Number that no VLAN has.
    #[error("vlan {0} is not allowed; write 1 to {MAX_VLAN}")]
    NoVlan(u16),
    /// EtherType that is an IEEE 802.3 length.
    #[error("ethertype {0:#06x} is a length, not a type: the smallest type is 0x0600")]
    EthertypeIsLength(u16),
    /// EtherType of a VLAN tag.
    #[error("ethertype {0:#06x} is a VLAN tag, which rules skip: name the type after it")]
    EthertypeIsVlan(u16),
    /// Two fields that no frame can match together.
    #[error("{0} and {1} contradict each other: no frame has both")]
    Contradiction(Field, Field),
    /// Prefix longer than its address.
    #[error("{field} prefix {prefix}: the length is at most {most}")]
    PrefixTooLong {
        /// Field of the prefix.
        field: Field,
        /// Prefix as configured.
        prefix: Prefix,
        /// Number of bits of such an address.
        most: u8,
    },
    /// Prefix whose address has bits set after its length.
    #[error("{field} prefix {prefix} has host bits set: write {network}")]
    HostBits {
        /// Field of the prefix.
        field: Field,
        /// Prefix as configured.
        prefix: Prefix,
        /// The same prefix without these bits.
        network: Prefix,
    },
    /// Range whose first port is greater than its last.
    #[error("{field} range {range} is upside down: write the lower port first")]
    RangeUpsideDown {
        /// Field of the range.
        field: Field,
        /// Range as configured.
        range: PortRange,
    },
}

/// Field of a rule, displayed by its name in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Field [`Rule::ethertype`].
    Ethertype,
    /// Field [`Rule::protocol`].
    Protocol,
    /// Field [`Rule::source`].
    Source,
    /// Field [`Rule::destination`].
    Destination,
    /// Field [`Rule::udp_port`].
    UdpPort,
    /// Field [`Rule::tcp_port`].
    TcpPort,
    /// Field [`Rule::gtp_u`].
    GtpU,
    /// Field [`Rule::fragments`].
    Fragments,
}

impl Rule {
    pub(crate) fn has_prefix(&self) -> bool {
        self.source.is_some() || self.destination.is_some()
    }

    /// Returns the range of UDP or TCP ports, or all ports without a condition on them.
    pub(crate) fn ports(&self) -> PortRange {
        let all = PortRange { first: 0, last: u16::MAX };
        self.udp_port.or(self.tcp_port).unwrap_or(all)
    }

    /// Returns the IP protocol that the rule names or implies.
    pub(crate) fn ip_protocol(&self) -> Option<u8> {
        let is_udp = self.udp_port.is_some() || self.gtp_u;
        let implied = is_udp.then_some(UDP).or(self.tcp_port.map(|_| TCP));
        self.protocol.or(implied)
    }

    /// Returns the fields that must be known of a frame before the rule can match.
    pub(crate) fn needs(&self) -> u32 {
        let prefixes = [self.source, self.destination];
        let has = |v4| prefixes.iter().flatten().any(|prefix| prefix.address.is_ipv4() == v4);
        let bits = [
            (has(true), knows::IPV4),
            (has(false), knows::IPV6),
            (self.protocol.is_some(), knows::PROTOCOL),
            (self.udp_port.is_some(), knows::UDP),
            (self.tcp_port.is_some(), knows::TCP),
            (self.gtp_u, knows::GTP_U),
        ];
        bits.into_iter().filter(|(is_needed, _)| *is_needed).map(|(_, bit)| bit).sum()
    }

    /// Checks the rule by itself.
    pub(crate) fn check(&self) -> Result<(), RuleFault> {
        if (Rule { fragments: false, ..self.clone() }) == Rule::default() {
            return Err(RuleFault::Empty);
        }
        if let Some(vlan) = self.vlan.filter(|vlan| !(1..=MAX_VLAN).contains(vlan)) {
            return Err(RuleFault::NoVlan(vlan));
        }
        if let Some(ethertype) = self.ethertype {
            if ethertype < ETHERTYPE_MIN {
                return Err(RuleFault::EthertypeIsLength(ethertype));
            }
            if VLAN.contains(&ethertype) {
                return Err(RuleFault::EthertypeIsVlan(ethertype));
            }
        }
        for (field, prefix) in
            [(Field::Source, self.source), (Field::Destination, self.destination)]
        {
            prefix.map_or(Ok(()), |prefix| prefix.check(field))?;
        }
        for (field, range) in [(Field::UdpPort, self.udp_port), (Field::TcpPort, self.tcp_port)] {
            if let Some(range) = range.filter(|range| range.first > range.last) {
                return Err(RuleFault::RangeUpsideDown { field, range });
            }
        }
        self.check_network()?;
        self.check_transport()
    }

    /// Checks that the fields that imply an IP version agree on it.
    fn check_network(&self) -> Result<(), RuleFault> {
        let mut fixed: Option<(Field, u16)> = None;
        for (field, ethertype) in [
            (Field::Ethertype, self.ethertype),
            (Field::Source, self.source.map(Prefix::ethertype)),
            (Field::Destination, self.destination.map(Prefix::ethertype)),
        ] {
            match (fixed, ethertype) {
                (Some((other, is)), Some(wanted)) if is != wanted => {
                    return Err(RuleFault::Contradiction(other, field));
                }
                (None, Some(wanted)) => fixed = Some((field, wanted)),
                _ => {}
            }
        }
        let not_ip = self.ethertype.is_some_and(|ethertype| ![IPV4, IPV6].contains(&ethertype));
        match self.transport_fields().next() {
            Some(field) if not_ip => Err(RuleFault::Contradiction(Field::Ethertype, field)),
            None if not_ip && self.fragments => {
                Err(RuleFault::Contradiction(Field::Ethertype, Field::Fragments))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the fields that imply an IP protocol agree on it; GTP-U also implies the port.
    fn check_transport(&self) -> Result<(), RuleFault> {
        let protocol_of = |field| match field {
            Field::TcpPort => TCP,
            Field::Protocol => self.protocol.unwrap_or_default(),
            _ => UDP,
        };
        let mut fields = self.transport_fields();
        if let Some(first) = fields.next()
            && let Some(other) = fields.find(|&field| protocol_of(field) != protocol_of(first))
        {
            return Err(RuleFault::Contradiction(first, other));
        }
        match self.udp_port {
            Some(range) if self.gtp_u && !range.contains(GTP_U_PORT) => {
                Err(RuleFault::Contradiction(Field::UdpPort, Field::GtpU))
            }
            _ => Ok(()),
        }
    }

    /// Returns the fields in use that imply an IP protocol.
    fn transport_fields(&self) -> impl Iterator<Item = Field> {
        [
            (Field::Protocol, self.protocol.is_some()),
            (Field::UdpPort, self.udp_port.is_some()),
            (Field::TcpPort, self.tcp_port.is_some()),
            (Field::GtpU, self.gtp_u),
        ]
        .into_iter()
        .filter_map(|(field, given)| given.then_some(field))
    }
}

impl Prefix {
    /// Returns the network mask in network byte order; IPv4 uses the first four octets.
    pub(crate) fn mask(self) -> [u8; 16] {
        let ones = u128::MAX.checked_shl(128 - u32::from(self.length.min(128))).unwrap_or(0);
        ones.to_be_bytes()
    }

    /// Returns the address in network byte order; IPv4 uses the first four octets.
    pub(crate) fn octets(self) -> [u8; 16] {
        let mut octets = [0; 16];
        match self.address {
            IpAddr::V4(address) => octets[..4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => octets = address.octets(),
        }
        octets
    }

    fn ethertype(self) -> u16 {
        if self.address.is_ipv4() { IPV4 } else { IPV6 }
    }

    fn check(self, field: Field) -> Result<(), RuleFault> {
        let most = if self.address.is_ipv4() { 32 } else { 128 };
        if self.length > most {
            return Err(RuleFault::PrefixTooLong { field, prefix: self, most });
        }
        let (mask, mut octets) = (self.mask(), self.octets());
        octets.iter_mut().zip(mask).for_each(|(octet, mask)| *octet &= mask);
        if octets == self.octets() {
            return Ok(());
        }
        let address = match self.address {
            IpAddr::V4(_) => IpAddr::from([octets[0], octets[1], octets[2], octets[3]]),
            IpAddr::V6(_) => IpAddr::from(octets),
        };
        let network = Prefix { address, length: self.length };
        Err(RuleFault::HostBits { field, prefix: self, network })
    }
}

impl PortRange {
    /// Returns true if `port` is in the range.
    pub fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

impl From<u16> for PortRange {
    fn from(port: u16) -> PortRange {
        PortRange { first: port, last: port }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.length)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(formatter, "{}", self.first),
            false => write!(formatter, "{}-{}", self.first, self.last),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Field::Ethertype => "ethertype",
            Field::Protocol => "protocol",
            Field::Source => "source",
            Field::Destination => "destination",
            Field::UdpPort => "udp-port",
            Field::TcpPort => "tcp-port",
            Field::GtpU => "gtp-u",
            Field::Fragments => "fragments",
        })
    }
}

/// Checked list of at most [`MAX_RULES`] rules. A frame is claimed if any rule matches; the empty
/// list claims everything. Rules of VLANs are lists of their own, see [`Rule::vlan`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    rules: Vec<Rule>,
    /// Rules prepared for comparison, in the same order.
    matchers: Vec<RuleMatcher>,
    /// Rules that a plain IPv4 frame can match, prepared for it.
    plain: Vec<PlainRule>,
    /// True if all rules are of VLANs, so that every other frame is claimed.
    claims_others: bool,
}

/// Reason why a list of rules was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RuleError {
    /// List longer than [`MAX_RULES`].
    #[error(
        "{count} rules are given, at most {MAX_RULES} are possible: join some by a prefix or a \
         port range"
    )]
    TooMany {
        /// Number of rules in the list.
        count: usize,
    },
    /// Rule that cannot match any frame.
    #[error("rule {}: {fault}", index + 1)]
    Rule {
        /// Index in the list, from 0 (the message counts from 1).
        index: usize,
        /// Fault of the rule.
        fault: RuleFault,
    },
}

impl Rules {
    /// Checks the rules and creates the list.
    ///
    /// # Errors
    /// Returns [`RuleError`] if the list is too long, or a rule is empty, malformed or cannot match
    /// any frame.
    pub fn new(mut rules: Vec<Rule>) -> Result<Rules, RuleError> {
        if rules.len() > MAX_RULES {
            return Err(RuleError::TooMany { count: rules.len() });
        }
        for (index, rule) in rules.iter().enumerate() {
            rule.check().map_err(|fault| RuleError::Rule { index, fault })?;
        }
        rules.sort_by_key(|rule| rule.vlan.is_none());
        let matchers = rules.iter().map(RuleMatcher::new).collect();
        let plain = rules.iter().filter_map(PlainRule::new).collect();
        let claims_others = !rules.is_empty() && rules.iter().all(|rule| rule.vlan.is_some());
        Ok(Rules { rules, matchers, plain, claims_others })
    }

    /// Returns the list for a device that carries VLANs, each with an identifier and a list of its
    /// own. Frames of these VLANs are claimed by their lists, all others by this one.
    ///
    /// # Errors
    /// Returns [`RuleError`] if they are too many together, or an identifier is not allowed.
    ///
    /// # Examples
    /// ```
    /// use fastlane_steer::{Rule, Rules};
    ///
    /// let arp = Rules::new(vec![Rule { ethertype: Some(0x0806), ..Rule::default() }])?;
    /// let rules = Rules::default().with_vlans(&[(100, &arp)])?;
    /// let mut frame = [0; 60];
    /// assert!(rules.matches(&frame));
    /// frame[12..18].copy_from_slice(&[0x81, 0x00, 0, 100, 0x08, 0x00]);
    /// assert!(!rules.matches(&frame));
    /// frame[16..18].copy_from_slice(&[0x08, 0x06]);
    /// assert!(rules.matches(&frame));
    /// # Ok::<(), fastlane_steer::RuleError>(())
    /// ```
    pub fn with_vlans(&self, vlans: &[(u16, &Rules)]) -> Result<Rules, RuleError> {
        if self.is_empty() && vlans.iter().all(|(_, rules)| rules.is_empty()) {
            return Ok(Rules::default());
        }
        let mut rules = self.rules.clone();
        for (vlan, list) in vlans {
            let everything = [Rule { fragments: true, ..Rule::default() }];
            let list = if list.is_empty() { &everything } else { list.as_slice() };
            let of_vlan = |rule: &Rule| Rule { vlan: Some(*vlan), ..rule.clone() };
            rules.extend(list.iter().map(of_vlan));
        }
        Rules::new(rules)
    }

    /// Returns the rules: those of VLANs first, otherwise in the order given.
    pub fn as_slice(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns true if there are no rules, so that every frame is claimed.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns true if the frame is claimed for the fast path. `frame` begins at the Ethernet
    /// header, including its VLAN tags.
    ///
    /// Without rules every frame is claimed, runts too. With rules:
    /// * A frame that cannot be read far enough for a rule does not match it. A rule on the
    ///   EtherType needs Ethernet only, a prefix the fixed IP header, a port the whole fixed UDP or
    ///   TCP header, GTP-U its eight mandatory octets. The end of the frame limits the reading; the
    ///   application must check the length fields of headers.
    /// * An IP fragment, also the first one, matches only rules with
    ///   [`fragments`](Rule::fragments), without regard to ports. Only the first one carries them,
    ///   so otherwise all go to Linux, which can only reassemble complete datagrams. An IPv6 packet
    ///   with a fragment header is a fragment, even an atomic one (RFC 6946). Its protocol is the
    ///   next header of the fragment header.
    ///
    /// Neither allocates nor panics. A frame of IPv4 without VLAN tags, options and fragmentation
    /// takes about 45 instructions with one rule, any other about 100 more.
    ///
    /// # Examples
    /// ```
    /// use fastlane_steer::{Rule, Rules};
    ///
    /// let rules = Rules::new(vec![Rule { ethertype: Some(0x0806), ..Rule::default() }])?;
    /// let mut frame = [0; 60];
    /// assert!(!rules.matches(&frame));
    /// frame[12..14].copy_from_slice(&[0x08, 0x06]); // ARP
    /// assert!(rules.matches(&frame));
    /// # Ok::<(), fastlane_steer::RuleError>(())
    /// ```
    #[inline]
    pub fn matches(&self, frame: &[u8]) -> bool {
        if self.is_empty() {
            return true;
        }
        match PlainIpv4::read(frame) {
            Some(frame) => self.plain.iter().any(|rule| rule.matches(&frame)) || self.claims_others,
            None => self.matches_any(frame),
        }
    }

    /// Returns true if the reference matcher claims the frame. Correct for all frames.
    fn matches_any(&self, frame: &[u8]) -> bool {
        if self.is_empty() {
            return true;
        }
        let key = FrameKey::read(frame);
        let mut is_named = false;
        for matcher in &self.matchers {
            match matcher.vlan {
                Some(vlan) if vlan != key.vlan => continue,
                Some(_) => is_named = true,
                None if is_named => return false, // those of VLANs come first
                None => {}
            }
            if matcher.matches(&key) {
                return true;
            }
        }
        self.claims_others && !is_named
    }
}

#[cfg(test)]
mod tests;
