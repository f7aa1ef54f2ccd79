//! The generator and sink of `apps/traffic`, as the instrument of a story.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::{
    Application, Ended, Host, LEFT_MAC, Lab, PATIENCE, Process, RIGHT_MAC, binary, eventually,
};

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

/// The generator as a program that stays: on a port to a peer that does not like others to go
/// first, and that it has to wait for.
#[derive(Debug)]
pub struct Generator {
    process: Process,
    answers: usize,
}

impl Generator {
    /// Starts it on a host with this driver, and waits until its link is up.
    ///
    /// # Panics
    /// When it does not start or nobody comes.
    #[track_caller]
    #[must_use]
    pub fn start(lab: &Lab, host: &Host, driver: &Value) -> Self {
        let mut configuration = json!({"ports": {"wire": {"driver": driver}}});
        configuration["dpdk"] = json!({"huge-pages": "none"});
        configuration["app"] = json!({"port": "wire", "trials-from-input": true});
        let (path, _) = Application::configure(lab, configuration);
        let mut command = host.command(&[]);
        command.arg(binary("traffic")).arg(path).stdin(Stdio::piped());
        let process = Process::start(command);
        process.wait_for("link up");
        Self { process, answers: 0 }
    }

    /// Runs it with these settings until that ends.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn trial(&mut self, settings: &Value) -> Report {
        let mut settings = settings.clone();
        lingers(&mut settings);
        self.process.say(&settings.to_string());
        let answer = |process: &Process| process.stdout().lines().nth(self.answers).map(parsed);
        eventually("the generator has answered", || answer(&self.process).is_some());
        let report = answer(&self.process).flatten().expect("JSON from the generator");
        self.answers += 1;
        Report(report)
    }
}

fn parsed(line: &str) -> Option<Value> {
    serde_json::from_str(line).ok()
}

/// Unless they say otherwise the end waits for what may be with a program that has no CPU for a
/// while.
fn lingers(settings: &mut Value) {
    if settings.get("linger-ms").is_none() {
        settings["linger-ms"] = json!(2000);
    }
}

/// Runs the generator on a host's `wire0` with these settings (its object `app`, which may have an
/// object `lanes` of the configuration) until it ends; its report, and what it said.
///
/// # Panics
/// When it fails.
#[track_caller]
pub fn measure(lab: &Lab, host: &Host, driver: &Value, mut app: Value) -> (Report, Ended) {
    let report = lab.file(&format!("report-{:?}.json", std::thread::current().id()));
    app["port"] = json!("wire");
    app["report"] = json!(report);
    lingers(&mut app);
    let flows = &mut app["flows"];
    flows["source-mac"] = json!(RIGHT_MAC);
    flows["destination-mac"] = json!(LEFT_MAC);
    let lanes = app.as_object_mut().and_then(|app| app.remove("lanes"));
    let mut configuration = Application::steered(driver);
    configuration["app"] = app;
    if let Some(lanes) = lanes {
        configuration["lanes"] = lanes;
    }
    let (path, _) = Application::configure(lab, configuration);
    let mut command = host.command(&[]);
    command.arg(binary("traffic")).arg(path);
    let ended = Process::start(command).wait_within(60 * PATIENCE);
    assert!(ended.status.success(), "traffic: {}", ended.stderr);
    let text = std::fs::read(&report).expect("the report");
    (Report(serde_json::from_slice(&text).expect("JSON from the generator")), ended)
}
