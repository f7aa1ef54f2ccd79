//! Metrics for Prometheus.

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use super::slice_counts::SliceCounts;
use crate::export::ExportCounts;
use crate::pfcp::node::{DrainStatus, LimitedSessions, Statistics, UserPlaneOutcome};
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::slices::SliceLabels;
use crate::rules::publish::NatCounts;
use crate::usage::UsageStatistics;

/// Snapshot of all counters.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Number of associations that are up, and that are down.
    pub associations: [usize; 2],
    /// Number of sessions.
    pub sessions: usize,
    /// Maximum number of sessions.
    pub capacity: usize,
    /// Number of sessions by Node ID.
    pub by_association: Vec<(String, usize)>,
    /// Number of PDRs, FARs, QERs, URRs and BARs of all sessions.
    pub rules: [u64; 5],
    /// Counters of session reports.
    pub reports: UsageStatistics,
    /// Tables with their entries and capacities.
    pub tables: Vec<(&'static str, usize, usize)>,
    /// Packets and octets by drop reason, over all lanes.
    pub causes: Vec<(DropReason, [u64; 2])>,
    /// Counters by slice and DNN.
    pub slices: Vec<SliceCounts>,
    /// Sessions of slices with limits.
    pub limited_slices: Vec<LimitedSessions>,
    /// Sessions of control plane functions with limits.
    pub limited_smfs: Vec<LimitedSessions>,
    /// True if a control plane function may associate from any address.
    pub is_open: bool,
    /// Blocks of external ports.
    pub nat: NatCounts,
    /// State of the drain.
    pub drain: DrainStatus,
    /// Counters of the PFCP server.
    pub statistics: Statistics,
    /// Number of GTP-U paths that are up, and that are down.
    pub paths: [usize; 2],
    /// True if the fast path process runs.
    pub is_fast_alive: bool,
    /// True if requests were refused as congestion lately.
    pub is_congested: bool,
    /// Counters of the usage export, if there is one.
    pub export: Option<ExportCounts>,
    /// CPU time of the control plane process in ns.
    pub cpu_ns: u64,
}

/// Returns the metrics in OpenMetrics text format.
pub(super) fn page(numbers: &Snapshot) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collector(numbers.clone())));
    let mut text = String::new();
    // Writing into a String does not fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Collector(Snapshot);

type Labels<const N: usize> = [(&'static str, String); N];

impl prometheus_client::collector::Collector for Collector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let mut page = Page(encoder);
        self.state(&mut page)?;
        self.drain(&mut page)?;
        self.export(&mut page)?;
        self.nat(&mut page)?;
        self.packets(&mut page)?;
        self.slices(&mut page)?;
        self.limits(&mut page)?;
        self.messages(&mut page)?;
        self.reports(&mut page)?;
        self.node(&mut page)
    }
}

impl Collector {
    fn state(&self, page: &mut Page<'_>) -> std::fmt::Result {
        let it = &self.0;
        let [up, down] = it.associations.map(|count| count as u64);
        let states = [([("state", "up".to_owned())], up), ([("state", "down".to_owned())], down)];
        page.gauges("upf_associations", "Associations with control plane functions.", states)?;
        page.gauges::<0>("upf_sessions", "PFCP sessions.", [([], it.sessions as u64)])?;
        page.gauges::<0>(
            "upf_sessions_most",
            "Maximum number of sessions.",
            [([], it.capacity as u64)],
        )?;
        let of = it.by_association.iter();
        let of = of.map(|(node, count)| ([("node_id", node.clone())], *count as u64));
        let open = u64::from(it.is_open);
        let help = "1 if a control plane function may associate from any address.";
        page.gauges::<0>("upf_n4_open", help, [([], open)])?;
        page.gauges("upf_association_sessions", "PFCP sessions, by association.", of)?;
        let kinds = ["pdr", "far", "qer", "urr", "bar"].into_iter().zip(it.rules);
        let kinds = kinds.map(|(kind, count)| ([("kind", kind.to_owned())], count));
        page.gauges("upf_rules", "Rules of all sessions, by kind.", kinds)?;
        let alive = u64::from(it.is_fast_alive);
        page.gauges::<0>("upf_fast_half_up", "1 if the fast path process runs.", [([], alive)])?;
        let [up, down] = it.paths.map(|count| count as u64);
        let states = [([("state", "up".to_owned())], up), ([("state", "down".to_owned())], down)];
        page.gauges("upf_gtp_paths", "GTP-U peers that are probed.", states)?;
        let table = |name: &str| [("table", name.to_owned())];
        let entries = it.tables.iter().map(|(name, entries, _)| (table(name), *entries as u64));
        page.gauges("upf_table_entries", "Entries of tables: rules, keys, records.", entries)?;
        let most = it.tables.iter().map(|(name, _, capacity)| (table(name), *capacity as u64));
        page.gauges("upf_table_entries_most", "Capacities of tables.", most)
    }

