//! Hot restart: the fast path is replaced and hands over tables, sockets and devices.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fastlane::slow::{self, SlowPath};
use fastlane::table::EntryId;
use fastlane_tests::{Application, Lab, Mechanism, Process, Report, binary, eventually, measure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// First source port of the generator's flows.
const FIRST: u16 = 5000;
const FLOWS: u16 = 16;
const TAP: &str = "tap0";

/// Returns the configuration of the fast path, with the tables of accounts and totals.
fn configuration(driver: &Value) -> Value {
    let mut configuration = Application::steered(driver);
    configuration["lanes"] = json!({"frames": 32_768});
    configuration["tables"] = json!({"accounts": {"capacity": 256}, "totals": {"capacity": 1}});
    configuration
}

fn tap() -> Value {
    json!({"tap": {"name": TAP, "addresses": ["10.88.0.1/24"]}})
}

fn start(lab: &Lab, configuration: Value) -> Application {
    Application::start(lab, &lab.left, &binary("ledger"), configuration)
}

/// Restarts the fast path with its session and configuration.
fn again(lab: &Lab, session: &Path) -> Application {
    let mut command = lab.left.command(&[]);
    command.arg(binary("ledger")).arg(session.with_extension("json"));
    Application::run(command, session.to_owned())
}

fn attached(session: &Path) -> SlowPath {
    slow::attach(session.to_str().expect("text")).expect("the process runs")
}

/// Opens the accounts of all flows.
fn open_accounts(session: &Path) {
    let slow = attached(session);
    let accounts = slow.hash_writer::<[u8; 2], [u64; 8]>("accounts");
    let mut accounts = accounts.expect("the table exists");
    for port in FIRST..FIRST + FLOWS {
        accounts.insert(&port.to_be_bytes(), &[1; 8]).expect("the table has room");
    }
}

/// Returns the packets counted under any account. None may be without one.
fn counted(slow: &SlowPath) -> u64 {
    let totals = slow.state::<2>("totals").expect("the table exists").read(EntryId(0));
    assert_eq!(totals, [0, 0], "packets without an account, torn accounts");
    let state = slow.state::<1>("accounts").expect("the table exists");
    (0..256).map(|entry| state.read(EntryId(entry))[0]).sum()
}

/// Sends packets to the fast path: from `wire0` of the right host, or from the TAP of the left one.
fn traffic(lab: &Lab, by: &str, packets: u64) -> Report {
    let app = json!({
        "rate-packets-per-second": 5000,
        "count-packets": packets,
        "flows": {"count": FLOWS, "source-port": FIRST, "destination-port": 2152},
        "linger-ms": 2000,
    });
    let host = if by == TAP { &lab.left } else { &lab.right };
    let driver = json!({"af-packet": {"interface": by, "ring": 16_384}});
    measure(lab, host, &driver, app).0
}

/// Calls `restart` under traffic. Returns the report of the traffic and the result.
fn under_traffic<T>(
    lab: &Lab,
    by: &str,
    session: &Path,
    restart: impl FnOnce() -> T,
) -> (Report, T) {
    std::thread::scope(|scope| {
        let slow = attached(session);
        let before = counted(&slow);
        // Packets to a TAP without a fast path are lost, so the traffic outlasts a restart on a
        // loaded machine; beside the long forms of all tests one took 4 s. The ring of a socket
        // holds all of the rest.
        let is_soak = std::env::var_os("FASTLANE_SOAK").is_some();
        let packets = match (by, is_soak) {
            (TAP, true) => 100_000,
            (TAP, false) => 20_000,
            _ => 10_000,
        };
        let report = scope.spawn(move || traffic(lab, by, packets));
        eventually("packets flow", || counted(&slow) > before + 1000);
        let done = restart();
        (report.join().expect("the thread does not panic"), done)
    })
}

/// Prints the cost of a restart. Asserts that most packets have returned.
fn say(what: &str, report: &Report) {
    let longest = report.0["received"]["latency"]["maximum-ns"].as_u64().unwrap_or(0) / 1_000_000;
    eprintln!("{what}: {} of {} lost, delayed to {longest} ms", report.lost(), report.sent());
    assert!(report.received() > 5000, "{}", report.0);
}

/// Returns the index and the addresses of an interface of the left host.
fn identity(lab: &Lab, interface: &str) -> (u64, String) {
    let text = lab.left.run(&["ip", "-j", "address", "show", "dev", interface]);
    let links: Value = serde_json::from_str(&text).expect("JSON from ip");
    let addresses = links[0]["addr_info"].as_array().expect("addresses").iter();
    let addresses: Vec<String> = addresses.map(|it| it["local"].to_string()).collect();
    (links[0]["ifindex"].as_u64().expect("a number"), addresses.join(" "))
}

#[test]
fn a_tap_device_survives_the_fast_path() {
    let Some(lab) = Lab::new("restart-tap", 1) else { return };
    let mut fast = start(&lab, configuration(&tap()));
    let session = fast.session().to_owned();
    open_accounts(&session);
    // State that only Linux has.
    lab.left.run(&["ip", "address", "add", "10.88.1.1/24", "dev", TAP]);
    lab.left.run(&["ip", "route", "add", "10.99.0.0/16", "via", "10.88.1.2", "dev", TAP]);
    let before = identity(&lab, TAP);
    let routes = || lab.left.run(&["ip", "route", "show", "dev", TAP]);
    let routes_before = routes();
    let keeper = fast.keeper(4);
    assert_eq!(traffic(&lab, TAP, 1000).lost(), 0);
    for is_killed in [true, false, true] {
        let (report, next) = under_traffic(&lab, TAP, &session, || {
            if is_killed {
                fast.kill();
            } else {
                fast.stop();
            }
            again(&lab, &session)
        });
        fast = next;
        let stderr = fast.process.stderr();
        assert!(stderr.contains("the ports on TAP are taken over"), "{stderr}");
        say(&format!("TAP, killed {is_killed}"), &report);
        assert_eq!((identity(&lab, TAP), routes()), (before.clone(), routes_before.clone()));
        assert_eq!(traffic(&lab, TAP, 1000).lost(), 0, "no loss after the restart");
        fast.is_kept_by(&keeper, 4);
    }
    // Control: without a holder the TAP is new.
    keeper.kill();
    fast.kill();
    fast = again(&lab, &session);
    let after = identity(&lab, TAP);
    assert!(after.0 != before.0 && !after.1.contains("10.88.1.1"), "{after:?}");
    fast.stop();
}

#[test]
fn the_tap_that_stands_for_a_device_survives_the_fast_path() {
    let Some(lab) = Lab::new("restart-peer", 1) else { return };
    let driver = json!({"memif": {"socket": lab.file("memif.sock"), "role": "server"}});
    let mut peer = configuration(&driver);
    peer["ports"]["wire"]["kernel"] = json!({"tap": {"name": TAP, "addresses": ["10.88.0.1/24"]}});
    let mut fast = start(&lab, peer);
    let session = fast.session().to_owned();
    lab.left.run(&["ip", "address", "add", "10.88.1.1/24", "dev", TAP]);
    let before = identity(&lab, TAP);
    let keeper = fast.keeper(4);
    for _ in 0..2 {
        fast.kill();
        fast = again(&lab, &session);
        let stderr = fast.process.stderr();
        assert!(stderr.contains("the ports on TAP are taken over"), "{stderr}");
        assert_eq!(identity(&lab, TAP), before);
        fast.is_kept_by(&keeper, 4);
    }
    fast.stop();
    keeper.kill();
}

#[test]
fn a_device_that_has_gone_is_made_anew() {
    let Some(lab) = Lab::new("restart-gone", 1) else { return };
    lab.wire("spare");
    let drivers = [(TAP, 4, tap()), ("spare", 9, Mechanism::XdpNative.on("spare"))];
    for (interface, descriptors, driver) in drivers {
        let fast = start(&lab, configuration(&driver));
        let session = fast.session().to_owned();
        open_accounts(&session);
        let keeper = fast.keeper(descriptors);
        assert_eq!(traffic(&lab, interface, 1000).lost(), 0);
        fast.kill();
        lab.left.run(&["ip", "link", "delete", interface]);
        if interface != TAP {
            lab.wire(interface);
        }
        let fast = again(&lab, &session);
        let stderr = fast.process.stderr();
        let anew = stderr.matches("the inherited ports are closed and reopened: ").count();
        assert!(anew == 1 && !stderr.contains("are taken over"), "{stderr}");
        let why =
            stderr.lines().find(|line| line.contains("closed and reopened")).unwrap_or_default();
        eprintln!("{interface}: {why}");
        assert!(stderr.contains("table `accounts`: inherited from"), "{stderr}");
        assert_eq!(traffic(&lab, interface, 1000).lost(), 0);
        assert_eq!(counted(&attached(&session)), 2000);
        fast.is_kept_by(&keeper, descriptors);
        fast.stop();
        keeper.kill();
    }
}

#[test]
fn messages_in_flight_survive_the_fast_path() {
    let Some(lab) = Lab::new("restart-messages", 1) else { return };
    let mut settings = configuration(&json!({"af-packet": {"interface": "wire0", "ring": 16_384}}));
    settings["app"] = json!({"events": true});
    settings["messages"] = json!({"ring-kib": 64});
    let mut fast = start(&lab, settings);
    let session = fast.session().to_owned();
    open_accounts(&session);
    // Four parts of tables, the rings, two bells.
    let keeper = fast.keeper(7);
    for round in 0..3 {
        // One round without a listener before the restart, the others with one.
        let slow = attached(&session);
        let mut early = (round > 0).then(|| slow.messages().expect("the session has messages"));
        assert_eq!(traffic(&lab, "wire0", 1000).received(), 1000);
        let heard = early.as_mut().map_or(0, |messages| {
            (0..300)
                .filter(|_| messages.receive(Duration::ZERO).expect("the process runs").is_some())
                .count()
        });
        drop((early, slow));
        fast.kill();
        fast = again(&lab, &session);
        assert!(fast.process.stderr().contains("messages: the rings are inherited"));
        let slow = attached(&session);
        let mut messages = slow.messages().expect("the session has messages");
        let mut all = || {
            let next = || {
                messages.receive(Duration::from_millis(200)).expect("the process runs").is_some()
            };
            std::iter::repeat_with(next).take_while(|more| *more).count()
        };
        assert_eq!(heard + all(), 1000, "each message once");
        assert_eq!(traffic(&lab, "wire0", 500).received(), 500);
        assert_eq!(all(), 500, "messages of the new fast path");
        fast.is_kept_by(&keeper, 7);
    }
    keeper.kill();
    fast.stop();
}

/// Script that closes all inherited descriptors from 3 on and executes a program.
const CLOSE: &str =
    "for n in /proc/$$/fd/*; do n=${n##*/}; ((n < 3)) || eval \"exec $n>&-\"; done; exec \"$@\"";

/// A fast path under a service manager.
struct Service<'a> {
    manager: Process,
    lab: &'a Lab,
    session: PathBuf,
    starts: usize,
}

