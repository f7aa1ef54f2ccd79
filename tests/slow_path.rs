//! Fast path and slow path: the fast path never waits for the slow path, whatever happens to that.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fastlane::slow::{self, SlowPath};
use fastlane::table::EntryId;
use fastlane_tests::{
    Application, Echo, Lab, Mechanism, Process, Report, binary, eventually, measure,
};
use serde_json::{Value, json};

/// First source port of the generator's flows.
const FIRST: u16 = 5000;
const FLOWS: u16 = 16;

fn soak() -> bool {
    std::env::var_os("FASTLANE_SOAK").is_some()
}

/// Returns a driver with large rings, for pauses of a loaded machine.
fn driver() -> Value {
    json!({"af-packet": {"interface": "wire0", "ring": 16_384}})
}

/// Starts the fast path on the left host.
fn fast(lab: &Lab, changes: &[(&str, Value)]) -> Application {
    fast_on(lab, &driver(), changes)
}

fn fast_on(lab: &Lab, driver: &Value, changes: &[(&str, Value)]) -> Application {
    let mut configuration = Application::steered(driver);
    configuration["lanes"] = json!({"frames": 32_768});
    configuration["tables"] = json!({"accounts": {"capacity": 256}, "totals": {"capacity": 1}});
    for (key, value) in changes {
        configuration[key] = value.clone();
    }
    Application::start(lab, &lab.left, &binary("ledger"), configuration)
}

/// Starts the slow path and waits until all accounts are open.
fn start_slow_path(session: &Path) -> Process {
    let mut command = Command::new(binary("ledger_slow"));
    command.arg(session).args([FIRST.to_string(), FLOWS.to_string()]);
    let process = Process::start(command);
    process.wait_for("writing, with");
    process
}

fn attached(application: &Application) -> SlowPath {
    slow::attach(application.session().to_str().expect("text")).expect("the process runs")
}

/// Returns the number of packets without an account and of accounts read while they changed.
fn totals(slow: &SlowPath) -> [u64; 2] {
    slow.state::<2>("totals").expect("the table exists").read(EntryId(0))
}

fn traffic(lab: &Lab, packets: u64) -> Report {
    let app = json!({
        "rate-packets-per-second": 10_000,
        "count-packets": packets,
        "flows": {"count": FLOWS, "source-port": FIRST, "destination-port": 2152},
        "linger-ms": 2000,
    });
    measure(lab, &lab.right, &driver(), app).0
}

/// Starts the slow path and kills it, `count` times.
fn kill_and_restart(session: &Path, count: u64) {
    for number in 0..count {
        let slow = start_slow_path(session);
        // At a different moment each time.
        std::thread::sleep(Duration::from_micros(7919 * (number % 13)));
        slow.kill();
    }
}

/// Sends traffic until `is_over`, in at least two runs. Returns the number of runs and of lost
/// packets.
fn traffic_until(lab: &Lab, is_over: impl Fn(usize) -> bool) -> (usize, u64) {
    let (mut runs, mut lost) = (0, 0);
    while runs < 2 || !is_over(runs) {
        lost += traffic(lab, 10_000).lost();
        runs += 1;
    }
    (runs, lost)
}

#[test]
fn a_slow_path_that_is_killed_costs_no_packet() {
    let Some(lab) = Lab::new("slow-path-killed", 1) else { return };
    let fast = fast(&lab, &[]);
    let session = fast.session();
    let slow = attached(&fast);
    start_slow_path(session).kill(); // the accounts persist
    let kills = if soak() { 1000 } else { 20 };
    let (mut log, mut is_good) = (Vec::new(), false);
    // Load from other programs may lose packets in any run.
    for _ in 0..3 {
        let (runs, lost) = std::thread::scope(|scope| {
            let kills = scope.spawn(|| kill_and_restart(session, kills));
            traffic_until(&lab, |_| kills.is_finished())
        });
        let quiet = start_slow_path(session);
        let (_, control) = traffic_until(&lab, |done| done >= runs);
        quiet.kill();
        assert_eq!(totals(&slow), [0, 0], "packets without an account, torn accounts");
        log.push(format!("{kills} kills in {runs} runs: {lost} lost, without: {control}"));
        is_good = lost <= control;
        if is_good {
            break;
        }
    }
    assert!(is_good, "{log:?}");
    eprintln!("{log:?}");
    fast.stop();
}

