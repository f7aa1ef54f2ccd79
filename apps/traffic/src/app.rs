//! The application: a generator and a sink in each lane.

use std::sync::{Arc, Mutex, PoisonError};

use fastlane::{App, Packet, PortId, Turn, Verdict, now};

use crate::generator::{Generator, Next};
use crate::progress::Progress;
use crate::report::LaneResult;
use crate::sink::{Sink, new_histogram};

/// The timer for the next packet.
const WAKE: u64 = 1;
/// The timer for the end of the run, unless something has come meanwhile.
const LINGER: u64 = 2;
/// The timer for the end of the run.
const END: u64 = 3;
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

/// One lane of the generator and sink. Its results are handed over when it is dropped.
#[derive(Debug)]
pub struct Traffic {
    pub(crate) lane: usize,
    pub(crate) generator: Option<Generator>,
    pub(crate) sending: bool,
    pub(crate) sink: Sink,
    pub(crate) sink_port: PortId,
    /// Of a run that only receives.
    pub(crate) until: Option<Until>,
    /// For how long nothing must come after the last packet, in nanoseconds.
    pub(crate) linger: u64,
    pub(crate) progress: Arc<Progress>,
    pub(crate) results: Arc<Mutex<Vec<LaneResult>>>,
    pub(crate) wake_at: Option<u64>,
    /// Frames that had come when the linger timer was started.
    pub(crate) arrivals_before: u64,
    pub(crate) begun: bool,
}

impl App for Traffic {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        let now = now();
        for packet in packets {
            let verdict = if packet.port() == self.sink_port {
                let partial = packet.partial_checksum().is_some();
                self.sink.judge(packet.bytes(), partial, now)
            } else {
                Verdict::Kernel
            };
            packet.set_verdict(verdict);
        }
        let received = self.sink.received.packets;
        self.progress.publish(self.lane, self.sink.arrivals(), received);
        if let Some(Until { count: wanted @ 1.., .. }) = self.until
            && self.progress.has_received(wanted)
        {
            self.linger(turn);
        }
    }

    fn turn(&mut self, turn: &mut Turn) {
        if !self.begun {
            self.begun = true;
            if let Some(Until { duration: duration @ 1.., .. }) = self.until
                && self.lane == 0
            {
                self.start_timer(duration, END, turn);
            }
        }
        while let Some(key) = turn.expired() {
            match key {
                LINGER if self.progress.arrivals() != self.arrivals_before => self.linger(turn),
                LINGER | END => {
                    self.progress.set_complete();
                    turn.end();
                }
                _ => self.wake_at = None,
            }
        }
        if let Some(generator) = self.generator.as_mut().filter(|_| self.sending) {
            match generator.turn(turn) {
                Next::Now => turn.keep_awake(),
                Next::At(due) => self.wait_until(due, turn),
                Next::Done => {
                    self.sending = false;
                    if self.progress.sender_is_done() {
                        self.linger(turn);
                    }
                }
            }
        }
    }
}

impl Traffic {
    fn wait_until(&mut self, due: u64, turn: &mut Turn) {
        let wake_at = due.saturating_sub(AWAKE);
        if wake_at <= turn.now() {
            turn.keep_awake();
        } else if self.wake_at.is_none_or(|pending| pending > wake_at) {
            if turn.start_timer(wake_at - turn.now(), WAKE) {
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
        self.start_timer(self.linger, LINGER, turn);
    }

    fn start_timer(&mut self, after: u64, key: u64, turn: &mut Turn) {
        if !turn.start_timer(after, key) {
            turn.end(); // not reached: this application has few timers
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        if !self.begun {
            return; // only checked, never run
        }
        let sink = &mut self.sink;
        let generator = self.generator.as_ref();
        let result = LaneResult {
            sent: generator.map(|generator| generator.sent).unwrap_or_default(),
            too_long: generator.map_or(0, |generator| generator.too_long),
            skipped: generator.map_or(0, Generator::skipped),
            given_up: generator.map_or(0, Generator::given_up),
            received: sink.received,
            counts: sink.counts,
            expected: sink.expected().to_vec(),
            latency: std::mem::replace(&mut sink.latency, new_histogram()),
        };
        self.results.lock().unwrap_or_else(PoisonError::into_inner).push(result);
    }
}
