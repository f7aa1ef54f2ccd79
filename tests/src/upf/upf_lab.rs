//! A UPF in a network namespace of its own, with SMF, gNB and data network in another one. Fast and
//! slow path run under the supervisor, or are started one by one.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::smf::Smf;
use super::traffic::Traffic;
use crate::{Application, Ended, Host, Lab, Process, Totals, binary, eventually};

/// The UPF's address on N4.
pub const N4: Ipv4Addr = Ipv4Addr::new(10, 40, 0, 1);
/// T1 in ms and N1: responses are kept for 15 s, longer than a restart takes.
const T1_MS: u64 = 3000;
const N1: u32 = 5;
/// Time for which the UPF keeps a response.
pub const RESPONSE_LIFETIME: Duration = Duration::from_millis(T1_MS * N1 as u64);
/// Size of a receive ring in frames: it buffers packets while no fast path runs.
pub const RING: u64 = 8192;
/// Maximum number of packets that a fast path has received and not yet sent: one burst per port.
pub const MAX_IN_PROCESS: u64 = 128;
/// Interface, address and MAC address of each neighbour of the UPF.
pub const NEIGHBOURS: [(&str, &str, &str); 3] = [
    ("n3", "10.30.0.2", "02:00:00:00:30:02"),
    ("n3", "10.30.0.3", "02:00:00:00:30:03"),
    ("n6", "10.60.0.2", "02:00:00:00:60:02"),
];

/// Driver of the UPF's ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// AF_XDP in native mode on veth.
    AfXdp,
    /// AF_PACKET on veth.
    AfPacket,
    /// TAP with a raw socket as its peer.
    Tap,
}

impl Driver {
    fn port(self, name: &str, address: &str) -> Value {
        match self {
            Self::AfXdp => json!({"driver": {"af-xdp": {
                "interface": name, "mode": "native-copy", "receive-ring": RING}}}),
            Self::AfPacket => json!({"driver": {"af-packet": {"interface": name, "ring": RING}}}),
            Self::Tap => json!({
                "driver": {"tap": {"name": format!("{name}wire")}},
                "kernel": {"tap": {"name": name, "addresses": [address]}},
            }),
        }
    }
}

/// The network namespaces and interfaces around a UPF.
#[derive(Debug)]
pub struct UpfLab {
    /// The UPF is on the left host, everything else on the right one.
    pub hosts: Lab,
    driver: Driver,
}

/// A running UPF.
#[derive(Debug)]
pub struct Upf {
    /// The supervisor, or the fast path if it was started without one.
    application: Application,
    /// The slow path if it was started without a supervisor.
    slow_path: Option<Process>,
    configuration: PathBuf,
}

impl UpfLab {
    /// Creates the namespaces and interfaces. Returns `None` after a skip if that is not allowed.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[must_use]
    pub fn new(story: &str, driver: Driver) -> Option<Self> {
        let hosts = Lab::new(story, 1)?;
        hosts.wire("n4");
        hosts.left.run(&["ip", "address", "add", "10.40.0.1/24", "dev", "n4"]);
        hosts.right.run(&["ip", "address", "add", "10.40.0.2/24", "dev", "n4"]);
        if driver != Driver::Tap {
            for (name, address) in [("n3", "10.30.0.1/24"), ("n6", "10.60.0.1/24")] {
                hosts.wire(name);
                hosts.left.run(&["ip", "address", "add", address, "dev", name]);
            }
        }
        Some(Self { hosts, driver })
    }

    /// Returns the configuration of a UPF for up to `sessions` sessions, with `changes` of `app`.
    #[must_use]
    pub fn configuration(&self, sessions: u32, changes: &[(&str, Value)]) -> Value {
        let mut n3 = self.driver.port("n3", "10.30.0.1/24");
        n3["steer"] = json!([{"udp-port": 2152, "fragments": true}]);
        let mut n6 = self.driver.port("n6", "10.60.0.1/24");
        n6["steer"] = json!([{"destination": "10.45.0.0/16", "fragments": true}]);
        let mut app = json!({
            "node-id": "10.40.0.1",
            "n4": {"addresses": ["10.40.0.1"], "t1-ms": T1_MS, "n1": N1, "heartbeat-s": 1,
                   "release-s": 0},
            "interfaces": {
                "n3": {"port": "n3", "role": "n3", "network-instances": ["access"],
                       "addresses": ["10.30.0.1"]},
                "n6": {"port": "n6", "role": "n6", "network-instances": ["internet"]},
            },
            "pools": [{"network-instance": "internet", "prefix": "10.45.0.0/16"}],
            "sessions": sessions,
            "gtp": {"probe-s": 0, "errors-per-s": 0, "icmp-per-s": 0},
        });
        for (key, value) in changes {
            app[key] = value.clone();
        }
        let lanes = json!({"frames": 4 * RING});
        json!({"ports": {"n3": n3, "n6": n6}, "app": app, "lanes": lanes})
    }

