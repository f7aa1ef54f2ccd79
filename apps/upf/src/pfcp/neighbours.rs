//! Resolution of neighbours that lanes need and Linux does not know.
//!
//! Linux resolves a neighbour when a program sends to it. This module sends an empty datagram to
//! the port `discard` (RFC 863) with a time to live of 1, so that it goes no further than the
//! neighbour. Until Linux knows the neighbour, lanes drop and count packets to it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use rustix::net::sockopt;

use crate::config::{Role, Settings};
use crate::time::Now;
use crate::time::SECOND;

/// Port `discard`, on which no host replies.
const DISCARD: u16 = 9;
/// Minimum time between two probes of a peer, in nanoseconds.
const PAUSE: u64 = SECOND;
/// Maximum number of remembered peers; further peers wait.
const MOST: usize = 4096;

/// Triggers neighbour resolution in Linux.
#[derive(Debug, Default)]
pub struct Neighbours {
    /// Source addresses, each with its socket once opened.
    sources: Vec<(IpAddr, Option<UdpSocket>)>,
    /// Time of the last probe of each peer.
    asked: HashMap<IpAddr, u64>,
}

impl Neighbours {
    /// Creates the resolver. Its sources are the unspecified addresses, and the GTP-U addresses of
    /// interfaces with a routing table of their own, which a Linux rule (`ip rule add from ...`)
    /// selects.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let interfaces = settings.interfaces.values();
        let own = interfaces.filter(|it| it.role != Role::N6 && it.route_table.is_some());
        let own = own.flat_map(|it| it.addresses.iter().copied());
        let sources = any.into_iter().chain(own).map(|address| (address, None)).collect();
        Self { sources, asked: HashMap::new() }
    }

    /// Probes a peer unless that was done within the last second. Returns true if a datagram was
    /// sent.
    pub fn find_out(&mut self, peer: IpAddr, now: Now) -> bool {
        if peer.is_unspecified() || peer.is_multicast() || !self.is_due(peer, now.monotonic) {
            return false;
        }
        let to = SocketAddr::new(peer, DISCARD);
        let mut is_sent = false;
        for (address, socket) in &mut self.sources {
            if address.is_ipv4() != peer.is_ipv4() {
                continue;
            }
            if socket.is_none() {
                *socket = open(*address).ok(); // the address may be there later
            }
            is_sent |= socket.as_ref().is_some_and(|socket| socket.send_to(&[], to).is_ok());
        }
        is_sent
    }

    fn is_due(&mut self, peer: IpAddr, now: u64) -> bool {
        let is_recent = |at: &u64| now.saturating_sub(*at) < PAUSE;
        if self.asked.get(&peer).is_some_and(is_recent) {
            return false;
        }
        if self.asked.len() >= MOST {
            self.asked.retain(|_, at| is_recent(at));
        }
        self.asked.len() < MOST && {
            self.asked.insert(peer, now);
            true
        }
    }
}

fn open(address: IpAddr) -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind((address, 0))?;
    socket.set_nonblocking(true)?;
    match address {
        IpAddr::V4(_) => socket.set_ttl(1)?,
        IpAddr::V6(_) => sockopt::set_ipv6_unicast_hops(&socket, Some(1))?,
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use fastlane_testing::namespace::{command, ip, private};

    use super::*;

    fn settings() -> Settings {
        serde_json::from_value(serde_json::json!({
            "node-id": "upf.example",
            "n4": { "addresses": ["192.0.2.1"] },
            "interfaces": {
                "n3": { "port": "n3", "role": "n3", "network-instances": ["access"],
                        "addresses": ["10.3.0.1"], "route-table": 77 },
            },
        }))
        .unwrap()
    }

    fn at(second: u64) -> Now {
        Now { monotonic: second * SECOND, real: 0 }
    }

    /// Linux sends neighbour solicitations, also through an interface's own routing table.
    #[test]
    fn linux_asks_for_neighbours() {
        if !private("pfcp::neighbours::tests::linux_asks_for_neighbours") {
            return;
        }
        for (name, peer, address) in
            [("upf-n3", "upf-gnb", "10.3.0.1/32"), ("upf-n6", "upf-dn", "10.6.0.1/24")]
        {
            ip(&format!("link add {name} type veth peer name {peer}"));
            ip(&format!("link set {name} up"));
            ip(&format!("link set {peer} up"));
            ip(&format!("address add {address} dev {name}"));
        }
        ip("-6 address add fd06::1/64 dev upf-n6 nodad");
        ip("route add 10.3.0.0/24 dev upf-n3 table 77");
        ip("rule add from 10.3.0.1 lookup 77");
        let mut neighbours = Neighbours::new(&settings());
        for peer in ["10.3.0.9", "10.6.0.9", "fd06::9"] {
            let peer = peer.parse().unwrap();
            assert!(neighbours.find_out(peer, at(10)), "{peer}");
            assert!(!neighbours.find_out(peer, at(10)), "not twice in a second");
            let shown = command("ip", &format!("neighbour show {peer} nud all"));
            assert!(shown.contains("INCOMPLETE") || shown.contains("FAILED"), "{peer}: {shown}");
        }
        assert!(neighbours.find_out("10.6.0.9".parse().unwrap(), at(11)));
        assert!(!neighbours.find_out("224.0.0.1".parse().unwrap(), at(11)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut neighbours = Neighbours::new(&settings());
        let peer = |number: u32| IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number));
        assert!((0..MOST as u32).all(|number| neighbours.is_due(peer(number), SECOND)));
        assert!(!neighbours.is_due(peer(MOST as u32), SECOND));
        assert!(neighbours.is_due(peer(MOST as u32), 2 * SECOND));
        assert_eq!(neighbours.asked.len(), 1);
    }
}
