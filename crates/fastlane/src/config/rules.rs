//! Raw steering rules, and their resolution into rules of `fastlane_steer`.

use std::fmt;
use std::net::IpAddr;

use fastlane_steer as steer;
use schemars::JsonSchema;
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// A steering rule. It matches a frame that agrees with every key present.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Rule {
    /// VLAN identifier of the outermost tag (IEEE 802.1Q), 1 to 4094. It restricts rules of the
    /// agent's pools. A rule of a port has none: what is claimed of a VLAN is a rule of a port with
    /// the driver `vlan`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// EtherType of the payload, behind up to two VLAN tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ethertype: Option<Ethertype>,
    /// Protocol in the IPv4 or IPv6 header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_protocol: Option<IpProtocol>,
    /// Prefix of the source address, such as `10.0.0.0/8` or `2001:db8::/32`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Prefix>,
    /// Prefix of the destination address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<Prefix>,
    /// UDP destination port: a number, or a range such as `"5000-5099"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_port: Option<Ports>,
    /// TCP destination port: a number or a range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_port: Option<Ports>,
    /// GTP-U user data (G-PDU): UDP port 2152, version 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gtp_u: Option<bool>,
    /// IP fragments too, the first and the later ones, by address and protocol alone: a fragment
    /// has no port to compare. Without it all fragments go to Linux.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragments: Option<bool>,
}

/// Resolves a list of rules as written into one that is checked.
///
/// # Errors
/// Names the first rule that is wrong.
pub fn resolve(rules: &[Rule]) -> Result<steer::Rules, String> {
    if let Some(index) = rules.iter().position(|rule| rule.gtp_u == Some(false)) {
        return Err(format!("rule {}: gtp-u must be `true` or absent", index + 1));
    }
    steer::Rules::new(rules.iter().map(Rule::resolve).collect()).map_err(|error| error.to_string())
}

/// Resolves the rules of a port as written. Each port has one list: that of its own frames.
///
/// # Errors
/// Names the first rule that is wrong.
pub(crate) fn resolve_of_port(rules: &[Rule]) -> Result<steer::Rules, String> {
    if let Some(index) = rules.iter().position(|rule| rule.vlan.is_some()) {
        return Err(format!(
            "rule {}: vlan is not allowed here; make the VLAN a port, by the driver `vlan`, and \
             write the rule there",
            index + 1
        ));
    }
    resolve(rules)
}

impl From<&steer::Rule> for Rule {
    fn from(rule: &steer::Rule) -> Self {
        Self {
            vlan: rule.vlan,
            ethertype: rule.ethertype.map(Ethertype),
            ip_protocol: rule.protocol.map(IpProtocol),
            source: rule.source.map(Prefix),
            destination: rule.destination.map(Prefix),
            udp_port: rule.udp_port.map(Ports),
            tcp_port: rule.tcp_port.map(Ports),
            gtp_u: rule.gtp_u.then_some(true),
            fragments: rule.fragments.then_some(true),
        }
    }
}

impl Rule {
    fn resolve(&self) -> steer::Rule {
        steer::Rule {
            vlan: self.vlan,
            ethertype: self.ethertype.map(|Ethertype(number)| number),
            protocol: self.ip_protocol.map(|IpProtocol(number)| number),
            source: self.source.map(|Prefix(prefix)| prefix),
            destination: self.destination.map(|Prefix(prefix)| prefix),
            udp_port: self.udp_port.map(|Ports(range)| range),
            tcp_port: self.tcp_port.map(|Ports(range)| range),
            gtp_u: self.gtp_u.unwrap_or(false),
            fragments: self.fragments.unwrap_or(false),
        }
    }
}

/// An EtherType by name or number.
#[derive(Clone, Copy, Debug, JsonSchema)]
#[schemars(with = "NameOrNumber")]
pub struct Ethertype(u16);

/// An IP protocol by name or number.
#[derive(Clone, Copy, Debug, JsonSchema)]
#[schemars(with = "NameOrNumber")]
pub struct IpProtocol(u8);

/// A port or an inclusive range of ports.
#[derive(Clone, Copy, Debug, JsonSchema)]
#[schemars(with = "NameOrNumber")]
pub struct Ports(steer::PortRange);

/// An address prefix.
#[derive(Clone, Copy, Debug, JsonSchema)]
#[schemars(with = "String")]
pub struct Prefix(steer::Prefix);

