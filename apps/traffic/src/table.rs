//! Report as a text table.

use std::fmt;

use crate::report::{Direction, Latency, Received, Report};
use crate::settings::Mode;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Mode::RoundTrip => "round trip",
            Mode::OneWay => "one way",
            Mode::Send => "send",
            Mode::Receive => "receive",
        };
        let (run, lanes, flows) = (self.run, self.lanes, self.flows);
        writeln!(f, "traffic: {mode}, run {run}, flows {flows}, lanes {lanes}")?;
        if !self.complete {
            writeln!(f, "  interrupted: what was on its way counts as lost")?;
        }
        if let Some(sent) = self.sent {
            direction(f, "sent", sent)?;
            if self.wanted_packets_per_second > 0 {
                let wanted = self.wanted_packets_per_second as f64;
                writeln!(f, "  {:<12}{:>14}  {:>14} packets/s", "wanted", "", quantity(wanted))?;
            }
        }
        if self.skipped_packets > 0 {
            row(f, "skipped", self.skipped_packets, "due, but the lane was late")?;
        }
        if self.too_long_packets > 0 {
            row(f, "too long", self.too_long_packets, "not sent: raise lanes.frame-size")?;
        }
        if self.given_up_packets > 0 {
            row(f, "given up", self.given_up_packets, "not back within answer-timeout-ms")?;
        }
        self.received.as_ref().map_or(Ok(()), |received| write_received(f, received))
    }
}

fn write_received(f: &mut fmt::Formatter<'_>, received: &Received) -> fmt::Result {
    direction(f, "received", received.direction)?;
    row(f, "lost", received.lost_packets, &format!("{:.3} ppm", received.lost_ppm))?;
    row(f, "duplicated", received.duplicated_packets, "")?;
    row(f, "reordered", received.reordered_packets, "")?;
    row(f, "corrupted", received.corrupted_packets, "")?;
    for (name, packets, note) in [
        ("too late", received.ancient_packets, "counted as lost: raise window-packets"),
        ("other runs", received.other_run_packets, "not counted"),
        ("foreign", received.foreign_packets, "left to Linux"),
        ("clock skew", received.clock_skew_packets, "latency unknown: the clocks differ"),
    ] {
        if packets > 0 {
            row(f, name, packets, note)?;
        }
    }
    if received.split_flows > 0 {
        let note = "came to several lanes: duplicates between them are not seen";
        row(f, "split flows", received.split_flows as u64, note)?;
    }
    received.latency.map_or(Ok(()), |latency| write_latency(f, latency))
}

fn write_latency(f: &mut fmt::Formatter<'_>, latency: Latency) -> fmt::Result {
    let microseconds = |nanoseconds: u64| format!("{:.3}", nanoseconds as f64 / 1e3);
    write!(f, "  {:<12}", "latency us")?;
    for (name, value) in [
        ("min", latency.minimum_ns),
        ("p50", latency.p50_ns),
        ("p90", latency.p90_ns),
        ("p99", latency.p99_ns),
        ("p99.9", latency.p99_9_ns),
        ("max", latency.maximum_ns),
    ] {
        write!(f, "  {name} {}", microseconds(value))?;
    }
    writeln!(f)?;
    row(f, "samples", latency.samples, &format!("mean {:.3} us", latency.mean_ns / 1e3))
}

fn direction(f: &mut fmt::Formatter<'_>, name: &str, direction: Direction) -> fmt::Result {
    let Direction { packets, packets_per_second, bits_per_second, .. } = direction;
    let (rate, gigabits) = (quantity(packets_per_second), bits_per_second / 1e9);
    writeln!(f, "  {name:<12}{packets:>14}  {rate:>14} packets/s  {gigabits:.3} Gb/s")
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, packets: u64, note: &str) -> fmt::Result {
    let line = format!("  {name:<12}{packets:>14}  {note}");
    writeln!(f, "{}", line.trim_end())
}

/// Formats a rate: two decimals below 100, none above.
fn quantity(rate: f64) -> String {
    if rate < 100.0 { format!("{rate:.2}") } else { format!("{rate:.0}") }
}
