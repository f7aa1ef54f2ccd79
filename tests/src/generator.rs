//! The generator and sink of `apps/traffic`, as the instrument of a story.

use serde_json::{Value, json};

use crate::{Application, Ended, Host, LEFT_MAC, Lab, PATIENCE, Process, RIGHT_MAC, binary};

/// What the generator has found out.
#[derive(Clone, Debug)]
pub struct Report(pub Value);

impl Report {
    /// Packets sent.
    ///
    /// # Panics
    /// When the report has not the expected form.
    #[track_caller]
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.0["sent"]["packets"].as_u64().unwrap_or_else(|| panic!("{}", self.0))
    }

    /// Packets that came back, each once.
    #[track_caller]
    #[must_use]
    pub fn received(&self) -> u64 {
        self.count("packets")
    }

    /// Packets that did not come back.
    #[track_caller]
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.count("lost-packets")
    }

    /// Packets that came back each second.
    ///
    /// # Panics
    /// When the report has not the expected form.
    #[track_caller]
    #[must_use]
    pub fn rate(&self) -> f64 {
        let rate = self.0["received"]["packets-per-second"].as_f64();
        rate.unwrap_or_else(|| panic!("{}", self.0))
    }

    /// A number under `received`.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    #[must_use]
    pub fn count(&self, key: &str) -> u64 {
        self.0["received"][key].as_u64().unwrap_or_else(|| panic!("no {key} in {}", self.0))
    }

    /// Nothing but what was sent has come back, all of it intact and once.
    ///
    /// # Panics
    /// When that is not so.
    #[track_caller]
    pub fn assert_intact(&self) {
        for key in ["lost-packets", "duplicated-packets", "corrupted-packets", "ancient-packets"] {
            assert_eq!(self.count(key), 0, "{key}: {}", self.0);
        }
        assert!(self.sent() > 0 && self.received() == self.sent(), "{}", self.0);
    }
}

/// Runs the generator on a host's `wire0` with these settings (its object `app`) until it ends; its
/// report, and what it said.
///
/// # Panics
/// When it fails.
#[track_caller]
pub fn measure(lab: &Lab, host: &Host, driver: &Value, mut app: Value) -> (Report, Ended) {
    let report = lab.file(&format!("report-{:?}.json", std::thread::current().id()));
    app["port"] = json!("wire");
    app["report"] = json!(report);
    let flows = &mut app["flows"];
    flows["source-mac"] = json!(RIGHT_MAC);
    flows["destination-mac"] = json!(LEFT_MAC);
    let mut configuration = Application::steered(driver);
    configuration["app"] = app;
    let (path, _) = Application::configure(lab, configuration);
    let mut command = host.command(&[]);
    command.arg(binary("traffic")).arg(path);
    let ended = Process::start(command).wait_within(60 * PATIENCE);
    assert!(ended.status.success(), "traffic: {}", ended.stderr);
    let text = std::fs::read(&report).expect("the report");
    (Report(serde_json::from_slice(&text).expect("JSON from the generator")), ended)
}
