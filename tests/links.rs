//! An interface that goes away while the application runs, comes back, or changes: the process
//! reports it and carries traffic again, or ends with its exit status.

use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};

use fastlane_testing::namespace::Wire;
use fastlane_testing::{Addresses, Peer, Tag};
use fastlane_tests::{
    Application, Echo, Host, LEFT, LEFT_MAC, Lab, Mechanism, PATIENCE, RIGHT, RIGHT_MAC, binary,
    eventually, mac, measure,
};
use serde_json::{Value, json};

/// MAC address of an interface that was created again.
const ANOTHER_MAC: &str = "02:00:00:00:77:11";

/// Longest time from an interface that is up again to its first packet, without the time in which
/// other programs keep the CPUs busy.
const LIMIT: Duration = Duration::from_secs(1);

fn remove(lab: &Lab) {
    lab.left.run(&["ip", "link", "delete", "wire0"]);
}

/// Returns the samples of a metric.
fn samples(lab: &Lab, name: &str) -> String {
    let page = lab.left.run(&["curl", "--silent", "--fail", "http://127.0.0.1:9464/metrics"]);
    let samples: Vec<&str> = page.lines().filter(|line| line.starts_with(name)).collect();
    samples.join("\n")
}

/// Waits until the metric of the port has this value and reason.
fn is_up(lab: &Lab, value: u8, reason: &str) {
    eventually(&format!("fastlane_port_up is {value}, {reason}"), || {
        let samples = samples(lab, "fastlane_port_up{");
        samples.contains(&format!("reason=\"{reason}\"}} {value}"))
    });
}

/// Number of times that an interface is removed and created again.
const ROUNDS: usize = 3;

/// Number of trials: others may also delay the kernel's own work.
const TRIALS: usize = 3;

/// Returns the time in which threads of the application and the calling thread were ready to run
/// and had no CPU (kernel: Documentation/scheduler/sched-stats.rst).
fn waited_for_cpus(application: &Application) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{}/task", application.process.id()));
    let threads = threads.expect("the process runs").flatten().map(|thread| thread.path());
    let all = threads.chain(["/proc/thread-self".into()]);
    let texts = all.filter_map(|thread| std::fs::read_to_string(thread.join("schedstat")).ok());
    let waits = texts.filter_map(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    Duration::from_nanos(waits.sum())
}

/// Removes the interface and creates it again, several times. Asserts that the process reports
/// both, carries traffic again, as a rule within [`LIMIT`], and loses no frame of its pools.
fn removed_and_created_again(name: &str, mechanism: Mechanism, queues: usize) {
    let mut medians = Vec::new();
    for _ in 0..TRIALS {
        let Some(lab) = Lab::new(name, queues) else { return };
        let mut silences = silences(&lab, mechanism, queues);
        silences.sort();
        medians.push(silences[ROUNDS / 2]);
        if silences[ROUNDS / 2] < LIMIT {
            return;
        }
    }
    panic!("traffic is carried again after {medians:?}");
}

