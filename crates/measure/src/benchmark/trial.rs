//! Outcome of a trial: requested and offered load, losses and the limit that caused them.

use serde::{Deserialize, Serialize};

/// Share of the due frames above which a generator that did not send them in time is late.
const LATE: f64 = 0.01;

/// Outcome of a trial. Sent frames are the sum of received and lost frames.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Outcome {
    /// Requested rate; 0 means as fast as possible.
    pub(super) wanted_packets_per_second: u64,
    /// Sent rate by the generator's clock, from the first burst to the last.
    pub(super) offered_packets_per_second: f64,
    /// Received rate.
    pub(super) received_packets_per_second: f64,
    pub(super) sent_packets: u64,
    pub(super) received_packets: u64,
    /// Frames sent but not received intact.
    pub(super) lost_packets: u64,
    /// Damaged frames; part of the lost ones.
    pub(super) corrupted_packets: u64,
    /// Frames due by the rate but not sent in time.
    pub(super) late_packets: u64,
    /// Lost frames that the generator's full port did not accept.
    pub(super) not_taken_packets: u64,
    /// Lost frames that the generator did not receive, because it was too slow or had no room.
    pub(super) missed_packets: u64,
    pub(super) duplicated_packets: u64,
    pub(super) reordered_packets: u64,
    /// CPU time of the device's process from before the trial until after it.
    pub(super) device_cpu_ns: u64,
    /// Duration in which the CPU time was used.
    pub(super) elapsed_ns: u64,
    /// Latency from sending to arrival; absent if none was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) latency: Option<Percentiles>,
}

/// Latencies with three significant digits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Percentiles {
    pub(super) samples: u64,
    pub(super) minimum_ns: u64,
    pub(super) mean_ns: f64,
    pub(super) p50_ns: u64,
    pub(super) p90_ns: u64,
    pub(super) p99_ns: u64,
    pub(super) p99_9_ns: u64,
    pub(super) maximum_ns: u64,
}

/// Limit of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Limit {
    /// Frames were lost on the path: by the device or the link to it.
    Device,
    /// The generator's port was full: the device did not empty it, or the link was too slow.
    Link,
    /// The generator did not keep up with sending or receiving; the device may be faster.
    Generator,
    /// Highest permitted rate was reached.
    Highest,
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Device => "the device",
            Self::Link => "the link (the generator's port was full)",
            Self::Generator => "the generator",
            Self::Highest => "the highest rate allowed",
        })
    }
}

impl Outcome {
    /// Returns the reason of a failure, or `None` if the trial passed.
    pub(super) fn failure(&self, acceptable_loss_ppm: f64) -> Option<Limit> {
        if self.sent_packets == 0 {
            return Some(Limit::Generator);
        }
        if self.loss_ppm() <= acceptable_loss_ppm {
            return None;
        }
        let others = self.lost_packets.saturating_sub(self.not_taken_packets + self.missed_packets);
        // The limit that lost the most frames is the reason.
        let blame = [
            (others, Limit::Device),
            (self.not_taken_packets, Limit::Link),
            (self.missed_packets, Limit::Generator),
        ];
        blame.into_iter().max_by_key(|(packets, _)| *packets).map(|(_, limit)| limit)
    }

    /// Returns true if the generator sent less than requested. The frames that it sent still count.
    pub(super) fn is_late(&self) -> bool {
        let due = self.sent_packets + self.late_packets;
        self.late_packets as f64 > due as f64 * LATE
    }

    /// Returns the rate that the generator's port accepted: the maximum that a device is offered.
    pub(super) fn taken_packets_per_second(&self) -> f64 {
        let taken = self.sent_packets.saturating_sub(self.not_taken_packets);
        self.offered_packets_per_second * taken as f64 / self.sent_packets.max(1) as f64
    }

    /// Returns the loss in parts per million of the sent packets.
    pub(super) fn loss_ppm(&self) -> f64 {
        self.lost_packets as f64 * 1e6 / self.sent_packets.max(1) as f64
    }

    /// Returns the device's CPU time per returned packet, in nanoseconds.
    pub(super) fn device_ns_per_packet(&self) -> f64 {
        self.device_cpu_ns as f64 / self.received_packets.max(1) as f64
    }

    /// Returns the CPU use of the device in cores; above 1 with several threads.
    pub(super) fn device_cores(&self) -> f64 {
        self.device_cpu_ns as f64 / self.elapsed_ns.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(sent: u64, lost: u64) -> Outcome {
        Outcome {
            sent_packets: sent,
            received_packets: sent - lost,
            lost_packets: lost,
            offered_packets_per_second: 1000.0,
            ..Outcome::default()
        }
    }

    #[test]
    fn a_trial_passes_by_its_loss_and_fails_by_whose_it_is() {
        assert_eq!(outcome(1000, 0).failure(0.0), None);
        assert_eq!(outcome(1000, 1).failure(0.0), Some(Limit::Device));
        assert_eq!(outcome(1000, 1).failure(1000.0), None);
        let of = |not_taken_packets, missed_packets, late_packets| Outcome {
            not_taken_packets,
            missed_packets,
            late_packets,
            ..outcome(1000, 100)
        };
        assert_eq!(of(10, 10, 0).failure(0.0), Some(Limit::Device));
        assert_eq!(of(60, 10, 0).failure(0.0), Some(Limit::Link));
        assert_eq!(of(10, 60, 0).failure(0.0), Some(Limit::Generator));
        assert!(!of(0, 0, 9).is_late() && of(0, 0, 20).is_late());
        assert_eq!(of(0, 0, 20).failure(1e6), None, "what was sent has come back");
        assert_eq!(outcome(0, 0).failure(0.0), Some(Limit::Generator));
    }

    #[test]
    fn rates_are_of_what_the_port_took() {
        let outcome = Outcome { not_taken_packets: 250, ..outcome(1000, 300) };
        assert_eq!(outcome.taken_packets_per_second(), 750.0);
        assert_eq!(outcome.loss_ppm(), 300_000.0);
    }
}
