//! Neighbour probing: asks Linux to confirm stale neighbours that the fast path uses, as Linux does
//! not see the packets sent to them and would not notice that one disappeared; and to find gateways
//! of routing tables by which it may never send a packet itself.

use std::time::{Duration, Instant};

use super::super::KeepAlive;
use super::super::message::{probe, resolve};
use super::super::model::NeighbourId;
use super::super::publish::Publisher;
use super::super::waiting_neighbours::WaitingNeighbours;

/// Time between two looks for gateways without a neighbour.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Neighbours waiting to be probed.
#[derive(Debug)]
pub(super) struct NeighbourProbes {
    settings: KeepAlive,
    stale: WaitingNeighbours,
    /// Gateways without a neighbour.
    missing: WaitingNeighbours,
    next: Instant,
    /// Time of the next look for gateways; `None` if Linux finds them when it gets their packets.
    next_look: Option<Instant>,
}

impl NeighbourProbes {
    /// Creates the list. `finds_gateways`: it has gateways of tables besides the main one.
    pub(super) fn new(settings: KeepAlive, finds_gateways: bool) -> Self {
        let now = Instant::now();
        let next_look = (finds_gateways && settings != KeepAlive::Off).then_some(now);
        let (stale, missing) = Default::default();
        Self { settings, stale, missing, next: now, next_look }
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

    /// Schedules the search for gateways without a neighbour, if a look at them is due.
    pub(super) fn look(&mut self, tables: &Publisher, now: Instant) {
        if self.next_look.is_none_or(|time| now < time) {
            return;
        }
        self.next_look = Some(now + LOOK_INTERVAL);
        self.missing.clear();
        tables.missing_gateways().for_each(|gateway| self.missing.set(gateway, true));
    }

    /// Returns the time until the next probe or look; `None` if none is scheduled.
    pub(super) fn timeout(&self, now: Instant) -> Option<Duration> {
        let has_probe = !(self.stale.is_empty() && self.missing.is_empty());
        let times = [has_probe.then_some(self.next), self.next_look];
        times.into_iter().flatten().min().map(|time| time.saturating_duration_since(now))
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
        let request = match self.missing.take_next(|_| true) {
            Some(NeighbourId { link, address }) => resolve(link, address),
            None => {
                let NeighbourId { link, address } = self.stale.take_next(|_| true)?;
                probe(link, address)
            }
        };
        self.next = now + Duration::from_secs(1) / rate;
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_spread_over_time() {
        let mut neighbour_probes = NeighbourProbes::new(KeepAlive::All { rate: 10 }, false);
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
