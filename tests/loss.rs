//! No packet is lost below a share of the maximum rate, and above it every loss is counted under a
//! reason.
//!
//! The environment variable `FASTLANE_SOAK` makes it ten million packets.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use fastlane_tests::{
    Application, DropFlag, Ended, Host, Lab, Mechanism, Process, Report, binary, capture,
    eventually, measure,
};
use serde_json::{Value, json};

/// Lock of a measurement: parallel measurements would load each other.
static ALONE: Mutex<()> = Mutex::new(());

/// Share of the maximum rate at which no packet may be lost, in percent.
const PERCENT: f64 = 30.0;
/// Number of times that an application is started and stopped.
const RUNS: usize = 8;

fn packets(usual: u64) -> u64 {
    if std::env::var_os("FASTLANE_SOAK").is_some() { 10_000_000 } else { usual }
}

/// Returns the driver of the generator on the right host, which differs from the one under test.
fn driver() -> Value {
    with_rings(Mechanism::Packet, 16_384)
}

/// Returns a driver on `wire0` with receive rings of `frames` frames.
fn with_rings(mechanism: Mechanism, frames: u32) -> Value {
    let mut driver = mechanism.on("wire0");
    let (word, key) = match mechanism {
        Mechanism::Packet => ("af-packet", "ring"),
        Mechanism::XdpNative | Mechanism::XdpGeneric => ("af-xdp", "receive-ring"),
    };
    driver[word][key] = json!(frames);
    driver
}

/// Returns the maximum rate in packets per second, measured with a fixed number of packets in
/// flight.
fn highest(lab: &Lab) -> f64 {
    let settings = json!({"outstanding-packets": 256, "duration-ms": 1000, "flows": {"count": 16}});
    measure(lab, &lab.right, &driver(), settings).0.rate()
}

fn below_its_limit(name: &str, mechanism: Mechanism, count: u64) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(lab) = Lab::new(name, 1) else { return };
    // Large rings, which outlast the pauses of a shared machine: 100 ms without a CPU were seen.
    let mut configuration = Application::steered(&with_rings(mechanism, 16_384));
    configuration["lanes"] = json!({"frames": 32_768});
    let macswap = Application::macswap(&lab, configuration);
    let highest = highest(&lab);
    let rate = (highest * PERCENT / 100.0) as u64;
    let (report, generator) = measure(
        &lab,
        &lab.right,
        &driver(),
        json!({
            "rate-packets-per-second": rate,
            // A machine that stands still for long must not be what overflows a ring.
            "outstanding-packets": 8192,
            "answer-timeout-ms": 10_000,
            "count-packets": packets(count),
            "flows": {"count": 16},
            "linger-ms": 2000,
        }),
    );
    let ended = macswap.stop();
    let message = format!("{}\n{}\n{}", report.0, generator.stderr, ended.stderr);
    assert_eq!(report.sent(), packets(count), "{message}");
    assert_eq!(ended.drops() + generator.drops(), 0, "{message}");
    report.assert_intact();
}

#[test]
fn frames_cross_af_xdp_in_native_mode_and_none_is_lost() {
    below_its_limit("loss-af-xdp-native", Mechanism::XdpNative, 200_000);
}

#[test]
fn frames_cross_af_xdp_in_generic_mode_and_none_is_lost() {
    below_its_limit("loss-af-xdp-generic", Mechanism::XdpGeneric, 200_000);
}

#[test]
fn frames_cross_af_packet_and_none_is_lost() {
    below_its_limit("loss-af-packet", Mechanism::Packet, 200_000);
}

/// Returns the packets that an interface has sent and those it has dropped.
fn transmitted(host: &Host) -> (u64, u64) {
    let statistics = host.statistics("wire0");
    let of = |key: &str| statistics["tx"][key].as_u64().expect("a counter of ip");
    (of("packets"), of("dropped"))
}

