//! Series of trials, each requested by a line on standard input.
//!
//! A separate thread reads the requests and prepares the part of each lane. A lane takes its part
//! from its slot, runs it and puts it back.

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::report::Report;
use crate::run_context::RunContext;
use crate::settings::{Settings, SettingsError};
use crate::trial::Trial;

/// Interval at which the thread checks if all lanes have finished.
const POLL_INTERVAL: Duration = Duration::from_micros(500);

/// Slots through which trials are passed to lanes and back: one for each lane and direction.
#[derive(Debug)]
pub(crate) struct TrialSlots {
    ordered: Box<[Mutex<Option<Box<Trial>>>]>,
    done: Box<[Mutex<Option<Box<Trial>>>]>,
    closed: AtomicBool,
}

impl TrialSlots {
    pub(crate) fn new(lanes: usize) -> Self {
        let empty = || (0..lanes).map(|_| Mutex::default()).collect();
        Self { ordered: empty(), done: empty(), closed: AtomicBool::new(false) }
    }

    /// Takes the trial that waits for this lane. It never blocks.
    pub(crate) fn take(&self, lane: usize) -> Option<Box<Trial>> {
        self.ordered[lane].try_lock().ok()?.take()
    }

    /// Puts back a finished trial. Returns it if the slot is locked at the moment. It never blocks.
    pub(crate) fn give_back(&self, lane: usize, trial: Box<Trial>) -> Option<Box<Trial>> {
        match self.done[lane].try_lock() {
            Ok(mut slot) => slot.replace(trial), // the slot was empty: one trial at a time
            Err(_) => Some(trial),
        }
    }

    /// Returns true if there will be no more trials.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    fn order(&self, lane: usize, trial: Trial) {
        let mut slot = self.ordered[lane].lock().unwrap_or_else(PoisonError::into_inner);
        *slot = Some(Box::new(trial));
    }

    fn wait_for(&self, lane: usize) -> Box<Trial> {
        loop {
            let done = self.done[lane].lock().unwrap_or_else(PoisonError::into_inner).take();
            match done {
                Some(trial) => return trial,
                None => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }
}

/// Series of trials.
#[derive(Debug)]
pub struct Trials {
    slots: Arc<TrialSlots>,
    lanes: usize,
    ports: Vec<String>,
    next_run: u16,
}

impl Trials {
    pub(crate) fn new(
        slots: Arc<TrialSlots>,
        lanes: usize,
        ports: Vec<String>,
        first_run: u16,
    ) -> Self {
        Self { slots, lanes, ports, next_run: first_run }
    }

    /// Runs the trials requested in `input`. Each request is a change to `settings`; the reply on
    /// `output` is a report or `{"error": "..."}`. At the end of the input the lanes end.
    ///
    /// # Errors
    /// Returns an error if `input` cannot be read or `output` cannot be written. The lanes end too.
    pub fn carry_out(
        mut self,
        settings: &Map<String, Value>,
        input: impl BufRead,
        mut output: impl Write,
    ) -> std::io::Result<()> {
        let closing = Closing(Arc::clone(&self.slots));
        for line in input.lines() {
            let answer = match self.trial(settings, &line?) {
                Ok(report) => serde_json::to_value(report)?,
                Err(reason) => json!({ "error": reason }),
            };
            writeln!(output, "{answer}")?;
            output.flush()?;
        }
        drop(closing);
        Ok(())
    }

    fn trial(&mut self, settings: &Map<String, Value>, order: &str) -> Result<Report, String> {
        let changes: Map<String, Value> = serde_json::from_str(order)
            .map_err(|error| format!("an order is a JSON object on one line: {error}"))?;
        let mut all = settings.clone();
        for (key, value) in changes {
            if ["report", "trials-from-input", "sink-port"].contains(&key.as_str()) {
                return Err(format!("app.{key}: is the same for all trials; set it at the start"));
            }
            all.insert(key, value);
        }
        let settings: Settings =
            serde_json::from_value(Value::Object(all)).map_err(|error| format!("app: {error}"))?;
        let said = |error: SettingsError| error.to_string();
        if settings.count_packets == 0 && settings.duration_ms == 0 {
            return Err("app.duration-ms: a trial needs an end; set it or `count-packets`".into());
        }
        self.next_run = self.next_run.wrapping_add(1);
        let number = settings.run.unwrap_or(self.next_run);
        let shared = RunContext::new(settings, self.lanes, number).map_err(said)?;
        let ports = &self.ports;
        let index = |name: &str| ports.iter().position(|port| port == name);
        let port = |name: &str| index(name).map(|index| fastlane::PortId(index as u16));
        for lane in 0..self.lanes {
            let trial = shared.trial(lane, port).map_err(said)?;
            self.slots.order(lane, trial);
        }
        let results: Vec<_> =
            (0..self.lanes).map(|lane| self.slots.wait_for(lane).result()).collect();
        Ok(shared.report(&results))
    }
}

/// Guard that closes the slots when it is dropped.
struct Closing(Arc<TrialSlots>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Relaxed);
    }
}
