//! Tables of rates, for the live screen and for plain output.

use std::fmt::Write;

use fastlane::describe::Application;

use super::number::{percent, short};
use super::rates::{LaneRates, PortRates, Rates};

/// Table with headings.
pub(super) struct Table {
    pub(super) headings: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
    /// Number of text columns on the left. The next ones are numbers; the last is text again.
    names: usize,
}

impl Table {
    /// Returns the width of each column in characters.
    pub(super) fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> =
            self.headings.iter().map(|text| text.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }

    /// Returns true if a column contains numbers, which are aligned to the right.
    pub(super) fn is_number(&self, column: usize) -> bool {
        column >= self.names && column + 1 < self.headings.len()
    }
}

/// Returns the title line.
pub(super) fn title(application: &Application, rates: &Rates) -> String {
    format!(
        "{} {}, process {}, {:.1} s",
        application.name,
        application.version,
        application.pid,
        rates.elapsed.as_secs_f64()
    )
}

/// Returns a row for each lane.
fn lanes(rates: &Rates) -> Table {
    let headings = vec![
        "lane",
        "cpu",
        "cpu used",
        "turns/s",
        "busy",
        "sleeps/s",
        "pool free",
        "faults minor/major",
        "",
    ];
    Table { headings, rows: rates.lanes.iter().map(lane).collect(), names: 0 }
}

fn lane(lane: &LaneRates) -> Vec<String> {
    vec![
        lane.lane.to_string(),
        lane.cpu.to_string(),
        lane.cpu_share.map_or_else(|| "?".to_owned(), percent),
        short(lane.turns),
        percent(lane.busy_share),
        short(lane.sleeps),
        format!("{}/{}", lane.pool_free, lane.pool_frames),
        lane.page_faults.map(|count| short(count as f64)).join("/"),
        if lane.ended { "ended".to_owned() } else { String::new() },
    ]
}

/// Returns a row for each port in each lane.
fn ports(application: &Application, rates: &Rates) -> Table {
    let headings =
        vec!["lane", "port", "driver", "mode", "rx/s", "rx Gb/s", "tx/s", "tx Gb/s", "verdicts"];
    let rows = rates.ports.iter().filter_map(|port| {
        let facts = &application.ports[port.port];
        let verdicts =
            port.verdicts.iter().map(|(name, share)| format!("{name} {}", percent(*share)));
        Some(vec![
            port.lane?.to_string(),
            facts.name.clone(),
            facts.driver.clone(),
            facts.mode.clone(),
            short(port.received),
            gigabits(port.received_bits),
            short(port.sent),
            gigabits(port.sent_bits),
            verdicts.collect::<Vec<_>>().join(", "),
        ])
    });
    Table { headings, rows: rows.collect(), names: 4 }
}

fn gigabits(bits: f64) -> String {
    format!("{:.3}", bits / 1e9)
}

/// Returns a row for each port that is down.
fn down(application: &Application, rates: &Rates) -> Table {
    let rows = rates.ports.iter().filter_map(|port| {
        Some(vec![application.ports[port.port].name.clone(), port.down?.to_owned()])
    });
    Table { headings: vec!["port", "down because of"], rows: rows.collect(), names: 2 }
}

/// Returns a row for each lane that exchanges packets with others.
fn passing(rates: &Rates) -> Table {
    let headings = vec!["lane", "rx/s", "passed on/s", "shown/s", "busiest of 256 shards", ""];
    let changes = rates.ports.iter().any(|port| port.passed.is_some());
    let lanes = rates.lanes.iter().filter(|_| changes);
    let rows = lanes.map(|lane| {
        let sum = |of: fn(&PortRates) -> f64| {
            rates.ports.iter().filter(|port| port.lane == Some(lane.lane)).map(of).sum::<f64>()
        };
        vec![
            lane.lane.to_string(),
            short(sum(|port| port.received)),
            short(sum(|port| port.passed.unwrap_or_default())),
            short(sum(|port| port.shown)),
            percent(lane.busiest),
            String::new(),
        ]
    });
    Table { headings, rows: rows.collect(), names: 0 }
}

/// Returns a row for each drop reason since the start.
fn losses(application: &Application, rates: &Rates) -> Table {
    let rows = rates.ports.iter().flat_map(|port| {
        port.drops.iter().map(|(reason, rate, total)| {
            vec![
                place(port),
                application.ports[port.port].name.clone(),
                (*reason).to_owned(),
                short(*rate),
                total.to_string(),
                String::new(),
            ]
        })
    });
    let headings = vec!["lane", "port", "lost because of", "lost/s", "lost since start", ""];
    Table { headings, rows: rows.collect(), names: 3 }
}

/// Returns a row for each steering result since the start.
fn steering(application: &Application, rates: &Rates) -> Table {
    let rows = rates.ports.iter().flat_map(|port| {
        port.steered.iter().map(|(result, rate)| {
            let name = application.ports[port.port].name.clone();
            vec![place(port), name, (*result).to_owned(), short(*rate), String::new()]
        })
    });
    Table {
        headings: vec!["lane", "port", "steering", "frames/s", ""],
        rows: rows.collect(),
        names: 3,
    }
}

/// Returns the number of the lane, or an empty string outside the lanes.
fn place(port: &PortRates) -> String {
    port.lane.map_or_else(String::new, |lane| lane.to_string())
}

/// Returns all tables with rows, the most important first.
pub(super) fn all(application: &Application, rates: &Rates) -> Vec<Table> {
    let mut tables = vec![lanes(rates), down(application, rates)];
    tables.extend([ports(application, rates), passing(rates)]);
    tables.extend([losses(application, rates), steering(application, rates)]);
    tables.retain(|table| !table.rows.is_empty());
    tables
}

/// Returns all tables as text, followed by an empty line.
pub(super) fn plain(application: &Application, rates: &Rates) -> String {
    let mut text = title(application, rates);
    text.push('\n');
    for table in all(application, rates) {
        let widths = table.widths();
        let headings = table.headings.iter().map(|heading| (*heading).to_owned()).collect();
        for row in [&headings].into_iter().chain(&table.rows) {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let _ = match table.is_number(column) {
                    true => write!(line, "{cell:>width$}  "),
                    false => write!(line, "{cell:<width$}  "),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    text.push('\n');
    text
}
