//! NAT on N6 between real hosts: users' TCP, UDP, pings and traceroutes reach a data network that
//! knows external addresses only.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use fastlane_tests::{Application, Host, PATIENCE, Page, eventually, serve};

use crate::site::{self, Links, Site};
use crate::{count, sessions};

/// Size of a download in octets.
const OCTETS: usize = 1 << 20;
/// Another address of the data network.
const OTHER_SERVER: &str = "10.9.0.3";
/// First of the external ports, and ports of a user.
const FIRST_PORT: u16 = 1024;
const PORTS: u16 = 256;

/// Opens a UDP socket on a host.
pub(crate) fn socket(host: &Host, address: &str) -> UdpSocket {
    let socket = host.enter(|| UdpSocket::bind((address, 0)).expect("a UDP port"));
    socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    socket
}

/// Sends a datagram until it arrives; returns its source as the receiver sees it.
pub(crate) fn deliver(
    from: &UdpSocket,
    to: SocketAddr,
    receiver: &UdpSocket,
    text: &str,
) -> SocketAddr {
    let mut source = None;
    let mut buffer = [0; 2000];
    eventually(&format!("`{text}` arrives"), || {
        from.send_to(text.as_bytes(), to).expect("it is sent");
        if let Ok((length, from)) = receiver.recv_from(&mut buffer)
            && &buffer[..length] == text.as_bytes()
        {
            source = Some(from);
        }
        source.is_some()
    });
    // Copies that were sent while the first one was on its way.
    receiver.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    while receiver.recv_from(&mut buffer).is_ok() {}
    receiver.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    source.expect("it has arrived")
}

/// Returns true if a source is an external address with a port of a block.
pub(crate) fn is_external(source: SocketAddr) -> bool {
    let SocketAddr::V4(source) = source else { return false };
    let first = Ipv4Addr::new(198, 51, 100, 0).to_bits();
    source.ip().to_bits() & !3 == first && source.port() >= FIRST_PORT
}

/// Prepares a site with NAT and a second server address.
pub(crate) fn prepared(links: Links, example: &'static str) -> Option<Site> {
    let mut site = Site::on(links, example)?;
    site.set_nat();
    site.network().add_address("lo", &format!("{OTHER_SERVER}/32"));
    Some(site)
}

/// Leads the packets of users to the servers and to external addresses to the gNB.
pub(crate) fn lead(site: &Site) {
    for to in [OTHER_SERVER, site::EXTERNAL] {
        site.access().run(&["ip", "route", "add", to, "dev", "ue0"]);
    }
    site.upf().run(&["ip", "route", "add", OTHER_SERVER, "via", "10.6.0.2"]);
}

/// Downloads a page by TCP.
fn downloads(site: &Site, user: &str) {
    let page = Page::new(OCTETS);
    let (url, server) = serve(site.network(), site::SERVER, page.0.clone());
    let fetched = site.file("fetched");
    let to = fetched.to_str().expect("a path in ASCII");
    let words = ["curl", "--silent", "--show-error", "--max-time", "60", "--interface", user];
    site.access().run(&[&words[..], &["--output", to, &url]].concat());
    server.join().expect("it does not panic").expect("the page is sent");
    assert!(std::fs::read(fetched).expect("the page") == page.0, "the page is intact");
}

/// UDP by the behaviour that RFC 4787 requires, seen from outside.
fn behaves(site: &Site, users: &[&str]) {
    let (access, network) = (site.access(), site.network());
    let user = socket(access, users[0]);
    let [server, other] = [site::SERVER, OTHER_SERVER].map(|address| socket(network, address));
    let to = |socket: &UdpSocket| socket.local_addr().expect("an address");
    // REQ-1: the same mapping to all endpoints. REQ-4: the parity of the port.
    let mapped = deliver(&user, to(&server), &server, "one");
    assert!(is_external(mapped), "{mapped}");
    assert_eq!(deliver(&user, to(&other), &other, "two"), mapped);
    assert_eq!(mapped.port() % 2, to(&user).port() % 2);
    // REQ-8: whoever knows it may send to it.
    let third = socket(network, OTHER_SERVER);
    assert_eq!(deliver(&third, mapped, &user, "three"), to(&third));
    // REQ-2 and REQ-3: another socket, the same address, another port of the same block.
    let second = socket(access, users[0]);
    let other_port = deliver(&second, to(&server), &server, "four");
    assert_eq!(other_port.ip(), mapped.ip());
    let block = |port: u16| (port - FIRST_PORT) / PORTS;
    assert_eq!(block(other_port.port()), block(mapped.port()));
    assert_ne!(other_port.port(), mapped.port());
    // REQ-9: another user by the external address, from an external address.
    let neighbour = socket(access, users[1]);
    let reached = deliver(&neighbour, mapped, &user, "five");
    assert!(is_external(reached), "{reached}");
    assert_ne!((reached.ip(), block(reached.port())), (mapped.ip(), block(mapped.port())));
    assert_eq!(deliver(&user, reached, &neighbour, "six"), mapped);
    // REQ-14: a datagram in fragments, both ways.
    let long = "x".repeat(1700);
    for (from, address, receiver) in [(&user, to(&server), &server), (&server, mapped, &user)] {
        let mut buffer = [0; 2000];
        let is_whole = (0..20).any(|_| {
            from.send_to(long.as_bytes(), address).expect("it is sent");
            receiver.recv(&mut buffer).is_ok_and(|length| &buffer[..length] == long.as_bytes())
        });
        assert!(is_whole, "to {address}: {}", site.ask("/metrics"));
    }
}

