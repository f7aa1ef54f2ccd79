//! Prometheus metrics that an application has besides its packets.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// A metric of an application, as it is at one scrape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationMetric {
    /// Name with its unit, such as `fastlane_flows`. A counter is exported with `_total` behind it.
    pub name: &'static str,
    /// Sentence that says what it is.
    pub help: &'static str,
    /// Kind of the metric.
    pub kind: MetricKind,
    /// Name of the label that tells the samples apart; `None` if there is one sample.
    pub label: Option<&'static str>,
    /// Samples, at most one for each value of the label.
    pub samples: Vec<MetricSample>,
}

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A number that only grows.
    Counter,
    /// A number that goes up and down.
    Gauge,
}

/// Sample of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricSample {
    /// Value of the label; unused if the metric has none.
    pub label: String,
    /// Current value.
    pub value: u64,
}

impl MetricSample {
    /// Creates a sample.
    #[must_use]
    pub fn new(label: impl Into<String>, value: u64) -> Self {
        Self { label: label.into(), value }
    }
}

/// Metrics of an application, read at each scrape.
#[derive(Clone)]
pub(crate) struct MetricSource(pub(crate) Arc<dyn Fn() -> Vec<ApplicationMetric> + Send + Sync>);

impl fmt::Debug for MetricSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("MetricSource")
    }
}

/// Collector that asks the sources at each scrape.
#[derive(Debug)]
pub(crate) struct ApplicationMetrics(pub(crate) Vec<MetricSource>);

impl Collector for ApplicationMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in self.0.iter().flat_map(|source| source.0()) {
            let ApplicationMetric { name, help, kind, label, samples } = metric;
            if samples.is_empty() {
                continue; // a family has samples
            }
            let of = match kind {
                MetricKind::Counter => MetricType::Counter,
                MetricKind::Gauge => MetricType::Gauge,
            };
            let mut family = encoder.encode_descriptor(name, help, None, of)?;
            for MetricSample { label: value, value: number } in &samples {
                match label {
                    None => encode(&mut family, kind, *number)?,
                    Some(label) => {
                        let labels = [(label, value.as_str())];
                        encode(&mut family.encode_family(&labels)?, kind, *number)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn encode(encoder: &mut MetricEncoder<'_>, kind: MetricKind, value: u64) -> fmt::Result {
    match kind {
        MetricKind::Counter => encoder.encode_counter::<NoLabelSet, _, u64>(&value, None),
        MetricKind::Gauge => encoder.encode_gauge(&value),
    }
}