/// Sends at the full rate of the generator, above that of the application. Asserts that each
/// difference between neighbouring counters along the path is counted under a reason.
fn above_its_limit(name: &str, mechanism: Mechanism) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(lab) = Lab::new(name, 1) else { return };
    // Small rings, so that they overflow on any machine.
    let driver_under_test = with_rings(mechanism, 64);
    let macswap = Application::macswap(&lab, Application::steered(&driver_under_test));
    let [there, back] = [&lab.right, &lab.left].map(transmitted);
    let settings = json!({"duration-ms": 2000, "linger-ms": 1000, "flows": {"count": 16}});
    let (report, generator) = measure(&lab, &lab.right, &driver(), settings);
    let [there_after, back_after] = [&lab.right, &lab.left].map(transmitted);
    let application = macswap.stop();
    let message = format!("{}\n{}\n{}", report.0, generator.stderr, application.stderr);
    let is = |left: u64, right: u64, what: &str| assert_eq!(left, right, "{what}\n{message}");
    let of = Ended::counter;

    // Offered: the generator's own port may have been full.
    let refused = of(&generator, "drop_transmit_full") + of(&generator, "drop_transmit_error");
    is(report.sent(), of(&generator, "sent_packets") + refused, "offered");
    // The wire: veth has a queue of its own where XDP is native.
    let on_wire = of(&application, "steer_claimed");
    is(of(&generator, "sent_packets"), on_wire + there_after.1 - there.1, "the wire there");
    assert!(there_after.0 - there.0 >= on_wire, "{message}");
    // Claimed: what did not fit into the ring is counted by the kernel.
    let received = of(&application, "received_packets");
    let ring_full = ["drop_device_full", "drop_device_invalid", "drop_no_frame"];
    let lost = ring_full.iter().map(|name| of(&application, name)).sum::<u64>();
    is(on_wire, received + lost, "claimed");
    is(received, of(&application, "verdict_reflect"), "labelled");
    // Swapped: sent, or the transmit ring was full.
    let unsent = of(&application, "drop_transmit_full") + of(&application, "drop_transmit_error");
    is(received, of(&application, "sent_packets") + unsent, "swapped");
    // Back: the generator's ring may overflow too.
    let overflow = of(&generator, "drop_device_full");
    let arrived = of(&generator, "received_packets");
    let way_back = back_after.1 - back.1;
    is(of(&application, "sent_packets"), arrived + overflow + way_back, "the wire back");
    is(report.received(), arrived, "received");
    // The control: there was something to be counted, and the generator has seen the loss.
    is(report.lost(), report.sent() - report.received(), "lost");
    assert!(report.lost() > 0, "the generator was not faster\n{message}");
    assert!(report.received() > 0, "{message}");
}

#[test]
fn every_loss_on_af_xdp_in_native_mode_has_a_name() {
    above_its_limit("loss-named-af-xdp-native", Mechanism::XdpNative);
}

#[test]
fn every_loss_on_af_xdp_in_generic_mode_has_a_name() {
    above_its_limit("loss-named-af-xdp-generic", Mechanism::XdpGeneric);
}

#[test]
fn every_loss_on_af_packet_has_a_name() {
    above_its_limit("loss-named-af-packet", Mechanism::Packet);
}

/// Runs the generator alone, with these ports and settings.
fn alone(name: &str, ports: Value, mut app: Value) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(lab) = Lab::new(name, 1) else { return };
    let report = lab.file("report.json");
    app["report"] = json!(report);
    app["count-packets"] = json!(packets(200_000));
    let configuration = json!({"ports": ports, "app": app});
    let (path, _) = Application::configure(&lab, configuration);
    let mut command = lab.left.command(&[]);
    command.arg(binary("traffic")).arg(path);
    let ended = Process::start(command).wait();
    assert!(ended.status.success(), "{}", ended.stderr);
    let text = std::fs::read(report).expect("the report");
    let report = Report(serde_json::from_slice(&text).expect("JSON"));
    assert_eq!(report.sent(), packets(200_000));
    report.assert_intact();
    assert_eq!(ended.drops(), 0, "{}", ended.stderr);
}

#[test]
fn memory_loses_nothing_at_any_speed() {
    let ports = json!({"wire": {"driver": {"memory": {}}}});
    alone("loss-memory", ports, json!({"port": "wire"}));
}

#[test]
fn a_ring_loses_nothing_at_any_speed() {
    let ring = |peer: &str| json!({"driver": {"ring": {"peer": peer}}});
    let ports = json!({"wire": ring("far"), "far": ring("wire")});
    alone("loss-ring", ports, json!({"mode": "one-way", "port": "wire", "sink-port": "far"}));
}

#[test]
fn capture_files_lose_nothing_at_any_speed() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(lab) = Lab::new("loss-pcap", 1) else { return };
    let (from, to) = (lab.file("in.pcap"), lab.file("out.pcapng"));
    let frames: Vec<Vec<u8>> = (0..100_u8).map(|number| vec![number; 60]).collect();
    std::fs::write(&from, capture(&frames)).expect("the capture is written");
    let total = packets(200_000);
    let driver = json!({"pcap": {"read": from, "write": to, "repeat": total / 100}});
    let macswap = Application::macswap(&lab, json!({"ports": {"wire": {"driver": driver}}}));
    eventually("all is read", || macswap.totals().wire("received_packets") == total);
    let ended = macswap.stop();
    assert_eq!(ended.counter("sent_packets"), total);
    assert_eq!(ended.drops(), 0, "{}", ended.stderr);
    // An enhanced packet block of 60 bytes is 32 bytes longer (pcapng, section 4.3).
    let written = std::fs::metadata(to).expect("the file is there").len();
    assert!((total * 92..total * 92 + 4096).contains(&written), "{written} bytes");
}

