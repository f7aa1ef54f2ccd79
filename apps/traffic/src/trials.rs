//! Trials that are ordered on standard input, one after the other.
//!
//! A thread of its own reads the orders and makes what each lane needs; a lane only takes it from
//! the desk, works, and puts it back.

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::report::Report;
use crate::run::Shared;
use crate::settings::{Settings, SettingsError};
use crate::trial::Trial;

/// How often the thread looks whether all lanes are done.
const LOOKS: Duration = Duration::from_micros(500);

/// Where the trials are handed over, a place for each lane and direction.
#[derive(Debug)]
pub(crate) struct Desk {
    ordered: Box<[Mutex<Option<Box<Trial>>>]>,
    done: Box<[Mutex<Option<Box<Trial>>>]>,
    closed: AtomicBool,
}

impl Desk {
    pub(crate) fn new(lanes: usize) -> Self {
        let places = || (0..lanes).map(|_| Mutex::default()).collect();
        Self { ordered: places(), done: places(), closed: AtomicBool::new(false) }
    }

    /// The trial that waits for this lane. For a lane: it never waits.
    pub(crate) fn take(&self, lane: usize) -> Option<Box<Trial>> {
        self.ordered[lane].try_lock().ok()?.take()
    }

    /// Puts back a trial that is over; returns it when the place is being looked at just now. For a
    /// lane: it never waits.
    pub(crate) fn give_back(&self, lane: usize, trial: Box<Trial>) -> Option<Box<Trial>> {
        match self.done[lane].try_lock() {
            Ok(mut place) => place.replace(trial), // nothing was there: one trial at a time
            Err(_) => Some(trial),
        }
    }

    /// Whether there will be no more trials.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    fn order(&self, lane: usize, trial: Trial) {
        let mut place = self.ordered[lane].lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(Box::new(trial));
    }

    fn wait_for(&self, lane: usize) -> Box<Trial> {
        loop {
            let done = self.done[lane].lock().unwrap_or_else(PoisonError::into_inner).take();
            match done {
                Some(trial) => return trial,
                None => std::thread::sleep(LOOKS),
            }
        }
    }
}

/// The series: what its trials have in common.
#[derive(Debug)]
pub struct Trials {
    desk: Arc<Desk>,
    lanes: usize,
    ports: Vec<String>,
    next_run: u16,
}

impl Trials {
    pub(crate) fn new(desk: Arc<Desk>, lanes: usize, ports: Vec<String>, first_run: u16) -> Self {
        Self { desk, lanes, ports, next_run: first_run }
    }

    /// Carries out the orders in `input`, each a change to `settings`, and answers each on `output`
    /// with a report or `{"error": "..."}`. At the end of the input the lanes end.
    ///
    /// # Errors
    /// When `input` cannot be read or `output` not be written; then too the lanes end.
    pub fn carry_out(
        mut self,
        settings: &Map<String, Value>,
        input: impl BufRead,
        mut output: impl Write,
    ) -> std::io::Result<()> {
        let closing = Closing(Arc::clone(&self.desk));
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
        let shared = Shared::new(settings, self.lanes, number).map_err(said)?;
        let ports = &self.ports;
        let place = |name: &str| ports.iter().position(|port| port == name);
        let port = |name: &str| place(name).map(|place| fastlane::PortId(place as u16));
        for lane in 0..self.lanes {
            let trial = shared.trial(lane, port).map_err(said)?;
            self.desk.order(lane, trial);
        }
        let results: Vec<_> =
            (0..self.lanes).map(|lane| self.desk.wait_for(lane).result()).collect();
        Ok(shared.report(&results))
    }
}

/// Closes the desk, whatever happens.
struct Closing(Arc<Desk>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Relaxed);
    }
}