    /// Adds permanent neighbour entries to the UPF's Linux, once its interfaces are up.
    ///
    /// # Panics
    /// When an interface does not come up.
    pub fn add_neighbours(&self) {
        let upf = &self.hosts.left;
        for (interface, address, hardware) in NEIGHBOURS {
            let show = ["ip", "link", "show", "dev", interface];
            eventually("the UPF's interface is up", || {
                String::from_utf8_lossy(&upf.attempt(&show).stdout).contains("LOWER_UP")
            });
            let words = ["ip", "neigh", "replace", address, "lladdr", hardware, "dev", interface];
            upf.run(&[&words[..], &["nud", "permanent"]].concat());
        }
    }

    /// Starts `upf CONFIG`: a supervisor that starts and restarts fast and slow path.
    #[track_caller]
    #[must_use]
    pub fn start_supervised(&self, configuration: Value) -> Upf {
        self.start_behind(&[], configuration)
    }

    /// Starts `upf CONFIG` by `wrapper`, a command that executes the one behind it.
    #[track_caller]
    #[must_use]
    pub fn start_behind(&self, wrapper: &[&str], configuration: Value) -> Upf {
        let (path, session) = Application::configure(&self.hosts, configuration);
        let mut command = self.hosts.left.command(wrapper);
        command.arg(binary("upf")).arg(&path);
        let application = Application::run(command, session);
        application.process.wait_for("the slow path process has id");
        self.add_neighbours();
        Upf { application, slow_path: None, configuration: path }
    }

    /// Starts `upf fast CONFIG` and `upf slow CONFIG`, without a supervisor.
    #[track_caller]
    #[must_use]
    pub fn start_unsupervised(&self, configuration: Value) -> Upf {
        let (path, session) = Application::configure(&self.hosts, configuration);
        let mut command = self.hosts.left.command(&[]);
        command.arg(binary("upf")).arg("fast").arg(&path);
        let application = Application::run(command, session);
        let slow_path = Some(self.start_slow_path(&path));
        self.add_neighbours();
        Upf { application, slow_path, configuration: path }
    }

    fn start_slow_path(&self, path: &std::path::Path) -> Process {
        let mut command = self.hosts.left.command(&[]);
        command.arg(binary("upf")).arg("slow").arg(path);
        Process::start(command)
    }

    /// Kills the slow path with SIGKILL; another one is started, by the supervisor or by this.
    #[track_caller]
    pub fn kill_slow_path(&self, upf: &mut Upf) {
        match upf.slow_path.take() {
            Some(slow_path) => {
                slow_path.kill();
                upf.slow_path = Some(self.start_slow_path(&upf.configuration));
            }
            None => upf.kill("slow"),
        }
    }

    /// Returns the MAC addresses of the UPF on N3 and N6.
    ///
    /// # Panics
    /// When an interface does not exist.
    #[track_caller]
    #[must_use]
    pub fn macs(&self) -> [String; 2] {
        ["n3", "n6"].map(|name| {
            let text = self.hosts.left.run(&["ip", "-j", "link", "show", "dev", name]);
            let links: Value = serde_json::from_str(&text).expect("JSON from ip");
            links[0]["address"].as_str().expect("a MAC address").to_owned()
        })
    }

    /// Opens the gNB's and the data network's ends of a running UPF.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let macs = self.macs();
        let (host, names): (&Host, _) = match self.driver {
            Driver::Tap => (&self.hosts.left, ["n3wire", "n6wire"]),
            _ => (&self.hosts.right, ["n3", "n6"]),
        };
        Traffic::new(names.map(|name| (host, name)), [&macs[0], &macs[1]])
    }

    /// Runs a command of `upf` beside the running UPF. Returns its exit status and output.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    #[must_use]
    pub fn upf_command(&self, words: &[&str]) -> (Option<i32>, String) {
        let mut command = self.hosts.left.command(&[]);
        let output = command.arg(binary("upf")).args(words).output().expect("upf can be started");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    }

    /// Creates the SMF.
    #[must_use]
    pub fn smf(&self) -> Smf {
        Smf::new(&self.hosts.right)
    }

    /// Returns the HTTP response of the UPF's API to a GET of `path`, with its headers.
    #[track_caller]
    #[must_use]
    pub fn get(&self, path: &str) -> String {
        let get = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, 8805))?;
            let lines = "HTTP/1.1\r\nHost: upf\r\nConnection: close\r\n\r\n";
            write!(stream, "GET {path} {lines}")?;
            let mut response = String::new();
            stream.read_to_string(&mut response)?;
            Ok(response)
        };
        let mut response = None;
        eventually("the API responds", || {
            response = self.hosts.left.enter(get).ok().filter(|it| it.starts_with("HTTP/1.1 200"));
            response.is_some()
        });
        response.unwrap_or_default()
    }

    /// Returns one of the counters of `upf_packets_total`.
    ///
    /// # Panics
    /// When the metrics have no such counter.
    #[track_caller]
    #[must_use]
    pub fn packet_count(&self, cause: &str) -> u64 {
        let start = format!("upf_packets_total{{cause=\"{cause}\"}} ");
        let metrics = self.get("/metrics");
        let count = metrics.lines().find_map(|line| line.strip_prefix(&start));
        count.and_then(|it| it.parse().ok()).expect("the metrics have the counter")
    }

    /// Returns the packets that were not forwarded, by drop reason or counter, without zeros.
    ///
    /// # Panics
    /// When the metrics have no drop reasons.
    #[track_caller]
    #[must_use]
    pub fn dropped(&self, upf: &Upf) -> BTreeMap<String, u64> {
        let mut dropped = BTreeMap::new();
        for line in self.get("/metrics").lines() {
            let Some(rest) = line.strip_prefix("upf_packets_total{cause=\"") else { continue };
            let (cause, count) = rest.split_once("\"} ").expect("a count");
            if !cause.starts_with("forwarded") && !["held", "user_to_user"].contains(&cause) {
                dropped.insert(cause.to_owned(), count.parse().expect("a number"));
            }
        }
        assert!(dropped.contains_key("gate_closed"), "no drop reasons in the metrics");
        let totals = upf.totals();
        for kind in ["ports", "lanes"] {
            for one in totals.0[kind].as_array().into_iter().flatten() {
                for (name, count) in one["counters"].as_object().into_iter().flatten() {
                    if name.starts_with("drop_") {
                        *dropped.entry(name.clone()).or_default() += count.as_u64().unwrap_or(0);
                    }
                }
            }
        }
        dropped.retain(|_, count| *count > 0);
        dropped
    }
}