/// ICMP errors find their sockets: port unreachable in both directions, and traceroute.
fn errors_arrive(site: &Site, users: &[&str]) {
    let user = socket(site.access(), users[0]);
    let closed = SocketAddrV4::new(site::SERVER.parse().expect("an address"), 9);
    user.connect(closed).expect("a route");
    eventually("the user hears that the port is closed", || {
        let _ = user.send(b"anybody?");
        user.recv(&mut [0; 9]).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    });
    // The server hears the same of a socket of the user that is closed now.
    let server = socket(site.network(), site::SERVER);
    let user = socket(site.access(), users[0]);
    let mapped = deliver(&user, server.local_addr().expect("an address"), &server, "gone");
    drop(user);
    server.connect(mapped).expect("a route");
    eventually("the server hears that the port is closed", || {
        let _ = server.send(b"anybody?");
        server.recv(&mut [0; 9]).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    });
    for kind in [&["-I"][..], &[]] {
        let words = ["busybox", "traceroute", "-n", "-q", "1", "-w", "2", "-m", "4"];
        let words = [&words[..], &["-s", users[0]], kind].concat();
        let mut text = String::new();
        eventually("traceroute shows the way", || {
            let output = site.access().attempt(&[&words[..], &[site::SERVER]].concat());
            text = String::from_utf8_lossy(&output.stdout).into_owned();
            let hops: Vec<&str> =
                text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
            hops == ["10.6.0.1", site::SERVER]
        });
    }
}

/// Lets users cross NAT on a mechanism.
fn crosses_nat(links: Links, example: &'static str, lanes: usize) {
    let Some(mut site) = prepared(links, example) else { return };
    site.set_lanes(lanes);
    let upf = site.start(&[]);
    let (smf, lines) = sessions(&site, 3, &[]);
    let gnb = site.gnb(&lines);
    lead(&site);
    if example == "memif" {
        // A memif takes frames as long as its buffers; the wire behind it does not.
        site.upf().run(&["ip", "link", "set", "n3", "mtu", "1500"]);
    }
    let users: Vec<&str> = lines.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    eventually("the data network answers", || site.access().ping(&["-I", users[0], site::SERVER]));
    site.access().assert_pings(50, &["-I", users[0], site::SERVER]);
    downloads(&site, users[1]);
    behaves(&site, &users);
    errors_arrive(&site, &users);
    // Nobody outside reaches a user that has not asked.
    site.network().run(&["ip", "route", "add", "10.45.0.0/16", "via", "10.6.0.1"]);
    assert!(!site.network().ping(&[users[2]]));

    let metrics = site.ask("/metrics");
    for line in ["upf_nat_blocks{state=\"used\"} 3", "upf_nat_block_allocations_total 3"] {
        assert!(metrics.lines().any(|it| it == line), "{example}: no {line} in {metrics}");
    }
    assert!(count(&metrics, "nat_mapping_made") >= 10, "{metrics}");
    for cause in ["nat_no_block", "nat_ports_exhausted", "nat_protocol", "malformed"] {
        assert_eq!(count(&metrics, cause), 0, "{example}: {cause}");
    }
    assert!(smf.stop().status.success());
    let log = std::fs::read_to_string(site.file("nat.log")).expect("the log");
    for (user, line) in users.iter().zip(log.lines()) {
        assert!(line.contains(" allocated ") && line.contains(&format!("inside={user} ")), "{log}");
    }
    eventually("all blocks are released", || {
        let log = std::fs::read_to_string(site.file("nat.log")).expect("the log");
        log.matches(" released ").count() == 3
    });
    assert!(gnb.stop().status.success());
    upf.stop();
    site.end();
}

