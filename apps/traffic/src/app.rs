//! The application: a generator and a sink in each lane, for one run or for a series of trials.

use std::sync::{Arc, Mutex, PoisonError};

use fastlane::{App, Packet, Turn, Verdict, now};

use crate::report::LaneResult;
use crate::sink::Sink;
use crate::trial::Trial;
use crate::trials::TrialSlots;

/// Key of the timer that polls the trial slots. The keys of a trial are smaller.
const POLL: u64 = u64::MAX;
/// Interval at which a lane polls the trial slots, in nanoseconds.
const POLL_INTERVAL: u64 = 500_000;

/// One lane of the generator and sink.
#[derive(Debug)]
pub struct Traffic {
    lane: usize,
    work: Work,
    polling: bool,
}

/// Work of a lane.
#[derive(Debug)]
enum Work {
    /// One run. Its results are handed over when the lane is dropped.
    Run(Box<Trial>, Arc<Mutex<Vec<LaneResult>>>),
    /// Trials, one after the other. Each goes back to its slot with its results. Between trials the
    /// spare sink takes late frames.
    Trials(Option<Box<Trial>>, Box<Sink>, Arc<TrialSlots>),
}

impl Traffic {
    /// Creates a lane that ends with its run.
    pub(crate) fn of_run(lane: usize, trial: Trial, results: &Arc<Mutex<Vec<LaneResult>>>) -> Self {
        let work = Work::Run(Box::new(trial), Arc::clone(results));
        Self { lane, work, polling: false }
    }

    /// Creates a lane that ends when the trial slots are closed.
    pub(crate) fn of_trials(lane: usize, spare: Sink, slots: Arc<TrialSlots>) -> Self {
        Self { lane, work: Work::Trials(None, Box::new(spare), slots), polling: false }
    }

    /// Takes the next trial from its slot, or gives back the one that is over.
    fn poll(&mut self, turn: &mut Turn) {
        let Work::Trials(work, _, slots) = &mut self.work else { return };
        if slots.is_closed() {
            return turn.end();
        }
        match work.take() {
            None => *work = slots.take(self.lane),
            Some(trial) if trial.progress.is_over() => *work = slots.give_back(self.lane, trial),
            Some(trial) => *work = Some(trial),
        }
        if !turn.start_timer(POLL_INTERVAL, POLL) {
            turn.end(); // not reached: this application has few timers
        }
    }
}

impl App for Traffic {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        let now = now();
        let (mut trial, spare) = match &mut self.work {
            Work::Run(trial, _) => (Some(trial), None),
            Work::Trials(trial, spare, _) => (trial.as_mut(), Some(spare)),
        };
        let (sink, sink_port) = match (&mut trial, spare) {
            (Some(trial), _) => (&mut trial.sink, Some(trial.sink_port)),
            (None, Some(spare)) => (spare.as_mut(), None),
            (None, None) => return, // not reached: a run has its trial
        };
        for packet in packets {
            let verdict = if sink_port.is_none_or(|port| port == packet.port()) {
                let partial = packet.partial_checksum().is_some();
                sink.judge(packet.bytes(), partial, now)
            } else {
                Verdict::Kernel
            };
            packet.set_verdict(verdict);
        }
        if let Some(trial) = trial {
            trial.publish(self.lane, turn);
        }
    }

    fn turn(&mut self, turn: &mut Turn) {
        if !self.polling {
            self.polling = true;
            self.poll(turn);
        }
        while let Some(key) = turn.expired() {
            match &mut self.work {
                _ if key == POLL => self.poll(turn),
                Work::Run(trial, _) => {
                    if trial.expired(key, turn) {
                        turn.end();
                    }
                }
                Work::Trials(Some(trial), ..) => {
                    trial.expired(key, turn);
                }
                Work::Trials(None, ..) => {}
            }
        }
        if let Work::Run(trial, _) | Work::Trials(Some(trial), ..) = &mut self.work {
            trial.turn(self.lane, turn);
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        let Work::Run(trial, results) = &mut self.work else { return };
        if !trial.begun {
            return; // only checked, never run
        }
        results.lock().unwrap_or_else(PoisonError::into_inner).push(trial.result());
    }
}
