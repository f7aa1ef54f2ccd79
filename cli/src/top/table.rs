//! Tables of rates, for the live screen and for plain output.

use fastlane::describe::Application;
use fastlane_terminal::number::{percent, short};
use fastlane_terminal::{Page, Table};

use super::rates::{LaneRates, PortRates, Rates};

/// Returns the title line.
fn title(application: &Application, rates: &Rates) -> String {
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
    let headings = [
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
    let rows = rates.lanes.iter().map(lane).collect();
    Table::new(&headings, 0, rows)
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
        ["lane", "port", "driver", "mode", "rx/s", "rx Gb/s", "tx/s", "tx Gb/s", "verdicts"];
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
    Table::new(&headings, 4, rows.collect())
}

fn gigabits(bits: f64) -> String {
    format!("{:.3}", bits / 1e9)
}

/// Returns a row for each port that is down.
fn down(application: &Application, rates: &Rates) -> Table {
    let rows = rates.ports.iter().filter_map(|port| {
        Some(vec![application.ports[port.port].name.clone(), port.down?.to_owned()])
    });
    Table::new(&["port", "down because of"], 2, rows.collect())
}

/// Returns a row for each lane that exchanges packets with others.
fn passing(rates: &Rates) -> Table {
    let headings = ["lane", "rx/s", "passed on/s", "shown/s", "busiest of 256 shards", ""];
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
    Table::new(&headings, 0, rows.collect())
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
    let headings = ["lane", "port", "lost because of", "lost/s", "lost since start", ""];
    Table::new(&headings, 3, rows.collect())
}

/// Returns a row for each steering result since the start.
fn steering(application: &Application, rates: &Rates) -> Table {
    let rows = rates.ports.iter().flat_map(|port| {
        port.steered.iter().map(|(result, rate)| {
            let name = application.ports[port.port].name.clone();
            vec![place(port), name, (*result).to_owned(), short(*rate), String::new()]
        })
    });
    Table::new(&["lane", "port", "steering", "frames/s", ""], 3, rows.collect())
}

/// Returns the number of the lane, or an empty string outside the lanes.
fn place(port: &PortRates) -> String {
    port.lane.map_or_else(String::new, |lane| lane.to_string())
}

/// Returns the title and all tables, the most important first.
pub(super) fn page(application: &Application, rates: &Rates) -> Page {
    let mut tables = vec![lanes(rates), down(application, rates)];
    tables.extend([ports(application, rates), passing(rates)]);
    tables.extend([losses(application, rates), steering(application, rates)]);
    Page { title: title(application, rates), tables }
}