#[test]
fn a_second_writer_is_refused_by_the_name_of_the_first_until_that_is_dead() {
    let Some(lab) = Lab::new("slow-path-writer", 1) else { return };
    let fast = fast(&lab, &[]);
    let slow = attached(&fast);
    let ask = |slow: &SlowPath| slow.hash_writer::<[u8; 2], [u64; 8]>("accounts").map(drop);
    for _ in 0..20 {
        let first = start_slow_path(fast.session());
        let error = ask(&slow).unwrap_err().to_string();
        let expected = format!("process {} (ledger_slow) writes it", first.id());
        assert!(error.contains(&expected), "{error}");
        let listed = Command::new(binary("fastlane")).arg("tables").arg(fast.session()).output();
        let listed = String::from_utf8(listed.expect("the program starts").stdout).expect("text");
        let line = listed.lines().find(|line| line.starts_with("accounts ")).expect("listed");
        assert!(line.contains(&format!("process {} (ledger_slow)", first.id())), "{listed}");
        first.kill();
        // Immediately, without a wait.
        let second = attached(&fast);
        ask(&second).expect("the first is dead");
        assert!(second.hash_writer::<[u8; 2], [u64; 8]>("accounts").is_ok(), "and again");
    }
    let error = slow.hash_writer::<[u8; 4], u64>("accounts").map(drop).unwrap_err().to_string();
    assert!(error.contains("key size is 2, this program expects 4"), "{error}");
    let error = slow.hash_writer::<u8, u8>("acounts").map(drop).unwrap_err().to_string();
    assert!(error.contains("no table `acounts`; there are accounts, totals"), "{error}");
    let ended = fast.stop();
    assert_eq!(ended.drops(), 0);
    assert!(!slow.is_alive());
}

#[test]
fn pending_events_survive_a_full_ring_and_a_stopped_slow_path() {
    let Some(lab) = Lab::new("slow-path-events", 1) else { return };
    let changes = [("app", json!({"events": true})), ("messages", json!({"ring-kib": 4}))];
    let fast = fast(&lab, &changes);
    let slow_path = start_slow_path(fast.session());
    slow_path.pause();
    let report = traffic(&lab, 5000);
    let slow = attached(&fast);
    let lane = slow.counters().lane(0);
    let [sent, lost] = [counter("messages_sent"), counter("messages_lost")].map(|it| lane.load(it));
    assert!(lost > 0, "{sent} messages found room in 4 KiB");
    assert_eq!(sent + lost, report.received(), "each packet has a message");
    slow_path.resume();
    let all = format!("{} events", report.received());
    eventually("all events are handled", || slow_path.stdout().contains(&all));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(slow_path.stdout().lines().last(), Some(all.as_str()), "each event once");
    assert_eq!(totals(&slow), [0, 0]);
    slow_path.kill();
    fast.stop();
}

/// Restarts the fast path with its configuration and these changes.
fn again(lab: &Lab, session: &Path, changes: &[(&str, Value)]) -> Application {
    let path = session.with_extension("json");
    let text = std::fs::read_to_string(&path).expect("its configuration");
    let mut configuration: Value = serde_json::from_str(&text).expect("JSON");
    for (key, value) in changes {
        configuration[key] = value.clone();
    }
    std::fs::write(&path, configuration.to_string()).expect("the file is writable");
    let mut command = lab.left.command(&[]);
    command.arg(binary("ledger")).arg(path);
    Application::run(command, session.to_owned())
}

/// Returns the number of packets counted under any account.
fn counted(slow: &SlowPath) -> u64 {
    let state = slow.state::<1>("accounts").expect("the table exists");
    (0..256).map(|entry| state.read(EntryId(entry))[0]).sum()
}

#[test]
fn tables_survive_the_fast_path() {
    let Some(lab) = Lab::new("slow-path-kept", 1) else { return };
    let mut fast = fast(&lab, &[("app", json!({"events": true}))]);
    let session = fast.session().to_owned();
    start_slow_path(&session).kill();
    let keeper = fast.keeper(4);
    for round in 1..4 {
        let received = traffic(&lab, 1000).received();
        assert_eq!((received, counted(&attached(&fast))), (1000, round * 1000));
        fast.kill();
        fast = again(&lab, &session, &[]);
        assert!(fast.process.stderr().contains("table `accounts`: inherited from"));
        // No writer runs: these accounts are from before the first restart.
        let slow = attached(&fast);
        assert_eq!((totals(&slow), counted(&slow)), ([0, 0], round * 1000));
        fast.is_kept_by(&keeper, 4);
    }
    // A changed capacity is a changed configuration.
    let tables = json!({"accounts": {"capacity": 512}, "totals": {"capacity": 1}});
    fast.kill();
    fast = again(&lab, &session, &[("tables", tables)]);
    let log = fast.process.stderr();
    let expected = "is not used: the configuration has changed (`tables.accounts.capacity`)";
    assert!(log.contains(expected), "{log}");
    let tables = attached(&fast).tables().expect("the session responds");
    assert_eq!((tables[0].entries, tables[0].capacity), (0, 512));
    keeper.kill();
    fast.stop();
}

