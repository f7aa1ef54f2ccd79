//! Addresses from which control plane functions may associate: `n4.allow` and `n4.peers`.

use std::net::IpAddr;

use crate::config::N4;
use crate::config::addresses::{contains, prefix};
use crate::session::Prefix;

/// Addresses from which control plane functions may associate.
#[derive(Debug)]
pub struct AccessList {
    prefixes: Vec<Prefix>,
    /// Addresses of each configured peer. A name has none until it is resolved.
    peers: Vec<Vec<IpAddr>>,
    is_open: bool,
}

impl AccessList {
    /// Creates the list of checked settings.
    #[must_use]
    pub fn new(n4: &N4) -> Self {
        let prefixes = n4.allow.iter().filter_map(|text| prefix(text).ok()).collect();
        let peers = n4.peers.iter().map(|peer| peer.parse().into_iter().collect()).collect();
        Self { prefixes, peers, is_open: n4.is_open() }
    }

    /// Replaces the addresses of a configured peer, by its index.
    pub fn set_peer(&mut self, index: usize, addresses: Vec<IpAddr>) {
        if let Some(peer) = self.peers.get_mut(index) {
            *peer = addresses;
        }
    }

    /// Returns true if any address may associate.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns true if a control plane function may associate from this address.
    #[must_use]
    pub fn allows(&self, address: IpAddr) -> bool {
        self.is_open || self.names(address)
    }

    /// Returns true if `n4.allow` or `n4.peers` has this address.
    #[must_use]
    pub fn names(&self, address: IpAddr) -> bool {
        self.prefixes.iter().any(|prefix| contains(*prefix, address))
            || self.peers.iter().any(|peer| peer.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn list(mut n4: Value) -> AccessList {
        n4["addresses"] = json!(["192.0.2.1"]);
        AccessList::new(&serde_json::from_value(n4).unwrap())
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn without_peers_and_prefixes_everybody_may_associate() {
        let open = list(json!({}));
        let anybody = address("203.0.113.7");
        assert!(open.is_open() && open.allows(anybody) && !open.names(anybody));
    }

    #[test]
    fn peers_and_prefixes_may_associate_and_others_may_not() {
        let mut closed = list(json!({ "peers": ["192.0.2.2", "smf.example"],
                                      "allow": ["10.40.0.0/24", "2001:db8:4::/64"] }));
        assert!(!closed.is_open());
        for allowed in ["192.0.2.2", "10.40.0.255", "2001:db8:4::7"] {
            assert!(closed.allows(address(allowed)), "{allowed}");
        }
        for refused in ["192.0.2.3", "10.40.1.0", "2001:db8:5::7", "::ffff:192.0.2.2"] {
            assert!(!closed.allows(address(refused)), "{refused}");
        }
        assert!(!list(json!({ "peers": ["smf.example"] })).allows(address("192.0.2.3")));
        closed.set_peer(1, vec![address("192.0.2.3")]);
        assert!(closed.allows(address("192.0.2.3")));
        closed.set_peer(1, vec![address("192.0.2.4")]);
        assert!(!closed.allows(address("192.0.2.3")));
    }
}
