//! The traffic generator and sink of `apps/traffic`.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::{
    Application, Ended, Host, LEFT_MAC, Lab, PATIENCE, Process, RIGHT_MAC, binary, eventually,
};

/// Report of the generator.
#[derive(Clone, Debug)]
pub struct Report(pub Value);

impl Report {
    /// Returns the number of packets sent.
    ///
    /// # Panics
    /// When the report has no such number.
    #[track_caller]
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.0["sent"]["packets"].as_u64().unwrap_or_else(|| panic!("{}", self.0))
    }

    /// Returns the number of packets received, without duplicates.
    #[track_caller]
    #[must_use]
    pub fn received(&self) -> u64 {
        self.count("packets")
    }

    /// Returns the number of packets lost.
    #[track_caller]
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.count("lost-packets")
    }

    /// Returns the packets received per second.
    ///
    /// # Panics
    /// When the report has no such number.
    #[track_caller]
    #[must_use]
    pub fn rate(&self) -> f64 {
        let rate = self.0["received"]["packets-per-second"].as_f64();
        rate.unwrap_or_else(|| panic!("{}", self.0))
    }

    /// Returns a number under `received`.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    #[must_use]
    pub fn count(&self, key: &str) -> u64 {
        self.0["received"][key].as_u64().unwrap_or_else(|| panic!("no {key} in {}", self.0))
    }

    /// Asserts that each packet was received once and intact, and nothing else.
    #[track_caller]
    pub fn assert_intact(&self) {
        for key in ["lost-packets", "duplicated-packets", "corrupted-packets", "ancient-packets"] {
            assert_eq!(self.count(key), 0, "{key}: {}", self.0);
        }
        assert!(self.sent() > 0 && self.received() == self.sent(), "{}", self.0);
    }
}

/// A generator that keeps running between trials, for ports whose peer must not end first.
#[derive(Debug)]
pub struct Generator {
    process: Process,
    trials: usize,
}

impl Generator {
    /// Starts the generator on a host with this driver and waits until the link is up.
    ///
    /// # Panics
    /// When it does not start or the link does not come up.
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
        Self { process, trials: 0 }
    }

    /// Runs one trial with these settings.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn trial(&mut self, settings: &Value) -> Report {
        let mut settings = settings.clone();
        set_linger(&mut settings);
        self.process.write_line(&settings.to_string());
        let report = |process: &Process| process.stdout().lines().nth(self.trials).map(parsed);
        eventually("the generator reports", || report(&self.process).is_some());
        let report = report(&self.process).flatten().expect("JSON from the generator");
        self.trials += 1;
        Report(report)
    }
}

fn parsed(line: &str) -> Option<Value> {
    serde_json::from_str(line).ok()
}

/// Sets a default of 2 s for late packets: a program on a loaded machine may lack a CPU for a
/// while.
fn set_linger(settings: &mut Value) {
    if settings.get("linger-ms").is_none() {
        settings["linger-ms"] = json!(2000);
    }
}

/// Runs the generator on a host's `wire0` with these settings: its object `app`, which may hold the
/// object `lanes` of the configuration. Returns its report and its output.
///
/// # Panics
/// When it fails.
#[track_caller]
pub fn measure(lab: &Lab, host: &Host, driver: &Value, mut app: Value) -> (Report, Ended) {
    let report = lab.file(&format!("report-{:?}.json", std::thread::current().id()));
    app["port"] = json!("wire");
    app["report"] = json!(report);
    set_linger(&mut app);
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