impl Upf {
    /// Returns the path of the configuration file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.configuration
    }

    /// Returns the content of the configuration file.
    ///
    /// # Panics
    /// When it cannot be read.
    #[must_use]
    pub fn read_file(&self) -> Value {
        let text = std::fs::read_to_string(&self.configuration).expect("a configuration");
        serde_json::from_str(&text).expect("JSON")
    }

    /// Replaces the configuration file, without a reload.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write_file(&self, configuration: &Value) {
        let new = self.configuration.with_extension("new");
        std::fs::write(&new, configuration.to_string()).expect("the configuration is writable");
        std::fs::rename(&new, &self.configuration).expect("the configuration is writable");
    }

    /// Sends a signal to the supervisor.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        self.application.process.signal(signal);
    }

    /// Returns the process ID of the `fast` or `slow` path that the supervisor has started last.
    ///
    /// # Panics
    /// When the supervisor has not logged it.
    #[track_caller]
    #[must_use]
    pub fn process_id(&self, path: &str) -> u32 {
        let log = self.application.process.stderr();
        let words = format!("upf: the {path} path process has id ");
        let last = log.rsplit(&words).next().and_then(|it| it.split_whitespace().next());
        last.and_then(|number| number.parse().ok()).expect("the supervisor logs the process")
    }

    /// Kills the `fast` or `slow` path under the supervisor, and waits until it is restarted.
    ///
    /// # Panics
    /// When it does not run.
    #[track_caller]
    pub fn kill(&self, path: &str) {
        let before = self.process_id(path);
        kill(before);
        eventually("it is restarted", || self.process_id(path) != before);
    }

    /// Kills slow and fast path, in this order, and waits until both are restarted.
    ///
    /// # Panics
    /// When one does not run.
    #[track_caller]
    pub fn kill_both(&self) {
        let before = ["slow", "fast"].map(|path| (path, self.process_id(path)));
        before.iter().for_each(|(_, number)| kill(*number));
        for (path, number) in before {
            eventually("it is restarted", || self.process_id(path) != number);
        }
    }

    /// Sends SIGTERM to the supervisor, or to the slow path without one.
    #[track_caller]
    pub fn terminate(&self) {
        let process = self.slow_path.as_ref().unwrap_or(&self.application.process);
        process.signal(Signal::TERM);
    }

    /// Waits for the end of the slow path that was started without a supervisor.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    #[must_use]
    pub fn wait_for_slow_path(&mut self) -> Ended {
        self.slow_path.take().expect("a slow path without a supervisor").wait()
    }

    /// Returns true if the supervisor, or the fast path without one, runs.
    pub fn is_running(&mut self) -> bool {
        self.application.process.is_running()
    }

    /// Waits for the end of the supervisor.
    #[track_caller]
    #[must_use]
    pub fn wait(self) -> Ended {
        self.application.process.wait()
    }

    /// Returns the counters of the fast path.
    #[track_caller]
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.application.totals()
    }

    /// Waits until the log contains `text`.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        self.application.process.wait_for(text);
    }

    /// Returns the log so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.application.process.stderr()
    }

    /// Stops all processes.
    ///
    /// # Panics
    /// When one reports an error by its exit status.
    #[track_caller]
    pub fn stop(mut self) {
        if let Some(slow_path) = self.slow_path.take() {
            let ended = slow_path.stop();
            assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        }
        self.application.stop();
    }
}

#[track_caller]
fn kill(process: u32) {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).expect("a process ID");
    kill_process(pid, Signal::KILL).expect("the process runs");
}
