//! What the UPF says of itself: how much of everything there is.

use std::collections::BTreeMap;
use std::fs;

use crate::place::{Place, Upf};

/// Causes that are counted besides what became of a packet.
const BESIDES: [&str; 13] = [
    "error_indication_sent",
    "error_indication_suppressed",
    "end_marker_sent",
    "extension_notification",
    "icmp_sent",
    "icmp_suppressed",
    "duplicated",
    "not_duplicated",
    "user_to_user",
    "fragmented",
    "hold_discarded",
    "redirect_sent",
    "redirect_suppressed",
];

/// At one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The processes of the halves.
    pub(crate) halves: [u32; 2],
    pub(crate) sessions: u64,
    /// Associations, whether they are up or not.
    pub(crate) associations: u64,
    /// Entries of tables.
    pub(crate) tables: BTreeMap<String, u64>,
    /// Packets, by what became of them.
    pub(crate) packets: BTreeMap<String, u64>,
}

impl State {
    /// Asks the UPF.
    #[track_caller]
    pub(crate) fn of(place: &Place, upf: &Upf) -> Self {
        let halves = ["fast", "slow"].map(|half| upf.half(half));
        let mut state = Self { halves, ..Self::default() };
        for line in place.ask("/metrics").lines() {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<u64>() else { continue };
            let (name, label) = name.split_once('{').unwrap_or((name, ""));
            let label = label.split('"').nth(1).unwrap_or_default().to_owned();
            match name {
                "upf_sessions" => state.sessions = value,
                "upf_associations" => state.associations += value,
                "upf_table_entries" => drop(state.tables.insert(label, value)),
                "upf_packets_total" => drop(state.packets.insert(label, value)),
                _ => {}
            }
        }
        assert!(!state.tables.is_empty() && !state.packets.is_empty(), "no metrics");
        state
    }

    /// Packets of which it is counted what became of them.
    pub(crate) fn fates(&self) -> u64 {
        let all = self.packets.iter().filter(|(name, _)| !BESIDES.contains(&name.as_str()));
        all.map(|(_, count)| count).sum()
    }

    /// Resident memory of both halves in KiB that is neither of files nor shared.
    #[track_caller]
    pub(crate) fn memory(&self) -> u64 {
        self.halves.iter().map(|half| anonymous(*half)).sum()
    }
}

#[track_caller]
fn anonymous(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("its memory");
    line.split_whitespace().next().and_then(|it| it.parse().ok()).expect("KiB")
}

/// What Linux has counted of UDP in the UPF's namespace: datagrams that were received, and those
/// that were lost because a buffer was full.
#[track_caller]
pub(crate) fn datagrams(place: &Place) -> [u64; 2] {
    let text = place.lab.left.run(&["cat", "/proc/net/snmp"]);
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let all: BTreeMap<&str, &str> = names.split(' ').zip(values.split(' ')).collect();
    ["InDatagrams", "RcvbufErrors"].map(|name| all[name].parse().expect("a number"))
}