/// Form of a name or number in the schema.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "the schema is made from it")]
enum NameOrNumber {
    Number(u32),
    Name(String),
}

const ETHERTYPES: [(&str, u16); 3] = [("ipv4", 0x0800), ("ipv6", 0x86dd), ("arp", 0x0806)];
const PROTOCOLS: [(&str, u8); 6] =
    [("icmp", 1), ("tcp", 6), ("udp", 17), ("gre", 47), ("icmpv6", 58), ("sctp", 132)];

/// Visitor that reads a string or a number.
struct LiteralVisitor;

/// String or number that was read.
enum Literal {
    Number(u64),
    Text(String),
}

impl Visitor<'_> for LiteralVisitor {
    type Value = Literal;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a whole number from 0 on, or a string")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Literal, E> {
        Ok(Literal::Number(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Literal, E> {
        Ok(Literal::Text(text.to_owned()))
    }
}

/// Reads one of `names`, a number, or a hexadecimal number in a string (`0x88f7`).
fn named<'de, D, T>(deserializer: D, names: &[(&str, T)], what: &str) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Copy + TryFrom<u64>,
{
    let list = || names.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let refuse = |given: &str| {
        D::Error::custom(format!("{given} is no known {what}; write a number or one of {}", list()))
    };
    match deserializer.deserialize_any(LiteralVisitor)? {
        Literal::Number(number) => T::try_from(number).map_err(|_| refuse(&number.to_string())),
        Literal::Text(text) => {
            let known = names.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
            let number = || u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
            known
                .or_else(|| T::try_from(number()?).ok())
                .ok_or_else(|| refuse(&format!("`{text}`")))
        }
    }
}

impl<'de> Deserialize<'de> for Ethertype {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        named(deserializer, &ETHERTYPES, "ethertype").map(Self)
    }
}

impl<'de> Deserialize<'de> for IpProtocol {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        named(deserializer, &PROTOCOLS, "IP protocol").map(Self)
    }
}

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let refuse = |given: &str| {
            D::Error::custom(format!(
                "{given} is not a port; write 1 to 65535, or a range `5000-5099`"
            ))
        };
        let range = match deserializer.deserialize_any(LiteralVisitor)? {
            Literal::Number(number) => {
                let port = u16::try_from(number).ok().filter(|port| *port > 0);
                port.ok_or_else(|| refuse(&number.to_string()))?.into()
            }
            Literal::Text(text) => {
                let parse = || {
                    let (first, last) = text.split_once('-')?;
                    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
                    Some(steer::PortRange { first, last }).filter(|range| range.first > 0)
                };
                parse().ok_or_else(|| refuse(&format!("`{text}`")))?
            }
        };
        Ok(Self(range))
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (address, length) = address_and_length(&text).ok_or_else(|| {
            D::Error::custom(format!(
                "`{text}` is not a prefix; write `10.0.0.0/8` or `2001:db8::/32`"
            ))
        })?;
        Ok(Self(steer::Prefix { address, length }))
    }
}

/// Splits `10.0.0.1/24`. The length is not checked against the address family.
#[must_use]
pub fn address_and_length(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    Some((address.parse().ok()?, length.parse().ok()?))
}

impl Serialize for Ethertype {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u16(self.0)
    }
}

impl Serialize for IpProtocol {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.0)
    }
}

impl Serialize for Ports {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.first == self.0.last {
            serializer.serialize_u16(self.0.first)
        } else {
            serializer.collect_str(&self.0)
        }
    }
}

impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ports(value: Value) -> Result<steer::PortRange, String> {
        let rule = serde_json::from_value::<Rule>(json!({ "udp-port": value }));
        rule.map_err(|error| error.to_string()).map(|rule| rule.resolve().udp_port.unwrap())
    }

    #[test]
    fn ports_are_numbers_or_ranges() {
        assert_eq!(ports(json!(2152)), Ok(2152.into()));
        assert_eq!(ports(json!("1-65535")), Ok(steer::PortRange { first: 1, last: 65535 }));
        for wrong in [json!(0), json!(65536), json!("0-7"), json!("7"), json!("7-65536")] {
            let message = ports(wrong).unwrap_err();
            assert!(message.contains("is not a port; write 1 to 65535, or a range"), "{message}");
        }
        assert!(ports(json!(-1)).unwrap_err().contains("expected a whole number from 0 on"));
    }
}