    fn drain(&self, page: &mut Page<'_>) -> std::fmt::Result {
        let it = &self.0.drain;
        let help = "1 if new sessions and associations are refused because of a drain.";
        page.gauges::<0>("upf_draining", help, [([], u64::from(it.is_draining))])?;
        let help = "Rest of the release period of a drain; 0 without one.";
        let seconds = it.left.unwrap_or(0) as f64 / 1e9;
        let name = "upf_drain_period_left";
        let metric =
            page.0.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
        ConstGauge::new(seconds).encode(metric)
    }

    fn export(&self, page: &mut Page<'_>) -> std::fmt::Result {
        let Some(it) = self.0.export else { return Ok(()) };
        let help = "Collectors of usage records that are connected.";
        page.gauges::<0>("upf_usage_collectors", help, [([], it.collectors as u64)])?;
        let help = "Usage records.";
        page.counters::<0>("upf_usage_records", help, [([], it.lines)])?;
        let lost = [("cut_off", it.cut_off), ("refused", it.refused)];
        let lost = lost.map(|(reason, count)| ([("reason", reason.to_owned())], count));
        let help = "Collectors disconnected because they did not read, or were too many.";
        page.counters("upf_usage_collectors_lost", help, lost)
    }

    fn nat(&self, page: &mut Page<'_>) -> std::fmt::Result {
        let it = self.0.nat;
        let free = it.blocks.saturating_sub(it.used).saturating_sub(it.resting);
        let states = [("used", it.used), ("resting", it.resting), ("free", free)];
        let states = states.map(|(state, count)| ([("state", state.to_owned())], count));
        page.gauges("upf_nat_blocks", "Blocks of external ports, by state.", states)?;
        let all = [
            ("upf_nat_block_allocations", "Blocks allocated to users.", it.allocated),
            ("upf_nat_block_releases", "Blocks released.", it.released),
            ("upf_nat_block_exhausted", "Users that got no block.", it.exhausted),
            ("upf_nat_log_failed", "Lines not written to the log of blocks.", it.log_failed),
        ];
        for (name, help, count) in all {
            page.counters::<0>(name, help, [([], count)])?;
        }
        Ok(())
    }

    fn packets(&self, page: &mut Page<'_>) -> std::fmt::Result {
        let cause = |cause: DropReason| [("cause", cause.name().to_owned())];
        let all = || self.0.causes.iter();
        let packets = all().map(|(which, [packets, _])| (cause(*which), *packets));
        page.counters("upf_packets", "Packets by outcome or drop reason.", packets)?;
        let octets = all().map(|(which, [_, octets])| (cause(*which), *octets));
        page.counters("upf_octets", "Octets of inner IP packets by outcome or drop reason.", octets)
    }

