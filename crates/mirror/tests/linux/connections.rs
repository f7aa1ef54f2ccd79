//! Connections against the real Linux, with conntrack(8) and nft(8) as the oracles.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use fastlane_mirror::conntrack::{
    Connection, ConnectionTuple, ConntrackChange, ConntrackEvent, ConntrackListener,
    ConntrackWriter, Groups, Heard, Status, TcpState,
};
use fastlane_testing::namespace::{command, private};

const EVERYTHING: Groups = Groups { new: true, rules: true };

/// Rules that track all connections of the namespace. Those to port 5353 are marked by 0x10, those
/// to port 7007 are in zone 7.
const RULES: [&str; 6] = [
    "add table inet t",
    "add chain inet t zones { type filter hook output priority raw ; }",
    "add chain inet t marks { type filter hook output priority 0 ; }",
    "add rule inet t zones udp dport 7007 ct zone set 7",
    "add rule inet t zones udp sport 7007 ct zone set 7",
    "add rule inet t marks udp dport 5353 ct mark set 0x10",
];

/// Enters a namespace that tracks connections. Returns false after a skip.
fn tracking(test: &str) -> bool {
    let is_private = private(test);
    if is_private {
        RULES.iter().for_each(|rule| drop(command("nft", rule)));
        // Both directions of loopback traffic arrive at the hook of output; a rule tracks them.
        command("nft", "add rule inet t marks ct state new counter");
    }
    is_private
}

fn listener() -> ConntrackListener {
    ConntrackListener::open(EVERYTHING, 8 << 20).unwrap()
}

/// Receives events until `wanted` finds one, and returns what it returns.
fn wait_for<T>(
    listener: &mut ConntrackListener,
    wanted: impl Fn(&ConntrackEvent) -> Option<T>,
) -> T {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        let mut found = None;
        let heard = listener.hear(1, |event| found = found.take().or_else(|| wanted(&event)));
        assert_ne!(heard.unwrap(), Heard::Lost);
        if let Some(found) = found {
            return found;
        }
        assert!(Instant::now() < end, "the event does not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the connection of an event that has `port` as the original destination port.
fn present(event: &ConntrackEvent, port: u16) -> Option<Connection> {
    match event {
        ConntrackEvent::Present(it) if it.original.ports[1] == port => Some((**it).clone()),
        _ => None,
    }
}

fn is_removed(event: &ConntrackEvent, id: u32) -> Option<()> {
    matches!(event, ConntrackEvent::Removed(it) if it.id == id).then_some(())
}

fn all(listener: &mut ConntrackListener, mark: u32, mask: u32) -> Vec<Connection> {
    let mut connections = Vec::new();
    assert!(listener.dump(mark, mask, |connection| connections.push(connection)).unwrap());
    connections
}

/// Sends a datagram to a port and, if `replies`, one back. Returns the address of the sender.
fn exchange(port: u16, replies: bool) -> SocketAddr {
    let server = UdpSocket::bind(("127.0.0.1", port)).unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.send_to(b"there", ("127.0.0.1", port)).unwrap();
    if replies {
        let (_, from) = server.recv_from(&mut [0; 16]).unwrap();
        server.send_to(b"back", from).unwrap();
        client.recv(&mut [0; 16]).unwrap();
    }
    client.local_addr().unwrap()
}

/// Establishes a TCP connection and exchanges a few bytes.
fn establish() -> (TcpStream, TcpStream) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    let (mut other, _) = server.accept().unwrap();
    client.write_all(b"there").unwrap();
    other.read_exact(&mut [0; 5]).unwrap();
    (client, other)
}

/// Renders a tuple as conntrack(8) does.
fn text(tuple: &ConnectionTuple) -> String {
    let ConnectionTuple { source, destination, ports: [from, to], .. } = tuple;
    format!("src={source} dst={destination} sport={from} dport={to}")
}

#[test]
fn a_dump_is_what_conntrack_lists() {
    if !tracking("conntrack-dump") {
        return;
    }
    let _streams = [establish(), establish()];
    for port in 4000..4020 {
        exchange(port, port % 2 == 0);
    }
    exchange(5353, true);
    exchange(7007, true);
    let mut listener = listener();
    let connections = all(&mut listener, 0, 0);
    let listed = command("conntrack", "-L -o id");
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), connections.len(), "{listed}");
    for it in &connections {
        let words = [text(&it.original), text(&it.reply), format!("id={}", it.id)];
        let has_all = |line: &&&str| words.iter().all(|word| line.contains(word));
        let line = lines.iter().find(has_all).unwrap_or_else(|| panic!("{it:?} in {listed}"));
        assert!(line.contains(&format!("mark={} ", it.mark)), "{line}");
        assert_eq!(line.contains("zone=7"), it.zones == [7, 7], "{line}");
        assert_eq!(line.contains("[ASSURED]"), it.status.has(Status::ASSURED), "{line}");
        assert_eq!(line.contains("[UNREPLIED]"), !it.status.has(Status::SEEN_REPLY), "{line}");
        if let Some(tcp) = it.tcp {
            assert!(line.contains(tcp.state.name()), "{line}");
        }
    }
    // The kernel selects by mark.
    let marked = all(&mut listener, 0x10, 0x30);
    assert_eq!(marked.len(), 1);
    assert_eq!(marked[0].original.ports[1], 5353);
    assert_eq!(all(&mut listener, 0x20, 0x20), []);
    // Either direction finds the connection, in its zone only.
    let zoned = connections.iter().find(|it| it.zones == [7, 7]).unwrap();
    for tuple in [zoned.original, zoned.reply] {
        let found = listener.look_up(&tuple, 7).unwrap();
        assert_eq!(found.map(|it| it.id), Some(zoned.id));
        assert_eq!(listener.look_up(&tuple, 0).unwrap(), None);
    }
}

