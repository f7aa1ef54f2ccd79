//! Where the UPF runs: a namespace of its own, and one for all others. Its halves under a
//! supervisor, or each by hand.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastlane_tests::{Application, Host, Lab, Process, binary, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::smf::Smf;
use crate::traffic::Traffic;

/// The UPF's address on N4.
pub(crate) const N4: Ipv4Addr = Ipv4Addr::new(10, 40, 0, 1);
/// T1 in ms and N1: answers are kept for 15 s, longer than any half is away.
const T1_MS: u64 = 3000;
const N1: u32 = 5;
/// So long is an answer kept.
pub(crate) const ANSWERS_KEPT: Duration = Duration::from_millis(T1_MS * N1 as u64);
/// Frames that wait in a ring while nobody runs.
pub(crate) const RING: u64 = 8192;
/// What a fast half has in its hands at most: a burst of each port, received and not yet sent.
pub(crate) const HANDS: u64 = 128;
/// What frames to the base stations and to the data network are addressed to.
pub(crate) const HOPS: [(&str, &str, &str); 3] = [
    ("n3", "10.30.0.2", "02:00:00:00:30:02"),
    ("n3", "10.30.0.3", "02:00:00:00:30:03"),
    ("n6", "10.60.0.2", "02:00:00:00:60:02"),
];

/// What carries the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    AfXdp,
    AfPacket,
    Tap,
}

impl Carrier {
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

/// The namespaces: the UPF is the left host, all others are the right one.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) lab: Lab,
    carrier: Carrier,
    /// One at a time: a story kills, and judges what comes within times that a machine keeps only
    /// if it does nothing else.
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

/// A UPF that runs.
#[derive(Debug)]
pub(crate) struct Upf {
    /// The supervisor, or the fast half.
    application: Application,
    /// The slow half, when it was started by hand.
    slow: Option<Process>,
    configuration: PathBuf,
}

impl Place {
    /// Makes them; `None`, after a skip, where that is not allowed.
    pub(crate) fn new(story: &str, carrier: Carrier) -> Option<Self> {
        // One that failed has cleaned up all the same.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let lab = Lab::new(story, 1)?;
        lab.wire("n4");
        lab.left.run(&["ip", "address", "add", "10.40.0.1/24", "dev", "n4"]);
        lab.right.run(&["ip", "address", "add", "10.40.0.2/24", "dev", "n4"]);
        if carrier != Carrier::Tap {
            for (name, address) in [("n3", "10.30.0.1/24"), ("n6", "10.60.0.1/24")] {
                lab.wire(name);
                lab.left.run(&["ip", "address", "add", address, "dev", name]);
            }
        }
        Some(Self { lab, carrier, _turn: turn })
    }