/// Removes the interface and creates it again, [`ROUNDS`] times. Returns the times from an
/// interface that is up to its first packet, without the time in which a thread was ready and had
/// no CPU.
fn silences(lab: &Lab, mechanism: Mechanism, queues: usize) -> Vec<Duration> {
    let mut configuration = Application::steered(&mechanism.on("wire0"));
    configuration["metrics"] = json!({});
    let cpus: Vec<usize> = (0..queues).collect();
    configuration["lanes"] = json!({"cpus": cpus});
    let macswap = Application::macswap(lab, configuration);
    let mut echo = Echo::new(&lab.right, "wire0");
    is_up(lab, 1, "");
    let mut silences = Vec::new();
    for round in 0..ROUNDS {
        (0..20).for_each(|_| echo.once());
        // Frames in all rings at the time of the removal.
        let tags = (0..500).map(|sequence| Tag { test: 0, sequence });
        let frames = tags.map(|tag| tag.frame(addresses(LEFT_MAC), 100));
        let frames: Vec<_> = frames.collect();
        let mut wire = lab.right.enter(|| Wire::open("wire0")).expect("a raw socket");
        for frame in &frames {
            wire.send(frame);
        }
        remove(lab);
        let count = |words: &str| macswap.process.stderr().matches(words).count();
        let removed = "port `wire`: the interface wire0 was removed";
        eventually("the removal is reported", || count(removed) == round + 1);
        is_up(lab, 0, "removed");
        assert_eq!(macswap.totals().wire("down_reason"), 1);

        let address = if round % 2 == 0 { ANOTHER_MAC } else { LEFT_MAC };
        lab.join(queues, address);
        let (up, waited) = (Instant::now(), waited_for_cpus(&macswap));
        echo = Echo::towards(&lab.right, "wire0", address);
        while !echo.try_once(Duration::from_millis(10)) {
            assert!(up.elapsed() < PATIENCE, "{}", macswap.process.stderr());
        }
        let waited = waited_for_cpus(&macswap).saturating_sub(waited);
        silences.push(up.elapsed().saturating_sub(waited));
        eprintln!("round {round}: {:?}, {waited:?} of them without a CPU", up.elapsed());
        eventually("the return is reported", || {
            count("port `wire`: reopened on wire0 after") == round + 1
        });
        is_up(lab, 1, "");
    }
    (0..20).for_each(|_| echo.once());
    let totals = macswap.totals();
    assert!(totals.wire("received_packets") >= 20 * ROUNDS as u64, "{totals:?}");
    // Exit status 0 says that all frames are back in their pools.
    let ended = macswap.stop();
    // What was claimed was received, or lay in the rings at a removal and is counted.
    let unread = ["drop_device_full", "drop_device_invalid", "drop_no_frame"];
    let unread: u64 = unread.iter().map(|name| ended.counter(name)).sum();
    assert_eq!(
        ended.counter("steer_claimed"),
        ended.counter("received_packets") + unread,
        "{}",
        ended.stderr
    );
    silences
}

#[test]
fn an_interface_created_again_carries_traffic_on_af_packet() {
    removed_and_created_again("links-af-packet", Mechanism::Packet, 1);
}

#[test]
fn an_interface_created_again_carries_traffic_on_af_xdp_in_generic_mode() {
    removed_and_created_again("links-af-xdp-generic", Mechanism::XdpGeneric, 1);
}

#[test]
fn an_interface_created_again_carries_traffic_on_af_xdp_in_native_mode() {
    removed_and_created_again("links-af-xdp-native", Mechanism::XdpNative, 1);
}

#[test]
fn several_lanes_get_the_queues_of_an_interface_created_again() {
    for mechanism in Mechanism::ALL {
        removed_and_created_again("links-lanes", mechanism, 2);
    }
}

/// Asserts that Linux on the left host answers, which it does only if packets re-enter.
fn reaches_linux(lab: &Lab) {
    eventually("Linux answers", || {
        lab.right.run(&["ip", "neighbour", "flush", "dev", "wire0"]);
        lab.right.ping(&[LEFT])
    });
}

fn addresses(device: &str) -> Addresses {
    Addresses { device: mac(device), peer: mac(RIGHT_MAC) }
}

#[test]
fn packets_re_enter_an_interface_whose_address_changes_or_that_is_created_again() {
    for mechanism in Mechanism::ALL {
        let Some(lab) = Lab::new("links-reentry", 1) else { return };
        let program = &binary("all_kernel");
        let configuration = json!({"ports": {"wire": {"driver": mechanism.on("wire0")}}});
        let application = Application::start(&lab, &lab.left, program, configuration);
        reaches_linux(&lab);
        lab.left.run(&["ip", "link", "set", "wire0", "address", ANOTHER_MAC]);
        application.process.wait_for(&format!("wire0 has the Ethernet address {ANOTHER_MAC}"));
        reaches_linux(&lab);
        remove(&lab);
        application.process.wait_for("was removed");
        lab.join(1, LEFT_MAC);
        application.process.wait_for("reopened on wire0");
        reaches_linux(&lab);
        let ended = application.stop();
        assert!(ended.counter("to_kernel_packets") >= 3, "{}", ended.stderr);
    }
}

