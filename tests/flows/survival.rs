//! R1, R18, R19, R20, R27, R28: flows over starts, deaths and changes, packet by packet.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fastlane::mirror::conntrack::{ConntrackChange, ConntrackListener, ConntrackWriter, Groups};
use fastlane_tests::{DropFlag, Process, binary, eventually};
use serde_json::json;

use super::firewall::{Datagrams, Firewall, MASQUERADE, RULES, Tier, for_each_tier};

for_each_tier!(
    r27_r28_nothing_is_lost_or_doubled_while_flows_come_and_go,
    r18_flows_survive_the_slow_path_and_its_successor_adopts_them,
    r18_a_flow_whose_events_are_lost_is_not_adopted,
    r1_connections_from_before_the_start_become_fast,
    r19_connections_outlive_the_fast_path,
    r19_flows_are_taken_over_by_the_next_fast_path,
    r20_packets_are_counted_once_by_the_tier_or_by_linux,
);

/// Arrivals of a stream of numbered datagrams.
#[derive(Debug, Default)]
struct Received {
    numbers: BTreeSet<u32>,
    duplicates: usize,
    /// Greatest number of datagrams by which one came late.
    displacement: u32,
}

/// Numbers that a stream of datagrams has reached.
#[derive(Debug, Default)]
struct Progress {
    sent: AtomicU32,
    /// Number after the greatest that has arrived.
    arrived: AtomicU32,
}

impl Progress {
    /// Returns the number of datagrams that were sent after the greatest that has arrived.
    fn ahead(&self) -> u32 {
        self.sent.load(Ordering::Relaxed) - self.arrived.load(Ordering::Relaxed)
    }
}

/// Most datagrams between the hosts: fewer than the shortest queue takes, that of veth for packets
/// of the kernel tier (256 frames). A queue that a router without a CPU leaves to fill loses none.
const WINDOW: u32 = 200;

/// Datagrams that are sent in a millisecond.
const BATCH: u32 = 10;

/// Receives numbered datagrams until `done` and nothing more comes.
fn receive(socket: &UdpSocket, done: &AtomicBool, progress: &Progress) -> Received {
    let (mut received, mut greatest) = (Received::default(), 0);
    socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    loop {
        let was_done = done.load(Ordering::Relaxed);
        let mut bytes = [0; 4];
        match socket.recv(&mut bytes) {
            Ok(_) => {
                let number = u32::from_be_bytes(bytes);
                received.duplicates += usize::from(!received.numbers.insert(number));
                greatest = number.max(greatest);
                progress.arrived.store(greatest + 1, Ordering::Relaxed);
                received.displacement = received.displacement.max(greatest - number);
            }
            Err(_) if was_done => return received,
            Err(_) => {}
        }
    }
}

/// Sends numbered datagrams, at most 10,000 per second, until `done`. It waits while as many as the
/// window are on their way, but no longer than a second, as they may be lost.
fn send(udp: &Datagrams, done: &AtomicBool, progress: &Progress) {
    let mut next = Instant::now();
    while !done.load(Ordering::Relaxed) {
        let full = Instant::now();
        while progress.ahead() > WINDOW - BATCH && full.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(1));
        }
        for _ in 0..BATCH {
            let number = progress.sent.fetch_add(1, Ordering::Relaxed);
            udp.near.send_to(&u32::to_be_bytes(number), udp.to).expect("a route");
        }
        // What a time without a CPU has delayed is not made up for.
        next = Instant::now().max(next + Duration::from_millis(1));
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// Runs `change` while a stream of datagrams passes, of which none may be lost or come twice. It
/// can ask for the number of those that were sent.
#[track_caller]
fn during_stream(
    firewall: &mut Firewall,
    udp: &Datagrams,
    change: impl FnOnce(&mut Firewall, &dyn Fn() -> u32),
) {
    let progress = Progress::default();
    let (sent_all, received_all) = (AtomicBool::new(false), AtomicBool::new(false));
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&udp.far, 8 << 20).expect("as root");
    let received = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&udp.far, &received_all, &progress));
        let sender = scope.spawn(|| send(udp, &sent_all, &progress));
        let end = (DropFlag(&sent_all), DropFlag(&received_all));
        change(firewall, &|| progress.sent.load(Ordering::Relaxed));
        drop(end.0);
        sender.join().expect("it does not panic");
        drop(end.1);
        receiver.join().expect("it does not panic")
    });
    let sent = progress.sent.into_inner();
    println!("{sent} datagrams, displaced by up to {}", received.displacement);
    let lost = (0..sent).filter(|number| !received.numbers.contains(number)).count();
    let counted = fastlane_tests::routed::counters(&firewall.router, &[]);
    let of_devices = firewall.router.totals();
    let counted = format!("{counted:?} {of_devices:?}");
    assert_eq!((lost, received.duplicates), (0, 0), "of {sent}; {counted}");
    // A burst of the lane may overtake what waits for Linux, and Linux may hold some of it.
    assert!(received.displacement <= 256, "{} datagrams", received.displacement);
}

