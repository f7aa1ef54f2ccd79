//! Node view: what the control plane shows to the API.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::api::metrics::Snapshot;
use crate::datapath::classify::PacketFields;
use crate::pfcp::associations::Association;
use crate::rules::layout::drop_reason::DropReason;
use crate::session::{InstanceId, PdrId, Session, SessionIndex};

/// Read-only view of the control plane.
pub trait NodeView {
    /// Returns the associations.
    fn associations(&self) -> Vec<&Association>;
    /// Returns the number of sessions of the association with this index.
    fn sessions_of(&self, peer: u16) -> usize;
    /// Returns the number of sessions.
    fn sessions(&self) -> usize;
    /// Returns up to `limit` sessions behind a cursor, by session index.
    fn after(&self, place: Option<SessionIndex>, limit: usize) -> Vec<Session>;
    /// Returns the session with this UP SEID.
    fn session(&self, seid: u64) -> Option<Session>;
    /// Returns up to `limit` sessions of a subscriber, address or tunnel.
    fn find(&self, who: &TraceSubject, limit: usize) -> Vec<Session>;
    /// Returns the counters of a slot: uplink octets, uplink packets, downlink octets, downlink
    /// packets.
    fn counted(&self, line: u32) -> [u64; 4];
    /// Returns the name of a network instance.
    fn instance(&self, instance: InstanceId) -> Option<&str>;
    /// Returns the network instance in which uplink or downlink packets arrive if a PDR names none.
    fn arrival(&self, is_uplink: bool) -> Option<InstanceId>;
    /// Returns what routes packets that leave by N6, or through a tunnel, in a network instance if
    /// one is named.
    fn route_source(&self, instance: Option<InstanceId>, is_n6: bool) -> RouteSource;
    /// Returns the decision of the published rules about a packet of a session. Nothing is charged.
    fn dry_run(&self, session: &Session, fields: &PacketFields) -> Option<DryRun>;
    /// Returns all counters.
    fn numbers(&self) -> Snapshot;
}

/// Source of egress routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteSource {
    /// Linux routing table by number; `None`: main.
    Table(Option<u32>),
    /// Configured next hop: Ethernet address and port.
    Fixed(String, String),
}

/// Decision of the rules about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DryRun {
    /// PDR that matches; 0: none.
    pub pdr: PdrId,
    /// `forward`, `hold` or `drop`.
    pub fate: &'static str,
    /// Drop reason.
    pub cause: Option<DropReason>,
}

/// Subject of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceSubject {
    /// Subscriber: digits of the SUPI.
    Supi(String),
    /// UE address.
    Address(IpAddr),
    /// Local TEID.
    Teid(u32),
}

/// Parses an address; a TEID as `0x` and hex digits or a number of at most 10 digits; a SUPI with
/// or without `imsi-`.
impl FromStr for TraceSubject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        if let Some(hex) = text.strip_prefix("0x") {
            let teid = u32::from_str_radix(hex, 16);
            return teid.map(Self::Teid).map_err(|_| format!("`{text}` is no TEID of 32 bits"));
        }
        let supi = text.strip_prefix("imsi-");
        match supi.unwrap_or(text) {
            number if supi.is_none() && number.len() <= 10 && digits(number) => {
                let teid = number.parse();
                teid.map(Self::Teid).map_err(|_| format!("`{text}` is no TEID of 32 bits"))
            }
            number if digits(number) && number.len() <= 15 => Ok(Self::Supi(number.to_owned())),
            _ => Err(format!(
                "`{text}` is neither SUPI, address nor TEID; write a SUPI (imsi-001010000000001), \
                 an address of a UE, or a TEID (0x1234)"
            )),
        }
    }
}

impl fmt::Display for TraceSubject {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Supi(digits) => write!(to, "imsi-{digits}"),
            Self::Address(address) => address.fmt(to),
            Self::Teid(teid) => write!(to, "{teid:#010x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_write_who_in_four_ways() {
        let of = |text: &str| text.parse::<TraceSubject>();
        assert_eq!(of("10.45.0.2"), Ok(TraceSubject::Address("10.45.0.2".parse().unwrap())));
        assert_eq!(of("2001:db8::1"), Ok(TraceSubject::Address("2001:db8::1".parse().unwrap())));
        assert_eq!(of("0x1f"), Ok(TraceSubject::Teid(31)));
        assert_eq!(of("31"), Ok(TraceSubject::Teid(31)));
        assert_eq!(of("4294967295"), Ok(TraceSubject::Teid(u32::MAX)));
        assert!(of("4294967296").is_err());
        assert!(of("0x100000000").is_err());
        assert_eq!(of("imsi-31"), Ok(TraceSubject::Supi("31".to_owned())));
        assert_eq!(of("001010000000001"), Ok(TraceSubject::Supi("001010000000001".to_owned())));
        for nobody in ["", "x", "imsi-", "imsi-1x", "1234567890123456", "10.45.0"] {
            assert!(of(nobody).is_err(), "{nobody}");
        }
        for who in ["imsi-31", "10.45.0.2", "0x0000001f"] {
            assert_eq!(of(who).unwrap().to_string(), who);
        }
    }
}
