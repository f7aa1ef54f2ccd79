//! Run over all lanes: creates their applications and sums up their results.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use fastlane::PortId;

use crate::app::Traffic;
use crate::report::{LaneResult, Report};
use crate::run_context::RunContext;
use crate::settings::{Settings, SettingsError};
use crate::trials::{TrialSlots, Trials};

/// One run. Creates the applications of its lanes and sums up their results at the end.
#[derive(Debug, Default)]
pub struct Run {
    shared: Option<RunContext>,
    slots: Option<Arc<TrialSlots>>,
    results: Arc<Mutex<Vec<LaneResult>>>,
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
                RunContext::new(settings, lanes, number)?
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