/// Returns the process of a path (`slow` or `fast`) as the supervisor has logged it last.
fn process_id(upf: &Application, path: &str) -> String {
    let log = upf.process.stderr();
    let words = format!("upf: the {path} path process has id ");
    let last = log.rsplit(&words).next().and_then(|it| it.split_whitespace().next());
    last.expect("the supervisor logs the process").to_owned()
}

/// Kills both processes, one after the other. Each time a packet from outside is the first one
/// after it, which no new mapping could bring to the user.
fn mappings_survive(links: Links, example: &'static str) {
    let Some(site) = prepared(links, example) else { return };
    let upf = site.start(&[]);
    let (smf, lines) = sessions(&site, 1, &[]);
    let gnb = site.gnb(&lines);
    lead(&site);
    let user = lines[0].split(' ').nth(1).expect("an address");
    let (access, network) = (site.access(), site.network());
    let inside = socket(access, user);
    let server = socket(network, site::SERVER);
    let to = server.local_addr().expect("an address");
    let mapped = deliver(&inside, to, &server, "before");
    // A TCP connection that is idle meanwhile.
    let listener = network.enter(|| TcpListener::bind((site::SERVER, 0))).expect("a TCP port");
    let at = listener.local_addr().expect("an address");
    let mut client = access.enter(|| TcpStream::connect(at)).expect("a connection");
    let (mut accepted, peer) = listener.accept().expect("a client");
    assert!(is_external(peer), "{peer}");
    for stream in [&client, &accepted] {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    }
    for kill in ["slow", "fast", "fast", "slow"] {
        // The slow path holds what a fast path hands over.
        let is_held = || {
            let log = upf.process.stderr();
            let started = log.rfind(" path process has id ");
            started.is_some_and(|at| log[at..].contains("holding "))
        };
        eventually("tables are held", is_held);
        let before = process_id(&upf, kill);
        site.upf().run(&["kill", "-KILL", &before]);
        eventually("it is restarted", || process_id(&upf, kill) != before);
        eventually("both processes run", || {
            let words = ["curl", "--silent", "--fail", "http://127.0.0.1:8805/healthz"];
            site.upf().attempt(&words).status.success()
        });
        deliver(&server, mapped, &inside, &format!("after {kill}"));
        assert_eq!(deliver(&inside, to, &server, "again"), mapped, "{kill}");
        let mut buffer = [0; 10];
        accepted.write_all(b"still here").expect("it is sent");
        client.read_exact(&mut buffer).expect("the connection lives");
        client.write_all(&buffer).expect("it is sent");
        accepted.read_exact(&mut buffer).expect("the connection lives");
    }
    let metrics = site.ask("/metrics");
    assert!(metrics.contains("\nupf_nat_blocks{state=\"used\"} 1\n"), "{metrics}");
    let log = std::fs::read_to_string(site.file("nat.log")).expect("the log");
    assert_eq!(log.lines().count(), 1, "the user has the block that it had: {log}");
    assert!(smf.stop().status.success());
    assert!(gnb.stop().status.success());
    upf.stop();
    site.end();
}

#[test]
fn mappings_survive_kills_on_af_packet() {
    mappings_survive(Links::Separate, "af-packet");
}

#[test]
fn mappings_survive_kills_on_af_xdp() {
    mappings_survive(Links::Separate, "af-xdp");
}

#[test]
fn on_af_packet() {
    crosses_nat(Links::Separate, "af-packet", 1);
}

#[test]
fn on_af_packet_with_two_lanes() {
    crosses_nat(Links::Separate, "af-packet", 2);
}

#[test]
fn on_af_xdp() {
    crosses_nat(Links::Separate, "af-xdp", 1);
}

#[test]
fn on_memif() {
    crosses_nat(Links::Separate, "memif", 1);
}

#[test]
fn on_dpdk() {
    crosses_nat(Links::Separate, "dpdk", 1);
}

#[test]
fn on_vlans_over_af_packet() {
    crosses_nat(Links::Vlans, "af-packet", 1);
}

#[test]
fn on_vlans_over_af_packet_with_two_lanes() {
    crosses_nat(Links::Vlans, "af-packet", 2);
}

#[test]
fn on_vlans_over_af_xdp() {
    crosses_nat(Links::Vlans, "af-xdp", 1);
}

#[test]
fn on_vlans_over_memif() {
    crosses_nat(Links::Vlans, "memif", 1);
}

#[test]
fn on_vlans_over_dpdk() {
    crosses_nat(Links::Vlans, "dpdk", 1);
}

#[test]
fn mappings_survive_kills_on_vlans_over_af_xdp() {
    mappings_survive(Links::Vlans, "af-xdp");
}
