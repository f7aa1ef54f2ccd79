//! View of what a capture of a session needs: ports, tunnels and addresses.

use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ExternalView, rule_views};
use crate::config::Settings;
use crate::session::{Destination, Role, Session, Source};

/// Subject of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureSubject {
    /// Session: its UP SEID.
    Seid(u64),
    /// Subscriber: digits of the SUPI.
    Supi(String),
    /// UE address.
    Address(IpAddr),
}

/// Parses a SEID as `0x` and hex digits, a SUPI with or without `imsi-`, or an address.
impl FromStr for CaptureSubject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(hex) = text.strip_prefix("0x") {
            let seid = u64::from_str_radix(hex, 16);
            return seid.map(Self::Seid).map_err(|_| format!("`{text}` is no SEID of 64 bits"));
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let digits = text.strip_prefix("imsi-").unwrap_or(text);
        if (1..=15).contains(&digits.len()) && digits.bytes().all(|it| it.is_ascii_digit()) {
            return Ok(Self::Supi(digits.to_owned()));
        }
        Err(format!(
            "`{text}` is neither SUPI, SEID nor address; write a SUPI (imsi-001010000000001), a \
             SEID as `upf sessions` shows it (0x10000002a), or an address of a UE"
        ))
    }
}

impl std::fmt::Display for CaptureSubject {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Seid(seid) => write!(to, "{seid:#x}"),
            Self::Supi(digits) => write!(to, "imsi-{digits}"),
            Self::Address(address) => address.fmt(to),
        }
    }
}

/// Sessions to capture, and where their packets pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct CapturePlan {
    /// Path of the fast path's session socket.
    pub session_socket: String,
    /// Ports that packets of the sessions pass.
    pub ports: Vec<CapturePort>,
    /// The sessions.
    pub sessions: Vec<CapturedSession>,
}

/// Port that packets pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct CapturePort {
    /// Name of the port.
    pub port: String,
    /// Reference point: `N3`, `N9` or `N6`.
    pub role: String,
}

/// Session to capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct CapturedSession {
    /// UP SEID.
    pub seid: String,
    /// SUPI, if the control plane function provided it.
    pub supi: Option<String>,
    /// Tunnel endpoints of this UPF and of its peers.
    pub tunnels: Vec<TunnelEnd>,
    /// UE addresses and networks behind the UE, as prefixes.
    pub prefixes: Vec<String>,
    /// External address and ports, if NAT translates the UE's address.
    pub external: Option<ExternalView>,
}

/// Tunnel endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct TunnelEnd {
    /// Destination address of its packets.
    pub address: String,
    /// Tunnel endpoint identifier.
    pub teid: u32,
}

impl CapturePlan {
    /// Returns the plan for sessions, each with its external ports.
    pub(in crate::api) fn of(
        sessions: &[(Session, Option<ExternalView>)],
        settings: &Settings,
        session_socket: &str,
    ) -> Self {
        let mut ports: Vec<CapturePort> = Vec::new();
        let mut add = |port: &str, role: Role| {
            let role = match role {
                Role::N3 => "N3",
                Role::N9 => "N9",
                Role::N6 => "N6",
            };
            let one = CapturePort { port: port.to_owned(), role: role.to_owned() };
            if !ports.contains(&one) {
                ports.push(one);
            }
        };
        for interface in settings.interfaces.values().filter(|it| it.role != Role::N6) {
            add(&interface.port, interface.role);
        }
        for (session, _) in sessions {
            let instances = n6_instances(session);
            for interface in instances.filter_map(|instance| settings.leading(instance, true)) {
                add(&interface.port, Role::N6);
            }
        }
        ports.sort_by(|one, other| (&one.role, &one.port).cmp(&(&other.role, &other.port)));
        Self {
            session_socket: session_socket.to_owned(),
            ports,
            sessions: sessions
                .iter()
                .map(|(session, external)| captured(session, external.as_ref()))
                .collect(),
        }
    }
}

/// Returns the network instances in which packets of a session pass N6.
fn n6_instances(session: &Session) -> impl Iterator<Item = Option<u16>> {
    let arriving = session
        .pdrs
        .iter()
        .filter(|pdr| pdr.tunnel.is_none() && matches!(pdr.source, Source::Core | Source::SgiLan));
    let leaving = session.fars.iter().filter_map(|far| far.forwarding.as_ref()).filter(|it| {
        it.outer.is_none() && matches!(it.destination, Destination::Core | Destination::SgiLan)
    });
    arriving.map(|pdr| pdr.instance).chain(leaving.map(|forwarding| forwarding.instance))
}

fn captured(session: &Session, external: Option<&ExternalView>) -> CapturedSession {
    let local = session.pdrs.iter().filter_map(|pdr| pdr.tunnel).flat_map(|tunnel| {
        let v4 = tunnel.v4.map(IpAddr::V4);
        let v6 = tunnel.v6.map(IpAddr::V6);
        v4.into_iter().chain(v6).map(move |address| (address, tunnel.teid))
    });
    let forwarding =
        session.fars.iter().flat_map(|far| far.forwarding.iter().chain(&far.duplicating));
    let outer = forwarding.filter_map(|it| it.outer);
    let old = session.fars.iter().flat_map(|far| &far.end_markers).map(|marker| marker.to);
    let remote = outer.chain(old).filter_map(|outer| {
        let address = outer.v4.map(IpAddr::V4).or(outer.v6.map(IpAddr::V6))?;
        Some((address, outer.teid?))
    });
    let tunnels = local.chain(remote);
    let tunnels = tunnels.map(|(address, teid)| TunnelEnd { address: address.to_string(), teid });
    let users = session.pdrs.iter().filter_map(|pdr| pdr.user).flat_map(|user| {
        let v4 = user.v4.map(|address| format!("{address}/32"));
        v4.into_iter().chain(user.v6.map(|(address, length)| format!("{address}/{length}")))
    });
    let framed = session.pdrs.iter().flat_map(|pdr| &pdr.framed).map(rule_views::prefix);
    CapturedSession {
        seid: format!("{:#x}", session.seid),
        supi: session.supi.clone(),
        tunnels: sorted(tunnels),
        prefixes: sorted(users.chain(framed)),
        external: external.cloned(),
    }
}

/// Collects the elements in order, each once.
fn sorted<T: Ord>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = all.collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_write_sessions_in_three_ways() {
        let of = |text: &str| text.parse::<CaptureSubject>();
        assert_eq!(of("0x10000002a"), Ok(CaptureSubject::Seid(0x1_0000_002a)));
        assert_eq!(of("imsi-31"), Ok(CaptureSubject::Supi("31".to_owned())));
        assert_eq!(of("001010000000001"), Ok(CaptureSubject::Supi("001010000000001".to_owned())));
        assert_eq!(of("10.45.0.2"), Ok(CaptureSubject::Address("10.45.0.2".parse().unwrap())));
        for nobody in ["", "x", "0x", "0x1ffffffffffffffff", "imsi-", "1234567890123456"] {
            assert!(of(nobody).is_err(), "{nobody}");
        }
        for who in ["0x10000002a", "imsi-31", "2001:db8::1"] {
            assert_eq!(of(who).unwrap().to_string(), who);
        }
    }
}