impl<'a> Service<'a> {
    fn start(lab: &'a Lab, configuration: Value, limit: usize) -> Self {
        Self::start_by(lab, configuration, limit, &[])
    }

    /// Starts it by a command that is put before its own.
    fn start_by(lab: &'a Lab, configuration: Value, limit: usize, by: &[&str]) -> Self {
        let (path, session) = Application::configure(lab, configuration);
        let mut command = Command::new("bash");
        command.args(["-c", CLOSE, "bash"]).arg(binary("manager"));
        command.arg(lab.file(&format!("notify-{limit}"))).arg(limit.to_string());
        command.args(["nsenter", &format!("--net={}", lab.left.path()), "--"]);
        command.args(by).arg(binary("ledger")).arg(path);
        let mut service = Self { manager: Process::start(command), lab, session, starts: 0 };
        service.is_ready();
        service
    }

    /// Waits until the service reports readiness once more. Returns the log since its start.
    fn is_ready(&mut self) -> String {
        self.starts += 1;
        let ready = || self.manager.stderr().matches("READY=1").count();
        eventually("the service is ready", || ready() == self.starts);
        let stderr = self.manager.stderr();
        stderr.rsplit("manager: service ").next().unwrap_or_default().to_owned()
    }

    /// Sends a signal to the service. The manager restarts it.
    fn end(&self, signal: Signal) {
        let stderr = self.manager.stderr();
        let last = stderr.rsplit("manager: service ").next().unwrap_or_default();
        let pid = last.split(' ').next().and_then(|number| number.parse().ok());
        let pid = pid.and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).expect("the process runs");
    }

    fn restart_under_traffic(&mut self, by: &str, signal: Signal) -> String {
        let (lab, session) = (self.lab, self.session.clone());
        let (report, stderr) = under_traffic(lab, by, &session, || {
            self.end(signal);
            self.is_ready()
        });
        say(&format!("service on {by}, {signal:?}"), &report);
        stderr
    }
}

