//! Summary of a run, printed at its end.

use std::fmt;

use fastlane_table::counters::{Counters, LaneCounter, PortCounter};

use crate::describe::Application;

/// Counters of lanes that appear in the summary.
const OF_LANES: [LaneCounter; 8] = [
    LaneCounter::ResumedPackets,
    LaneCounter::DiscardedPackets,
    LaneCounter::DropResumeNoFrame,
    LaneCounter::DropHeldAtEnd,
    LaneCounter::MessagesSent,
    LaneCounter::MessagesLost,
    LaneCounter::MessagesReceived,
    LaneCounter::MessagesRefused,
];

/// Totals of a run.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    ports: Vec<PortSummary>,
    /// Non-zero totals of the lanes' counters.
    lanes: Vec<(LaneCounter, u64)>,
}

#[derive(Clone, Debug)]
struct PortSummary {
    name: String,
    driver: String,
    /// Non-zero totals of the port's counters.
    counts: Vec<(PortCounter, u64)>,
}

impl Summary {
    pub(crate) fn new(application: &Application, counters: &Counters) -> Self {
        let ports = application.ports.iter().enumerate().map(|(number, port)| PortSummary {
            name: port.name.clone(),
            driver: match port.mode.as_str() {
                "" => port.driver.clone(),
                mode => format!("{} ({mode})", port.driver),
            },
            counts: PortCounter::ALL
                .into_iter()
                .map(|counter| (counter, counters.port_total(number, counter)))
                .filter(|(_, count)| *count > 0)
                .collect(),
        });
        let sum =
            |counter| (0..counters.lanes()).map(|lane| counters.lane(lane).load(counter)).sum();
        let lanes = OF_LANES.map(|counter| (counter, sum(counter))).into_iter();
        Self { ports: ports.collect(), lanes: lanes.filter(|(_, count)| *count > 0).collect() }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, port) in self.ports.iter().enumerate() {
            if place > 0 {
                writeln!(formatter)?;
            }
            write!(formatter, "{}: {}", port.name, port.driver)?;
            if port.counts.is_empty() {
                write!(formatter, ", nothing received or sent")?;
            }
            for (counter, count) in &port.counts {
                write!(formatter, "\n  {:<24} {count}", counter.name())?;
            }
        }
        if !self.lanes.is_empty() {
            write!(formatter, "\nlanes:")?;
        }
        for (counter, count) in &self.lanes {
            write!(formatter, "\n  {:<24} {count}", counter.name())?;
        }
        Ok(())
    }
}
