//! Neighbour probing: asks Linux to confirm stale neighbours that the fast path uses. Linux does
//! not see the packets sent to them, so it would not notice that one disappeared.

use std::time::{Duration, Instant};

use super::super::KeepAlive;
use super::super::message::probe;
use super::super::model::NeighbourId;
use super::super::publish::Publisher;
use super::super::stale_neighbours::StaleNeighbours;

/// Stale neighbours waiting to be probed.
#[derive(Debug)]
pub(super) struct NeighbourProbes {
    settings: KeepAlive,
    stale: StaleNeighbours,
    next: Instant,
}

impl NeighbourProbes {
    pub(super) fn new(settings: KeepAlive) -> Self {
        Self { settings, stale: StaleNeighbours::default(), next: Instant::now() }
    }

    /// Returns true if the settings require probes of this neighbour.
    pub(super) fn includes(&self, neighbour: NeighbourId, tables: &Publisher) -> bool {
        match self.settings {
            KeepAlive::Off => false,
            KeepAlive::Routers { .. } => tables.is_gateway(neighbour),
            KeepAlive::All { .. } => tables.is_port(neighbour.link),
        }
    }

    /// Schedules or cancels the probe of a neighbour.
    pub(super) fn set_stale(&mut self, neighbour: NeighbourId, stale: bool) {
        self.stale.set(neighbour, stale);
    }

    /// Returns the time until the next probe; `None` if none is scheduled.
    pub(super) fn timeout(&self, now: Instant) -> Option<Duration> {
        (!self.stale.is_empty()).then(|| self.next.saturating_duration_since(now))
    }

    /// Returns the next probe request if one is due.
    pub(super) fn next(&mut self, now: Instant) -> Option<Vec<u8>> {
        let rate = match self.settings {
            KeepAlive::Off => return None,
            KeepAlive::Routers { rate } | KeepAlive::All { rate } => rate.max(1),
        };
        if now < self.next {
            return None;
        }
        let NeighbourId { link, address } = self.stale.take_next(|_| true)?;
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
        let id = |last| NeighbourId { link: 1, address: [10, 0, 0, last].into() };
        let start = Instant::now();
        assert_eq!(neighbour_probes.timeout(start), None);
        for last in 1..=3 {
            neighbour_probes.set_stale(id(last), true);
        }
        neighbour_probes.set_stale(id(3), false);
        let later = start + Duration::from_millis(100);
        assert!(neighbour_probes.next(later).is_some());
        assert_eq!(neighbour_probes.next(later), None);
        assert_eq!(neighbour_probes.timeout(later), Some(Duration::from_millis(100)));
        assert!(neighbour_probes.next(later + Duration::from_millis(100)).is_some());
        assert_eq!(neighbour_probes.next(later + Duration::from_secs(1)), None);
        assert_eq!(neighbour_probes.timeout(later), None);
    }
}
