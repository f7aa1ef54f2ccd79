//! The application: a generator and a sink in each lane, for one run or for a series of trials.

use std::sync::{Arc, Mutex, PoisonError};

use fastlane::{App, Packet, Turn, Verdict, now};

use crate::report::LaneResult;
use crate::sink::Sink;
use crate::trial::Trial;
use crate::trials::Desk;

/// The timer for a look at the desk; the keys of a trial are above.
const LOOK: u64 = u64::MAX;
/// How often a lane looks at the desk, in nanoseconds.
const LOOKS: u64 = 500_000;

/// One lane of the generator and sink.
#[derive(Debug)]
pub struct Traffic {
    lane: usize,
    work: Work,
    looking: bool,
}

/// What a lane works at.
#[derive(Debug)]
enum Work {
    /// A run, whose results are handed over when the lane is dropped.
    Run(Box<Trial>, Arc<Mutex<Vec<LaneResult>>>),
    /// Trials, one after the other, whose results are handed over at the desk. Between them the
    /// spare sink takes what comes late.
    Trials(Option<Box<Trial>>, Box<Sink>, Arc<Desk>),
}

impl Traffic {
    /// A lane that ends with its run.
    pub(crate) fn of_run(lane: usize, trial: Trial, results: &Arc<Mutex<Vec<LaneResult>>>) -> Self {
        let work = Work::Run(Box::new(trial), Arc::clone(results));
        Self { lane, work, looking: false }
    }

    /// A lane that ends when the desk is closed.
    pub(crate) fn of_trials(lane: usize, spare: Sink, desk: Arc<Desk>) -> Self {
        Self { lane, work: Work::Trials(None, Box::new(spare), desk), looking: false }
    }

    /// Takes the next trial from the desk, or gives back the one that is over.
    fn look(&mut self, turn: &mut Turn) {
        let Work::Trials(work, _, desk) = &mut self.work else { return };
        if desk.is_closed() {
            return turn.end();
        }
        match work.take() {
            None => *work = desk.take(self.lane),
            Some(trial) if trial.progress.is_over() => *work = desk.give_back(self.lane, trial),
            Some(trial) => *work = Some(trial),
        }
        if !turn.start_timer(LOOKS, LOOK) {
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
        if !self.looking {
            self.looking = true;
            self.look(turn);
        }
        while let Some(key) = turn.expired() {
            match &mut self.work {
                _ if key == LOOK => self.look(turn),
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
