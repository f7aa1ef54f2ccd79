//! Replies of the API as text.

use std::fmt::Write;

use crate::api::view::{AssociationView, PacketView, Page, Trace, WayView};

pub(super) fn associations(all: &[AssociationView]) -> String {
    let mut text = row(&["node id", "address", "up", "features", "sessions"]);
    for it in all {
        let up = if it.is_up { "yes" } else { "no" };
        text += &row(&[&it.node_id, &it.address, up, &it.features, &it.sessions.to_string()]);
    }
    text
}

pub(super) fn sessions(page: &Page) -> String {
    let mut text = row(&["seid", "subscriber", "addresses", "rules", "octets up", "octets down"]);
    for it in &page.sessions {
        let [up, _, down, _] = it.counted;
        text += &row(&[
            &it.seid,
            it.supi.as_deref().unwrap_or("-"),
            &it.addresses.join(" "),
            &it.rules.map(|count| count.to_string()).join("/"),
            &up.to_string(),
            &down.to_string(),
        ]);
    }
    // Writing into a String does not fail.
    let _ = writeln!(text, "{} of {} sessions", page.sessions.len(), page.total);
    text
}

pub(super) fn trace(trace: &Trace) -> String {
    let mut text = String::new();
    for session in &trace.sessions {
        let row = &session.row;
        let supi = row.supi.as_deref().map_or(String::new(), |supi| format!(" of imsi-{supi}"));
        let _ = writeln!(text, "session {}{supi}: {}", row.seid, row.addresses.join(", "));
        for tunnel in &row.tunnels {
            let _ = writeln!(text, "  arrives by {tunnel}");
        }
        let [up, up_packets, down, down_packets] = row.counted;
        let _ = writeln!(
            text,
            "  counted: {up_packets} packets, {up} octets up; {down_packets} packets, {down} \
             octets down"
        );
        if session.packets.is_empty() {
            text.extend(session.ways.iter().map(way));
        }
        text.extend(session.packets.iter().map(packet));
    }
    text
}

/// Formats the decision about a sample packet.
fn packet(it: &PacketView) -> String {
    let mut text = format!("{}: {}\n", it.direction, it.packet);
    if let Some(tunnel) = &it.tunnel {
        let _ = writeln!(text, "  arrives by {tunnel}");
    }
    match &it.way {
        Some(way) => text += &self::way(&WayView { cause: it.cause.clone(), ..way.clone() }),
        None => {
            let _ = writeln!(text, "  {}: {}", it.fate, it.cause.as_deref().unwrap_or("no rule"));
        }
    }
    text
}

fn way(it: &WayView) -> String {
    let mut text = format!(
        "  from {:<8} PDR {} (precedence {}) -> FAR {} ({})",
        it.source,
        it.pdr,
        it.precedence,
        it.far,
        it.actions.join(", ")
    );
    for (name, numbers) in [("QER", &it.qers), ("URR", &it.urrs)] {
        let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
        if !numbers.is_empty() {
            let _ = write!(text, ", {name} {}", numbers.join(" "));
        }
    }
    let _ = match (&it.cause, &it.to) {
        (Some(cause), _) => write!(text, "\n    {}: {cause}", it.fate),
        (None, Some(to)) => write!(text, "\n    {} to {to}", it.fate),
        (None, None) => write!(text, "\n    {}", it.fate),
    };
    if let Some(next_hop) = &it.next_hop {
        let _ = write!(text, ", {next_hop}");
    }
    text.push('\n');
    text
}

/// Formats a row of columns, all but the last padded.
fn row(cells: &[&str]) -> String {
    let widths = [20, 20, 34, 12, 14, 14];
    let cells = cells.iter().zip(widths);
    let line: String = cells.map(|(cell, width)| format!("{cell:<width$} ")).collect();
    format!("{}\n", line.trim_end())
}
