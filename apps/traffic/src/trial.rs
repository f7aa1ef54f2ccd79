//! Part of one lane in a run: its generator, its sink and the end of the run.

use std::sync::Arc;

use fastlane::{PortId, Turn};

use crate::generator::{Generator, NextSend};
use crate::progress::Progress;
use crate::report::LaneResult;
use crate::sink::{Sink, new_histogram};

/// Time before a due packet from which the lane stays awake, in nanoseconds: a sleep may overrun by
/// this much.
const AWAKE: u64 = 50_000;

/// End of a run that only receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    /// Number of packets to wait for; 0 means no limit.
    pub(crate) count: u64,
    /// Duration in nanoseconds; 0 means no limit.
    pub(crate) duration: u64,
}

/// Kind of timer that a trial starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Departure of the next packet.
    Wake,
    /// End of the run, unless a frame arrives before.
    Linger,
    /// End of the run.
    End,
}

/// All kinds of timers. The key of a timer holds kind and run, so a timer left over from an earlier
/// trial has no effect.
const KINDS: [Timer; 3] = [Timer::Wake, Timer::Linger, Timer::End];

/// Generator and sink of a lane in a run, and the end of the run.
#[derive(Debug)]
pub(crate) struct TrialParts {
    /// Generator, in a lane that sends.
    pub(crate) generator: Option<Generator>,
    pub(crate) sink: Sink,
    pub(crate) sink_port: PortId,
    /// End condition of a run that only receives.
    pub(crate) until: Option<Until>,
    /// Time without arrivals after the last packet that ends the run, in nanoseconds.
    pub(crate) linger: u64,
}

/// Part of one lane in a run.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) run: u16,
    pub(crate) generator: Option<Generator>,
    pub(crate) sending: bool,
    pub(crate) sink: Sink,
    pub(crate) sink_port: PortId,
    pub(crate) until: Option<Until>,
    pub(crate) linger: u64,
    pub(crate) progress: Arc<Progress>,
    wake_at: Option<u64>,
    /// Number of arrivals when the linger timer was started.
    arrivals_before: u64,
    pub(crate) begun: bool,
}

impl Trial {
    /// Creates a part of run number `run` that has not started.
    pub(crate) fn new(run: u16, parts: TrialParts, progress: &Arc<Progress>) -> Self {
        let TrialParts { generator, sink, sink_port, until, linger } = parts;
        Self {
            run,
            sending: generator.is_some(),
            generator,
            sink,
            sink_port,
            until,
            linger,
            progress: Arc::clone(progress),
            wake_at: None,
            arrivals_before: 0,
            begun: false,
        }
    }

    /// Publishes the counts of lane `lane` to the other lanes, after each burst.
    #[inline]
    pub(crate) fn publish(&mut self, lane: usize, turn: &mut Turn) {
        let received = self.sink.received.packets;
        self.progress.publish(lane, self.sink.arrivals(), received);
        if let Some(Until { count: wanted @ 1.., .. }) = self.until
            && self.progress.has_received(wanted)
        {
            self.linger(turn);
        }
    }

    /// Performs the work that is due in this turn of lane `lane`.
    pub(crate) fn turn(&mut self, lane: usize, turn: &mut Turn) {
        if !self.begun {
            self.begun = true;
            self.progress.lane_has_begun();
            if let Some(Until { duration: duration @ 1.., .. }) = self.until
                && lane == 0
            {
                self.start_timer(duration, Timer::End, turn);
            }
        }
        if let Some(generator) = self.generator.as_mut().filter(|_| self.sending) {
            if !self.progress.all_have_begun() {
                return turn.keep_awake(); // a frame may come back to any lane
            }
            match generator.turn(turn) {
                NextSend::Now => turn.keep_awake(),
                NextSend::At(due) => self.wait_until(due, turn),
                NextSend::Done => {
                    self.sending = false;
                    let sent = generator.sent.packets;
                    if self.progress.sender_is_done(sent) {
                        self.linger(turn);
                    }
                }
            }
        }
    }

    /// Handles the expiry of the timer `key`. Returns true if it ended the run.
    pub(crate) fn expired(&mut self, key: u64, turn: &mut Turn) -> bool {
        let kind = KINDS.into_iter().find(|kind| self.key(*kind) == key);
        match kind {
            None => {}
            Some(Timer::Wake) => self.wake_at = None,
            Some(Timer::Linger) if self.progress.arrivals() != self.arrivals_before => {
                self.linger(turn);
            }
            Some(Timer::Linger | Timer::End) => {
                self.progress.set_complete();
                return true;
            }
        }
        false
    }

    fn key(&self, kind: Timer) -> u64 {
        u64::from(self.run) << 8 | kind as u64
    }

    fn wait_until(&mut self, due: u64, turn: &mut Turn) {
        let wake_at = due.saturating_sub(AWAKE);
        if wake_at <= turn.now() {
            turn.keep_awake();
        } else if self.wake_at.is_none_or(|pending| pending > wake_at) {
            if turn.start_timer(wake_at - turn.now(), self.key(Timer::Wake)) {
                self.wake_at = Some(wake_at);
            } else {
                turn.keep_awake();
            }
        }
    }

    /// Starts the linger timer, which ends the run if no frame arrives. A lane that was stalled may
    /// still have frames waiting.
    fn linger(&mut self, turn: &mut Turn) {
        self.arrivals_before = self.progress.arrivals();
        self.start_timer(self.linger, Timer::Linger, turn);
    }

    fn start_timer(&mut self, after: u64, kind: Timer, turn: &mut Turn) {
        if !turn.start_timer(after, self.key(kind)) {
            turn.end(); // not reached: this application has few timers
        }
    }

    /// Returns the counts of this lane.
    pub(crate) fn result(&mut self) -> LaneResult {
        let sink = &mut self.sink;
        let generator = self.generator.as_ref();
        LaneResult {
            sent: generator.map(|generator| generator.sent).unwrap_or_default(),
            too_long: generator.map_or(0, |generator| generator.too_long),
            skipped: generator.map_or(0, Generator::skipped),
            given_up: generator.map_or(0, Generator::given_up),
            received: sink.received,
            counts: sink.counts,
            expected: sink.expected().to_vec(),
            latency: std::mem::replace(&mut sink.latency, new_histogram()),
        }
    }
}
