//! Path MTU and the sources of ICMP errors, with real hosts: N3 is IPv4 only and carries 1400
//! octets, the user's interface and the data network have 1500.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::JoinHandle;

use fastlane_tests::{Host, PATIENCE, Page, eventually, serve};

use crate::site::{self, Site};
use crate::{count, sessions};

/// Size of a transfer in octets.
const OCTETS: usize = 1 << 20;
/// MTU of N3.
const N3_MTU: u32 = 1400;
/// Longest packet of a user on N3: less IPv4, UDP and GTP-U with a container.
const USER_MTU: u32 = N3_MTU - 20 - 8 - 16;
/// Addresses of N6 and the server over IPv6.
const N6_ADDRESS: [&str; 2] = ["10.6.0.1", "fd06::1"];
const SERVER6: &str = "fd09::2";

/// Receives a transfer of one client; returns the address and what came.
fn receive(host: &Host, address: &str) -> (SocketAddr, JoinHandle<Vec<u8>>) {
    let listener = host.enter(|| TcpListener::bind((address, 0))).expect("a TCP port");
    let local = listener.local_addr().expect("an address");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("the whole transfer");
        all
    });
    (local, server)
}

/// Sends a page by TCP from a host.
fn send(host: &Host, to: SocketAddr, page: &[u8]) {
    host.enter(|| {
        let mut stream = TcpStream::connect_timeout(&to, PATIENCE).expect("the server accepts");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(page).expect("the page is sent");
    });
}

/// Sends a datagram of 3000 octets from a user, which the server sends back.
fn exchange_datagram(site: &Site, address: &str) {
    let bind = |address: &str| {
        let socket = UdpSocket::bind((address, 0)).expect("a UDP port");
        socket.set_read_timeout(Some(std::time::Duration::from_millis(500))).expect("a timeout");
        socket
    };
    let server = site.network().enter(|| bind(address));
    let any = if address.contains(':') { "::" } else { "0.0.0.0" };
    let user = site.access().enter(|| bind(any));
    let to = server.local_addr().expect("an address");
    let mut buffer = [0; 4000];
    // The sender learns the path MTU by a datagram that is lost.
    eventually("a datagram of 3000 octets crosses both ways", || {
        if user.send_to(&[7; 3000], to).is_err() {
            return false;
        }
        let Ok((length, from)) = server.recv_from(&mut buffer) else { return false };
        assert_eq!(length, 3000);
        server.send_to(&buffer[..length], from).is_ok()
            && user.recv_from(&mut buffer).is_ok_and(|(length, _)| length == 3000)
    });
}