/// Starts macswap with more keys of the port `wire`.
fn with_keys(lab: &Lab, mechanism: Mechanism, keys: &Value) -> Application {
    let mut configuration = Application::steered(&mechanism.on("wire0"));
    for (key, value) in keys.as_object().expect("keys") {
        configuration["ports"]["wire"][key] = value.clone();
    }
    Application::macswap(lab, configuration)
}

#[test]
fn the_application_ends_at_a_removal_if_it_is_told_to() {
    for mechanism in Mechanism::ALL {
        let Some(lab) = Lab::new("links-exit", 1) else { return };
        let macswap = with_keys(&lab, mechanism, &json!({"on-removal": "exit"}));
        Echo::new(&lab.right, "wire0").once();
        remove(&lab);
        let ended = macswap.process.wait();
        assert_eq!(ended.status.code(), Some(5), "{}", ended.stderr);
        let expected = "port `wire`: the interface wire0 was removed; create it and start the \
                        application again, or write `\"on-removal\": \"reopen\"`";
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
        assert_eq!(ended.counter("received_packets"), 1, "{}", ended.stderr);
    }
}

#[test]
fn the_application_ends_if_the_interface_does_not_come_back() {
    for mechanism in Mechanism::ALL {
        let Some(lab) = Lab::new("links-timeout", 1) else { return };
        let macswap = with_keys(&lab, mechanism, &json!({"reopen-within-s": 1}));
        remove(&lab);
        let ended = macswap.process.wait();
        assert_eq!(ended.status.code(), Some(5), "{}", ended.stderr);
        let expected = ["port `wire`: no interface wire0", "could not be reopened within 1 s"];
        for expected in expected {
            assert!(ended.stderr.contains(expected), "{}", ended.stderr);
        }
        assert!(!ended.stderr.contains("frames were not returned"), "{}", ended.stderr);
    }
}

#[test]
fn an_application_ends_in_order_while_an_interface_is_away() {
    for mechanism in Mechanism::ALL {
        let Some(lab) = Lab::new("links-stop", 1) else { return };
        let macswap = with_keys(&lab, mechanism, &json!({}));
        Echo::new(&lab.right, "wire0").once();
        remove(&lab);
        macswap.process.wait_for("was removed");
        let _ = macswap.stop();
    }
}

/// Returns the index of `wire0` of a host.
fn index(host: &Host) -> String {
    let links: Value = serde_json::from_str(&host.run(&["ip", "-j", "link", "show", "wire0"]))
        .expect("JSON from ip");
    links[0]["ifindex"].to_string()
}

/// Changes the interface of a port while the process cannot look, so that it has its index again at
/// the next look. Asserts that the port is reopened and carries traffic.
fn is_reopened_after(name: &str, mechanism: Mechanism, change: impl FnOnce(&Lab)) {
    let Some(lab) = Lab::new(name, 1) else { return };
    let macswap = with_keys(&lab, mechanism, &json!({}));
    Echo::new(&lab.right, "wire0").once();
    let before = index(&lab.left);
    macswap.process.pause();
    change(&lab);
    assert_eq!(index(&lab.left), before);
    macswap.process.resume();
    macswap.process.wait_for("port `wire`: the interface wire0 was removed");
    macswap.process.wait_for("port `wire`: reopened on wire0 after");
    Echo::new(&lab.right, "wire0").once();
    let ended = macswap.stop();
    assert_eq!(ended.stderr.matches("reopened on wire0").count(), 1, "{}", ended.stderr);
}

#[test]
fn an_interface_that_leaves_and_returns_between_two_looks_is_noticed() {
    for mechanism in Mechanism::ALL {
        is_reopened_after("links-unseen", mechanism, |lab| {
            let elsewhere = lab.another().expect("a third host");
            let to = |host: &Host| {
                ["ip", "link", "set", "wire0", "netns", &host.path()].map(str::to_owned)
            };
            for (from, to) in [(&lab.left, to(&elsewhere)), (&elsewhere, to(&lab.left))] {
                from.run(&to.each_ref().map(String::as_str));
            }
            lab.left.run(&["ip", "link", "set", "wire0", "up"]);
        });
    }
}