    fn slices(&self, page: &mut Page<'_>) -> std::fmt::Result {
        let all = || self.0.slices.iter();
        let labels = |it: &SliceLabels| [("slice", it.slice.clone()), ("dnn", it.dnn.clone())];
        let sessions = all().map(|it| (labels(&it.labels), it.sessions as u64));
        page.gauges("upf_slice_sessions", "PFCP sessions, by slice and DNN.", sessions)?;
        let established = self.0.statistics.establishments.iter().map(|((of, outcome), count)| {
            let [slice, dnn] = labels(of);
            ([slice, dnn, ("outcome", outcome.name().to_owned())], *count)
        });
        let help = "Session establishments, by slice, DNN and outcome.";
        page.counters("upf_slice_establishments", help, established)?;
        let forwarded = |unit: usize| {
            all().flat_map(move |it| {
                ["uplink", "downlink"].into_iter().zip(it.forwarded).map(move |(name, counts)| {
                    let [slice, dnn] = labels(&it.labels);
                    ([slice, dnn, ("direction", name.to_owned())], counts[unit])
                })
            })
        };
        let help = "Packets forwarded, by slice, DNN and direction.";
        page.counters("upf_slice_packets", help, forwarded(0))?;
        let help = "Octets of forwarded packets as they arrived, by slice, DNN and direction.";
        page.counters("upf_slice_octets", help, forwarded(1))?;
        let dropped = all().flat_map(|it| {
            it.drops().map(move |(reason, packets)| {
                let [slice, dnn] = labels(&it.labels);
                ([slice, dnn, ("cause", reason.name().to_owned())], packets)
            })
        });
        let help = "Packets dropped, by slice, DNN and reason.";
        page.counters("upf_slice_drops", help, dropped)
    }

