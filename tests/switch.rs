//! A port that is switched to another driver while packets flow: nothing is lost, Linux keeps its
//! part, and what cannot be is refused and changes nothing.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastlane::slow;
use fastlane_tests::{
    Application, DropFlag, Echo, LEFT, Lab, Mechanism, Process, Report, binary, eventually, measure,
};
use serde_json::{Value, json};

/// Packets per second in the stories about loss.
const RATE: u64 = 10_000;

/// Returns the number of switches there and back in one trial.
fn rounds() -> usize {
    if std::env::var_os("FASTLANE_SOAK").is_some() { 100 } else { 3 }
}

/// Switches the port `wire`. Returns the report.
#[track_caller]
fn switch(macswap: &Application, words: &[&str]) -> Value {
    match macswap.switch("wire", words) {
        Ok(report) => report,
        // The kernel changes one interface at a time, in whatever namespace: the command gives up
        // while other tests create and remove theirs.
        Err(error) if error.contains("it goes on") => end_of_slow_switch(macswap),
        Err(error) => panic!("{words:?}: {error}\n{}", macswap.process.stderr()),
    }
}

/// Waits for the end of a switch whose command has given up. Returns its report, as far as the log
/// has it.
#[track_caller]
fn end_of_slow_switch(macswap: &Application) -> Value {
    let count = |what: &str| macswap.process.stderr().matches(what).count();
    eventually("the switch ends", || count("switching to") == count("switched from"));
    let log = macswap.process.stderr();
    let line = log.lines().rfind(|line| line.contains("switched from")).expect("the end");
    let number_behind = |words: &str| -> f64 {
        let number = line.rsplit(words).next().and_then(|rest| rest.split(' ').next());
        number.and_then(|it| it.parse().ok()).unwrap_or_else(|| panic!("{line}"))
    };
    json!({"seconds": number_behind(" in "), "lost": number_behind("traffic; ") as u64})
}

/// Returns the words that switch to a mechanism.
fn words(mechanism: Mechanism) -> &'static [&'static str] {
    match mechanism {
        Mechanism::XdpNative => &["af-xdp", "mode=native-copy", "receive-ring=16384"],
        Mechanism::XdpGeneric => &["af-xdp", "mode=generic-copy", "receive-ring=16384"],
        Mechanism::Packet => &["af-packet", "ring=16384"],
    }
}

/// Runs of the generator, one after the other.
struct Reports(Vec<Report>);

impl Reports {
    /// Returns the number of packets sent.
    fn sent(&self) -> u64 {
        self.0.iter().map(Report::sent).sum()
    }

    /// Asserts that each packet came back once, as it was.
    #[track_caller]
    fn assert_intact(&self) {
        self.0.iter().for_each(Report::assert_intact);
    }

    /// Returns the longest delay in milliseconds.
    fn longest_delay(&self) -> u64 {
        let delays = self.0.iter().map(|it| it.0["received"]["latency"]["maximum-ns"].as_u64());
        delays.flatten().max().unwrap_or(0) / 1_000_000
    }
}

/// Sends packets from the right host until `switches` has ended: one run, which is repeated if the
/// machine is too busy to switch as often meanwhile.
fn under_traffic(lab: &Lab, macswap: &Application, switches: impl FnOnce()) -> Reports {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let seconds = 3 + 3 * rounds() as u64;
        let app = json!({
            "rate-packets-per-second": RATE,
            "count-packets": RATE * seconds,
            "flows": {"count": 64, "source-port": 1024, "destination-port": 2152},
            "linger-ms": 3000,
        });
        let driver = json!({"af-packet": {"interface": "wire0", "ring": 16_384}});
        let has_ended = &is_done;
        let reports = scope.spawn(move || {
            let mut reports = Vec::new();
            while reports.is_empty() || !has_ended.load(Ordering::SeqCst) {
                reports.push(measure(lab, &lab.right, &driver, app.clone()).0);
            }
            reports
        });
        let done = DropFlag(&is_done);
        let received = || macswap.totals().wire("received_packets");
        let before = received();
        eventually("packets flow", || received() > before + 1000);
        switches();
        drop(done);
        Reports(reports.join().expect("the thread does not panic"))
    })
}

