//! Text form of access lists.
//!
//! ```text
//! default drop
//! 10 permit udp from 10.0.0.0/8 to any port 53
//! 20 permit tcp to 192.0.2.0/24 port 8000-8999
//! 30 drop ipv6 from 2001:db8::/32
//! 40 police 10mbit 32000 excess 64000 udp to any port 53
//! ```
//! A meter is a rate and a burst in octets, then `excess` and a burst (RFC 2697), or `peak`, a rate
//! and a burst (RFC 2698). `aware` makes it consider the DSCP of packets.

use std::fmt::{self, Write};
use std::net::IpAddr;

use fastlane::table::MeterProfile;

use super::meter_text::{read_meter, write_meter};
use super::{MeterId, Rule, RuleSet, bits, word};

/// Line of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// Action for packets that match no rule.
    Default(u8),
    /// A rule.
    Rule(Rule),
}

/// Protocols with names; those with ports come first.
const PROTOCOLS: [(&str, u8); 5] =
    [("tcp", 6), ("udp", 17), ("sctp", 132), ("icmp", 1), ("icmpv6", 58)];
const WITH_PORTS: usize = 3;

const EVERYTHING: [u16; 2] = [0, u16::MAX];

/// Parses a list. Empty lines and text after `#` are ignored.
///
/// # Errors
/// The line, what is wrong with it, and what is right.
pub fn read(text: &str) -> Result<Vec<Line>, String> {
    let lines = text.lines().enumerate().filter_map(|(number, line)| {
        let line = line.split('#').next().unwrap_or("").trim();
        (!line.is_empty()).then(|| {
            read_line(line).map_err(|error| format!("line {}: `{line}`: {error}", number + 1))
        })
    });
    lines.collect()
}

/// Parses a list for a router that has none yet: its rules have no counters.
///
/// # Errors
/// As [`read`], or when two rules have one priority.
pub fn rule_set(text: &str) -> Result<RuleSet, String> {
    let (mut set, mut rules) = (RuleSet::default(), Vec::new());
    for line in read(text)? {
        match line {
            Line::Default(action) => set.default = action,
            Line::Rule(rule) => rules.push(rule),
        }
    }
    set.set_rules(rules)?;
    Ok(set)
}

/// Parses one line.
///
/// # Errors
/// What is wrong with it, and what is right.
pub fn read_line(line: &str) -> Result<Line, String> {
    let mut words = line.split_whitespace();
    const FIRST: &str = "a rule begins with its priority, a number";
    let first = words.next().ok_or(FIRST)?;
    let priority = first.parse();
    if priority.is_err() && first != "default" {
        return Err(FIRST.to_owned());
    }
    let action =
        words.next().and_then(action).ok_or("write `permit`, `drop` or `police` second")?;
    if first == "default" {
        if action == word::POLICE {
            return Err("the default permits or drops; write a last rule that polices".to_owned());
        }
        return match words.next() {
            None => Ok(Line::Default(action)),
            Some(word) => Err(format!("nothing follows, not `{word}`")),
        };
    }
    let mut rule = Rule {
        source: [0; 16],
        source_mask: [0; 16],
        destination: [0; 16],
        destination_mask: [0; 16],
        source_ports: EVERYTHING,
        destination_ports: EVERYTHING,
        priority: priority.map_err(|_| FIRST)?,
        counter: 0,
        before: [0; 2],
        family: word::ANY,
        protocol: 0,
        has_protocol: 0,
        action,
        is_aware: 0,
        reserved: [0; 3],
        profile: MeterProfile::default(),
        meter: MeterId::default(),
    };
    let words: Vec<&str> = words.collect();
    let mut rest = &words[..];
    if action == word::POLICE {
        (rule.profile, rule.is_aware, rest) = read_meter(rest)?;
    }
    conditions(&mut rule, rest)?;
    Ok(Line::Rule(rule))
}

fn action(word: &str) -> Option<u8> {
    match word {
        "permit" => Some(word::PERMIT),
        "drop" => Some(word::DROP),
        "police" => Some(word::POLICE),
        _ => None,
    }
}

fn conditions(rule: &mut Rule, mut words: &[&str]) -> Result<(), String> {
    let mut addresses: Option<bool> = None;
    let mut parts = Vec::new();
    let mut once = |part: &'static str| match parts.contains(&part) {
        true => Err(format!("it says {part} twice; write two rules")),
        false => {
            parts.push(part);
            Ok(())
        }
    };
    while let [word, rest @ ..] = words {
        words = rest;
        match *word {
            "ipv4" => family(rule, word::IPV4)?,
            "ipv6" => family(rule, word::IPV6)?,
            "from" | "to" => {
                let Some((prefix, rest)) = rest.split_first() else {
                    return Err(format!("a prefix or `any` follows `{word}`"));
                };
                words = rest;
                addresses = Some(*word == "to");
                once(if *word == "to" { "`to`" } else { "`from`" })?;
                side(rule, *word == "to", prefix)?;
            }
            "port" => {
                let Some((ports, rest)) = rest.split_first() else {
                    return Err("a port or a range follows `port`, as in 8000-8999".to_owned());
                };
                words = rest;
                let to = addresses.ok_or("write `from` or `to` before `port`, as in `to any`")?;
                let range = range(ports)?;
                once(if to { "the port of `to`" } else { "the port of `from`" })?;
                let ranges = if to { &mut rule.destination_ports } else { &mut rule.source_ports };
                *ranges = range;
            }
            word => {
                protocol(rule, word)?;
                once("the protocol")?;
            }
        }
    }
    let has_ports = PROTOCOLS[..WITH_PORTS].iter().any(|(_, number)| *number == rule.protocol);
    if rule.asks_for_ports() && !(rule.has_protocol == 1 && has_ports) {
        return Err("ports belong to a protocol: write `tcp`, `udp` or `sctp`".to_owned());
    }
    Ok(())
}

