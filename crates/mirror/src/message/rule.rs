//! Routing rules, which select the table for a packet: `struct fib_rule_hdr` and `FRA_*` of
//! `linux/fib_rules.h`.

use super::{Malformed, is_ip, malformed};
use fastlane_netlink::{attributes, number};

/// `FR_ACT_TO_TBL`: look up in a table.
const TO_TABLE: u8 = 1;
/// `FIB_RULE_INVERT`: applies to packets that do not match.
const INVERT: u32 = 2;

/// Attributes `FRA_*`.
const PRIORITY: u16 = 6;
const SUPPRESS_LENGTH: u16 = 14;
const TABLE: u16 = 15;
const PADDING: u16 = 18;
const MASTER_DEVICE: u16 = 19;
const PROTOCOL: u16 = 21;
/// Attributes whose conditions hold for lookups of XDP programs too: `FRA_DST`, `FRA_SRC`,
/// `FRA_IIFNAME`, `FRA_GOTO`, `FRA_FLOW`, `FRA_SUPPRESS_IFGROUP`, `FRA_OIFNAME`, `FRA_IP_PROTO`,
/// `FRA_SPORT_RANGE`, `FRA_DPORT_RANGE` and the masks of the last two. Not so `FRA_FWMARK`,
/// `FRA_TUN_ID`, `FRA_UID_RANGE`, `FRA_DSCP` and `FRA_FLOWLABEL`.
const OF_LOOKUP: [u16; 12] = [1, 2, 3, 4, 11, 13, 17, 22, 23, 24, 28, 29];

/// A routing rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// True for IPv6.
    pub ipv6: bool,
    /// Priority; the rule with the lowest is evaluated first.
    pub priority: u32,
    /// Number of the routing table; 0 for other actions.
    pub table: u32,
    /// True if the rule matches all packets.
    pub plain: bool,
    /// True if the rule sends packets of VRF interfaces to the table of the VRF.
    pub vrf: bool,
    /// True if the rule asks for more than the route lookup of an XDP program knows of a packet:
    /// its mark, type of service, user or tunnel (`bpf_fib_lookup` in `net/core/filter.c`).
    pub is_beyond_lookup: bool,
}

/// Parses a rule; `None` for families other than IP. Any unknown attribute clears `plain`, because
/// it may restrict the rule.
pub(super) fn read(body: &[u8]) -> Result<Option<Rule>, Malformed> {
    let wrong = malformed("a rule");
    let (header, rest) = body.split_first_chunk::<12>().ok_or(wrong)?;
    let [family, to, from, service, table, _, _, action, ..] = *header;
    if !is_ip(family) {
        return Ok(None);
    }
    let flags = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
    let ipv6 = i32::from(family) == libc::AF_INET6;
    let plain = [to, from, service] == [0; 3] && action == TO_TABLE && flags & INVERT == 0;
    let (table, is_beyond_lookup) = (u32::from(table), service != 0);
    let mut rule = Rule { ipv6, priority: 0, table, plain, vrf: false, is_beyond_lookup };
    for (kind, value) in attributes(rest) {
        match kind {
            PRIORITY => rule.priority = number(value).ok_or(wrong)?,
            TABLE => rule.table = number(value).ok_or(wrong)?,
            SUPPRESS_LENGTH => rule.plain &= number(value) == Some(u32::MAX),
            MASTER_DEVICE => rule.vrf = value.first() == Some(&1),
            PADDING | PROTOCOL => {}
            _ => {
                rule.plain = false;
                rule.is_beyond_lookup |= !OF_LOOKUP.contains(&kind);
            }
        }
    }
    if action != TO_TABLE {
        rule.table = 0;
    }
    Ok(Some(rule))
}