/// Datagrams of the story with all changes, and kills of the slow path meanwhile.
fn datagrams_and_kills() -> (u32, u32) {
    match std::env::var_os("FASTLANE_SOAK") {
        Some(_) => (10_000_000, 200),
        None => (100_000, 20),
    }
}

fn r27_r28_nothing_is_lost_or_doubled_while_flows_come_and_go(tier: Tier) {
    let rules = [RULES, MASQUERADE];
    let Some(mut firewall) = Firewall::new(tier, "r28", &rules) else { return };
    let udp = firewall.datagrams(5353);
    udp.assert_exchange();
    firewall.wait_until_fast(5353);
    let (connection, mut writer) = firewall.routed.router().enter(|| {
        let groups = Groups { new: false, rules: false };
        let mut found = None;
        let mut listener = ConntrackListener::open(groups, 4096).unwrap();
        listener.dump(1, 1, |it| found = Some(it)).unwrap();
        (found.expect("the connection"), ConntrackWriter::open().unwrap())
    });
    let set = |bits| ConntrackChange { mark: Some((bits, 1)), ..ConntrackChange::of(&connection) };
    let forwarded = firewall.count("forwarded");
    let linux = firewall.count("linux_no_flow");
    let (datagrams, kills) = datagrams_and_kills();
    during_stream(&mut firewall, &udp, |firewall, sent| {
        let mut rounds = 0;
        while sent() < datagrams || rounds < kills {
            // Linux's own rule marks the connection again with its next packet.
            writer.apply([set(0)]).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            let metric = 1 + rounds % 2;
            firewall.routed.ip(&format!("route add 10.78.0.2/32 dev wire1 metric {metric}"));
            firewall.routed.ip(&format!("route del 10.78.0.2/32 dev wire1 metric {metric}"));
            firewall.routed.ip(&format!("neigh replace 10.78.0.3 lladdr {OTHER} dev wire1"));
            std::thread::sleep(Duration::from_millis(50));
            firewall.nft("add table inet churn");
            firewall.nft("delete table inet churn");
            std::thread::sleep(Duration::from_millis(50));
            if rounds < kills {
                firewall.kill_offload();
                std::thread::sleep(Duration::from_millis(100));
                firewall.start_offload();
            }
            rounds += 1;
        }
    });
    let fast = firewall.count("forwarded") - forwarded;
    assert!(fast > u64::from(datagrams) / 4, "most are fast: {fast}");
    assert!(firewall.count("linux_no_flow") > linux + 20, "some are Linux's");
    firewall.router.stop();
}

/// Ethernet address of a neighbour that comes and goes.
const OTHER: &str = "02:00:00:00:bb:03";

