//! Command `upf top`.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::time::Duration;

use fastlane_terminal::number::short;
use fastlane_terminal::screen::{self, Source};
use fastlane_terminal::{Page, Table, plain};

use super::client::{ClientError, fetch_by};
use super::view::{OutcomeRate, SliceDrops, SliceRates, TopRow, TopView};

/// Options of `upf top`.
#[derive(Clone, Copy, Debug)]
pub struct TopOptions {
    /// Time between two pages.
    pub interval: Duration,
    /// Maximum number of sessions.
    pub limit: usize,
    /// True for one page only.
    pub is_once: bool,
    /// True for JSON, one line per page.
    pub is_json: bool,
    /// True for text instead of a live screen.
    pub is_plain: bool,
}

/// Error of `upf top`.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// No reply.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The output cannot be written, or the terminal cannot be used.
    #[error("cannot show it: {0}")]
    Output(#[from] io::Error),
}

/// Shows the busiest sessions and the drops of the UPF whose API has this address, on a live screen
/// or as text on the standard output.
///
/// # Errors
/// The UPF does not reply, or the output cannot be written. A closed pipe is no failure.
pub fn top(address: SocketAddr, options: &TopOptions) -> Result<(), TopError> {
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let is_text = options.is_plain || options.is_once || !is_terminal;
    let mut upf = WatchedUpf { address, limit: options.limit };
    upf.fetch()?; // begins the first interval
    if options.is_json || is_text {
        return match write_pages(&upf, options, &mut io::stdout().lock()) {
            Err(TopError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        };
    }
    screen::run(&mut upf, options.interval).map_err(|error| match error.downcast() {
        Ok(error) => TopError::Client(error),
        Err(error) => TopError::Output(error),
    })?;
    Ok(())
}

/// Writes a page after each interval.
fn write_pages(
    upf: &WatchedUpf,
    options: &TopOptions,
    output: &mut impl Write,
) -> Result<(), TopError> {
    loop {
        std::thread::sleep(options.interval);
        let view = upf.fetch()?;
        if options.is_json {
            writeln!(output, "{}", serde_json::to_string(&view).map_err(io::Error::from)?)?;
        } else {
            output.write_all(plain(&page(&view)).as_bytes())?;
        }
        output.flush()?;
        if options.is_once {
            return Ok(());
        }
    }
}

/// UPF that is watched.
#[derive(Debug)]
struct WatchedUpf {
    address: SocketAddr,
    limit: usize,
}

impl WatchedUpf {
    fn fetch(&self) -> Result<TopView, ClientError> {
        fetch_by("GET", self.address, &format!("/top?limit={}", self.limit))
    }
}

impl Source for WatchedUpf {
    fn page(&mut self) -> io::Result<Page> {
        self.fetch().map(|view| page(&view)).map_err(io::Error::other)
    }

    fn is_alive(&mut self) -> bool {
        true // a page fails when it is not
    }
}

/// Returns the page of a view.
fn page(view: &TopView) -> Page {
    let TopView { elapsed_s, total, active, sessions, slices, outcomes } = view;
    let title = format!("{total} sessions, {active} with traffic, {elapsed_s:.1} s");
    let headings = [
        "subscriber",
        "addresses",
        "slice",
        "dnn",
        "up p/s",
        "up Mb/s",
        "down p/s",
        "down Mb/s",
        "seid",
    ];
    let busiest = Table::new(&headings, 4, sessions.iter().map(row).collect());
    let mut tables = vec![busiest];
    if slices.iter().any(|it| !it.slice.is_empty() || !it.dnn.is_empty()) {
        tables.extend([by_slice(slices), drops_by_slice(slices)]);
    }
    tables.extend([drops(outcomes), forwarded(outcomes)]);
    Page { title, tables }
}

fn row(it: &TopRow) -> Vec<String> {
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    vec![
        text(&it.supi),
        it.addresses.join(" "),
        text(&it.s_nssai),
        text(&it.network),
        short(it.uplink_packets_per_s as f64),
        megabits(it.uplink_octets_per_s),
        short(it.downlink_packets_per_s as f64),
        megabits(it.downlink_octets_per_s),
        it.seid.clone(),
    ]
}

fn megabits(octets: u64) -> String {
    format!("{:.3}", octets as f64 * 8.0 / 1e6)
}

/// Returns a name, or a dash if it is empty.
fn named(name: &str) -> String {
    if name.is_empty() { "-".to_owned() } else { name.to_owned() }
}

/// Returns a row for each slice and DNN.
fn by_slice(slices: &[SliceRates]) -> Table {
    let headings = [
        "slice",
        "dnn",
        "sessions",
        "up p/s",
        "up Mb/s",
        "down p/s",
        "down Mb/s",
        "dropped p/s",
        "",
    ];
    let row = |it: &SliceRates| {
        vec![
            named(&it.slice),
            named(&it.dnn),
            it.sessions.to_string(),
            short(it.uplink_packets_per_s as f64),
            megabits(it.uplink_octets_per_s),
            short(it.downlink_packets_per_s as f64),
            megabits(it.downlink_octets_per_s),
            short(it.dropped_per_s as f64),
            String::new(),
        ]
    };
    Table::new(&headings, 2, slices.iter().map(row).collect())
}

/// Returns a row for each drop reason of each slice and DNN since the start.
fn drops_by_slice(slices: &[SliceRates]) -> Table {
    let row = |(it, drops): (&SliceRates, &SliceDrops)| {
        let rate = short(drops.packets_per_s as f64);
        let reason = drops.reason.clone();
        vec![
            reason,
            named(&it.slice),
            named(&it.dnn),
            rate,
            drops.packets.to_string(),
            String::new(),
        ]
    };
    let found = slices.iter().flat_map(|it| it.drops.iter().map(move |drops| (it, drops)));
    let mut rows: Vec<Vec<String>> = found.map(row).collect();
    rows.sort_unstable();
    Table::new(&["dropped by slice", "slice", "dnn", "packets/s", "since start", ""], 3, rows)
}

/// Returns a row for each drop reason since the start.
fn drops(outcomes: &[OutcomeRate]) -> Table {
    let found = outcomes.iter().filter(|it| it.is_drop && it.packets > 0);
    let mut rows: Vec<Vec<String>> = found.map(outcome).collect();
    rows.sort_by(|one, other| one[0].cmp(&other[0]));
    Table::new(&["dropped because of", "packets/s", "since start", ""], 1, rows)
}

/// Returns a row for each other outcome since the start.
fn forwarded(outcomes: &[OutcomeRate]) -> Table {
    let found = outcomes.iter().filter(|it| !it.is_drop && it.packets > 0);
    let headings = ["other outcomes", "packets/s", "since start", ""];
    Table::new(&headings, 1, found.map(outcome).collect())
}

fn outcome(it: &OutcomeRate) -> Vec<String> {
    let rate = short(it.packets_per_s as f64);
    vec![it.outcome.clone(), rate, it.packets.to_string(), String::new()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_sessions_drops_and_other_outcomes() {
        let row = TopRow {
            seid: "0x100000007".to_owned(),
            supi: Some("001010000000007".to_owned()),
            network: None,
            s_nssai: Some("1-010203".to_owned()),
            addresses: vec!["10.45.0.2".to_owned()],
            uplink_octets_per_s: 125_000,
            uplink_packets_per_s: 1234,
            downlink_octets_per_s: 0,
            downlink_packets_per_s: 0,
        };
        let outcome = |name: &str, is_drop, packets| OutcomeRate {
            outcome: name.to_owned(),
            is_drop,
            packets_per_s: packets,
            octets_per_s: 0,
            packets,
        };
        let drop = |reason: &str, packets| SliceDrops {
            reason: reason.to_owned(),
            packets_per_s: packets,
            packets,
        };
        let view = TopView {
            elapsed_s: 2.0,
            total: 3,
            active: 1,
            sessions: vec![row],
            slices: vec![
                SliceRates {
                    slice: "1-010203".to_owned(),
                    sessions: 2,
                    uplink_packets_per_s: 1234,
                    dropped_per_s: 71,
                    drops: vec![drop("no_rule", 1), drop("gate_closed", 70)],
                    ..SliceRates::default()
                },
                SliceRates { dnn: "ims".to_owned(), sessions: 1, ..SliceRates::default() },
            ],
            outcomes: vec![
                outcome("forwarded_uplink", false, 2468),
                outcome("no_rule", true, 1),
                outcome("gate_closed", true, 70),
                outcome("malformed", true, 0),
            ],
        };
        let expected = "\
3 sessions, 1 with traffic, 2.0 s
subscriber       addresses  slice     dnn  up p/s  up Mb/s  down p/s  down Mb/s  seid
001010000000007  10.45.0.2  1-010203  -    1.23 k    1.000         0      0.000  0x100000007
slice     dnn  sessions  up p/s  up Mb/s  down p/s  down Mb/s  dropped p/s
1-010203  -           2  1.23 k    0.000         0      0.000           71
-         ims         1       0    0.000         0      0.000            0
dropped by slice  slice     dnn  packets/s  since start
gate_closed       1-010203  -           70           70
no_rule           1-010203  -            1            1
dropped because of  packets/s  since start
gate_closed                70           70
no_rule                     1            1
other outcomes    packets/s  since start
forwarded_uplink     2.47 k         2468

";
        assert_eq!(plain(&page(&view)), expected);
    }
}
