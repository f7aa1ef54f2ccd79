//! Addresses of control plane functions that are configured by name.
//!
//! Names are resolved as the host resolves them (getaddrinfo(3)) in a thread of their own, because
//! a name server may take seconds to answer. The event loop only collects changes.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::config::N4;

/// Interval at which names are resolved anew. It is that of short-lived names in clusters.
const INTERVAL: Duration = Duration::from_secs(10);
/// Interval while a name has no address.
const RETRY: Duration = Duration::from_secs(1);

/// Function that resolves a name.
type Lookup = fn(&str) -> io::Result<Vec<IpAddr>>;

/// Addresses of a configured peer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PeerAddresses {
    /// Index in `n4.peers`.
    index: usize,
    /// Addresses in ascending order, at least one.
    addresses: Vec<IpAddr>,
}

/// Resolver of the names in `n4.peers`. Its thread ends when it is dropped.
#[derive(Debug)]
pub struct Resolver {
    changes: Receiver<PeerAddresses>,
    latest: BTreeMap<usize, Vec<IpAddr>>,
    _stop: Sender<()>,
}

impl Resolver {
    /// Starts to resolve the names of the settings. Returns `None` if there are none.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(n4: &N4) -> io::Result<Option<Self>> {
        let names = n4.peers.iter().cloned().enumerate();
        let names: Vec<_> = names.filter(|(_, name)| name.parse::<IpAddr>().is_err()).collect();
        if names.is_empty() {
            return Ok(None);
        }
        Self::spawn(names, resolve, RETRY).map(Some)
    }

    fn spawn(names: Vec<(usize, String)>, lookup: Lookup, retry: Duration) -> io::Result<Self> {
        let (sender, changes) = channel();
        let (stop, stopped) = channel();
        let interval = retry * INTERVAL.as_secs() as u32;
        let follow = move || follow(&names, lookup, [retry, interval], &sender, &stopped);
        std::thread::Builder::new().name("resolver".to_owned()).spawn(follow)?;
        Ok(Self { changes, latest: BTreeMap::new(), _stop: stop })
    }

    /// Collects changes. Returns true if there are any.
    pub fn collect(&mut self) -> bool {
        let before = self.latest.clone();
        self.latest.extend(self.changes.try_iter().map(|it| (it.index, it.addresses)));
        self.latest != before
    }

    /// Returns the last known addresses by the index in `n4.peers`.
    pub fn latest(&self) -> impl Iterator<Item = (usize, &[IpAddr])> {
        self.latest.iter().map(|(index, addresses)| (*index, &addresses[..]))
    }
}

/// Resolves a name as this host does it.
fn resolve(name: &str) -> io::Result<Vec<IpAddr>> {
    let found = (name, fastlane_pfcp::PORT).to_socket_addrs()?;
    Ok(found.map(|address| address.ip().to_canonical()).collect())
}

/// Resolves names until the resolver is dropped, and sends their addresses when they have changed.
/// A name that cannot be resolved keeps its addresses. `intervals` are those while a name has no
/// address, and afterwards.
fn follow(
    names: &[(usize, String)],
    lookup: Lookup,
    intervals: [Duration; 2],
    changes: &Sender<PeerAddresses>,
    stopped: &Receiver<()>,
) {
    let mut known: BTreeMap<usize, Vec<IpAddr>> = BTreeMap::new();
    let mut failed: BTreeMap<usize, bool> = BTreeMap::new();
    loop {
        for (index, name) in names {
            let mut addresses = match lookup(name) {
                Ok(addresses) => addresses,
                Err(error) => {
                    if !failed.insert(*index, true).unwrap_or(false) {
                        tracing::warn!("app.n4.peers: {name} cannot be resolved: {error}");
                    }
                    continue;
                }
            };
            failed.insert(*index, false);
            addresses.sort_unstable();
            addresses.dedup();
            if addresses.is_empty() || known.get(index) == Some(&addresses) {
                continue;
            }
            tracing::info!("app.n4.peers: {name} is at {addresses:?}");
            known.insert(*index, addresses.clone());
            if changes.send(PeerAddresses { index: *index, addresses }).is_err() {
                return;
            }
        }
        let is_complete = known.len() == names.len();
        let wait = intervals[usize::from(is_complete)];
        if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Instant;

    use super::*;

    /// Addresses that the test's name server has.
    static SERVED: Mutex<Vec<IpAddr>> = Mutex::new(Vec::new());

    fn serve(addresses: &[&str]) {
        *SERVED.lock().unwrap() = addresses.iter().map(|it| it.parse().unwrap()).collect();
    }

    fn lookup(_: &str) -> io::Result<Vec<IpAddr>> {
        let served = SERVED.lock().unwrap().clone();
        if served.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(served) }
    }

    fn wait_for(resolver: &mut Resolver, expected: &[&str]) {
        let end = Instant::now() + Duration::from_secs(30);
        let expected: Vec<IpAddr> = expected.iter().map(|it| it.parse().unwrap()).collect();
        while resolver.latest().next() != Some((3, &expected[..])) {
            assert!(Instant::now() < end, "{resolver:?}");
            std::thread::sleep(Duration::from_millis(1));
            resolver.collect();
        }
    }

    #[test]
    fn a_name_is_followed_and_keeps_its_addresses_while_nobody_knows_it() {
        let names = vec![(3, "smf.example".to_owned())];
        let mut resolver = Resolver::spawn(names, lookup, Duration::from_millis(1)).unwrap();
        assert!(!resolver.collect());
        serve(&["192.0.2.8", "192.0.2.7", "192.0.2.8"]);
        wait_for(&mut resolver, &["192.0.2.7", "192.0.2.8"]);
        assert!(!resolver.collect(), "nothing has changed");
        serve(&[]);
        std::thread::sleep(Duration::from_millis(50));
        assert!(!resolver.collect(), "the addresses stay");
        serve(&["2001:db8::7"]);
        wait_for(&mut resolver, &["2001:db8::7"]);
    }

    #[test]
    fn addresses_need_no_resolver() {
        let n4 = serde_json::json!({ "addresses": ["192.0.2.1"], "peers": ["192.0.2.2"] });
        let n4: N4 = serde_json::from_value(n4).unwrap();
        assert!(Resolver::start(&n4).unwrap().is_none());
        assert!(resolve("localhost").unwrap().iter().any(IpAddr::is_loopback));
    }
}
