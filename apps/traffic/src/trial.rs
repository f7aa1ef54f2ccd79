//! One lane's part in a run: what it sends, what it receives, and when that is over.

use std::sync::Arc;

use fastlane::{PortId, Turn};

use crate::generator::{Generator, Next};
use crate::progress::Progress;
use crate::report::LaneResult;
use crate::sink::{Sink, new_histogram};

/// What is due sooner is waited for awake, in nanoseconds: a sleep may take so much longer.
const AWAKE: u64 = 50_000;

/// When a run ends that does not send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    /// Packets to wait for; 0 is no such end.
    pub(crate) count: u64,
    /// How long, in nanoseconds; 0 is no such end.
    pub(crate) duration: u64,
}

/// A timer that a trial has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// For the next packet.
    Wake,
    /// For the end of the run, unless something has come meanwhile.
    Linger,
    /// For the end of the run.
    End,
}

/// Timers have room for a key: the kind and the run, so that one left over from an earlier trial
/// does nothing.
const KINDS: [Timer; 3] = [Timer::Wake, Timer::Linger, Timer::End];

/// A lane's part.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) run: u16,
    pub(crate) generator: Option<Generator>,
    pub(crate) sending: bool,
    pub(crate) sink: Sink,
    pub(crate) sink_port: PortId,
    /// Of a run that only receives.
    pub(crate) until: Option<Until>,
    /// For how long nothing must come after the last packet, in nanoseconds.
    pub(crate) linger: u64,
    pub(crate) progress: Arc<Progress>,
    wake_at: Option<u64>,
    /// Frames that had come when the linger timer was started.
    arrivals_before: u64,
    pub(crate) begun: bool,
}

impl Trial {
    /// A part that has not begun: `linger` is in nanoseconds.
    pub(crate) fn new(
        run: u16,
        generator: Option<Generator>,
        (sink, sink_port): (Sink, PortId),
        until: Option<Until>,
        linger: u64,
        progress: &Arc<Progress>,
    ) -> Self {
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

    /// Tells the others what lane `lane` has seen, after each burst.
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

    /// What is due in this turn of lane `lane`.
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
                return turn.keep_awake(); // an answer may come to any lane
            }
            match generator.turn(turn) {
                Next::Now => turn.keep_awake(),
                Next::At(due) => self.wait_until(due, turn),
                Next::Done => {
                    self.sending = false;
                    let sent = generator.sent.packets;
                    if self.progress.sender_is_done(sent) {
                        self.linger(turn);
                    }
                }
            }
        }
    }

    /// A timer with this key has expired; true when it was the end of the run.
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

    /// Ends the run after a time in which nothing has come: a lane that was kept from running may
    /// have frames waiting.
    fn linger(&mut self, turn: &mut Turn) {
        self.arrivals_before = self.progress.arrivals();
        self.start_timer(self.linger, Timer::Linger, turn);
    }

    fn start_timer(&mut self, after: u64, kind: Timer, turn: &mut Turn) {
        if !turn.start_timer(after, self.key(kind)) {
            turn.end(); // not reached: this application has few timers
        }
    }

    /// What this lane has counted.
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
