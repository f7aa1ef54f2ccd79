//! Run over all lanes: creates their applications and sums up their results.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use fastlane::PortId;

use crate::app::Traffic;
use crate::generator::{Generator, Share};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::report::{LaneResult, Report};
use crate::settings::{Mode, Settings, SettingsError, refuse};
use crate::sink::Sink;
use crate::trial::{Trial, Until};
use crate::trials::{TrialSlots, Trials};

/// One run. Creates the applications of its lanes and sums up their results at the end.
#[derive(Debug, Default)]
pub struct Run {
    shared: Option<Shared>,
    slots: Option<Arc<TrialSlots>>,
    results: Arc<Mutex<Vec<LaneResult>>>,
}

/// State that the lanes of a run have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    settings: Settings,
    number: u16,
    plan: Arc<Plan>,
    progress: Arc<Progress>,
    senders: usize,
}

impl Shared {
    /// Creates run `number` with these settings over `lanes` lanes.
    pub(crate) fn new(
        settings: Settings,
        lanes: usize,
        number: u16,
    ) -> Result<Self, SettingsError> {
        settings.check()?;
        let plan = Arc::new(Plan::new(&settings)?);
        let senders = senders(&settings, lanes);
        let progress = Arc::new(Progress::new(lanes, senders));
        Ok(Self { settings, number, plan, progress, senders })
    }

    /// Creates the part of lane `lane`. `port` finds a port by name.
    pub(crate) fn trial(
        &self,
        lane: usize,
        port: impl Fn(&str) -> Option<PortId>,
    ) -> Result<Trial, SettingsError> {
        let Self { settings, number, plan, progress, senders } = self;
        let find = |key, name: &str| {
            let reason = || format!("there is no port `{name}`; name one of `ports`");
            port(name).map_or_else(|| refuse(key, reason()), Ok)
        };
        let out = find("port", &settings.port)?;
        let sink_port = match &settings.sink_port {
            Some(name) => find("sink-port", name)?,
            None => out,
        };
        let generator = (lane < *senders).then(|| {
            let share = Share { sender: lane, senders: *senders };
            Generator::new(settings, Arc::clone(plan), progress, out, *number, share)
        });
        let sink = self.sink();
        let waits = settings.outstanding_packets > 0;
        let sink = if waits { sink.answering(Arc::clone(progress)) } else { sink };
        let milliseconds = |time: u64| time.saturating_mul(1_000_000);
        let until = (settings.mode == Mode::Receive).then(|| Until {
            count: settings.count_packets,
            duration: milliseconds(settings.duration_ms),
        });
        let linger = milliseconds(settings.linger_ms);
        Ok(Trial::new(*number, generator, (sink, sink_port), until, linger, progress))
    }

    fn sink(&self) -> Sink {
        let Self { settings, number, plan, .. } = self;
        Sink::new(*number, plan.flows(), settings.window_packets, settings.verify)
    }

    /// Sums up the results of the lanes.
    pub(crate) fn report(&self, lanes: &[LaneResult]) -> Report {
        Report::new(&self.settings, self.number, self.progress.is_complete(), lanes)
    }
}

/// Returns the number of lanes that send. Each has at least one flow, one packet a second, one
/// packet to send and one packet of the window.
fn senders(settings: &Settings, lanes: usize) -> usize {
    if !settings.sends() {
        return 0;
    }
    let limits = [
        u64::from(settings.flows.count),
        settings.rate_packets_per_second,
        settings.outstanding_packets,
        settings.count_packets,
    ];
    let limits = limits.into_iter().filter(|limit| *limit > 0);
    limits.fold(lanes as u64, u64::min) as usize
}

impl Run {
    /// Creates the application of lane `lane` of `lanes`. All lanes have the same `settings`.
    /// `port` finds a port by name.
    ///
    /// # Errors
    /// Names the setting that is not allowed.
    pub fn lane(
        &mut self,
        settings: Settings,
        lane: usize,
        lanes: usize,
        port: impl Fn(&str) -> Option<PortId>,
    ) -> Result<Traffic, SettingsError> {
        let shared = match self.shared.take() {
            Some(shared) => shared,
            None => {
                let number = settings.run.unwrap_or_else(|| RandomState::new().hash_one(0) as u16);
                Shared::new(settings, lanes, number)?
            }
        };
        let shared = self.shared.insert(shared);
        let trial = shared.trial(lane, port)?;
        if shared.settings.trials_from_input {
            let slots = self.slots.get_or_insert_with(|| Arc::new(TrialSlots::new(lanes)));
            return Ok(Traffic::of_trials(lane, shared.sink(), Arc::clone(slots)));
        }
        Ok(Traffic::of_run(lane, trial, &self.results))
    }

    /// Returns the series of trials that the lanes wait for, or `None` for a single run. Call it
    /// after all lanes were created. `ports` are the names of the ports in the order of their
    /// numbers.
    #[must_use]
    pub fn trials(&self, lanes: usize, ports: Vec<String>) -> Option<Trials> {
        let (slots, number) = (self.slots.as_ref()?, self.shared.as_ref()?.number);
        Some(Trials::new(Arc::clone(slots), lanes, ports, number))
    }

    /// Returns the report on the lanes that have ended, and the path for it. Returns `None` if no
    /// lane has run.
    #[must_use]
    pub fn report(&self) -> Option<(Report, Option<&str>)> {
        let shared = self.shared.as_ref()?;
        let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let report = shared.report(&results);
        (!results.is_empty()).then_some((report, shared.settings.report.as_deref()))
    }
}
