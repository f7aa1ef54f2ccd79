//! Prometheus metrics of the slow path of flows.

use fastlane::metrics::{ApplicationMetric, MetricKind, MetricSample};
use fastlane::mirror::flows::{FlowStatistics, FlowStatus};
use fastlane::now;
use fastlane::table::RecordReader;

/// Returns a reader of the metrics of `router offload`, which has none before its first start.
pub fn offload_metrics(
    status: RecordReader<FlowStatus>,
) -> impl Fn() -> Vec<ApplicationMetric> + Send + Sync + 'static {
    move || status.copy().map_or_else(Vec::new, |status| metrics(&status, now()))
}

fn metrics(status: &FlowStatus, now: u64) -> Vec<ApplicationMetric> {
    let FlowStatistics { flows, .. } = status.statistics;
    let gauge = |name, help, value| ApplicationMetric {
        name,
        help,
        kind: MetricKind::Gauge,
        label: None,
        samples: vec![MetricSample::new("", value)],
    };
    let (mut refused, mut events) = (Vec::new(), Vec::new());
    for (name, count) in status.statistics.named() {
        let name = name.trim_start_matches("offload_");
        match name.strip_prefix("refused_") {
            Some(reason) => refused.push(MetricSample::new(reason, count)),
            None if name == "flows" => {} // the gauge
            None => events.push(MetricSample::new(name, count)),
        }
    }
    let counter = |name, help, label, samples| ApplicationMetric {
        name,
        help,
        kind: MetricKind::Counter,
        label: Some(label),
        samples,
    };
    vec![
        gauge(
            "fastlane_offload_active",
            "1 while flows may be fast; 0 without `router offload`, while rules judge again or one \
             acts on each packet.",
            status.permits(now).into(),
        ),
        gauge("fastlane_offload_flows", "Connections that are fast.", flows),
        counter(
            "fastlane_offload_events",
            "What the slow path of flows has done; `full`: found no room for a connection.",
            "event",
            events,
        ),
        counter(
            "fastlane_offload_refusals",
            "Reports of connections that Linux handles, by the reason.",
            "reason",
            refused,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use fastlane::mirror::flows::PinsPath;

    use super::*;

    #[test]
    fn counters_are_told_apart_from_refusals() {
        let statistics = FlowStatistics { flows: 5, full: 2, ..FlowStatistics::default() };
        let mut status = FlowStatus {
            heartbeat: 1_000,
            grace: 100,
            is_active: 1,
            mark: 1,
            mask: 1,
            one_way: 0,
            rules: 0,
            statistics,
            pins: PinsPath::default(),
        };
        status.statistics.refused[0] = 9;
        let value = |now, metric: usize, label: &str| {
            let metrics = metrics(&status, now);
            metrics[metric].samples.iter().find(|it| it.label == label).map(|it| it.value)
        };
        assert_eq!((value(1_100, 0, ""), value(1_101, 0, "")), (Some(1), Some(0)));
        assert_eq!(value(0, 1, ""), Some(5));
        assert_eq!((value(0, 2, "full"), value(0, 2, "flows")), (Some(2), None));
        assert_eq!((value(0, 3, "mark"), value(0, 3, "full")), (Some(9), None));
    }
}
