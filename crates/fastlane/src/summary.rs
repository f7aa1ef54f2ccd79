//! What an application has done, for a person to read at its end.

use std::fmt;

use fastlane_table::counters::{Counters, PortCounter};

use crate::describe::Application;

/// The totals of a run.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    ports: Vec<PortSummary>,
}

#[derive(Clone, Debug)]
struct PortSummary {
    name: String,
    driver: String,
    /// Every counter that is not zero.
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
        Self { ports: ports.collect() }
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
        Ok(())
    }
}
