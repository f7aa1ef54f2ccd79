//! A Fastlane application under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::{Ended, Host, Lab, Process, Totals, binary};

/// A running application.
#[derive(Debug)]
pub struct Application {
    /// Process of the application.
    pub process: Process,
    session: PathBuf,
}

impl Application {
    /// Writes a configuration with a session of its own into the lab's directory. Returns its path
    /// and that of the session.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    pub fn configure(lab: &Lab, mut configuration: Value) -> (PathBuf, PathBuf) {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let session = lab.file(&format!("{number}.sock"));
        configuration["session"] = json!(session);
        let path = lab.file(&format!("{number}.json"));
        std::fs::write(&path, configuration.to_string()).expect("the configuration is writable");
        (path, session)
    }

    /// Returns a configuration of one port `wire` with this driver. Its rules claim UDP ports 2152
    /// (of the generator) and 40000 (of [`Echo`](crate::Echo)).
    #[must_use]
    pub fn steered(driver: &Value) -> Value {
        let rules = json!([{"udp-port": 2152}, {"udp-port": 40_000}]);
        json!({"ports": {"wire": {"driver": driver, "steer": rules}}})
    }

    /// Starts a program with a configuration and waits until it runs.
    ///
    /// # Panics
    /// When it does not start.
    #[track_caller]
    #[must_use]
    pub fn start(lab: &Lab, host: &Host, program: &Path, configuration: Value) -> Self {
        Self::start_behind(lab, host, &[], program, configuration)
    }

    /// Starts a program by `wrapper`, a command that executes the one behind it, and waits until it
    /// runs.
    #[track_caller]
    #[must_use]
    pub fn start_behind(
        lab: &Lab,
        host: &Host,
        wrapper: &[&str],
        program: &Path,
        configuration: Value,
    ) -> Self {
        let (path, session) = Self::configure(lab, configuration);
        let mut command = host.command(wrapper);
        command.arg(program).arg(path);
        Self::run(command, session)
    }

    /// Starts macswap on the left host and waits until it runs.
    #[track_caller]
    #[must_use]
    pub fn macswap(lab: &Lab, configuration: Value) -> Self {
        Self::start(lab, &lab.left, &binary("macswap"), configuration)
    }

    /// Returns the command that runs macswap with a configuration on the left host by `wrapper`,
    /// and the path of the session.
    #[must_use]
    pub fn wrapped(lab: &Lab, wrapper: &[&str], configuration: Value) -> (Command, PathBuf) {
        let (path, session) = Self::configure(lab, configuration);
        let mut command = lab.left.command(wrapper);
        command.arg(binary("macswap")).arg(path);
        (command, session)
    }

    /// Runs macswap on the left host until it refuses to start. Returns the exit status and
    /// standard error.
    ///
    /// # Panics
    /// When it does not end.
    #[track_caller]
    #[must_use]
    pub fn refused(lab: &Lab, wrapper: &[&str], configuration: Value) -> (Option<i32>, String) {
        let (command, _) = Self::wrapped(lab, wrapper, configuration);
        let ended = Process::start(command).wait();
        (ended.status.code(), ended.stderr)
    }

    /// Starts a command that runs an application, and waits until it runs.
    #[track_caller]
    #[must_use]
    pub fn run(command: Command, session: PathBuf) -> Self {
        let process = Process::start(command);
        process.wait_for("running; ");
        Self { process, session }
    }

    /// Returns the path of the session.
    #[must_use]
    pub fn session(&self) -> &Path {
        &self.session
    }

    /// Starts `fastlane keep` and waits until it holds `descriptors` descriptors of the
    /// application.
    #[track_caller]
    #[must_use]
    pub fn keeper(&self, descriptors: usize) -> Process {
        let mut command = Command::new(binary("fastlane"));
        command.arg("keep").arg(&self.session).args(["--seconds", "60"]);
        let keeper = Process::start(command);
        self.is_kept_by(&keeper, descriptors);
        keeper
    }

    /// Waits until a holder has `descriptors` descriptors of the application.
    #[track_caller]
    pub fn is_kept_by(&self, keeper: &Process, descriptors: usize) {
        keeper.wait_for(&format!("process {}, {descriptors} descriptors kept", self.process.id()));
    }

    /// Returns the counters. Those of the kernel are up to 100 ms old.
    ///
    /// # Panics
    /// When `fastlane top` fails.
    #[track_caller]
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut top = Command::new(binary("fastlane"));
        let output = top.arg("top").arg(&self.session).args(["--once", "--json"]).output();
        let output = output.expect("fastlane can be started");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "fastlane top: {errors}\n{}", self.process.stderr());
        Totals(serde_json::from_slice(&output.stdout).expect("JSON from fastlane top"))
    }

    /// Runs `fastlane switch` for a port, with further words. Returns its report, or its message.
    ///
    /// # Errors
    /// The message of a refusal.
    ///
    /// # Panics
    /// When it has another exit status than 0 and 1.
    #[track_caller]
    pub fn switch(&self, port: &str, words: &[&str]) -> Result<Value, String> {
        let mut command = Command::new(binary("fastlane"));
        command.arg("switch").arg(&self.session).arg(port).args(words).arg("--json");
        let output = command.output().expect("fastlane can be started");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.code() {
            Some(0) => Ok(serde_json::from_slice(&output.stdout).expect("JSON from the command")),
            Some(1) => Err(message),
            other => panic!("{words:?}: {other:?}: {message}\n{}", self.process.stderr()),
        }
    }

    /// Kills the application.
    #[track_caller]
    pub fn kill(self) {
        self.process.kill();
    }

    /// Sends SIGTERM and waits for the end.
    ///
    /// # Panics
    /// When the exit status is not 0.
    #[track_caller]
    pub fn stop(self) -> Ended {
        let ended = self.process.stop();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        ended
    }
}
