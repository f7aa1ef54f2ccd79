//! R31, R32: what a fast packet costs beside Linux, and the switch by which the gain of prefetching
//! is measured. `fastlane-bench firewall` and `fastlane-bench flows` have the exact figures.

use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::time::Duration;

use fastlane_tests::{Host, eventually};
use serde_json::json;

use super::firewall::{Datagrams, Firewall, MASQUERADE, RULES, Tier};

/// Connections to this port stay with Linux: they are established, but not marked.
const SLOW: u16 = 5354;

/// Rules of [`RULES`] for port [`SLOW`].
const UNMARKED: &str = "insert rule inet firewall forward udp dport 5354 accept
insert rule inet firewall forward udp sport 5354 accept";

/// Number of flows of each kind.
const FLOWS: usize = 64;

/// Gives an interface a thread that polls it, and returns the process id of the thread. What the
/// interface receives is processed by it: by the kernel tier, or by Linux.
#[track_caller]
fn polling_thread(host: &Host, interface: &str) -> u32 {
    // The mounted file system shows another namespace.
    let script = format!(
        "mount -t sysfs s /sys && echo 1 > /sys/class/net/{interface}/threaded && \
         cat /sys/class/net/{interface}/threaded"
    );
    assert_eq!(host.run(&["unshare", "-m", "sh", "-c", &script]).trim(), "1");
    let wanted = format!("napi/{interface}-");
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").expect("it can be read").flatten() {
        let Ok(id) = process.file_name().to_string_lossy().parse::<u32>() else { continue };
        let name = std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        // The newest is that of this namespace.
        found.extend(name.starts_with(&wanted).then_some(id));
    }
    found.into_iter().max().expect("the interface has a thread")
}

/// Returns the CPU time of a thread in nanoseconds.
fn cpu(thread: u32) -> u64 {
    let path = format!("/proc/{thread}/schedstat");
    let text = std::fs::read_to_string(path).expect("the thread lives");
    text.split(' ').next().and_then(|it| it.parse().ok()).expect("a number")
}

/// Repeats what is interrupted: a socket with a timeout is, when the process is frozen.
#[track_caller]
fn arrives<T>(mut receive: impl FnMut() -> io::Result<T>) -> T {
    loop {
        match receive() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            received => return received.expect("it arrives"),
        }
    }
}

/// Sends datagrams by all flows in turn, and waits until all have arrived.
#[track_caller]
fn send(flows: &[UdpSocket], udp: &Datagrams, rounds: usize) {
    for _ in 0..rounds {
        // The queue of a veth pair has room for 256.
        for flow in flows {
            flow.send_to(b"data", udp.to).expect("a route");
        }
        for _ in flows {
            arrives(|| udp.far.recv(&mut [0; 16]));
        }
    }
}

/// Opens flows to a port of the far host, each established.
#[track_caller]
fn flows(firewall: &Firewall, udp: &Datagrams) -> Vec<UdpSocket> {
    let flows: Vec<UdpSocket> =
        firewall.routed.lab.right.enter(|| {
            (0..FLOWS).map(|_| UdpSocket::bind("0.0.0.0:0").expect("a socket")).collect()
        });
    for flow in &flows {
        flow.send_to(b"there", udp.to).expect("a route");
        let (_, from) = arrives(|| udp.far.recv_from(&mut [0; 16]));
        udp.far.send_to(b"back", from).expect("a route");
        flow.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
        arrives(|| flow.recv(&mut [0; 16]));
    }
    flows
}

/// Each packet wakes the thread here, which costs both as much as the kernel tier itself. Where the
/// bound of R31 is measured they come in batches, and the tier takes a fourth.
#[test]
fn r31_a_fast_packet_costs_clearly_less_than_by_linux() {
    let settings = json!({ "capacity": 4 * FLOWS });
    let rules = [RULES, MASQUERADE, UNMARKED];
    let Some(firewall) = Firewall::with(Tier::Kernel, "r31", &rules, settings) else { return };
    let (fast, slow) = (firewall.datagrams(5353), firewall.datagrams(SLOW));
    let of_fast = flows(&firewall, &fast);
    let of_slow = flows(&firewall, &slow);
    eventually("the flows are in the table", || firewall.flows(&[]).len() == FLOWS);
    assert!(firewall.flows(&["--port", &SLOW.to_string()]).is_empty());
    // What the far host does with packets is not the router's cost.
    polling_thread(&firewall.routed.far, "wire1");
    let router = polling_thread(firewall.routed.router(), "wire0");
    send(&of_fast, &fast, 10);
    send(&of_slow, &slow, 10);
    let (rounds, mut costs) = (20, [0; 2]);
    let before = firewall.count("forwarded");
    for _ in 0..20 {
        let start = cpu(router);
        send(&of_fast, &fast, rounds);
        let between = cpu(router);
        send(&of_slow, &slow, rounds);
        costs = [costs[0] + between - start, costs[1] + cpu(router) - between];
    }
    let packets = (20 * rounds * FLOWS) as u64;
    println!("ns per packet: kernel tier {}, Linux {}", costs[0] / packets, costs[1] / packets);
    assert!(firewall.count("forwarded") - before >= packets, "the first half is fast");
    assert!(4 * costs[0] <= 3 * costs[1], "{costs:?} ns for {packets} packets of each");
    firewall.router.stop();
}

/// Lanes forward the same flows with prefetching and without it.
#[test]
fn r32_prefetching_is_a_word_of_the_configuration() {
    for prefetch in [true, false] {
        let settings = json!({ "capacity": 4 * FLOWS, "prefetch": prefetch });
        let story = format!("r32{prefetch}");
        let rules = [RULES, MASQUERADE];
        let Some(firewall) = Firewall::with(Tier::Lanes, &story, &rules, settings) else { return };
        let udp = firewall.datagrams(5353);
        let flows = flows(&firewall, &udp);
        eventually("the flows are in the table", || firewall.flows(&[]).len() == FLOWS);
        firewall.until_forwarded((5 * FLOWS) as u64, || send(&flows, &udp, 5));
        firewall.router.stop();
    }
}