/// Returns the number of IPv4 packets that Linux has received on a host (RFC 4293,
/// ipSystemStatsInReceives).
fn seen_by_linux(host: &Host) -> u64 {
    counter_of_linux(host, "Ip: ", "InReceives")
}

/// Returns a counter of a protocol on a host (SNMP, RFC 1213).
fn counter_of_linux(host: &Host, protocol: &str, name: &str) -> u64 {
    let text = host.run(&["cat", "/proc/net/snmp"]);
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|other| other == name).unwrap();
    values.split(' ').nth(at).and_then(|value| value.parse().ok()).expect("a counter of proc(5)")
}

/// Starts and stops an application while a sender is at work, each time once 5000 more packets have
/// arrived, until `is_over` returns true for the number of runs. Returns the summaries.
fn start_and_stop(lab: &Lab, configuration: &Value, is_over: impl Fn(usize) -> bool) -> Vec<Ended> {
    let mut runs = Vec::new();
    while !is_over(runs.len()) {
        let macswap = Application::macswap(lab, configuration.clone());
        let first = macswap.totals().wire("received_packets");
        eventually("frames arrive", || {
            is_over(runs.len()) || macswap.totals().wire("received_packets") > first + 5000
        });
        runs.push(macswap.stop());
    }
    runs
}

/// Returns the sum of counters over several runs.
fn sum(runs: &[Ended], names: &[&str]) -> u64 {
    runs.iter().flat_map(|run| names.iter().map(|name| run.counter(name))).sum()
}

/// Starts and stops an application several times while frames arrive at full rate. Asserts that
/// each frame was received, or counted as lost, or seen by Linux, and none twice.
fn across_starts_and_stops(name: &str, mechanism: Mechanism) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(lab) = Lab::new(name, 2) else { return };
    // Otherwise veth frees what its ring holds, uncounted, when XDP is detached
    // (drivers/net/veth.c, veth_disable_xdp).
    lab.left.run(&["ethtool", "-K", "wire0", "gro", "on"]);
    let (linux, wire) = (seen_by_linux(&lab.left), transmitted(&lab.right).1);
    let settings = json!({"duration-ms": 3000, "flows": {"count": 64}});
    let mut configuration = Application::steered(&with_rings(mechanism, 4096));
    configuration["lanes"] = json!({"cpus": [0, 1]});
    let (runs, generator) = std::thread::scope(|scope| {
        let generator = scope.spawn(|| measure(&lab, &lab.right, &driver(), settings).1);
        let runs = start_and_stop(&lab, &configuration, |_| generator.is_finished());
        (runs, generator.join().unwrap())
    });
    let received = sum(&runs, &["received_packets"]);
    let lost = sum(&runs, &["drop_device_full", "drop_device_invalid", "drop_no_frame"]);
    let sent = generator.counter("sent_packets");
    let linux = seen_by_linux(&lab.left) - linux;
    let wire = transmitted(&lab.right).1 - wire;
    let account = format!("{received} received, {lost} lost, {linux} by Linux, {wire} by the wire");
    assert_eq!(sent, received + lost + linux + wire, "{sent} sent: {account}");
    assert!(received > 0 && linux > 0, "{account}");
}

#[test]
fn starts_and_stops_lose_nothing_on_af_packet() {
    across_starts_and_stops("loss-ends-af-packet", Mechanism::Packet);
}

#[test]
fn starts_and_stops_lose_nothing_on_af_xdp_in_generic_mode() {
    across_starts_and_stops("loss-ends-af-xdp-generic", Mechanism::XdpGeneric);
}

#[test]
fn starts_and_stops_lose_nothing_on_af_xdp_in_native_mode() {
    across_starts_and_stops("loss-ends-af-xdp-native", Mechanism::XdpNative);
}

