//! The kernel tier at the ingress of its interfaces: it gets packets as hosts send them, with
//! checksums and segments left to devices.

use fastlane_tests::{Process, eventually};

use super::firewall::{Connected, Firewall, MASQUERADE, RULES, Tier};

/// Starts a router with an established connection that is fast.
#[track_caller]
fn fast(story: &str) -> Option<(Firewall, Connected)> {
    let firewall = Firewall::new(Tier::Ingress, story, &[RULES, MASQUERADE])?;
    let mut tcp = firewall.connect(8080);
    tcp.exchange(1000);
    firewall.wait_until_fast(8080);
    firewall.until_forwarded(500, || tcp.exchange(1 << 20));
    Some((firewall, tcp))
}

/// Returns the number of packets that Linux has forwarded (ipForwDatagrams, RFC 4293).
fn by_linux(firewall: &Firewall) -> u64 {
    let text = firewall.routed.router().run(&["cat", "/proc/net/snmp"]);
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let at = names.split(' ').position(|name| name == "ForwDatagrams").expect("the counter");
    values.split(' ').nth(at).and_then(|value| value.parse().ok()).expect("a number")
}

fn has_xdp(firewall: &Firewall) -> bool {
    firewall.routed.router().run(&["ip", "link", "show", "wire0"]).contains("prog/xdp")
}

/// Returns the number of socket buffers that have arrived on `wire0`.
fn arrived(firewall: &Firewall) -> u64 {
    let statistics = firewall.routed.router().statistics("wire0");
    statistics["rx"]["packets"].as_u64().expect("a counter of ip")
}

#[test]
fn what_hosts_leave_to_devices_passes_as_it_is() {
    let Some((firewall, mut tcp)) = fast("ingress") else { return };
    assert!(!has_xdp(&firewall));
    let before = (arrived(&firewall), firewall.count("forwarded"));
    tcp.exchange(16 << 20);
    let frames = arrived(&firewall) - before.0;
    let packets = firewall.count("forwarded") - before.1;
    // 16 MiB each way are 11,500 packets of 1460 bytes each way.
    assert!(packets > 22_000, "{packets} packets");
    assert!(frames < packets / 4, "{packets} packets in {frames} frames by one of two wires");
    firewall.router.stop();
}

/// Echo of datagrams.
const ECHO: &str = "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('10.78.0.2', 5354))
while True:
    s.sendto(*s.recvfrom(2000))
";

/// Sender of ten datagrams in one buffer (UDP_SEGMENT), who says what comes back.
const BUFFERS: &str = "
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(5)
s.connect(('10.78.0.2', 5354))
s.setsockopt(17, 103, 1000)
while True:
    sent = bytes(range(250)) * 40
    s.send(sent)
    echo = b''.join(s.recv(2000) for _ in range(10))
    print('whole' if echo == sent else 'broken', file=sys.stderr, flush=True)
    time.sleep(0.01)
";

#[test]
fn datagrams_in_one_buffer_are_forwarded_as_one() {
    let rules = [RULES, MASQUERADE];
    let Some(firewall) = Firewall::new(Tier::Ingress, "ingressudp", &rules) else { return };
    let mut command = firewall.routed.far.command(&["python3", "-c", ECHO]);
    let echo = Process::start(command);
    eventually("the echo is open", || firewall.routed.far.run(&["ss", "-Hnlu"]).contains(":5354"));
    command = firewall.routed.lab.right.command(&["python3", "-c", BUFFERS]);
    let sender = Process::start(command);
    firewall.wait_until_fast(5354);
    let whole = || sender.stderr().matches("whole").count() as u64;
    let before = (arrived(&firewall), firewall.count("forwarded"), whole());
    eventually("fifty buffers are back", || whole() >= before.2 + 50);
    let (frames, forwarded) = (arrived(&firewall) - before.0, firewall.count("forwarded"));
    // Ten there and ten back; the first may have been Linux's.
    assert!(forwarded >= before.1 + 20 * 45, "{forwarded} after {}", before.1);
    assert!(frames < 20 * 10, "{frames} buffers arrived");
    assert!(!sender.stderr().contains("broken"), "{}", sender.stderr());
    sender.kill();
    echo.kill();
    firewall.router.stop();
}

#[test]
fn it_outlives_its_slow_path_and_is_removed_on_request() {
    let Some((mut firewall, mut tcp)) = fast("ingressout") else { return };
    firewall.kill_offload();
    firewall.until_forwarded(500, || tcp.exchange(1 << 20));
    firewall.start_offload();
    let stderr = firewall.offload.as_ref().expect("it runs").stderr();
    assert!(stderr.contains("the kernel tier was adopted"), "{stderr}");
    firewall.until_forwarded(500, || tcp.exchange(1 << 20));
    firewall.kill_offload();
    let ended = firewall.offload_with(&["--remove"]).wait();
    assert!(ended.status.success() && ended.stdout.contains("removed"), "{ended:?}");
    // The kernel takes the program away a little later than its pin.
    eventually("Linux forwards", || {
        let before = by_linux(&firewall);
        tcp.exchange(8 << 20);
        by_linux(&firewall) - before > 50
    });
    firewall.start_offload();
    firewall.until_forwarded(500, || tcp.exchange(1 << 20));
    firewall.router.stop();
}
