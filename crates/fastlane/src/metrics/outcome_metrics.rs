//! Prometheus metrics of packets by outcome, as an application names its outcomes.

use std::fmt;
use std::sync::Arc;

use fastlane_table::{EntryId, State};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Packets and bytes with an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutcomeCounts {
    /// Name of the outcome.
    pub name: String,
    /// Number of packets.
    pub packets: u64,
    /// Number of their bytes.
    pub octets: u64,
}

/// Lane state with packets and bytes of each outcome, and the names of those in use.
#[derive(Clone, Debug)]
pub(crate) struct Outcomes {
    pub(crate) state: State<2>,
    pub(crate) names: Vec<(EntryId, String)>,
}

/// Counts of outcomes outside of lanes, read at each scrape.
#[derive(Clone)]
pub(crate) struct OutcomeSource(pub(crate) Arc<dyn Fn() -> Vec<OutcomeCounts> + Send + Sync>);

impl fmt::Debug for OutcomeSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("OutcomeSource")
    }
}

/// Collector that reads the lane state and the other sources at each scrape.
#[derive(Debug)]
pub(crate) struct OutcomeMetrics {
    pub(crate) lanes: Vec<Outcomes>,
    pub(crate) sources: Vec<OutcomeSource>,
}

impl OutcomeMetrics {
    /// Returns the sums by name.
    fn counts(&self) -> Vec<OutcomeCounts> {
        let of_lanes = self.lanes.iter().flat_map(|Outcomes { state, names }| {
            names.iter().map(|(entry, name)| {
                let [packets, octets] = state.read(*entry);
                OutcomeCounts { name: name.clone(), packets, octets }
            })
        });
        let mut all: Vec<OutcomeCounts> = of_lanes.collect();
        for count in self.sources.iter().flat_map(|source| source.0()) {
            match all.iter_mut().find(|known| known.name == count.name) {
                Some(known) => {
                    known.packets += count.packets;
                    known.octets += count.octets;
                }
                None => all.push(count),
            }
        }
        all
    }
}

impl Collector for OutcomeMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.counts();
        if counts.is_empty() {
            return Ok(()); // a family has samples
        }
        let families = [
            ("fastlane_outcome_packets", "Packets by what became of them in the application."),
            ("fastlane_outcome_bytes", "Bytes of these packets."),
        ];
        for (word, (name, help)) in families.into_iter().enumerate() {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for OutcomeCounts { name, packets, octets } in &counts {
                let labels = [("outcome", name.as_str())];
                let count = [*packets, *octets][word];
                metric
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        Ok(())
    }
}
