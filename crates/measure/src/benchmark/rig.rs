//! Rig: a running device and its generator, ready for trials.

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fastlane::counters::PortCounter;
use fastlane::session::{self, Client};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::description::{Device, Generator};
use super::interrupt;
use super::trial::{Outcome, Percentiles};
use crate::Result;
use crate::program::Program;

/// Time limit for the generator to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time that a trial waits for late frames after the last one, in milliseconds.
const LINGER_MS: u64 = 100;

/// Running device with its generator.
pub(super) struct Rig {
    pub(super) device: Program,
    pub(super) generator: Driver,
    stop_within: Duration,
}

/// Running generator.
pub(super) struct Driver {
    pub(super) program: Program,
    answers: Box<dyn BufRead>,
    session: Client,
}

impl Rig {
    /// Starts both and waits until frames pass. Their files in `folder` are named `name`.
    pub(super) fn start(
        name: &str,
        device: &Device,
        generator: &Generator,
        folder: &Path,
    ) -> Result<Self> {
        let (program, arguments) = device.command.split_first().ok_or("no command")?;
        let what = format!("the device ({program})");
        let running = Program::start(&what, program, arguments)?;
        let driver = Driver::start(generator, folder, name);
        let mut rig = Self {
            device: running,
            generator: driver?,
            stop_within: Duration::from_millis(device.stop_within_ms),
        };
        rig.wait_until_ready(Duration::from_millis(device.ready_within_ms))?;
        Ok(rig)
    }

    fn wait_until_ready(&mut self, limit: Duration) -> Result<()> {
        let end = Instant::now() + limit;
        let order = json!({ "count-packets": 10, "rate-packets-per-second": 10_000 });
        while self.trial(order.clone())?.received_packets == 0 {
            if Instant::now() > end {
                let failure = format!(
                    "passes no frame of the generator within {limit:?}; check that their ports \
                     meet and that it sends back to the addresses the frames come from, or raise \
                     ready-within-ms"
                );
                return Err(self.device.failure(&failure).into());
            }
        }
        Ok(())
    }

    /// Runs a trial. `order` has the generator's settings that differ from its configuration.
    pub(super) fn trial(&mut self, order: Value) -> Result<Outcome> {
        interrupt::check()?;
        if self.device.has_ended()?.is_some() {
            return Err(self.device.failure("has ended").into());
        }
        let (start, cpu) = (Instant::now(), self.device.cpu_of_all()?);
        let mut outcome = self.generator.trial(order)?;
        outcome.elapsed_ns = start.elapsed().as_nanos() as u64;
        if self.device.has_ended()?.is_some() {
            return Err(self.device.failure("has ended during a trial").into());
        }
        outcome.device_cpu_ns = self.device.cpu_of_all()?.saturating_sub(cpu);
        Ok(outcome)
    }

    /// Measures the CPU use of the device without load, in cores.
    pub(super) fn idle_cores(&self, length: Duration) -> Result<f64> {
        let (start, cpu) = (Instant::now(), self.device.cpu_of_all()?);
        std::thread::sleep(length);
        let cpu = self.device.cpu_of_all()?.saturating_sub(cpu);
        Ok(cpu as f64 / start.elapsed().as_nanos() as f64)
    }

    /// Terminates both, the generator first.
    pub(super) fn finish(self) -> Result<()> {
        self.generator.program.finish(PATIENCE)?;
        self.device.finish(self.stop_within)?;
        Ok(())
    }
}

impl Driver {
    fn start(generator: &Generator, folder: &Path, name: &str) -> Result<Self> {
        let program = match &generator.program {
            Some(program) => PathBuf::from(program),
            None => beside("traffic"),
        };
        let session = folder.join(format!("{name}.sock"));
        let configuration = configured(&generator.configuration, &session)?;
        let file = folder.join(format!("{name}.json"));
        std::fs::write(&file, serde_json::to_string_pretty(&configuration)?)?;
        let what = format!("the generator ({})", program.display());
        let (mut program, answers) = Program::start_and_listen(&what, &program, [&file])?;
        let session =
            program.wait_for("it does not open its ports", |_| session::connect(&session).ok())?;
        Ok(Self { program, answers: Box::new(answers), session })
    }

