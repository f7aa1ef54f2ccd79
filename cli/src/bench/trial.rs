//! A trial: what was asked for, what came of it, and whose fault it was.

use serde::{Deserialize, Serialize};

/// The generator has not sent what it should when more than this part of it was not sent in time.
const LATE: f64 = 0.01;

/// What a trial has shown. Frames out are frames in and frames lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Outcome {
    /// What the generator was asked for; 0 is as fast as it can.
    pub(super) wanted_packets_per_second: u64,
    /// What it has sent, by its clock, from the first burst to the last.
    pub(super) offered_packets_per_second: f64,
    /// What has come back.
    pub(super) received_packets_per_second: f64,
    pub(super) sent_packets: u64,
    pub(super) received_packets: u64,
    /// Sent and not received intact.
    pub(super) lost_packets: u64,
    /// Of these, damaged.
    pub(super) corrupted_packets: u64,
    /// Due by the rate, but not sent in time.
    pub(super) late_packets: u64,
    /// Of the lost: not taken by the generator's port, which was full.
    pub(super) not_taken_packets: u64,
    /// Of the lost: not received by the generator, which was too slow or had no room.
    pub(super) missed_packets: u64,
    pub(super) duplicated_packets: u64,
    pub(super) reordered_packets: u64,
    /// CPU time of the device's process from before the trial until after it.
    pub(super) device_cpu_ns: u64,
    /// How long that was.
    pub(super) elapsed_ns: u64,
    /// From sending to arrival; absent when nothing was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) latency: Option<Percentiles>,
}

/// Latencies, to three digits.
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

/// What bounds a rate from above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Limit {
    /// Frames were lost on the way: the device, or the link to it.
    Device,
    /// The generator's port was full: the device did not empty it, or the link not fast enough.
    Link,
    /// The generator did not keep up with sending or receiving; the device may be faster.
    Generator,
    /// The highest rate that was to be tried.
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
    /// Why the trial has failed; `None` when it has passed.
    pub(super) fn failure(&self, acceptable_loss_ppm: f64) -> Option<Limit> {
        if self.sent_packets == 0 {
            return Some(Limit::Generator);
        }
        if self.loss_ppm() <= acceptable_loss_ppm {
            return None;
        }
        let others = self.lost_packets.saturating_sub(self.not_taken_packets + self.missed_packets);
        // Who has lost the most is to blame.
        let blame = [
            (others, Limit::Device),
            (self.not_taken_packets, Limit::Link),
            (self.missed_packets, Limit::Generator),
        ];
        blame.into_iter().max_by_key(|(packets, _)| *packets).map(|(_, limit)| limit)
    }

    /// Whether the generator has sent less than it was asked for. What it did send counts.
    pub(super) fn is_late(&self) -> bool {
        let due = self.sent_packets + self.late_packets;
        self.late_packets as f64 > due as f64 * LATE
    }

    /// What the generator's port took, in packets a second: no device can be offered more.
    pub(super) fn taken_packets_per_second(&self) -> f64 {
        let taken = self.sent_packets.saturating_sub(self.not_taken_packets);
        self.offered_packets_per_second * taken as f64 / self.sent_packets.max(1) as f64
    }

    /// Lost of a million sent.
    pub(super) fn loss_ppm(&self) -> f64 {
        self.lost_packets as f64 * 1e6 / self.sent_packets.max(1) as f64
    }

    /// CPU time of the device for each packet that came back.
    pub(super) fn device_ns_per_packet(&self) -> f64 {
        self.device_cpu_ns as f64 / self.received_packets.max(1) as f64
    }

    /// How much of a core the device used; above 1 with several threads.
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
