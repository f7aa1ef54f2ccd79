//! An agent that takes grants, as the front doors of Kubernetes give them.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::agent::{Pins, descriptors, with_capabilities};
use crate::{Application, Host, Lab, Process, eventually, unprivileged};

/// A running agent on the left host that takes grants, and the BPF file system with its pins.
#[derive(Debug)]
pub struct GrantingAgent {
    /// Process of the agent; `None` while it is away.
    process: Option<Process>,
    directory: PathBuf,
    pins: Pins,
}

impl GrantingAgent {
    /// Starts the agent. Returns `None` after a skip if there is no BPF file system.
    ///
    /// # Panics
    /// When it does not start.
    #[track_caller]
    #[must_use]
    pub fn start(lab: &Lab) -> Option<Self> {
        let pins = Pins::mount(lab)?;
        let mut agent = Self { process: None, directory: lab.directory().to_owned(), pins };
        agent.run(lab);
        Some(agent)
    }

    /// Starts the agent again, without any grant.
    ///
    /// # Panics
    /// When it does not start, or runs.
    #[track_caller]
    pub fn run(&mut self, lab: &Lab) {
        assert!(self.process.is_none(), "the agent runs");
        let mut command = with_capabilities(lab, "pod_agent");
        command.arg(self.pins.directory()).stdin(Stdio::piped());
        let process = Process::start(command);
        process.wait_for("the front door is open");
        self.process = Some(process);
    }

    /// Returns the process.
    ///
    /// # Panics
    /// When it is away.
    #[track_caller]
    #[must_use]
    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("the agent runs")
    }

    /// Kills the agent. Its pins stay.
    ///
    /// # Panics
    /// When it is away.
    #[track_caller]
    pub fn kill(&mut self) {
        self.process.take().expect("the agent runs").kill();
    }

    /// Sends a request. Returns the line with its response.
    ///
    /// # Panics
    /// When there is no response.
    #[track_caller]
    pub fn request(&mut self, request: &Value) -> String {
        let process = self.process.as_mut().expect("the agent runs");
        let before = process.stdout().lines().count();
        process.write_line(&request.to_string());
        let process = &*process;
        let response = || process.stdout().lines().nth(before).map(str::to_owned);
        eventually("the agent responds", || response().is_some());
        response().expect("a response")
    }

    /// Gives a grant for a pool, with a socket that is named like it.
    ///
    /// # Panics
    /// When it is refused.
    #[track_caller]
    pub fn grant(&mut self, name: &str, pool: &Value) {
        let request = json!({"grant": name, "pool": pool, "socket": self.socket(name)});
        assert_eq!(self.request(&request), "done");
    }

    /// Revokes a grant.
    ///
    /// # Panics
    /// When there is none of this name.
    #[track_caller]
    pub fn revoke(&mut self, name: &str) {
        assert_eq!(self.request(&json!({"revoke": name})), "done");
    }

    /// Returns the use of the grants: name, connections and interfaces of each.
    #[track_caller]
    #[must_use]
    pub fn grants(&mut self) -> String {
        self.request(&json!({"use": true}))
    }

    /// Returns the path of the socket of a grant.
    #[must_use]
    pub fn socket(&self, name: &str) -> PathBuf {
        self.directory.join(name).join("agent.sock")
    }

    /// Returns the number of devices that are pinned.
    #[must_use]
    pub fn pinned(&self) -> usize {
        self.pins.count()
    }

    /// Returns the number of descriptors that the agent has.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        descriptors(self.process())
    }

    /// Returns the command that runs a program on a host as [`NOBODY`](crate::NOBODY) without any
    /// capability, through the socket of a grant, and the path of its session.
    #[track_caller]
    #[must_use]
    pub fn client(
        &self,
        lab: &Lab,
        host: &Host,
        program: &str,
        grant: &str,
        mut configuration: Value,
    ) -> (Command, PathBuf) {
        configuration["agent"] = json!(self.socket(grant));
        let (path, session) = Application::configure(lab, configuration);
        let mut command = unprivileged(lab, host, program);
        command.arg(path);
        (command, session)
    }
}

/// Returns a pool of a grant with these interfaces and the rules of
/// [`Application::steered`].
#[must_use]
pub fn pool_of(interfaces: &[&str]) -> Value {
    let interfaces = interfaces.iter().map(|name| ((*name).to_owned(), json!({})));
    let interfaces: serde_json::Map<String, Value> = interfaces.collect();
    json!({
        "interfaces": interfaces,
        "steer": [{"udp-port": 2152}, {"udp-port": "40000-40099"}],
    })
}