/// Switches a port between two mechanisms under traffic, several times. Asserts that every packet
/// returns once, and that no frame of a pool is missing at the end.
fn there_and_back(name: &str, [from, to]: [Mechanism; 2], queues: usize) {
    let Some(lab) = Lab::new(name, queues) else { return };
    let mut driver = from.on("wire0");
    let settings = driver.as_object_mut().and_then(|it| it.values_mut().next()).expect("settings");
    settings[if from == Mechanism::Packet { "ring" } else { "receive-ring" }] = json!(16_384);
    let mut configuration = Application::steered(&driver);
    configuration["lanes"] = json!({"cpus": (0..queues).collect::<Vec<_>>(), "frames": 65_536});
    let macswap = Application::macswap(&lab, configuration);
    let mut longest = 0.0_f64;
    let report = under_traffic(&lab, &macswap, || {
        for _ in 0..rounds() {
            for mechanism in [to, from] {
                let report = switch(&macswap, words(mechanism));
                assert_eq!(report["lost"], 0, "{report}");
                longest = longest.max(report["seconds"].as_f64().expect("seconds"));
            }
        }
    });
    eprintln!(
        "{name}: {} switches under {} packets, delayed to {} ms, at most {longest} s",
        2 * rounds(),
        report.sent(),
        report.longest_delay()
    );
    report.assert_intact();
    let totals = macswap.totals();
    assert_eq!(totals.wire("received_packets"), report.sent(), "{totals:?}");
    assert_eq!(totals.drops("wire"), [], "{totals:?}");
    // Exit status 0 says that all frames are back in their pools.
    let ended = macswap.stop();
    assert_eq!(ended.counter("steer_claimed"), report.sent(), "{}", ended.stderr);
}

#[test]
fn nothing_is_lost_between_native_af_xdp_and_af_packet() {
    there_and_back("switch-native", [Mechanism::XdpNative, Mechanism::Packet], 1);
}

#[test]
fn nothing_is_lost_between_generic_af_xdp_and_af_packet() {
    there_and_back("switch-generic", [Mechanism::XdpGeneric, Mechanism::Packet], 1);
}

#[test]
fn nothing_is_lost_by_an_application_that_starts_on_af_packet_and_has_two_lanes() {
    there_and_back("switch-lanes", [Mechanism::Packet, Mechanism::XdpNative], 2);
}

/// Asserts that Linux on the left host answers, which it does only if packets re-enter.
#[track_caller]
fn reaches_linux(lab: &Lab) {
    eventually("Linux answers", || {
        lab.right.run(&["ip", "neighbour", "flush", "dev", "wire0"]);
        lab.right.ping(&[LEFT])
    });
}

#[test]
fn what_is_labelled_for_linux_enters_by_the_way_of_the_present_driver() {
    let Some(lab) = Lab::new("switch-linux", 1) else { return };
    let program = &binary("all_kernel");
    let driver = Mechanism::XdpGeneric.on("wire0");
    let configuration = json!({"ports": {"wire": {"driver": driver}}});
    let application = Application::start(&lab, &lab.left, program, configuration);
    reaches_linux(&lab);
    let received = || application.totals().wire("received_packets");
    let (packet, native, generic) =
        (Mechanism::Packet, Mechanism::XdpNative, Mechanism::XdpGeneric);
    for mechanism in [packet, native, packet, generic] {
        let before = received();
        // As in `Host::assert_pings`.
        let arguments = ["ping", "-i", "0.01", "-c", "300", "-w", "60", LEFT];
        let mut ping = lab.right.command(&arguments);
        ping.stdout(std::process::Stdio::piped());
        let ping = Process::start(ping);
        switch(&application, words(mechanism));
        let ended = ping.wait();
        fastlane_tests::assert_responses(300, &ended.stdout);
        // A packet for Linux would come again and again where it enters by the way of the other.
        let sent = ended.stdout.lines().find_map(|it| it.split_once(" packets transmitted"));
        let sent: u64 = sent.and_then(|(count, _)| count.parse().ok()).expect("a number");
        let seen = received() - before;
        assert!(seen < sent + 100, "{mechanism:?}: the application saw {seen} packets of {sent}");
        reaches_linux(&lab);
    }
    application.stop();
}

/// Starts a peer that joins a memif socket to the interface `far`.
fn bridge(lab: &Lab, socket: &str) -> Application {
    let peer = json!({
        "ports": {
            "wire": {"driver": {"memif": {"socket": socket, "role": "server"}}},
            "far": {"driver": Mechanism::Packet.on("far")},
        },
    });
    lab.wire("far");
    Application::start(lab, &lab.left, Path::new(env!("CARGO_BIN_EXE_relay")), peer)
}