#[test]
fn a_service_manager_keeps_what_the_fast_path_has() {
    let Some(lab) = Lab::new("restart-service", 1) else { return };
    let mut driver = Mechanism::XdpNative.on("wire0");
    driver["af-xdp"]["receive-ring"] = json!(16_384);
    let mut both = configuration(&driver);
    both["ports"]["side"] = json!({"driver": tap(), "steer": [{"udp-port": 2152}]});
    both["messages"] = json!({});
    let mut service = Service::start(&lab, both, 32);
    let session = service.session.clone();
    open_accounts(&session);
    let tap = identity(&lab, TAP);
    let mut sum = traffic(&lab, "wire0", 1000).received();
    for signal in [Signal::KILL, Signal::KILL, Signal::TERM] {
        let stderr = service.restart_under_traffic("wire0", signal);
        // Three of tables, a TAP, a pool, a socket, four of steering, three of messages; and what
        // they are.
        assert!(stderr.contains(" with 14 descriptors"), "{stderr}");
        for words in
            ["table `accounts`: inherited", "AF_XDP and TAP are taken over", "rings are inherited"]
        {
            assert!(stderr.contains(words), "{stderr}");
        }
        // The manager already holds all descriptors.
        assert!(!stderr.contains("FDSTORE"), "{stderr}");
        assert_eq!(identity(&lab, TAP), tap);
        let slow = attached(&session);
        let now = counted(&slow);
        assert!(now > sum + 5000, "{sum} {now}");
        assert_eq!(traffic(&lab, "wire0", 1000).lost(), 0, "no loss after the restart");
        sum = counted(&slow);
    }
    assert!(service.manager.stderr().contains("STOPPING=1"));
    // Without one device the ports are reopened, the tables persist and all is stored again.
    service.end(Signal::STOP); // it would end by itself
    lab.left.run(&["ip", "link", "delete", TAP]);
    service.end(Signal::KILL);
    let stderr = service.is_ready();
    assert!(
        stderr.contains("closed and reopened") && stderr.contains("table `accounts`: inherited"),
        "{stderr}"
    );
    assert!(stderr.contains("FDSTOREREMOVE=1 FDNAME=fastlane-description; 13 kept"), "{stderr}");
    assert!(stderr.contains("FDNAME=fastlane-description FDPOLL=0; 14 kept"), "{stderr}");
    assert_eq!(traffic(&lab, "wire0", 1000).lost(), 0);
    assert!(service.restart_under_traffic("wire0", Signal::KILL).contains("are taken over"));
    // A changed configuration: a clean start without old descriptors.
    let path = session.with_extension("json");
    let text = std::fs::read_to_string(&path).expect("its configuration");
    std::fs::write(&path, text.replace("32768", "16384")).expect("the file is writable");
    service.end(Signal::KILL);
    let stderr = service.is_ready();
    assert!(
        stderr.contains("is not used: the configuration has changed (`lanes.frames`)"),
        "{stderr}"
    );
    assert!(stderr.contains("; 0 kept") && stderr.contains("; 14 kept"), "{stderr}");
    assert!(!stderr.contains("inherited from") && !stderr.contains("taken over"), "{stderr}");
    open_accounts(&session);
    assert_eq!(traffic(&lab, "wire0", 1000).lost(), 0);
}