#[test]
fn sockets_survive_the_fast_path() {
    let mechanisms = [Mechanism::XdpNative, Mechanism::XdpGeneric];
    for (mechanism, native) in mechanisms.into_iter().zip([true, false]) {
        let Some(lab) = Lab::new("slow-path-sockets", 1) else { return };
        let mut driver_here = mechanism.on("wire0");
        driver_here["af-xdp"]["receive-ring"] = json!(16_384);
        let mut fast = fast_on(&lab, &driver_here, &[]);
        let session = fast.session().to_owned();
        start_slow_path(&session).kill();
        // Three parts of tables; a pool, a socket, and the four of the steering program.
        let keeper = fast.keeper(9);
        assert_eq!(traffic(&lab, 1000).lost(), 0);
        for is_killed in [true, false] {
            let (report, next) = std::thread::scope(|scope| {
                let slow = attached(&fast);
                let before = counted(&slow);
                let report = scope.spawn(|| traffic(&lab, 20_000));
                eventually("packets flow", || counted(&slow) > before + 1000);
                if is_killed {
                    fast.kill();
                } else {
                    fast.stop();
                }
                let next = again(&lab, &session, &[]);
                (report.join().expect("the thread does not panic"), next)
            });
            fast = next;
            let log = fast.process.stderr();
            assert!(log.contains("on AF_XDP are taken over"), "{log}");
            assert!(report.received() > 10_000, "{}", report.0);
            assert_eq!(totals(&attached(&fast)), [0, 0]);
            let (lost, longest) = (report.lost(), &report.0["received"]["latency"]["maximum-ns"]);
            eprintln!("native {native}, killed {is_killed}: {lost} lost, latency to {longest} ns");
            assert_eq!(traffic(&lab, 1000).lost(), 0, "no loss after the restart");
            fast.is_kept_by(&keeper, 9);
        }
        // Control: without a holder nothing survives.
        keeper.kill();
        fast.kill();
        fast = again(&lab, &session, &[]);
        assert!(!fast.process.stderr().contains("taken over"));
        start_slow_path(&session).kill();
        assert_eq!(traffic(&lab, 1000).lost(), 0);
        fast.stop();
    }
}

fn counter(name: &str) -> fastlane::counters::LaneCounter {
    let mut all = fastlane::counters::LaneCounter::ALL.iter();
    *all.find(|counter| counter.name() == name).expect("the counter exists")
}

/// Runs `fastlane reload` with this configuration. Returns true if it has worked, and its output.
fn reload(lab: &Lab, fast: &Application, configuration: &Value) -> (bool, String) {
    let path = lab.file("new.json");
    std::fs::write(&path, configuration.to_string()).expect("the file is writable");
    let mut command = Command::new(binary("fastlane"));
    let output = command.arg("reload").arg(fast.session()).arg(path).output();
    let output = output.expect("the program starts");
    let log = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(log).expect("text"))
}

#[test]
fn rules_are_replaced_under_traffic() {
    for mechanism in Mechanism::ALL {
        let Some(lab) = Lab::new("slow-path-rules", 1) else { return };
        let mut configuration = Application::steered(&mechanism.on("wire0"));
        let macswap = Application::macswap(&lab, configuration.clone());
        configuration["session"] = json!(macswap.session());
        let mut echo = Echo::new(&lab.right, "wire0");
        (0..100).for_each(|_| echo.once());
        let with = |rules: &Value| {
            let mut changed = configuration.clone();
            changed["ports"]["wire"]["steer"] = rules.clone();
            changed
        };
        let narrow = json!([{"udp-port": 40_000}]);
        for round in 0..10 {
            let rules =
                if round % 2 == 0 { &narrow } else { &json!([{"udp-port": "40000-40009"}]) };
            let (done, log) = reload(&lab, &macswap, &with(rules));
            assert!(done && log.contains("port `wire`: "), "{log}");
            (0..20).for_each(|_| echo.once());
        }
        let (done, log) = reload(&lab, &macswap, &with(&json!([{"udp-port": 53}])));
        assert!(done && log.contains("udp-port"), "{log}");
        let before = macswap.totals().wire("received_packets");
        assert!(!echo.try_once(Duration::from_millis(200)), "Linux receives it now");
        eventually("the packet is counted", || macswap.totals().wire("steer_passed") > 0);
        assert_eq!(macswap.totals().wire("received_packets"), before);
        let mut other = configuration.clone();
        other["lanes"] = json!({"frames": 128});
        let (done, log) = reload(&lab, &macswap, &other);
        assert!(!done && log.contains("`lanes.frames` can only change with a restart"), "{log}");
        macswap.stop();
    }
}