fn r18_flows_survive_the_slow_path_and_its_successor_adopts_them(tier: Tier) {
    let flows = json!({ "capacity": 1024, "grace": 3000 });
    let Some(mut firewall) = Firewall::with(tier, "r18", &[RULES, MASQUERADE], flows) else {
        return;
    };
    let mut tcp = firewall.connect(8080);
    tcp.exchange(1000);
    firewall.wait_until_fast(8080);
    let udp = firewall.datagrams(5353);
    udp.assert_exchange();
    firewall.wait_until_fast(5353);
    let rounds = if std::env::var_os("FASTLANE_SOAK").is_some() { 20 } else { 4 };
    during_stream(&mut firewall, &udp, |firewall, _| {
        for _ in 0..rounds {
            firewall.kill_offload();
            firewall.until_forwarded(50, || tcp.exchange(100_000));
            firewall.start_offload();
            let offload = firewall.offload.as_ref().expect("it runs");
            assert!(offload.stderr().contains("2 flows taken over"), "{}", offload.stderr());
            tcp.exchange(1000);
        }
        // The flows were shown to be followed: they stay.
        std::thread::sleep(Duration::from_secs(3));
        assert_eq!(firewall.flows(&[]).len(), 2);
    });
    // What ends while nobody follows is noticed by the successor.
    firewall.kill_offload();
    firewall.conntrack("-D -p udp --dport 5353");
    firewall.start_offload();
    let offload = firewall.offload.as_ref().expect("it runs");
    assert!(offload.stderr().contains("1 flows taken over"), "{}", offload.stderr());
    // Without a successor all is left to Linux after the grace time, and goes on.
    firewall.kill_offload();
    eventually("the lanes leave everything to Linux", || {
        tcp.exchange(1000);
        firewall.count("linux_flows_paused") > 0
    });
    let before = firewall.count("forwarded");
    tcp.exchange(1 << 20);
    assert_eq!(firewall.count("forwarded"), before);
    firewall.start_offload();
    firewall.until_forwarded(500, || tcp.exchange(1 << 20));
    firewall.router.stop();
}

fn r18_a_flow_whose_events_are_lost_is_not_adopted(tier: Tier) {
    let Some(mut firewall) = Firewall::new(tier, "r18-lost", &[RULES, MASQUERADE]) else { return };
    let udp = firewall.datagrams(5353);
    udp.assert_exchange();
    firewall.wait_until_fast(5353);
    firewall.kill_offload();
    // The connection is deleted and begins again while Linux reports nothing.
    firewall.routed.set("netfilter/nf_conntrack_events", "0");
    firewall.conntrack("-D -p udp --dport 5353");
    eventually("the grace time is over, and Linux has the connection", || {
        let _ = udp.exchange();
        firewall.count("linux_flows_paused") > 0
    });
    let _ = udp.exchange();
    firewall.routed.set("netfilter/nf_conntrack_events", "2");
    firewall.start_offload();
    udp.assert_exchange();
    firewall.wait_until_slow(5353);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(firewall.flows(&[]), Vec::<String>::new());
    udp.assert_exchange();
    firewall.router.stop();
}

fn r1_connections_from_before_the_start_become_fast(tier: Tier) {
    let flows = json!({ "capacity": 1024 });
    let rules = [RULES, MASQUERADE];
    let Some(mut firewall) = Firewall::without_offload(tier, "r1", &rules, flows) else { return };
    firewall.routed.set("netfilter/nf_conntrack_events", "1");
    let mut connections: Vec<_> = (8080..8090).map(|port| firewall.connect(port)).collect();
    connections.iter_mut().for_each(|tcp| tcp.exchange(1000));
    assert_eq!(firewall.count("forwarded"), 0);
    firewall.start_offload();
    // The rules of Linux judge each by its next packet.
    eventually("all are fast", || {
        connections.iter_mut().for_each(|tcp| tcp.exchange(100));
        firewall.flows(&[]).len() == 10
    });
    firewall.until_forwarded(1000, || connections.iter_mut().for_each(|tcp| tcp.exchange(100_000)));
    // The table has what conntrack lists.
    let listed = firewall.conntrack("-L -p tcp -m 1/1");
    for flow in firewall.flows(&[]) {
        let words: Vec<&str> = flow.split(' ').collect();
        let port = words[1].rsplit_once(':').expect("an address and a port").1;
        assert!(listed.contains(&format!("sport={port} ")), "{flow} in {listed}");
    }
    firewall.router.stop();
}

fn r19_connections_outlive_the_fast_path(tier: Tier) {
    let Some(firewall) = Firewall::new(tier, "r19", &[RULES, MASQUERADE]) else { return };
    let mut tcp = firewall.connect(8080);
    tcp.exchange(1000);
    firewall.wait_until_fast(8080);
    tcp.exchange(8 << 20);
    let Firewall { routed, router, offload, .. } = firewall;
    router.kill();
    // Linux takes over in the middle of the stream, though it has not seen its last megabytes.
    tcp.exchange(8 << 20);
    drop((routed, offload));
}