/// Switches the port `wire` by the command.
#[track_caller]
fn switch(session: &Path, words: &[&str]) {
    let mut command = Command::new(binary("fastlane"));
    let output = command.arg("switch").arg(session).arg("wire").args(words).output();
    let output = output.expect("fastlane can be started");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Words that switch a port away from AF_XDP and back.
const THERE_AND_BACK: [&[&str]; 2] = [&["af-packet"], &["af-xdp", "mode=native-copy"]];

#[test]
fn a_port_returns_to_af_xdp_although_a_holder_has_its_sockets() {
    let Some(lab) = Lab::new("restart-switch", 1) else { return };
    let fast = start(&lab, configuration(&Mechanism::XdpNative.on("wire0")));
    let session = fast.session().to_owned();
    open_accounts(&session);
    // Three of tables, a pool, a socket, four of steering.
    let keeper = fast.keeper(9);
    for words in THERE_AND_BACK {
        switch(&session, words);
        assert_eq!(traffic(&lab, "wire0", 1000).lost(), 0, "{words:?}");
    }
    fast.is_kept_by(&keeper, 3);
    fast.kill();
    let fast = again(&lab, &session);
    let stderr = fast.process.stderr();
    assert!(stderr.contains("table `accounts`: inherited from"), "{stderr}");
    assert!(!stderr.contains("taken over"), "{stderr}");
    assert_eq!(traffic(&lab, "wire0", 1000).lost(), 0);
    fast.is_kept_by(&keeper, 9);
    keeper.kill();
    fast.stop();
}

#[test]
fn a_port_returns_to_af_xdp_although_a_service_manager_has_its_sockets() {
    let Some(lab) = Lab::new("restart-store", 1) else { return };
    let configuration = configuration(&Mechanism::XdpNative.on("wire0"));
    let mut service = Service::start(&lab, configuration, 32);
    let session = service.session.clone();
    open_accounts(&session);
    for words in THERE_AND_BACK {
        switch(&session, words);
        assert_eq!(traffic(&lab, "wire0", 1000).lost(), 0, "{words:?}");
    }
    service.end(Signal::KILL);
    let stderr = service.is_ready();
    assert!(stderr.contains(" with 4 descriptors"), "the tables and what they are: {stderr}");
    assert!(stderr.contains("table `accounts`: inherited"), "{stderr}");
    assert!(!stderr.contains("taken over"), "{stderr}");
    assert_eq!(traffic(&lab, "wire0", 1000).lost(), 0);
    assert!(service.restart_under_traffic("wire0", Signal::KILL).contains("are taken over"));
}

#[test]
fn a_service_manager_that_keeps_too_little_is_named_with_the_remedy() {
    let Some(lab) = Lab::new("restart-small", 1) else { return };
    let mut service = Service::start(&lab, configuration(&tap()), 4);
    for _ in 0..2 {
        let stderr = service.manager.stderr();
        assert!(stderr.contains("write `FileDescriptorStoreMax=5` in the unit"), "{stderr}");
        service.end(Signal::KILL);
        let stderr = service.is_ready();
        assert!(
            stderr.contains(" with 0 descriptors") && !stderr.contains("taken over"),
            "{stderr}"
        );
    }
}

/// Script that executes a program, which may lock hardly any memory if the file $0 exists.
const LIMIT_LOCKING: &str = "test -e \"$0\" || exec \"$@\"; exec prlimit --memlock=65536:65536 -- \
    setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock \"$@\"";

#[test]
fn a_start_that_fails_gives_up_what_the_service_manager_keeps() {
    let Some(lab) = Lab::new("restart-fails", 1) else { return };
    let mut both = configuration(&Mechanism::XdpNative.on("wire0"));
    both["lanes"]["lock-memory"] = json!(true);
    let trace = lab.file("trace.pcapng");
    both["ports"]["trace"] = json!({"driver": {"pcap": {"write": trace}}});
    let limit = lab.file("limit");
    let by = ["sh", "-c", LIMIT_LOCKING, limit.to_str().expect("text")];
    let mut service = Service::start_by(&lab, both, 32, &by);
    let path = service.session.with_extension("json");
    let text = std::fs::read_to_string(&path).expect("its configuration");
    let attached = || lab.left.run(&["ip", "-d", "link", "show", "wire0"]).contains("prog/xdp");
    // Starts that are refused before the resources are asked for, when the ports are opened, and
    // when all ports have been taken over.
    let before = || std::fs::write(&path, "{}").expect("the file is writable");
    let between = || {
        std::fs::remove_file(&trace).expect("the trace");
        std::fs::create_dir(&trace).expect("a folder where no file can be written");
    };
    let after = || std::fs::write(&limit, "").expect("the folder is writable");
    let obstacles: [(&dyn Fn(), u8, &str); 3] =
        [(&before, 3, "ports"), (&between, 4, "trace.pcapng"), (&after, 4, "lanes.lock-memory: ")];
    for (round, (obstruct, status, reason)) in (1..).zip(obstacles) {
        assert!(attached());
        obstruct();
        service.end(Signal::KILL);
        let words = format!("ended, exit status: {status}");
        let killed = || {
            let stderr = service.manager.stderr();
            stderr.split("ended, signal: 9").nth(round).map(str::to_owned)
        };
        eventually("it is refused again and again", || {
            killed().is_some_and(|after| after.matches(&words).count() > 1)
        });
        // Another start may have it for a moment.
        eventually("Linux has the interface", || !attached());
        let refused = killed().expect("it was killed");
        assert!(refused.contains(reason), "{refused}");
        assert!(refused.contains("FDNAME=fastlane-description; "), "{refused}");
        assert!(refused.contains("; 0 kept") && refused.contains(" with 0 descr"), "{refused}");
        std::fs::write(&path, &text).expect("the file is writable");
        let _ = std::fs::remove_dir(&trace);
        let _ = std::fs::remove_file(&limit);
        service.is_ready();
    }
}