#[test]
fn what_becomes_of_a_connection_is_reported() {
    if !tracking("conntrack-events") {
        return;
    }
    let mut listener = listener();
    let (client, other) = establish();
    let port = other.local_addr().unwrap().port();
    let it = wait_for(&mut listener, |event| {
        present(event, port).filter(|it| it.status.has(Status::ASSURED))
    });
    assert_eq!(it.tcp.unwrap().state, TcpState::ESTABLISHED);
    assert_eq!(it.original.ports[0], client.local_addr().unwrap().port());
    command("conntrack", &format!("-D -p tcp --dport {port}"));
    wait_for(&mut listener, |event| is_removed(event, it.id));
    // A mark that a rule sets on the first packet is in the first event.
    exchange(5353, false);
    assert_eq!(wait_for(&mut listener, |event| present(event, 5353)).mark, 0x10);
    command("nft", "add rule inet t marks counter");
    wait_for(&mut listener, |it| matches!(it, ConntrackEvent::Rules(_)).then_some(()));
}

#[test]
fn changes_are_applied_and_reported() {
    if !tracking("conntrack-changes") {
        return;
    }
    let (mut listener, mut writer) = (listener(), ConntrackWriter::open().unwrap());
    let (_client, other) = establish();
    let port = other.local_addr().unwrap().port();
    let it = wait_for(&mut listener, |event| {
        present(event, port).filter(|it| it.status.has(Status::ASSURED))
    });
    assert!(!it.tcp.unwrap().is_liberal());
    assert_eq!(writer.apply([ConntrackChange::touch(&it)]).unwrap(), 0);
    let touched = wait_for(&mut listener, |event| present(event, port));
    assert!(touched.tcp.unwrap().is_liberal());
    assert_eq!((touched.mark, touched.status, touched.id), (it.mark, it.status, it.id));
    // The mark within its mask, and the timeout.
    let change =
        ConntrackChange { mark: Some((0x5, 0xf)), timeout: Some(77), ..ConntrackChange::of(&it) };
    assert_eq!(writer.apply([change]).unwrap(), 0);
    let other_bits = ConntrackChange { mark: Some((0x30, 0xf0)), ..ConntrackChange::of(&it) };
    assert_eq!(writer.apply([other_bits]).unwrap(), 0);
    let found = listener.look_up(&it.original, 0).unwrap().unwrap();
    assert_eq!(found.mark, 0x35);
    assert!((75..=77).contains(&found.timeout.unwrap()), "{found:?}");
    // Status bits that were set stay.
    exchange(5353, true);
    let udp = wait_for(&mut listener, |event| {
        present(event, 5353).filter(|it| it.status.has(Status::SEEN_REPLY))
    });
    let status = Some(udp.status.0 | Status::ASSURED);
    let assured = ConntrackChange { status, ..ConntrackChange::of(&udp) };
    assert_eq!(writer.apply([assured]).unwrap(), 0);
    let found = listener.look_up(&udp.original, 0).unwrap().unwrap();
    assert_eq!(found.status.0, udp.status.0 | Status::ASSURED);
    // A connection of another zone is another one.
    exchange(7007, true);
    let zoned = wait_for(&mut listener, |event| present(event, 7007));
    let elsewhere = ConntrackChange { zone: 0, timeout: Some(5), ..ConntrackChange::of(&zoned) };
    let here = ConntrackChange { timeout: Some(9), ..ConntrackChange::of(&zoned) };
    assert_eq!(writer.apply([elsewhere, here, elsewhere]).unwrap(), 2, "two are refused");
    let found = listener.look_up(&zoned.original, 7).unwrap().unwrap();
    assert!((8..=9).contains(&found.timeout.unwrap()), "{found:?}");
    assert!(writer.remove(&zoned).unwrap());
    wait_for(&mut listener, |event| is_removed(event, zoned.id));
    assert!(!writer.remove(&zoned).unwrap());
}