/// Starts and stops an application with memif, native or by DPDK, while its peer sends at full
/// rate, three times at least. Asserts that each frame was received, or counted by the peer that
/// has put it into a ring, and the same for the way back.
fn memif_across_starts_and_stops(name: &str, role: &str, is_native: bool) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(lab) = Lab::new(name, 1) else { return };
    let socket = lab.file("peer.memif");
    let peer_role = if role == "server" { "client" } else { "server" };
    let peer = json!({"memif": {"socket": &socket, "role": peer_role}});
    let vdev = format!("net_memif0,role={role},socket={},socket-abstract=no", socket.display());
    let driver = match is_native {
        true => json!({"memif": {"socket": &socket, "role": role}}),
        false => json!({"dpdk": {"vdev": vdev}}),
    };
    let configuration =
        json!({"ports": {"wire": {"driver": driver}}, "dpdk": {"huge-pages": "none"}});
    let settings = json!({"duration-ms": 4000, "flows": {"count": 16}});
    let ended = AtomicUsize::new(0);
    let (runs, generators) = std::thread::scope(|scope| {
        let generators = scope.spawn(|| {
            let mut generators = Vec::new();
            while ended.load(Ordering::Relaxed) < 3 {
                generators.push(measure(&lab, &lab.right, &peer, settings.clone()).1);
            }
            generators
        });
        let runs = start_and_stop(&lab, &configuration, |runs| {
            ended.store(runs, Ordering::Relaxed);
            generators.is_finished()
        });
        (runs, generators.join().unwrap())
    });
    let sent = |runs: &[Ended]| sum(runs, &["sent_packets"]);
    let unread = |runs: &[Ended]| sum(runs, &["drop_transmit_error"]);
    let received = |runs: &[Ended]| {
        sum(runs, &["received_packets", "drop_device_invalid", "drop_receive_length"])
    };
    let there = [sent(&generators), received(&runs), unread(&generators)];
    let back = [sent(&runs), received(&generators), unread(&runs)];
    let message = format!("there {there:?}, back {back:?}, {} runs", runs.len());
    assert_eq!(there[0], there[1] + there[2], "{message}");
    assert_eq!(back[0], back[1] + back[2], "{message}");
    assert!(there[1] > 0 && there[2] > 0 && back[1] > 0, "{message}");
}

#[test]
fn starts_and_stops_lose_nothing_on_memif_as_a_server() {
    memif_across_starts_and_stops("loss-ends-memif-server", "server", true);
}

#[test]
fn starts_and_stops_lose_nothing_on_memif_as_a_client() {
    memif_across_starts_and_stops("loss-ends-memif-client", "client", true);
}

#[test]
fn starts_and_stops_lose_nothing_on_memif_of_dpdk() {
    memif_across_starts_and_stops("loss-ends-memif-dpdk", "server", false);
}

/// Sends datagrams on a host as fast as possible until `is_over` is set. Returns the number of
/// those that Linux has accepted.
fn flood(host: &Host, to: &str, is_over: &AtomicBool) -> u64 {
    host.enter(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        socket.set_broadcast(true).expect("an option of the socket");
        let mut sent = 0;
        while !is_over.load(Ordering::Relaxed) {
            // An interface that does not exist refuses.
            sent += u64::from(socket.send_to(&[0; 26], to).is_ok());
        }
        sent
    })
}

/// Starts and stops an application while Linux sends datagrams to `to` on the left host at full
/// rate. Returns the number of accepted datagrams, and the summaries.
fn flooded(lab: &Lab, configuration: &Value, to: &str) -> (u64, Vec<Ended>) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| flood(&lab.left, to, &is_over));
        let end = DropFlag(&is_over);
        let runs = start_and_stop(lab, configuration, |runs| runs == RUNS);
        drop(end);
        (sender.join().unwrap(), runs)
    })
}

#[test]
fn starts_and_stops_lose_nothing_on_a_udp_socket() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(lab) = Lab::new("loss-ends-udp", 1) else { return };
    let address = "127.0.0.1:2152";
    let configuration = json!({"ports": {"wire": {"driver": {"udp": {"address": address}}}}});
    let (sent, runs) = flooded(&lab, &configuration, address);
    let received = sum(&runs, &["received_packets", "drop_device_invalid"]);
    // Of the kernel: no buffer or a filter (InErrors), no socket (NoPorts), or the loopback device.
    let refused = ["InErrors", "NoPorts"].map(|name| counter_of_linux(&lab.left, "Udp: ", name));
    let lo = lab.left.statistics("lo")["rx"]["dropped"].as_u64().expect("a counter of ip");
    let account = format!("{received} received, {refused:?} refused, {lo} dropped by lo");
    assert_eq!(sent, received + refused[0] + refused[1] + lo, "{sent} sent: {account}");
    assert!(received > 0 && refused[1] > 0, "{account}");
}

