//! State that the lanes of a run share: they are created from it, and the report is.

use std::sync::Arc;

use fastlane::PortId;

use crate::generator::{Generator, Sender};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::report::{LaneResult, Report};
use crate::settings::{Mode, Settings, SettingsError, refuse};
use crate::sink::Sink;
use crate::trial::{Trial, TrialParts, Until};

/// State that the lanes of a run have in common.
#[derive(Debug)]
pub(crate) struct RunContext {
    pub(crate) settings: Settings,
    /// Number of the run.
    pub(crate) number: u16,
    plan: Arc<Plan>,
    progress: Arc<Progress>,
    senders: usize,
}

impl RunContext {
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
            let sender = Sender { index: lane, count: *senders, port: out };
            Generator::new(settings, Arc::clone(plan), progress, *number, sender)
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
        let parts = TrialParts { generator, sink, sink_port, until, linger };
        Ok(Trial::new(*number, parts, progress))
    }

    /// Creates the sink of a lane.
    pub(crate) fn sink(&self) -> Sink {
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
