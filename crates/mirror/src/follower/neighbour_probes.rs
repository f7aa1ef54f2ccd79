//! Has Linux look after the neighbours that the fast path uses. Linux does not see the packets that
//! go to them, so it would not find out that one is gone.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::super::KeepAlive;
use super::super::message::probe;
use super::super::publish::Publisher;

/// The neighbours to be asked about.
#[derive(Debug)]
pub(super) struct NeighbourProbes {
    settings: KeepAlive,
    stale: BTreeSet<(u32, IpAddr)>,
    next: Instant,
}

impl NeighbourProbes {
    pub(super) fn new(settings: KeepAlive) -> Self {
        Self { settings, stale: BTreeSet::new(), next: Instant::now() }
    }

    /// Whether a neighbour is one that is cared for.
    pub(super) fn concerns(&self, (link, address): (u32, IpAddr), tables: &Publisher) -> bool {
        match self.settings {
            KeepAlive::Off => false,
            KeepAlive::Routers { .. } => tables.is_router(link, address),
            KeepAlive::All { .. } => tables.is_port(link),
        }
    }

    /// A neighbour has to be asked about, or not any more.
    pub(super) fn note(&mut self, key: (u32, IpAddr), ask: bool) {
        if ask {
            self.stale.insert(key);
        } else {
            self.stale.remove(&key);
        }
    }

    /// How long there is nothing to be asked.
    pub(super) fn timeout(&self, now: Instant) -> Option<Duration> {
        (!self.stale.is_empty()).then(|| self.next.saturating_duration_since(now))
    }

    /// The next request that is due.
    pub(super) fn next(&mut self, now: Instant) -> Option<Vec<u8>> {
        let rate = match self.settings {
            KeepAlive::Off => return None,
            KeepAlive::Routers { rate } | KeepAlive::All { rate } => rate.max(1),
        };
        if now < self.next {
            return None;
        }
        let (link, address) = self.stale.pop_first()?;
        self.next = now + Duration::from_secs(1) / rate;
        Some(probe(link, address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_spread_over_time() {
        let mut neighbour_probes = NeighbourProbes::new(KeepAlive::All { rate: 10 });
        let start = Instant::now();
        assert_eq!(neighbour_probes.timeout(start), None);
        for last in 1..=3 {
            neighbour_probes.note((1, IpAddr::from([10, 0, 0, last])), true);
        }
        neighbour_probes.note((1, IpAddr::from([10, 0, 0, 3])), false);
        let later = start + Duration::from_millis(100);
        assert!(neighbour_probes.next(later).is_some());
        assert_eq!(neighbour_probes.next(later), None);
        assert_eq!(neighbour_probes.timeout(later), Some(Duration::from_millis(100)));
        assert!(neighbour_probes.next(later + Duration::from_millis(100)).is_some());
        assert_eq!(neighbour_probes.next(later + Duration::from_secs(1)), None);
        assert_eq!(neighbour_probes.timeout(later), None);
    }
}