    /// Starts a trial and waits for its end.
    fn trial(&mut self, order: Value) -> Result<Outcome> {
        let (full, missed) = (self.not_taken(), self.missed());
        self.order(order)?;
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            self.program.wait_for("it says no more", |_| None::<()>)?;
        }
        let answer: Answer = serde_json::from_str(&line)
            .map_err(|error| self.program.failure(&format!("answers {line:?} ({error})")))?;
        let report = match answer {
            Answer::Report(report) => *report,
            Answer::Refusal { error } => {
                return Err(format!("the generator refuses a trial: {error}").into());
            }
        };
        if !report.complete {
            return Err(self.program.failure("was interrupted").into());
        }
        Ok(report.outcome(self.not_taken() - full, self.missed() - missed))
    }

    /// Starts a trial and does not wait for it.
    pub(super) fn order(&mut self, mut order: Value) -> Result<()> {
        if let Some(order) = order.as_object_mut() {
            order.entry("linger-ms").or_insert(LINGER_MS.into());
        }
        self.program.say(&order.to_string())
    }

    /// Returns the number of frames that the generator's ports did not accept.
    fn not_taken(&self) -> u64 {
        self.sum(|counter| counter == PortCounter::DropTransmitFull)
    }

    /// Returns the number of frames that the generator or its ports dropped on reception.
    fn missed(&self) -> u64 {
        self.sum(|counter| counter.is_drop() && counter != PortCounter::DropTransmitFull)
    }

    /// Returns the number of frames received since the start.
    pub(super) fn received(&self) -> u64 {
        self.sum(|counter| counter == PortCounter::ReceivedPackets)
    }

    fn sum(&self, of: impl Fn(PortCounter) -> bool) -> u64 {
        let counters = &self.session.counters;
        let wanted = || PortCounter::ALL.into_iter().filter(|counter| of(*counter));
        let ports = (0..counters.ports()).flat_map(|port| {
            let lanes = (0..counters.lanes()).map(move |lane| counters.port(lane, port));
            lanes.chain([counters.shared_port(port)])
        });
        ports.flat_map(|block| wanted().map(move |counter| block.load(counter))).sum()
    }
}

/// Completes the configuration of the generator: session and trials from standard input.
fn configured(written: &Map<String, Value>, session: &Path) -> Result<Value> {
    let mut all = written.clone();
    all.insert("session".to_owned(), json!(session));
    let app = all.entry("app").or_insert_with(|| json!({}));
    let app = app.as_object_mut().ok_or("generator.configuration.app: must be an object")?;
    app.insert("trials-from-input".to_owned(), true.into());
    Ok(Value::Object(all))
}

/// Returns the path of a program of this project: in the folder of this program, else in PATH.
pub(super) fn beside(name: &str) -> PathBuf {
    let here = std::env::current_exe().ok();
    let beside = here.and_then(|here| Some(here.parent()?.join(name)));
    beside.filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from(name))
}

/// Reply of the generator to a request.
#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Refusal { error: String },
    Report(Box<Report>),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Report {
    complete: bool,
    wanted_packets_per_second: u64,
    skipped_packets: u64,
    sent: Direction,
    received: Received,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Direction {
    packets: u64,
    packets_per_second: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Received {
    #[serde(flatten)]
    direction: Direction,
    corrupted_packets: u64,
    duplicated_packets: u64,
    reordered_packets: u64,
    latency: Option<Percentiles>,
}

impl Report {
    fn outcome(self, not_taken: u64, missed: u64) -> Outcome {
        let Self { sent, received, .. } = self;
        Outcome {
            wanted_packets_per_second: self.wanted_packets_per_second,
            offered_packets_per_second: sent.packets_per_second,
            received_packets_per_second: received.direction.packets_per_second,
            sent_packets: sent.packets,
            received_packets: received.direction.packets,
            lost_packets: sent.packets.saturating_sub(received.direction.packets),
            corrupted_packets: received.corrupted_packets,
            late_packets: self.skipped_packets,
            not_taken_packets: not_taken,
            missed_packets: missed,
            duplicated_packets: received.duplicated_packets,
            reordered_packets: received.reordered_packets,
            latency: received.latency,
            ..Outcome::default()
        }
    }
}
