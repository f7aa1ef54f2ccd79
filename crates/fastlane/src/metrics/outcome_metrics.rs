//! Prometheus metrics of packets by outcome, as an application names its outcomes.

use std::fmt;

use fastlane_table::{EntryId, State};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Lane state with packets and bytes of each outcome, and the names of those in use.
#[derive(Clone, Debug)]
pub(crate) struct Outcomes {
    pub(crate) state: State<2>,
    pub(crate) names: Vec<(EntryId, String)>,
}

/// Collector that reads the lane state at each scrape.
#[derive(Debug)]
pub(crate) struct OutcomeMetrics(pub(crate) Vec<Outcomes>);

impl Collector for OutcomeMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(()); // a family has samples
        }
        let families = [
            ("fastlane_outcome_packets", "Packets by what became of them in the application."),
            ("fastlane_outcome_bytes", "Bytes of these packets."),
        ];
        for (word, (name, help)) in families.into_iter().enumerate() {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for Outcomes { state, names } in &self.0 {
                for (entry, outcome) in names {
                    let labels = [("outcome", outcome.as_str())];
                    let count = state.read(*entry)[word];
                    metric
                        .encode_family(&labels)?
                        .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
                }
            }
        }
        Ok(())
    }
}