    fn limits(&self, page: &mut Page<'_>) -> std::fmt::Result {
        let most = |label: &'static str, all: &[LimitedSessions]| {
            let most = all.iter().filter_map(|it| Some((it.name.clone(), it.most?)));
            most.map(|(name, most)| ([(label, name)], u64::from(most))).collect::<Vec<_>>()
        };
        let Snapshot { limited_slices, limited_smfs, statistics, .. } = &self.0;
        let help = "Maximum number of sessions, by slice.";
        page.gauges("upf_slice_sessions_most", help, most("slice", limited_slices))?;
        let sessions = limited_smfs.iter().map(|it| ([("smf", it.name.clone())], it.sessions));
        let sessions = sessions.map(|(labels, count)| (labels, count as u64));
        let help = "Sessions of the SMFs that an entry of app.n4.limits covers.";
        page.gauges("upf_smf_sessions", help, sessions)?;
        let help = "Maximum number of sessions of the SMFs that an entry covers.";
        page.gauges("upf_smf_sessions_most", help, most("smf", limited_smfs))?;
        let refused = statistics.smfs_refused.iter().map(|((smf, outcome), count)| {
            ([("smf", smf.clone()), ("outcome", outcome.name().to_owned())], *count)
        });
        let help = "Establishments refused because of the limits of an entry, by entry and limit.";
        page.counters("upf_smf_refused", help, refused)
    }

    fn messages(&self, page: &mut Page<'_>) -> std::fmt::Result {
        let it = &self.0.statistics;
        let kind = |kind: u8| [("type", kind.to_string())];
        let with_cause =
            |kind: u8, cause: u8| [("type", kind.to_string()), ("cause", cause.to_string())];
        let received = it.received.iter().map(|(which, count)| (kind(*which), *count));
        page.counters("upf_pfcp_received", "PFCP messages received, by type.", received)?;
        let answered = it.answered.iter();
        let answered = answered.map(|((which, cause), count)| (with_cause(*which, *cause), *count));
        page.counters("upf_pfcp_answered", "PFCP responses sent, by type and cause.", answered)?;
        let sent = it.requested.iter().map(|(which, count)| (kind(*which), *count));
        page.counters("upf_pfcp_requested", "PFCP requests sent, by type.", sent)?;
        let answers = it.answers.iter();
        let answers = answers.map(|((which, cause), count)| (with_cause(*which, *cause), *count));
        page.counters("upf_pfcp_answers", "PFCP responses received, by type and cause.", answers)?;
        let silent = it.unanswered.iter().map(|(which, count)| (kind(*which), *count));
        page.counters("upf_pfcp_unanswered", "PFCP requests without a response.", silent)?;
        let sources = it.sources_refused.iter().map(|((which, why), count)| {
            ([("type", which.to_string()), ("reason", why.name().to_owned())], *count)
        });
        page.counters(
            "upf_pfcp_sources_refused",
            "PFCP requests refused because of their source address, by type and reason.",
            sources,
        )?;
        let reason = |(why, count): (&crate::pfcp::node::Discarded, &u64)| {
            ([("reason", why.name().to_owned())], *count)
        };
        let discarded = it.discarded.iter().map(reason);
        page.counters(
            "upf_pfcp_discarded",
            "PFCP datagrams discarded without a response.",
            discarded,
        )?;
        let outcome = |it: &UserPlaneOutcome| [("outcome", it.name().to_owned())];
        let user_plane = it.user_plane.iter().map(|(it, count)| (outcome(it), *count));
        page.counters(
            "upf_n4_user_packets",
            "GTP-U messages between control plane functions and UEs by N4, by outcome.",
            user_plane,
        )?;
        let lanes = it.lane_messages.iter();
        let lanes = lanes.map(|(kind, count)| ([("kind", kind.to_string())], *count));
        page.counters("upf_lane_messages", "Messages from lanes, by kind.", lanes)
    }

    fn reports(&self, page: &mut Page<'_>) -> std::fmt::Result {
        let it = &self.0.reports;
        let kinds = [
            ("usage", it.usage_reports),
            ("downlink_data", it.downlink_reports),
            ("inactivity", it.inactivity_reports),
            ("error_indication", it.error_reports),
        ];
        let kinds = kinds.map(|(kind, count)| ([("kind", kind.to_owned())], count));
        page.counters(
            "upf_reports",
            "Session reports to the control plane function, by kind.",
            kinds,
        )?;
        page.counters::<0>(
            "upf_error_indications_ignored",
            "Error indications for tunnels that no session has.",
            [([], it.errors_ignored)],
        )?;
        page.counters::<0>(
            "upf_reports_redirected",
            "Session reports sent to another SMF than that of the CP F-SEID.",
            [([], it.redirected)],
        )?;
        let outcomes = [
            ("unanswered", it.unanswered),
            ("refused", it.refused),
            ("unknown_session", it.unknown_there),
            ("not_kept", it.not_kept),
        ];
        let outcomes = outcomes.map(|(outcome, count)| ([("outcome", outcome.to_owned())], count));
        page.counters("upf_reports_failed", "Session reports that failed, by outcome.", outcomes)
    }

    fn node(&self, page: &mut Page<'_>) -> std::fmt::Result {
        let it = &self.0.statistics;
        let all = [
            (
                "upf_pfcp_repeated",
                "PFCP responses repeated for retransmitted requests.",
                it.repeated,
            ),
            ("upf_pfcp_send_failed", "Datagrams that could not be sent.", it.send_failed),
            ("upf_associations_up", "Associations set up.", it.associations_up),
            ("upf_associations_released", "Associations released.", it.associations_released),
            (
                "upf_associations_lost",
                "Associations lost because the peer stopped responding.",
                it.associations_lost,
            ),
            ("upf_restorations", "Peers that restarted.", it.restorations),
            ("upf_sessions_removed", "Sessions removed with their peer.", it.sessions_removed),
            ("upf_gtp_paths_failed", "GTP-U paths that failed.", it.paths_failed),
            ("upf_gtp_paths_recovered", "GTP-U paths that recovered.", it.paths_recovered),
            ("upf_end_markers_given_up", "End markers not sent in time.", it.end_markers_given_up),
            ("upf_table_failed", "Table updates that failed.", it.table_failed),
        ];
        for (name, help, count) in all {
            page.counters::<0>(name, help, [([], count)])?;
        }
        let seconds = self.0.cpu_ns as f64 / 1e9;
        let help = "CPU time of the control plane process.";
        let name = "upf_slow_half_cpu";
        let mut metric =
            page.0.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, f64, f64>(&seconds, None)
    }
}

/// Encoder of the page.
struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    fn gauges<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<N>, u64)>,
    ) -> std::fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            if N == 0 {
                return ConstGauge::new(value).encode(family);
            }
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn counters<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<N>, u64)>,
    ) -> std::fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in values {
            if N == 0 {
                return ConstCounter::new(value).encode(family);
            }
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
