//! Snapshot of the UPF's resources from its metrics.

use std::collections::BTreeMap;
use std::fs;

use fastlane_tests::upf::{Upf, UpfLab};

/// Counters of `upf_packets_total` that are not outcomes of a packet.
const NOT_OUTCOMES: [&str; 18] = [
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
    "reassembled",
    "reassembly_timeout",
    "reassembly_no_room",
    "reassembly_refused",
    "icmp_no_source",
];

/// Resources of the UPF at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Process IDs of fast and slow path.
    pub(crate) processes: [u32; 2],
    pub(crate) sessions: u64,
    /// Associations in any state.
    pub(crate) associations: u64,
    /// Entries by table.
    pub(crate) tables: BTreeMap<String, u64>,
    /// Packets by outcome and other counters.
    pub(crate) packets: BTreeMap<String, u64>,
}

impl State {
    /// Reads the UPF's metrics.
    #[track_caller]
    pub(crate) fn of(lab: &UpfLab, upf: &Upf) -> Self {
        let processes = ["fast", "slow"].map(|path| upf.process_id(path));
        let mut state = Self { processes, ..Self::default() };
        for line in lab.get("/metrics").lines() {
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

    /// Returns the number of packets with a counted outcome.
    pub(crate) fn outcomes(&self) -> u64 {
        let all = self.packets.iter().filter(|(name, _)| !NOT_OUTCOMES.contains(&name.as_str()));
        all.map(|(_, count)| count).sum()
    }

    /// Returns the anonymous resident memory of both processes in KiB.
    #[track_caller]
    pub(crate) fn memory(&self) -> u64 {
        self.processes.iter().map(|process| anonymous(*process)).sum()
    }
}

#[track_caller]
fn anonymous(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("its memory");
    line.split_whitespace().next().and_then(|it| it.parse().ok()).expect("KiB")
}

/// Returns Linux's UDP counters in the UPF's namespace: datagrams received, and datagrams lost to a
/// full receive buffer.
#[track_caller]
pub(crate) fn datagrams(lab: &UpfLab) -> [u64; 2] {
    let text = lab.hosts.left.run(&["cat", "/proc/net/snmp"]);
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let all: BTreeMap<&str, &str> = names.split(' ').zip(values.split(' ')).collect();
    ["InDatagrams", "RcvbufErrors"].map(|name| all[name].parse().expect("a number"))
}