#[test]
fn an_interface_created_again_with_its_index_is_noticed_even_if_events_are_lost() {
    for mechanism in Mechanism::ALL {
        is_reopened_after("links-lost", mechanism, |lab| {
            // More events than the socket's buffer holds, so those that follow are lost.
            let mtus = (0..1000).map(|number| format!("link set lo mtu {}\n", 60_000 + number));
            let (batch, again) = (lab.file("events"), index(&lab.left));
            std::fs::write(&batch, mtus.collect::<String>()).expect("the folder is writable");
            lab.left.run(&["ip", "-batch", batch.to_str().expect("text")]);
            remove(lab);
            let far = lab.right.path();
            let near = ["ip", "link", "add", "wire0", "index", &again, "address", LEFT_MAC];
            let peer = ["type", "veth", "peer", "name", "wire0", "address", RIGHT_MAC, "netns"];
            lab.left.run(&[&near[..], &peer, &[&far]].concat());
            for host in [&lab.right, &lab.left] {
                host.run(&["ip", "link", "set", "wire0", "up"]);
            }
        });
    }
}

#[test]
fn the_application_ends_if_a_tap_device_of_a_port_is_removed() {
    let tap = || json!({"tap": {"name": "tap0"}});
    for role in ["", " of its path into Linux,"] {
        for driver in [tap(), Mechanism::XdpNative.on("wire0"), Mechanism::Packet.on("wire0")] {
            let Some(lab) = Lab::new("links-tap", 1) else { return };
            let is_port = role.is_empty();
            if is_port != (driver == tap()) {
                continue;
            }
            let macswap = Application::macswap(&lab, Application::steered(&driver));
            let links = lab.left.run(&["ip", "-br", "link", "show", "type", "tun"]);
            let name = links.split_whitespace().next().expect("a TAP device");
            lab.left.run(&["ip", "link", "delete", name]);
            let ended = macswap.process.wait();
            assert_eq!(ended.status.code(), Some(5), "{}", ended.stderr);
            let expected = format!(
                "port `wire`: the TAP device{role} {name} was removed; start the application again"
            );
            assert!(ended.stderr.contains(&expected), "{}", ended.stderr);
            assert!(!ended.stderr.contains("frames were not returned"), "{}", ended.stderr);
        }
    }
}

#[test]
fn another_mtu_is_in_force_at_once() {
    for mechanism in [Mechanism::XdpNative, Mechanism::XdpGeneric] {
        let Some(lab) = Lab::new("links-mtu", 1) else { return };
        lab.wire("wire1");
        let port = |interface: &str| json!({"driver": mechanism.on(interface)});
        let configuration = json!({"ports": {"a": port("wire0"), "b": port("wire1")}});
        let program = Path::new(env!("CARGO_BIN_EXE_cross"));
        let cross = Application::start(&lab, &lab.left, program, configuration);
        let mut from = lab.right.enter(|| Wire::open("wire0")).expect("a raw socket");
        let mut to = lab.right.enter(|| Wire::open("wire1")).expect("a raw socket");
        let mut sequence = 0;
        let mut crosses = |limit| {
            sequence += 1;
            let tag = Tag { test: 7, sequence };
            assert!(from.send(&tag.frame(addresses(LEFT_MAC), 1450)));
            let end = Instant::now() + limit;
            while let Some(frame) = to.receive(end.saturating_duration_since(Instant::now())) {
                if Tag::find(&frame).is_some_and(|(found, _)| found == tag) {
                    return true;
                }
            }
            false
        };
        assert!(crosses(PATIENCE));
        lab.left.run(&["ip", "link", "set", "wire1", "mtu", "1400"]);
        cross.process.wait_for("port `b`: wire1 has an MTU of 1400 instead of 1500");
        let dropped = || cross.totals().port("b", "drop_transmit_length");
        eventually("longer frames are dropped", || {
            assert!(!crosses(Duration::from_millis(20)));
            dropped() > 0
        });
        lab.left.run(&["ip", "link", "set", "wire1", "mtu", "1500"]);
        cross.process.wait_for("port `b`: wire1 has an MTU of 1500 instead of 1400");
        eventually("they pass again", || crosses(Duration::from_millis(20)));
        let _ = cross.stop();
    }
}