/// Linux reports no events of connections that began while nobody on the machine listened, or while
/// events were disabled, as here.
#[test]
fn only_connections_that_are_followed_answer_a_touch() {
    if !tracking("conntrack-unheard") {
        return;
    }
    let set_events = |value| std::fs::write("/proc/sys/net/netfilter/nf_conntrack_events", value);
    set_events("0").unwrap();
    exchange(4000, true);
    set_events("1").unwrap();
    let (mut listener, mut writer) = (listener(), ConntrackWriter::open().unwrap());
    exchange(4001, true);
    let connections = all(&mut listener, 0, 0);
    let touch = |port: u16| {
        let it = connections.iter().find(|it| it.original.ports[1] == port).unwrap();
        ConntrackChange::touch(it)
    };
    while listener.hear(100, |_| {}).unwrap() != Heard::Everything {}
    assert_eq!(writer.apply([touch(4000), touch(4001)]).unwrap(), 0);
    let mut ports = Vec::new();
    let heard = listener.hear(100, |event| {
        if let ConntrackEvent::Present(it) = event {
            ports.push(it.original.ports[1]);
        }
    });
    assert_eq!((heard.unwrap(), ports), (Heard::Everything, vec![4001]));
}

#[test]
fn lost_events_are_noticed_and_a_dump_has_them() {
    if !tracking("conntrack-lost") {
        return;
    }
    let mut listener = ConntrackListener::open(EVERYTHING, 4096).unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    for port in 10_000..12_000_u16 {
        client.send_to(b"there", ("127.0.0.1", port)).unwrap();
    }
    assert_eq!(listener.hear(10_000, |_| {}).unwrap(), Heard::Lost);
    assert_eq!(listener.hear(10_000, |_| {}).unwrap(), Heard::Everything);
    let found = all(&mut listener, 0, 0);
    let udp = found.iter().filter(|it| it.original.ports[1] >= 10_000);
    assert!(udp.count() >= 2000, "{} connections", found.len());
}