#[test]
fn a_port_moves_to_memif_and_back_and_follows_its_interface_then() {
    let Some(lab) = Lab::new("switch-memif", 1) else { return };
    let macswap = Application::macswap(
        &lab,
        json!({
            "ports": {"wire": {"driver": Mechanism::XdpNative.on("wire0")}},
        }),
    );
    Echo::new(&lab.right, "wire0").once();
    // Nobody is there: the port stays.
    let socket = lab.file("peer.sock").display().to_string();
    let path = format!("socket={socket}");
    let reason = macswap.switch("wire", &["memif", &path, "role=client"]).expect_err("nobody");
    assert!(reason.contains("no peer has connected within"), "{reason}");
    Echo::new(&lab.right, "wire0").once();
    let bridge = bridge(&lab, &socket);
    let report = switch(&macswap, &["memif", &path, "role=client"]);
    assert!(report["now"].as_str().is_some_and(|now| now.starts_with("memif")), "{report}");
    Echo::new(&lab.right, "far").once();
    assert_eq!(macswap.totals().0["application"]["ports"][0]["driver"], "memif");
    switch(&macswap, &["af-packet", "interface=wire0"]);
    Echo::new(&lab.right, "wire0").once();
    bridge.stop();
    macswap.stop();
}

/// The lanes were started without a list, so only Linux matches one.
#[test]
fn a_list_that_came_later_is_in_force_only_where_linux_matches_it() {
    let Some(lab) = Lab::new("switch-rules", 1) else { return };
    let driver = Mechanism::XdpNative.on("wire0");
    let macswap = Application::macswap(&lab, json!({"ports": {"wire": {"driver": driver}}}));
    let slow = slow::attach(macswap.session().to_str().expect("text")).expect("it runs");
    let replace = |rules: &str| {
        let replaced = slow.replace_rules("wire", rules);
        replaced.map(drop).map_err(|error| error.to_string())
    };
    let list = r#"[{"udp-port": 2152}]"#;
    let socket = lab.file("peer.sock").display().to_string();
    let path = format!("socket={socket}");
    let memif = ["memif", &path, "role=client"];
    let bridge = bridge(&lab, &socket);
    replace(list).expect("Linux matches it");
    let error = macswap.switch("wire", &memif).expect_err("no lane would match it");
    assert!(error.contains("its `steer` list is matched in Linux"), "{error}");
    replace("[]").expect("an empty list");
    switch(&macswap, &memif);
    let error = replace(list).expect_err("no lane matches it");
    assert!(error.contains("its lanes do not match a `steer` list"), "{error}");
    Echo::new(&lab.right, "far").once();
    switch(&macswap, &["af-packet", "interface=wire0"]);
    replace(r#"[{"udp-port": 53}]"#).expect("Linux matches it");
    let before = macswap.totals().wire("received_packets");
    let mut echo = Echo::new(&lab.right, "wire0");
    assert!(!echo.try_once(Duration::from_millis(200)), "Linux receives it");
    assert_eq!(macswap.totals().wire("received_packets"), before);
    bridge.stop();
    macswap.stop();
}

#[test]
fn lanes_that_a_port_has_no_queue_for_after_a_switch_are_named() {
    let Some(lab) = Lab::new("switch-queues", 1) else { return };
    let mut configuration = Application::steered(&Mechanism::Packet.on("wire0"));
    configuration["lanes"] = json!({"cpus": [0, 1]});
    let macswap = Application::macswap(&lab, configuration);
    let warning = "port `wire` has 1 queue and 2 lanes: packets that lane 1 sends";
    assert!(!macswap.process.stderr().contains(warning));
    switch(&macswap, words(Mechanism::XdpNative));
    macswap.process.wait_for(warning);
    macswap.stop();
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let Some(lab) = Lab::new("switch-refused", 1) else { return };
    let macswap =
        Application::macswap(&lab, Application::steered(&Mechanism::XdpNative.on("wire0")));
    let mut echo = Echo::new(&lab.right, "wire0");
    lab.wire("busy");
    let other = Application::macswap(
        &lab,
        json!({"ports": {"wire": {"driver": Mechanism::XdpNative.on("busy")}}}),
    );
    for (words, reason) in [
        (&["af-xdp", "interface=absent"][..], "absent"),
        (&["af-xdp", "interface=busy"], "busy"),
        (&["af-xdp", "mode=generic-copy"], "two of its sockets cannot share the queues"),
        (&["af-xpd"], "did you mean `af-xdp`"),
        (&["af-packet", "ring=100"], "a power of two"),
        (&["memory"], "can only be opened at the start"),
        (&["memif", "socket=@here", "role=server"], "its `steer` list is matched in Linux"),
        (&["dpdk", "vdev=net_null0"], "its `steer` list is matched in Linux"),
    ] {
        let error = macswap.switch("wire", words).expect_err("it cannot be");
        assert!(error.contains(reason), "{words:?}: {error}");
        echo.once();
    }
    let error = macswap.switch("wires", &["af-packet", "interface=wire0"]).expect_err("no port");
    assert!(error.contains("there is no port `wires`; there are wire"), "{error}");
    other.stop();
    assert_eq!(macswap.totals().drops("wire"), []);
    macswap.stop();
}

/// Starts macswap on AF_PACKET with a policy that moves its port to AF_XDP.
fn with_policy(lab: &Lab, when: Value) -> Application {
    let on = |driver: Mechanism, ring: &str| {
        let mut driver = driver.on("wire0");
        let settings = driver.as_object_mut().and_then(|it| it.values_mut().next());
        settings.expect("settings")[ring] = json!(16_384);
        driver
    };
    let mut configuration = Application::steered(&on(Mechanism::Packet, "ring"));
    let to = on(Mechanism::XdpNative, "receive-ring");
    configuration["ports"]["wire"]["switch"] = json!({"to": to, "when": when});
    configuration["lanes"] = json!({"frames": 65_536});
    Application::macswap(lab, configuration)
}

/// Waits until a port has a driver, and has been switched this number of times.
#[track_caller]
fn comes_to(macswap: &Application, driver: &str, switches: u64) {
    let mut port = Value::Null;
    eventually(&format!("the port is on {driver}"), || {
        port = macswap.totals().0["application"]["ports"][0].take();
        port["driver"] == driver
    });
    assert_eq!(port["switches"], switches, "{port}\n{}", macswap.process.stderr());
}

#[test]
fn a_port_follows_its_load_and_loses_nothing() {
    let Some(lab) = Lab::new("switch-load", 1) else { return };
    let macswap = with_policy(
        &lab,
        json!({"load": "packets-per-second", "above": 2000, "below": 500,
               "above-s": 1, "below-s": 1}),
    );
    let report = under_traffic(&lab, &macswap, || comes_to(&macswap, "af-xdp", 1));
    report.assert_intact();
    comes_to(&macswap, "af-packet", 2);
    let log = macswap.process.stderr();
    assert!(log.contains("packets/s, has been above 2000 for "), "{log}");
    assert!(log.contains("its load, 0 packets/s, has been below 500 for "), "{log}");
    let totals = macswap.totals();
    assert_eq!(totals.wire("received_packets"), report.sent(), "{totals:?}");
    assert_eq!(totals.drops("wire"), [], "{totals:?}");
    macswap.stop();
}

/// A burst that ends before its time, and a load between the bounds, change nothing. What was
/// selected by hand stays.
#[test]
fn a_port_stays_while_its_load_is_between_the_bounds() {
    let Some(lab) = Lab::new("switch-between", 1) else { return };
    let between = json!({"load": "packets-per-second", "above": 2 * RATE, "below": 0,
                         "above-s": 1, "below-s": 1});
    let macswap = with_policy(&lab, between);
    let still = |driver: &str, switches| {
        std::thread::sleep(Duration::from_secs(3));
        comes_to(&macswap, driver, switches);
    };
    under_traffic(&lab, &macswap, || still("af-packet", 0)).assert_intact();
    switch(&macswap, words(Mechanism::XdpNative));
    still("af-xdp", 1);
    macswap.stop();
}

/// A change that is refused leaves the port as it is, and is told once in a while.
#[test]
fn a_load_that_asks_for_an_absent_interface_changes_nothing() {
    let Some(lab) = Lab::new("switch-absent", 1) else { return };
    let mut configuration = Application::steered(&Mechanism::Packet.on("wire0"));
    configuration["ports"]["wire"]["switch"] = json!({
        "to": {"af-xdp": {"interface": "absent"}},
        "when": {"load": "cpu-percent", "above": 1, "below": 0, "above-s": 1},
    });
    let start = Instant::now();
    let macswap = Application::macswap(&lab, configuration);
    under_traffic(&lab, &macswap, || {
        macswap.process.wait_for("not switched: ");
        assert_eq!(macswap.totals().0["application"]["ports"][0]["driver"], "af-packet");
    });
    let log = macswap.process.stderr();
    let most = 1 + start.elapsed().as_secs() / 30;
    let told = log.matches("not switched: ").count() as u64;
    assert!((1..=most).contains(&told), "{told} times, {most} half minutes: {log}");
    assert!(log.contains("% of a CPU, has been above 1 for ") && log.contains("absent"), "{log}");
    macswap.stop();
}

#[test]
fn an_application_ends_in_the_middle_of_a_switch() {
    let Some(lab) = Lab::new("switch-end", 1) else { return };
    let driver = Mechanism::XdpNative.on("wire0");
    let macswap = Application::macswap(&lab, json!({"ports": {"wire": {"driver": driver}}}));
    let mut switch = std::process::Command::new(binary("fastlane"));
    let socket = format!("socket={}", lab.file("nobody.sock").display());
    switch.arg("switch").arg(macswap.session()).args(["wire", "memif", &socket, "role=client"]);
    let switch = Process::start(switch);
    macswap.process.wait_for("switching to memif");
    // Exit status 0 says that all frames are back in their pools.
    macswap.stop();
    let ended = switch.wait();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
}
