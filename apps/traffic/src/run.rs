//! A run over all lanes.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use fastlane::PortId;

use crate::app::{Traffic, Until};
use crate::generator::{Generator, Share};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::report::{LaneResult, Report};
use crate::settings::{Mode, Settings, SettingsError, refuse};
use crate::sink::Sink;

/// A run: makes its lanes, and sums up what they have counted when they have ended.
#[derive(Debug, Default)]
pub struct Run {
    shared: Option<Shared>,
    results: Arc<Mutex<Vec<LaneResult>>>,
}

/// What the lanes of a run have in common.
#[derive(Debug)]
struct Shared {
    settings: Settings,
    number: u16,
    plan: Arc<Plan>,
    progress: Arc<Progress>,
    senders: usize,
}

impl Shared {
    fn new(settings: Settings, lanes: usize) -> Result<Self, SettingsError> {
        settings.check()?;
        let plan = Arc::new(Plan::new(&settings)?);
        let senders = senders(&settings, lanes);
        let number = settings.run.unwrap_or_else(|| RandomState::new().hash_one(0) as u16);
        let progress = Arc::new(Progress::new(lanes, senders));
        Ok(Self { settings, number, plan, progress, senders })
    }
}

/// How many lanes send: no more than have a flow, a packet a second and a place in the window.
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
    /// The application of lane `lane` of `lanes`; all lanes have the same `settings`. `port` finds
    /// a port by its name.
    ///
    /// # Errors
    /// Says which setting is not allowed.
    pub fn lane(
        &mut self,
        settings: Settings,
        lane: usize,
        lanes: usize,
        port: impl Fn(&str) -> Option<PortId>,
    ) -> Result<Traffic, SettingsError> {
        let shared = match self.shared.take() {
            Some(shared) => shared,
            None => Shared::new(settings, lanes)?,
        };
        let Shared { settings, number, plan, progress, senders } = self.shared.insert(shared);
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
        let sink = Sink::new(*number, plan.flows(), settings.window_packets, settings.verify);
        let waits = settings.outstanding_packets > 0;
        let milliseconds = |time: u64| time.saturating_mul(1_000_000);
        Ok(Traffic {
            lane,
            sending: generator.is_some(),
            generator,
            sink: if waits { sink.answering(Arc::clone(progress)) } else { sink },
            sink_port,
            until: (settings.mode == Mode::Receive).then(|| Until {
                count: settings.count_packets,
                duration: milliseconds(settings.duration_ms),
            }),
            linger: milliseconds(settings.linger_ms),
            progress: Arc::clone(progress),
            results: Arc::clone(&self.results),
            wake_at: None,
            arrivals_before: 0,
            begun: false,
        })
    }

    /// What the lanes that have ended have counted, and where the report belongs; `None` when none
    /// has run.
    #[must_use]
    pub fn report(&self) -> Option<(Report, Option<&str>)> {
        let Shared { settings, number, progress, .. } = self.shared.as_ref()?;
        let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let report = Report::new(settings, *number, progress.is_complete(), &results);
        (!results.is_empty()).then_some((report, settings.report.as_deref()))
    }
}