/// Lets Linux send on a TAP only what the test sends.
fn without_ipv6(lab: &Lab) {
    lab.left.run(&["sysctl", "-q", "-w", "net.ipv6.conf.default.disable_ipv6=1"]);
}

#[test]
fn starts_and_stops_lose_nothing_on_a_tap() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(lab) = Lab::new("loss-ends-tap", 1) else { return };
    without_ipv6(&lab);
    let tap = json!({"tap": {"name": "tap0", "addresses": ["10.99.0.1/24"]}});
    let configuration = json!({"ports": {"wire": {"driver": tap}}});
    let (sent, runs) = flooded(&lab, &configuration, "10.99.0.255:2152");
    let received = sum(&runs, &["received_packets"]);
    let full = sum(&runs, &["drop_device_full"]);
    assert_eq!(sent, received + full, "{received} received, {full} did not fit");
    assert!(received > 0);
}

#[test]
fn starts_and_stops_lose_nothing_on_a_tap_of_dpdk() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(lab) = Lab::new("loss-ends-dpdk-tap", 1) else { return };
    without_ipv6(&lab);
    // The device outlives DPDK's, which opens its queues, and so do its counters.
    lab.left.run(&["ip", "tuntap", "add", "tap0", "mode", "tap", "multi_queue"]);
    lab.left.run(&["ip", "address", "add", "10.99.0.1/24", "dev", "tap0"]);
    let driver = json!({"dpdk": {"vdev": "net_tap0,iface=tap0"}});
    let configuration =
        json!({"ports": {"wire": {"driver": driver}}, "dpdk": {"huge-pages": "none"}});
    let (sent, runs) = flooded(&lab, &configuration, "10.99.0.255:2152");
    let received = sum(&runs, &["received_packets", "drop_device_invalid"]);
    let refused = lab.left.statistics("tap0")["tx"]["dropped"].as_u64().expect("a counter of ip");
    assert_eq!(sent, received + refused, "{received} received, {refused} refused by the device");
    assert!(received > 0);
}

/// A ring has both of its ends in one process, which ends while packets are in it.
#[test]
fn an_end_amid_traffic_loses_nothing_on_a_ring() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(lab) = Lab::new("loss-ends-ring", 1) else { return };
    let ring = |peer: &str| json!({"driver": {"ring": {"peer": peer}}});
    let ports = json!({"wire": ring("far"), "far": ring("wire")});
    for run in 0..RUNS {
        let report = lab.file(&format!("report-{run}.json"));
        let app = json!({
            "mode": "one-way", "port": "wire", "sink-port": "far", "report": report,
            "linger-ms": 0,
        });
        let configuration = json!({"ports": ports, "app": app});
        let traffic = Application::start(&lab, &lab.left, &binary("traffic"), configuration);
        eventually("packets arrive", || traffic.totals().port("far", "received_packets") > 5000);
        let ended = traffic.stop();
        let sent = ended.counter("sent_packets");
        let received = ended.counter("received_packets");
        let unread = ended.counter("drop_transmit_error");
        assert_eq!(sent, received + unread, "{}", ended.stderr);
        assert!(received > 5000, "{}", ended.stderr);
    }
}

/// Packets that were read of a capture file are written or counted before the process ends.
#[test]
fn an_end_amid_traffic_loses_nothing_on_capture_files() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(lab) = Lab::new("loss-ends-pcap", 1) else { return };
    let (from, to) = (lab.file("in.pcap"), lab.file("out.pcapng"));
    let frames: Vec<Vec<u8>> = (0..100_u8).map(|number| vec![number; 60]).collect();
    std::fs::write(&from, capture(&frames)).expect("the capture is written");
    for _ in 0..RUNS {
        let driver = json!({"pcap": {"read": from, "write": to, "repeat": 1_000_000}});
        let macswap = Application::macswap(&lab, json!({"ports": {"wire": {"driver": driver}}}));
        eventually("it is read", || macswap.totals().wire("received_packets") > 5000);
        let ended = macswap.stop();
        let received = ended.counter("received_packets");
        let sent = ended.counter("sent_packets");
        assert_eq!(received, ended.counter("verdict_reflect"), "{}", ended.stderr);
        assert_eq!(received, sent + ended.drops(), "{}", ended.stderr);
        // An enhanced packet block of 60 bytes is 32 bytes longer (pcapng, section 4.3).
        let written = std::fs::metadata(&to).expect("the file is there").len();
        assert!((sent * 92..sent * 92 + 4096).contains(&written), "{written} bytes of {sent}");
    }
}