#[test]
fn a_frame_longer_than_a_pool_frame_stays_in_linux_and_is_counted() {
    for mechanism in [Mechanism::XdpNative, Mechanism::XdpGeneric] {
        let Some(lab) = Lab::new("links-long", 1) else { return };
        let macswap = Application::macswap(&lab, Application::steered(&mechanism.on("wire0")));
        // In native mode such a frame has several buffers.
        for host in [&lab.right, &lab.left] {
            host.run(&["ip", "link", "set", "wire0", "mtu", "6000"]);
        }
        macswap.process.wait_for("wire0 has an MTU of 6000 instead of 1500");
        let socket = |host: &Host, address| host.enter(|| UdpSocket::bind(address));
        let linux = socket(&lab.left, (LEFT, 2152)).expect("the address is Linux's");
        linux.set_read_timeout(Some(PATIENCE)).expect("a sound timeout");
        let sender = socket(&lab.right, (RIGHT, 0)).expect("the address is Linux's");
        let content = vec![7; 5500];
        sender.send_to(&content, (LEFT, 2152)).expect("the frame leaves");
        let mut received = vec![0; 6000];
        assert_eq!(linux.recv(&mut received).ok(), Some(content.len()));
        eventually("it is counted", || macswap.totals().wire("steer_too_long") == 1);
        sender.send_to(&content[..1000], (LEFT, 2152)).expect("the frame leaves");
        eventually("a shorter one is received", || macswap.totals().wire("received_packets") == 1);
        let ended = macswap.stop();
        assert_eq!(ended.counter("steer_claimed"), 1, "{}", ended.stderr);
        assert_eq!(ended.drops(), 0, "{}", ended.stderr);
    }
}

#[test]
fn a_port_is_reopened_on_queues_that_were_added() {
    for mechanism in [Mechanism::XdpNative, Mechanism::XdpGeneric] {
        let Some(lab) = Lab::new("links-queues", 2) else { return };
        // Native XDP on veth wants as many receive queues as the peer has transmit queues.
        lab.right.run(&["ethtool", "-L", "wire0", "rx", "1", "tx", "1"]);
        lab.left.run(&["ethtool", "-L", "wire0", "rx", "1", "tx", "1"]);
        let mut configuration = Application::steered(&mechanism.on("wire0"));
        configuration["lanes"] = json!({"cpus": [0, 1]});
        let macswap = Application::macswap(&lab, configuration);
        // A holder that has the sockets closes them: a pool, a socket, four of steering.
        let keeper = macswap.keeper(6);
        lab.left.run(&["ethtool", "-L", "wire0", "rx", "2", "tx", "2"]);
        lab.right.run(&["ethtool", "-L", "wire0", "rx", "2", "tx", "2"]);
        let settings = json!({"rate-packets-per-second": 2000, "duration-ms": 500,
            "flows": {"count": 64}});
        measure(&lab, &lab.right, &Mechanism::Packet.on("wire0"), settings.clone());
        macswap.process.wait_for("wire0 has 2 receive queues instead of 1; the port is reopened");
        macswap.process.wait_for("port `wire`: reopened on wire0");
        macswap.is_kept_by(&keeper, 0);
        keeper.kill();
        let before = macswap.totals();
        // Linux sends by the queue of the sender's CPU.
        for cpu in [0, 1] {
            let mut settings = settings.clone();
            settings["lanes"] = json!({"cpus": [cpu]});
            let (report, _) = measure(&lab, &lab.right, &Mechanism::Packet.on("wire0"), settings);
            assert_eq!(report.lost(), 0, "{}\n{}", report.0, macswap.process.stderr());
        }
        let after = macswap.totals();
        assert_eq!(before.wire("steer_uncovered"), after.wire("steer_uncovered"));
        let lanes = after.0["ports"].as_array().expect("ports").iter();
        let received = lanes.filter(|port| port["lane"].is_u64());
        let received: Vec<_> =
            received.map(|port| port["counters"]["received_packets"].as_u64()).collect();
        // In generic mode veth gives all frames to the first queue.
        let has_two = mechanism == Mechanism::XdpNative;
        assert!(!has_two || received.iter().all(|count| *count > Some(0)), "{received:?}");
        let _ = macswap.stop();
    }
}