fn r19_flows_are_taken_over_by_the_next_fast_path(tier: Tier) {
    let Some(mut firewall) = Firewall::new(tier, "r19-keep", &[RULES, MASQUERADE]) else { return };
    let mut keep = Command::new(binary("fastlane"));
    keep.arg("keep").arg(firewall.router.session()).args(["--seconds", "60"]);
    let keeper = Process::start(keep);
    keeper.wait_for(&format!("process {}, ", firewall.router.process.id()));
    let mut tcp = firewall.connect(8080);
    tcp.exchange(1000);
    firewall.wait_until_fast(8080);
    let mut counted = 0;
    for restart in 1..=3 {
        tcp.exchange(1 << 20);
        firewall.replace_router();
        let stderr = firewall.router.process.stderr();
        assert!(stderr.contains("table `flows`: inherited"), "{stderr}");
        let offload = firewall.offload.as_ref().expect("it runs");
        eventually("the slow path follows the next process", || {
            offload.stderr().matches("; 1 flows taken over").count() == restart
        });
        firewall.until_forwarded(500, || tcp.exchange(1 << 20));
        // The counters of the flow go on.
        let flow = firewall.flows(&["--port", "8080"]).remove(0);
        let (_, counts) = flow.split_once(" packets ").expect("the counts");
        let packets = counts.split(' ').next().and_then(|it| it.parse::<u64>().ok());
        let packets = packets.expect("a number");
        assert!(packets > counted + 500, "{flow}");
        counted = packets;
    }
    keeper.kill();
    firewall.router.stop();
}

pub(super) fn r20_packets_are_counted_once_by_the_tier_or_by_linux(tier: Tier) {
    let Some(firewall) = Firewall::new(tier, "r20", &[RULES, MASQUERADE]) else { return };
    firewall.routed.set("netfilter/nf_conntrack_acct", "1");
    let udp = firewall.datagrams(5353);
    let mut sent = 0;
    while firewall.flows(&["--port", "5353"]).is_empty() {
        udp.assert_exchange();
        sent += 1;
    }
    firewall.until_forwarded(500, || {
        for _ in 0..500 {
            udp.assert_exchange();
            sent += 1;
        }
    });
    let listed = firewall.conntrack("-L -p udp --dport 5353");
    let linux: Vec<u64> =
        listed.split(' ').filter_map(|word| word.strip_prefix("packets=")?.parse().ok()).collect();
    let flow = firewall.flows(&["--port", "5353"]).remove(0);
    let (_, counts) = flow.split_once(" packets ").expect("the counts");
    let lanes: Vec<u64> = counts.split(' ').take(2).filter_map(|it| it.parse().ok()).collect();
    assert_eq!([linux[0] + lanes[0], linux[1] + lanes[1]], [sent, sent], "{listed}{flow}");
    // The metrics have the outcomes by name.
    let metrics =
        || firewall.routed.router().run(&["curl", "-sS", "http://127.0.0.1:9464/metrics"]);
    let page = metrics();
    let name = "fastlane_outcome_packets_total{outcome=\"forwarded\"} ";
    let line = page.lines().find_map(|line| line.strip_prefix(name)).expect("the outcome");
    assert_eq!(line.parse(), Ok(lanes[0] + lanes[1]));
    // And what the slow path counts, which other connections go on adding to.
    let value = |page: &str, name: &str| -> Option<u64> {
        page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    };
    assert_eq!(value(&page, "fastlane_offload_active"), Some(1));
    for (name, statistic) in [
        ("fastlane_offload_flows", "offload_flows"),
        ("fastlane_offload_events_total{event=\"added\"}", "offload_added"),
        ("fastlane_offload_refusals_total{reason=\"mark\"}", "offload_refused_mark"),
    ] {
        eventually("the metrics have what the slow path counts", || {
            let counted = firewall.statistics().get(statistic).copied();
            counted.is_some() && value(&metrics(), name) == counted
        });
    }
    firewall.router.stop();
}
