//! Sample of all counters of an application.

use std::time::Instant;

use fastlane::counters::{Counters, LaneCounter, PortCounter};
use fastlane::describe::Application;
use fastlane::session::Client;
use serde::ser::{Serialize, SerializeMap, Serializer};

/// Totals since the start of the application, and its description.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Sample {
    #[serde(skip)]
    pub(super) taken: Instant,
    pub(super) application: Application,
    pub(super) lanes: Vec<LaneTotals>,
    /// Each port of each lane, then each port outside the lanes.
    pub(super) ports: Vec<PortTotals>,
}

/// Totals of a lane.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct LaneTotals {
    pub(super) lane: usize,
    /// CPU time of its thread in seconds; null if it is not visible.
    pub(super) cpu_seconds: Option<f64>,
    pub(super) counters: Lane,
}

/// Totals of a port.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct PortTotals {
    /// Number of the lane; null outside the lanes.
    pub(super) lane: Option<usize>,
    /// Name of the port.
    pub(super) port: String,
    pub(super) counters: Port,
}

/// Values of all counters of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lane(pub(super) [u64; LaneCounter::ALL.len()]);

impl Lane {
    pub(super) fn of(&self, counter: LaneCounter) -> u64 {
        self.0[counter as usize]
    }
}

/// Values of all counters of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Port(pub(super) [u64; PortCounter::ALL.len()]);

impl Port {
    pub(super) fn of(&self, counter: PortCounter) -> u64 {
        self.0[counter as usize]
    }
}

impl Serialize for Lane {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for counter in
            LaneCounter::ALL.into_iter().filter(|counter| *counter != LaneCounter::Reserved)
        {
            map.serialize_entry(counter.name(), &self.of(counter))?;
        }
        map.end()
    }
}

impl Serialize for Port {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for counter in PortCounter::ALL {
            map.serialize_entry(counter.name(), &self.of(counter))?;
        }
        map.end()
    }
}

impl Sample {
    /// Reads all counters. Each is exact, but they are not read at one instant.
    pub(super) fn take(client: &Client) -> Self {
        Self::read(&client.application, &client.counters, |lane| client.cpu_seconds(lane))
    }

    pub(super) fn read(
        application: &Application,
        counters: &Counters,
        cpu_seconds: impl Fn(usize) -> Option<f64>,
    ) -> Self {
        let lanes = (0..counters.lanes()).map(|lane| LaneTotals {
            lane,
            cpu_seconds: cpu_seconds(lane),
            counters: Lane(LaneCounter::ALL.map(|counter| counters.lane(lane).load(counter))),
        });
        let places = (0..counters.lanes()).map(Some).chain([None]);
        let ports = places.flat_map(|lane| {
            application.ports.iter().enumerate().map(move |(port, facts)| {
                let block = match lane {
                    Some(lane) => counters.port(lane, port),
                    None => counters.shared_port(port),
                };
                let counters = Port(PortCounter::ALL.map(|counter| block.load(counter)));
                PortTotals { lane, port: facts.name.clone(), counters }
            })
        });
        Self {
            taken: Instant::now(),
            application: application.clone(),
            lanes: lanes.collect(),
            ports: ports.collect(),
        }
    }
}
