//! Prometheus metrics of the mirror.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use fastlane_mirror::FollowerStatistics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Collector that reads the statistics of the mirror's thread at each scrape.
#[derive(Debug)]
pub(crate) struct MirrorMetrics(Arc<Mutex<FollowerStatistics>>);

impl MirrorMetrics {
    pub(super) fn new(statistics: Arc<Mutex<FollowerStatistics>>) -> Self {
        Self(statistics)
    }
}

impl Collector for MirrorMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let said = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let held = said.occupancy;
        let counters = [
            ("events", "What Linux has said.", said.events),
            ("generations", "How often the tables were written.", said.generation),
            ("resyncs", "How often everything was read anew.", said.resyncs),
            ("overruns", "How often events were lost.", said.overruns),
            ("doubts", "How often Linux may have changed something in silence.", said.doubts),
            ("interrupted", "How often what was read had changed meanwhile.", said.interrupted),
            ("probes", "How often Linux was asked to look after a neighbour.", said.probes),
            ("malformed", "Messages that could not be read.", said.malformed),
            ("refused", "Entries that found no room in a table.", held.refused),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            let kind = counter.metric_type();
            let name = format!("fastlane_mirror_{name}");
            counter.encode(encoder.encode_descriptor(&name, help, None, kind)?)?;
        }
        let gauges = [
            ("routes", "Destinations in the tables.", held.routes as u64),
            ("neighbours", "Neighbours in the tables.", held.neighbours as u64),
            ("hops", "Next hops in the tables.", held.hops as u64),
            ("waiting", "Destinations that find no room.", held.waiting as u64),
            ("resync_nanoseconds", "How long the last reading took.", said.resync_time),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value as i64);
            let kind = gauge.metric_type();
            let name = format!("fastlane_mirror_{name}");
            gauge.encode(encoder.encode_descriptor(&name, help, None, kind)?)?;
        }
        Ok(())
    }
}