/// Returns the standard output of `ping` from a host.
fn ping(host: &Host, words: &[&str]) -> String {
    let output = host.attempt(&[&["ping", "-c", "1", "-W", "1"], words].concat());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn prepared(example: &'static str) -> Option<Site> {
    let site = Site::new(example)?;
    let upf = site.upf();
    for host in [upf, site.access()] {
        host.run(&["ip", "link", "set", "eth1", "mtu", &N3_MTU.to_string()]);
    }
    for (host, address) in [(upf, N6_ADDRESS[1]), (site.network(), "fd06::2")] {
        host.run(&["ip", "address", "add", &format!("{address}/64"), "dev", "eth2", "nodad"]);
    }
    site.network().run(&["ip", "address", "add", &format!("{SERVER6}/128"), "dev", "lo"]);
    site.network().run(&["ip", "route", "add", "2001:db8:45::/48", "via", N6_ADDRESS[1]]);
    upf.run(&["ip", "route", "add", &format!("{SERVER6}/128"), "via", "fd06::2"]);
    Some(site)
}

/// Discovers the path MTU from both ends, over both families, by ping, TCP and UDP.
fn discovers(example: &'static str) {
    let Some(site) = prepared(example) else { return };
    let upf = site.start(&[]);
    let (smf, lines) = sessions(&site, 1, &["--family", "both"]);
    let gnb = site.gnb_with(&lines, &["--mtu", "1500"]);
    site.access().run(&["ip", "route", "add", SERVER6, "dev", "ue0"]);
    let users: Vec<IpAddr> =
        lines.iter().filter_map(|line| line.split(' ').nth(1)?.parse().ok()).collect();
    assert_eq!(users.len(), 2, "{lines:?}");
    for (user, (server, own)) in
        users.iter().zip([site::SERVER, SERVER6].into_iter().zip(N6_ADDRESS))
    {
        let (user, access, network) = (user.to_string(), site.access(), site.network());
        eventually("the server answers", || {
            ping(access, &["-I", &user, server]).contains("1 received")
        });
        // The first hop of a traceroute, from either end.
        let hop = ping(access, &["-t", "1", "-I", &user, server]);
        assert!(hop.contains(&format!("From {own} ")), "{example}: {hop}");
        let hop = ping(network, &["-t", "1", "-I", server, &user]);
        assert!(hop.contains(&format!("From {own} ")), "{example}: {hop}");
        // The longest packet of the data network passes once the path is known.
        let head = if user.contains(':') { 48 } else { 28 };
        let [most, over] = [USER_MTU, USER_MTU + 1].map(|size| (size - head).to_string());
        let too_long = ping(network, &["-M", "do", "-s", &over, "-I", server, &user]);
        assert!(
            too_long.contains(&format!("mtu = {USER_MTU}"))
                || too_long.contains(&format!("mtu={USER_MTU}")),
            "{example}: {too_long}"
        );
        let fits = ping(network, &["-M", "do", "-s", &most, "-I", server, &user]);
        assert!(fits.contains("1 received"), "{example}: {fits}");
        let route = network.run(&["ip", "route", "get", &user]);
        assert!(route.contains(&format!("mtu {USER_MTU}")), "{example}: {route}");
        network.run(&["ip", "-6", "route", "flush", "cache"]);
        network.run(&["ip", "route", "flush", "cache"]);

        let page = Page::new(OCTETS);
        // The gNB sends segments of 1500 octets in outer fragments. The server knows no path MTU
        // yet, so it does not offer a shorter MSS.
        let (to, receiving) = receive(network, server);
        send(access, to, &page.0);
        assert!(receiving.join().expect("it does not panic") == page.0, "{example}: uplink");
        let (url, serving) = serve(network, server, page.0.clone());
        let fetched = site.file("fetched");
        let to = fetched.to_str().expect("a path in ASCII");
        let words = ["--silent", "--show-error", "--max-time", "60", "--interface", &user];
        access.run(&[&["curl", "--globoff"], &words[..], &["--output", to, &url]].concat());
        serving.join().expect("it does not panic").expect("the page is sent");
        assert!(std::fs::read(&fetched).expect("the page") == page.0, "{example}: downlink");
        exchange_datagram(&site, server);
    }
    let metrics = site.ask("/metrics");
    assert!(count(&metrics, "reassembled") >= OCTETS as u64 / 1448, "{metrics}");
    assert!(count(&metrics, "icmp_sent") >= 6, "{metrics}");
    for cause in ["reassembly_refused", "reassembly_timeout", "icmp_no_source"] {
        assert_eq!(count(&metrics, cause), 0, "{example}: {cause}");
    }
    assert!(smf.stop().status.success());
    assert!(gnb.stop().status.success());
    upf.stop();
    site.end();
}

#[test]
fn path_mtu_discovery_and_long_packets_work_on_af_packet() {
    discovers("af-packet");
}

#[test]
fn path_mtu_discovery_and_long_packets_work_on_af_xdp() {
    discovers("af-xdp");
}

/// N6 without an address in Linux: ICMP errors have the configured sources.
#[test]
fn configured_sources_of_icmp_errors_are_used() {
    let Some(mut site) = prepared("af-packet") else { return };
    site.set_icmp_addresses(&["203.0.113.1", "2001:db8:113::1"]);
    let upf = site.start(&[]);
    let (smf, lines) = sessions(&site, 1, &["--family", "both"]);
    let gnb = site.gnb_with(&lines, &[]);
    site.access().run(&["ip", "route", "add", SERVER6, "dev", "ue0"]);
    for (server, own) in [(site::SERVER, "203.0.113.1"), (SERVER6, "2001:db8:113::1")] {
        let mut hop = String::new();
        eventually("the configured source answers", || {
            hop = ping(site.access(), &["-t", "1", server]);
            hop.contains(&format!("From {own} "))
        });
    }
    // No route leads there: RFC 1812 clause 5.2.7.1, RFC 4443 clause 3.1.
    for (nowhere, own) in [("198.51.100.9", "203.0.113.1"), ("2001:db8:9::9", "2001:db8:113::1")] {
        site.access().run(&["ip", "route", "add", nowhere, "dev", "ue0"]);
        let hop = ping(site.access(), &[nowhere]);
        assert!(hop.contains(&format!("From {own} ")), "{hop}");
        assert!(hop.contains("Unreachable") || hop.contains("unreachable"), "{hop}");
    }
    assert!(smf.stop().status.success());
    assert!(gnb.stop().status.success());
    upf.stop();
    site.end();
}

/// Fragments find a lane by the packet that they are of, and the packet the lane of its session.
#[test]
fn outer_fragments_reach_the_lane_of_their_session() {
    const DATAGRAMS: u64 = 32;
    let Some(mut site) = prepared("af-packet") else { return };
    site.set_lanes(2);
    let upf = site.start(&[]);
    let (smf, lines) = sessions(&site, 4, &[]);
    let gnb = site.gnb_with(&lines, &["--mtu", "1500"]);
    let server = site.network().enter(|| UdpSocket::bind((site::SERVER, 0)).expect("a UDP port"));
    server.set_read_timeout(Some(std::time::Duration::from_millis(500))).expect("a timeout");
    let to = server.local_addr().expect("an address");
    let mut buffer = [0; 2000];
    for user in lines.iter().filter_map(|line| line.split(' ').nth(1)) {
        let socket =
            site.access().enter(|| UdpSocket::bind((user, 0)).expect("the user's address"));
        // 1500 octets with its headers.
        let mut exchange = |number: u64| {
            let mut datagram = [0xee; 1472];
            datagram[..8].copy_from_slice(&number.to_be_bytes());
            socket.send_to(&datagram, to).expect("the user sends");
            while let Ok((length, from)) = server.recv_from(&mut buffer) {
                if buffer[..length] == datagram && from == socket.local_addr().expect("its port") {
                    return true;
                }
            }
            false
        };
        eventually("the first datagram arrives", || exchange(0));
        assert!((1..=DATAGRAMS).all(&mut exchange), "{user}");
    }
    let metrics = site.ask("/metrics");
    let [fragments, whole] = ["outer_fragment", "reassembled"].map(|it| count(&metrics, it));
    assert!(whole >= 4 * DATAGRAMS, "{metrics}");
    // One of two fragments, and whole packets that changed lanes.
    assert!(fragments >= whole + DATAGRAMS, "{metrics}");
    assert_eq!(count(&metrics, "reassembly_refused"), 0);
    assert!(smf.stop().status.success());
    assert!(gnb.stop().status.success());
    upf.stop();
    site.end();
}
