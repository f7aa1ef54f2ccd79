//! What arrives: whose it is, whether it is intact, how it stands to the others, how old it is.

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

/// The longest latency that is recorded as it is, in nanoseconds; a longer one is recorded as this.
pub const LONGEST_LATENCY: u64 = 60_000_000_000;

/// Arrivals that are not counted as received, and what else was noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Arrived again; not counted as received.
    pub duplicated: u64,
    /// Arrived after a later one of their flow (RFC 4737 clause 3.3); counted as received.
    pub reordered: u64,
    /// Of this run, but damaged; not counted as received.
    pub corrupted: u64,
    /// Too late to be told from duplicates; not counted as received.
    pub ancient: u64,
    /// Of another run, or of a flow that is not set here.
    pub other_runs: u64,
    /// Not ours: left to Linux.
    pub foreign: u64,
    /// Received with a time of sending in the future: the clocks differ.
    pub clock_skew: u64,
}

impl Counts {
    /// Both together.
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

/// The receiving half of a lane. It allocates nothing after [`new`](Self::new).
#[derive(Debug)]
pub struct Sink {
    run: u16,
    verify: Verify,
    windows: Windows,
    /// Told of answers, where somebody waits for them.
    answers: Option<Arc<Progress>>,
    /// Frames that came once at least, intact.
    pub received: Tally,
    /// The others.
    pub counts: Counts,
    /// Nanoseconds from sending to arrival of the frames received, without the warm-up.
    pub latency: Histogram<u64>,
}

/// An empty histogram of latencies: three digits up to [`LONGEST_LATENCY`]. It does not grow.
#[must_use]
pub fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_LATENCY, 3).expect("these bounds are allowed")
}

impl Sink {
    /// A sink for the frames of `run`, with a window of `window` numbers for each of `flows`.
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

    /// Tells `progress` of every frame received.
    #[must_use]
    pub fn answering(self, progress: Arc<Progress>) -> Self {
        Self { answers: Some(progress), ..self }
    }

    /// Frames of this program so far, whatever became of them.
    #[inline]
    #[must_use]
    pub fn arrivals(&self) -> u64 {
        let Counts { duplicated, corrupted, ancient, other_runs, .. } = self.counts;
        self.received.packets + duplicated + corrupted + ancient + other_runs
    }

    /// For each flow, one more than the highest number that came.
    #[must_use]
    pub fn expected(&self) -> &[u64] {
        self.windows.expected()
    }

    /// Judges a frame that arrived at `now`: ours end here, the others are Linux's. `partial` says
    /// that its transport checksum is not complete, so it is not looked at.
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

/// The layers of a UDP datagram and the place where its mark would be.
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