fn family(rule: &mut Rule, family: u8) -> Result<(), String> {
    if rule.family != word::ANY && rule.family != family {
        return Err("it speaks of IPv4 and of IPv6; write two rules".to_owned());
    }
    rule.family = family;
    Ok(())
}

fn protocol(rule: &mut Rule, word: &str) -> Result<(), String> {
    let named = PROTOCOLS.iter().find(|(name, _)| *name == word).map(|(_, number)| *number);
    let number = named.or_else(|| word.parse().ok());
    rule.protocol = number.ok_or_else(|| {
        format!("`{word}` means nothing; write a protocol, `from`, `to`, `port`, `ipv4` or `ipv6`")
    })?;
    rule.has_protocol = 1;
    Ok(())
}

fn side(rule: &mut Rule, to: bool, prefix: &str) -> Result<(), String> {
    if prefix == "any" {
        return Ok(());
    }
    let wrong = || format!("`{prefix}` is no prefix; write `10.0.0.0/8`, an address or `any`");
    let (address, length) = match prefix.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (prefix, None),
    };
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let length = length.map_or(Ok(longest), |length| length.parse::<u32>().map_err(|_| wrong()))?;
    if length > longest {
        return Err(wrong());
    }
    family(rule, if address.is_ipv4() { word::IPV4 } else { word::IPV6 })?;
    let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
    let bits = bits(address);
    if bits & !mask != 0 {
        return Err(format!("`{prefix}` has bits behind its length; they must be zeroes"));
    }
    let (bits, mask) = (bits.to_be_bytes(), mask.to_be_bytes());
    match to {
        true => (rule.destination, rule.destination_mask) = (bits, mask),
        false => (rule.source, rule.source_mask) = (bits, mask),
    }
    Ok(())
}

fn range(text: &str) -> Result<[u16; 2], String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok([first, last]),
        _ => Err(format!("`{text}` is no port and no range; write 53 or 8000-8999")),
    }
}

/// Formats a rule so that [`read_line`] parses it.
#[must_use]
pub fn write_rule(rule: &Rule) -> String {
    let mut line = format!("{} {}", rule.priority, action_name(rule.action));
    let mut add = |text: fmt::Arguments<'_>| {
        let _ = write!(line, " {text}"); // a string takes everything
    };
    if rule.action == word::POLICE {
        add(format_args!("{}", write_meter(&rule.profile, rule.is_aware == 1)));
    }
    let masks = [rule.source_mask, rule.destination_mask];
    if masks == [[0; 16]; 2] && rule.family != word::ANY {
        add(format_args!("ipv{}", rule.family));
    }
    if rule.has_protocol == 1 {
        match PROTOCOLS.iter().find(|(_, number)| *number == rule.protocol) {
            Some((name, _)) => add(format_args!("{name}")),
            None => add(format_args!("{}", rule.protocol)),
        }
    }
    let sides = [
        ("from", rule.source, rule.source_mask, rule.source_ports),
        ("to", rule.destination, rule.destination_mask, rule.destination_ports),
    ];
    for (word, address, mask, ports) in sides {
        if mask != [0; 16] {
            add(format_args!("{word} {}", prefix(rule.family, address, mask)));
        } else if ports != EVERYTHING {
            add(format_args!("{word} any"));
        }
        match ports {
            EVERYTHING => {}
            [first, last] if first == last => add(format_args!("port {first}")),
            [first, last] => add(format_args!("port {first}-{last}")),
        }
    }
    line
}

/// Formats the action for packets that match no rule.
#[must_use]
pub fn write_default(rules: &RuleSet) -> String {
    format!("default {}", action_name(rules.default))
}

fn action_name(action: u8) -> &'static str {
    match action {
        word::DROP => "drop",
        word::POLICE => "police",
        _ => "permit",
    }
}

fn prefix(family: u8, address: [u8; 16], mask: [u8; 16]) -> String {
    let (bits, length) = (u128::from_be_bytes(address), u128::from_be_bytes(mask).leading_ones());
    match family {
        word::IPV4 => {
            format!("{}/{length}", std::net::Ipv4Addr::from_bits((bits >> 96) as u32))
        }
        _ => format!("{}/{length}", std::net::Ipv6Addr::from_bits(bits)),
    }
}
