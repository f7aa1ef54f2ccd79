//! Receiver of a lane: classifies frames, detects damage, loss, duplicates and reordering, and
//! measures latency.

use std::sync::Arc;

use fastlane::Verdict;
use hdrhistogram::Histogram;

use crate::payload::{Finding, MARK_LENGTH, Mark};
use crate::progress::Progress;
use crate::settings::Verify;
use crate::tally::Tally;
use crate::window::{Arrival, Windows};
use crate::wire::checksum::{verify_ipv4_header, verify_transport};
use crate::wire::{IpProtocol, Layers, Udp};

/// Maximum recorded latency, in nanoseconds. A longer one is recorded as this.
pub const LONGEST_LATENCY: u64 = 60_000_000_000;

/// Arrivals that do not count as received, and anomalies of those that do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that arrived again; not counted as received.
    pub duplicated: u64,
    /// Frames that arrived after a later one of their flow (RFC 4737 clause 3.3); counted as
    /// received.
    pub reordered: u64,
    /// Damaged frames of this run; not counted as received.
    pub corrupted: u64,
    /// Frames too late to be distinguished from duplicates; not counted as received.
    pub ancient: u64,
    /// Frames of another run, or of a flow that is not configured here.
    pub other_runs: u64,
    /// Frames that this program did not send; left to Linux.
    pub foreign: u64,
    /// Received frames with a time of sending in the future: the clocks differ.
    pub clock_skew: u64,
}

impl Counts {
    /// Returns the sum of both.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self {
            duplicated: self.duplicated + other.duplicated,
            reordered: self.reordered + other.reordered,
            corrupted: self.corrupted + other.corrupted,
            ancient: self.ancient + other.ancient,
            other_runs: self.other_runs + other.other_runs,
            foreign: self.foreign + other.foreign,
            clock_skew: self.clock_skew + other.clock_skew,
        }
    }
}

/// Receiver of one lane. It allocates nothing after [`new`](Self::new).
#[derive(Debug)]
pub struct Sink {
    run: u16,
    verify: Verify,
    windows: Windows,
    /// State that counts returned frames, if a sender has a window.
    answers: Option<Arc<Progress>>,
    /// Frames received intact, each counted once.
    pub received: Tally,
    /// Other arrivals, and anomalies of received frames.
    pub counts: Counts,
    /// Latency of the received frames in nanoseconds, without the warm-up.
    pub latency: Histogram<u64>,
}

/// Creates an empty histogram of latencies: three digits up to [`LONGEST_LATENCY`]. It does not
/// grow.
#[must_use]
pub fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_LATENCY, 3).expect("these bounds are allowed")
}

impl Sink {
    /// Creates a sink for the frames of `run`, with a window of `window` sequence numbers for each
    /// of
    /// `flows` flows.
    #[must_use]
    pub fn new(run: u16, flows: usize, window: u32, verify: Verify) -> Self {
        Self {
            run,
            verify,
            windows: Windows::new(flows, window),
            answers: None,
            received: Tally::default(),
            counts: Counts::default(),
            latency: new_histogram(),
        }
    }

    /// Makes the sink record every received frame in `progress`.
    #[must_use]
    pub fn answering(self, progress: Arc<Progress>) -> Self {
        Self { answers: Some(progress), ..self }
    }

    /// Returns the number of all frames of this program so far.
    #[inline]
    #[must_use]
    pub fn arrivals(&self) -> u64 {
        let Counts { duplicated, corrupted, ancient, other_runs, .. } = self.counts;
        self.received.packets + duplicated + corrupted + ancient + other_runs
    }

    /// Returns one more than the highest sequence number received, for each flow.
    #[must_use]
    pub fn expected(&self) -> &[u64] {
        self.windows.expected()
    }

    /// Classifies and counts a frame that arrived at `now`. Returns `Drop` for frames of this
    /// program and `Kernel` for all others. If `partial` is true, the transport checksum is
    /// incomplete and not checked.
    #[inline]
    pub fn judge(&mut self, frame: &[u8], partial: bool, now: u64) -> Verdict {
        let Some((layers, mark)) = payload(frame) else {
            self.counts.foreign += 1;
            return Verdict::Kernel;
        };
        match Mark::read(mark, self.run) {
            Finding::Ours(mark) if self.is_intact(frame, &layers, partial) => {
                self.arrive(frame, mark, now);
            }
            Finding::Ours(_) | Finding::Damaged => self.counts.corrupted += 1,
            Finding::OtherRun => self.counts.other_runs += 1,
            Finding::Foreign => {
                self.counts.foreign += 1;
                return Verdict::Kernel;
            }
        }
        Verdict::Drop
    }

    #[inline]
    fn is_intact(&self, frame: &[u8], layers: &Layers, partial: bool) -> bool {
        if self.verify == Verify::Mark {
            return true;
        }
        (!layers.is_ipv4() || verify_ipv4_header(frame, layers) == Ok(true))
            && (partial || verify_transport(frame, layers) == Ok(true))
    }

    #[inline]
    fn arrive(&mut self, frame: &[u8], mark: Mark, now: u64) {
        if usize::from(mark.flow) >= self.windows.flows() {
            self.counts.other_runs += 1;
            return;
        }
        match self.windows.arrive(mark.flow.into(), mark.sequence) {
            Arrival::InOrder => {}
            Arrival::Late => self.counts.reordered += 1,
            Arrival::Duplicate => {
                self.counts.duplicated += 1;
                return;
            }
            Arrival::Ancient => {
                self.counts.ancient += 1;
                return;
            }
        }
        self.received.add(frame.len(), now);
        let age = mark.age(now);
        match age {
            Some(age) if mark.measured => self.latency.saturating_record(age.min(LONGEST_LATENCY)),
            Some(_) => {}
            None => self.counts.clock_skew += 1,
        }
        if let Some(progress) = &self.answers {
            progress.answer(mark.flow, now - age.unwrap_or(0));
        }
    }
}

/// Returns the layers of a UDP datagram and the bytes at the position of a mark.
#[inline]
fn payload(frame: &[u8]) -> Option<(Layers, &[u8; MARK_LENGTH])> {
    let layers = Layers::parse(frame).ok()?;
    if layers.protocol != IpProtocol::UDP {
        return None;
    }
    let start = usize::from(layers.transport) + Udp::LENGTH;
    let mark = frame.get(start..)?.first_chunk()?;
    Some((layers, mark))
}

#[cfg(test)]
mod tests;