    /// The configuration of a UPF for so many sessions, with these changes of `app`.
    pub(crate) fn configuration(&self, sessions: u32, changes: &[(&str, Value)]) -> Value {
        let mut n3 = self.carrier.port("n3", "10.30.0.1/24");
        n3["steer"] = json!([{"udp-port": 2152}]);
        let mut n6 = self.carrier.port("n6", "10.60.0.1/24");
        n6["steer"] = json!([{"destination": "10.45.0.0/16"}]);
        let mut app = json!({
            "node-id": "10.40.0.1",
            "n4": {"addresses": ["10.40.0.1"], "t1-ms": T1_MS, "n1": N1, "heartbeat-s": 1},
            "interfaces": {
                "n3": {"port": "n3", "role": "n3", "network-instance": "access",
                       "addresses": ["10.30.0.1"]},
                "n6": {"port": "n6", "role": "n6", "network-instance": "internet"},
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

    /// Tells the UPF's Linux where its neighbours are.
    pub(crate) fn prepare(&self) {
        let upf = &self.lab.left;
        for (interface, address, hardware) in HOPS {
            let show = ["ip", "link", "show", "dev", interface];
            eventually("the UPF's interface is up", || {
                String::from_utf8_lossy(&upf.attempt(&show).stdout).contains("LOWER_UP")
            });
            let words = ["ip", "neigh", "replace", address, "lladdr", hardware, "dev", interface];
            upf.run(&[&words[..], &["nud", "permanent"]].concat());
        }
    }

    /// Starts `upf CONFIG`.
    #[track_caller]
    pub(crate) fn supervised(&self, configuration: Value) -> Upf {
        let (path, session) = Application::configure(&self.lab, configuration);
        let mut command = self.lab.left.command(&[]);
        command.arg(binary("upf")).arg(&path);
        let application = Application::run(command, session);
        application.process.wait_for("the slow half is process");
        self.prepare();
        Upf { application, slow: None, configuration: path }
    }

    /// Starts each half.
    #[track_caller]
    pub(crate) fn by_hand(&self, configuration: Value) -> Upf {
        let (path, session) = Application::configure(&self.lab, configuration);
        let mut command = self.lab.left.command(&[]);
        command.arg(binary("upf")).arg("fast").arg(&path);
        let application = Application::run(command, session);
        let slow = Some(self.slow_half(&path));
        self.prepare();
        Upf { application, slow, configuration: path }
    }

    fn slow_half(&self, path: &std::path::Path) -> Process {
        let mut command = self.lab.left.command(&[]);
        command.arg(binary("upf")).arg("slow").arg(path);
        Process::start(command)
    }

    /// Kills the slow half, by SIGKILL, and sees to it that there is another one.
    #[track_caller]
    pub(crate) fn kill_slow(&self, upf: &mut Upf) {
        match upf.slow.take() {
            Some(slow) => {
                slow.kill();
                upf.slow = Some(self.slow_half(&upf.configuration));
            }
            None => upf.kill_half("slow"),
        }
    }

    /// The hardware addresses of the UPF on N3 and N6.
    #[track_caller]
    pub(crate) fn macs(&self) -> [String; 2] {
        ["n3", "n6"].map(|name| {
            let text = self.lab.left.run(&["ip", "-j", "link", "show", "dev", name]);
            let links: Value = serde_json::from_str(&text).expect("JSON from ip");
            links[0]["address"].as_str().expect("a hardware address").to_owned()
        })
    }

    /// The sides of the UPF, once it runs.
    pub(crate) fn traffic(&self) -> Traffic {
        let macs = self.macs();
        let (host, names): (&Host, _) = match self.carrier {
            Carrier::Tap => (&self.lab.left, ["n3wire", "n6wire"]),
            _ => (&self.lab.right, ["n3", "n6"]),
        };
        Traffic::new(host, names, [&macs[0], &macs[1]])
    }

    /// The control plane.
    pub(crate) fn smf(&self) -> Smf {
        Smf::new(&self.lab.right)
    }

    /// What the slow half says at this path of the API.
    #[track_caller]
    pub(crate) fn ask(&self, path: &str) -> String {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, 8805))?;
            let lines = "HTTP/1.1\r\nHost: upf\r\nConnection: close\r\n\r\n";
            write!(stream, "GET {path} {lines}")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let mut answer = None;
        eventually("the API answers", || {
            answer = self.lab.left.enter(ask).ok().filter(|it| it.starts_with("HTTP/1.1 200"));
            answer.is_some()
        });
        answer.unwrap_or_default()
    }

    /// How many packets have this cause.
    #[track_caller]
    pub(crate) fn count(&self, cause: &str) -> u64 {
        let start = format!("upf_packets_total{{cause=\"{cause}\"}} ");
        let metrics = self.ask("/metrics");
        let count = metrics.lines().find_map(|line| line.strip_prefix(&start));
        count.and_then(|it| it.parse().ok()).expect("the metrics have it")
    }

    /// Packets that are not forwarded, by the name of the cause or of the counter.
    #[track_caller]
    pub(crate) fn dropped(&self, upf: &Upf) -> BTreeMap<String, u64> {
        let mut dropped = BTreeMap::new();
        for line in self.ask("/metrics").lines() {
            let Some(rest) = line.strip_prefix("upf_packets_total{cause=\"") else { continue };
            let (cause, count) = rest.split_once("\"} ").expect("a count");
            if !cause.starts_with("forwarded") && !["held", "user_to_user"].contains(&cause) {
                dropped.insert(cause.to_owned(), count.parse().expect("a number"));
            }
        }
        assert!(dropped.contains_key("gate_closed"), "no causes in the metrics");
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
    /// The process of a half that the supervisor has started last.
    #[track_caller]
    pub(crate) fn half(&self, half: &str) -> u32 {
        let said = self.application.process.stderr();
        let words = format!("upf: the {half} half is process ");
        let last = said.rsplit(&words).next().and_then(|it| it.split_whitespace().next());
        last.and_then(|number| number.parse().ok()).expect("the supervisor says so")
    }

    /// Kills a half under the supervisor, which starts it again.
    #[track_caller]
    pub(crate) fn kill_half(&self, half: &str) {
        let before = self.half(half);
        let pid = i32::try_from(before).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, Signal::KILL).expect("it runs");
        eventually("it is started again", || self.half(half) != before);
    }

    /// Kills both halves, the slow one first; each is started again.
    #[track_caller]
    pub(crate) fn kill_both(&self) {
        let before = ["slow", "fast"].map(|half| (half, self.half(half)));
        for (_, number) in before {
            let pid = i32::try_from(number).ok().and_then(Pid::from_raw).expect("a process id");
            kill_process(pid, Signal::KILL).expect("it runs");
        }
        for (half, number) in before {
            eventually("it is started again", || self.half(half) != number);
        }
    }

    /// The counters of the fast half, when it was started by hand.
    #[track_caller]
    pub(crate) fn totals(&self) -> fastlane_tests::Totals {
        self.application.totals()
    }

    /// Waits until these words are said.
    #[track_caller]
    pub(crate) fn wait_for(&self, words: &str) {
        self.application.process.wait_for(words);
    }

    /// What was said so far.
    pub(crate) fn said(&self) -> String {
        self.application.process.stderr()
    }

    /// Ends both.
    #[track_caller]
    pub(crate) fn stop(mut self) {
        if let Some(slow) = self.slow.take() {
            let ended = slow.stop();
            assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        }
        self.application.stop();
    }
}
