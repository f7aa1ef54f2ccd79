//! Sockets: addresses, roles, order of start and settings.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use fastlane_core::{PortId, Queue};
use fastlane_memif::{Address, Error, MemifSettings, Role};
use fastlane_testing::Peer;
use support::{End, directory, settings, until};

fn refusal(settings: MemifSettings) -> Error {
    fastlane_memif::open(settings, PortId(0)).map(|_| ()).expect_err("it cannot be opened")
}

fn exchange(one: &mut End, other: &mut End) {
    one.connect();
    other.connect();
    assert!(one.send(&[1; 60]) && other.send(&[2; 61]));
    assert_eq!(other.receive(Duration::from_secs(10)), Some(vec![1; 60]));
    assert_eq!(one.receive(Duration::from_secs(10)), Some(vec![2; 61]));
}

#[test]
fn either_side_starts_first_and_either_comes_again() {
    let directory = directory();
    for first in [Role::Server, Role::Client] {
        let mut one = End::open(settings(&directory, first));
        std::thread::sleep(Duration::from_millis(30));
        for round in 1..4 {
            let mut other = End::open(settings(&directory, support::other(first)));
            exchange(&mut one, &mut other);
            assert_eq!(one.link.state().connections, round);
            drop(other);
            until("the end of it", || !one.link.state().connected);
            one.look();
        }
        let last = one.link.state().last_end.expect("a reason");
        assert!(last.contains("the port is closed"), "{last}");
    }
    assert!(!directory.path().join("memif.sock").exists(), "the socket file is removed");
}

#[test]
fn what_a_peer_leaves_unread_is_counted_by_a_queue_that_is_closed_next() {
    let directory = directory();
    for role in [Role::Server, Role::Client] {
        let mut one = End::open(settings(&directory, role));
        let mut other = End::open(settings(&directory, support::other(role)));
        one.connect();
        other.connect();
        for _ in 0..5 {
            assert!(one.send(&[1; 60]));
        }
        drop(other);
        until("the end of it", || !one.link.state().connected);
        one.close();
        assert_eq!(one.queues[0].statistics().transmit_error, 5);
    }
}

#[test]
fn a_queue_that_is_disconnected_after_its_link_has_nothing_left_to_close() {
    let directory = directory();
    let mut one = End::open(settings(&directory, Role::Server));
    let mut other = End::open(settings(&directory, Role::Client));
    one.connect();
    other.connect();
    for _ in 0..5 {
        assert!(one.send(&[1; 60]));
    }
    let End { link, mut queues, mut pool, .. } = one;
    drop(link);
    queues[0].disconnect();
    assert_eq!(queues[0].statistics().transmit_error, 5, "what the peer has not read");
    queues[0].close(&mut pool);
    assert_eq!(queues[0].statistics().transmit_error, 5);
}

#[test]
fn what_comes_after_the_end_of_arrivals_is_left_and_counted_by_the_sender() {
    let directory = directory();
    let mut client = End::open(settings(&directory, Role::Client));
    let mut server = End::open(settings(&directory, Role::Server));
    client.connect();
    server.connect();
    (0..5).for_each(|_| assert!(client.send(&[1; 60])));
    server.queues[0].end_arrivals();
    (0..7).for_each(|_| assert!(client.send(&[2; 60])));
    for _ in 0..5 {
        assert_eq!(server.receive(Duration::ZERO).as_deref(), Some(&[1; 60][..]));
    }
    assert_eq!(server.receive(Duration::ZERO), None);
    assert!(server.send(&[3; 60]), "it still sends what it has received");
    server.close();
    drop(server);
    support::until("the end of the connection", || !client.link.state().connected);
    assert_eq!(client.receive(Duration::ZERO).as_deref(), Some(&[3; 60][..]));
    client.look();
    assert_eq!(client.queues[0].statistics().transmit_error, 7);
    client.close();
}

#[test]
fn a_socket_that_nobody_listens_at_is_taken_over() {
    let directory = directory();
    let path = directory.path().join("memif.sock");
    drop(UnixListener::bind(&path).unwrap()); // which leaves the file behind
    let mut server = End::open(settings(&directory, Role::Server));
    let mut client = End::open(settings(&directory, Role::Client));
    exchange(&mut server, &mut client);
}

#[test]
fn what_is_in_the_way_is_named() {
    let directory = directory();
    let server = End::open(settings(&directory, Role::Server));
    let error = refusal(settings(&directory, Role::Server));
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    drop(server);
    let path = directory.path().join("memif.sock");
    let other_kind = UnixListener::bind(&path).unwrap();
    let error = refusal(settings(&directory, Role::Server));
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    drop(other_kind);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "mine").unwrap();
    let error = refusal(settings(&directory, Role::Server));
    assert!(matches!(error, Error::NoSocket { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    let at = |path: std::path::PathBuf| MemifSettings::new(Address::Path(path), Role::Server);
    let error = refusal(at(directory.path().join("no/memif.sock")));
    assert!(matches!(error, Error::NoDirectory { .. }), "{error}");
    assert!(error.to_string().contains(&format!("mkdir -p {}/no", directory.path().display())));
    let error = refusal(at(directory.path().join("n".repeat(120))));
    assert!(matches!(error, Error::NameTooLong { .. }), "{error}");
}

/// Uses, for root who may write anywhere, a directory of a file system that accepts no files.
#[test]
fn a_directory_that_may_not_be_written_is_named() {
    let directory = directory();
    let permissions = std::fs::Permissions::from_mode(0o555);
    std::fs::set_permissions(directory.path(), permissions).unwrap();
    let path = match rustix::process::geteuid().is_root() {
        true => "/sys/memif.sock".into(),
        false => directory.path().join("memif.sock"),
    };
    let error = refusal(MemifSettings::new(Address::Path(path), Role::Server));
    assert!(matches!(error, Error::NotPermitted { .. }), "{error}");
}

#[test]
fn an_abstract_name_needs_no_file() {
    let socket: Address = format!("@memif-test-{}", std::process::id()).parse().unwrap();
    let open = |role| End::open(MemifSettings::new(socket.clone(), role));
    let (mut server, mut client) = (open(Role::Server), open(Role::Client));
    exchange(&mut server, &mut client);
    let error = refusal(MemifSettings::new(socket.clone(), Role::Server));
    assert!(matches!(error, Error::InUse { .. }), "{error}");
}

#[test]
fn each_end_may_want_something_else() {
    let directory = directory();
    let end = |role, queues, ring_size, buffer_size| {
        let settings = settings(&directory, role);
        End::open(MemifSettings { queues, ring_size, buffer_size, ..settings })
    };
    for (server_queues, client_queues) in [(1, 4), (4, 1), (3, 2)] {
        let mut server = end(Role::Server, server_queues, 2, 64 * 1000);
        let mut client = end(Role::Client, client_queues, 512, 1024);
        server.connect();
        client.connect();
        let rings = server_queues.min(client_queues);
        for state in [server.link.state(), client.link.state()] {
            assert_eq!((state.receive_rings, state.transmit_rings), (rings, rings));
            assert_eq!(state.ring_size, 512);
        }
        for end in [&mut server, &mut client] {
            // A queue without a ring counts its packets as errors.
            for mut queue in end.queues.split_off(rings) {
                let mut packet = end.pool.alloc_packet(60, PortId(9)).expect("a frame");
                let sent = queue.transmit(std::slice::from_mut(&mut packet), &mut end.pool);
                assert_eq!((sent.taken, queue.statistics().transmit_error), (1, 1));
            }
        }
        for _ in 0..rings {
            exchange(&mut server, &mut client);
        }
        server.close();
        client.close();
    }
}

#[test]
fn a_wrong_secret_or_interface_number_is_refused() {
    let directory = directory();
    let with = |role, id, secret: Option<&str>| {
        let secret = secret.map(str::to_owned);
        MemifSettings { id, secret, ..settings(&directory, role) }
    };
    let mut server = End::open(with(Role::Server, 7, Some("swordfish")));
    for (id, secret, reason) in [
        (7, None, "secret"),
        (7, Some("swordfis"), "secret"),
        (7, Some("swordfishs"), "secret"),
        (8, Some("swordfish"), "no interface 8"),
    ] {
        let client = End::open(with(Role::Client, id, secret));
        until("a refusal", || client.link.state().last_end.is_some_and(|end| end.contains(reason)));
        assert!(!client.link.state().connected);
    }
    let mut client = End::open(with(Role::Client, 7, Some("swordfish")));
    exchange(&mut server, &mut client);
}

#[test]
fn settings_that_cannot_be_are_refused_by_name() {
    let directory = directory();
    let usual = || settings(&directory, Role::Client);
    let cases = [
        (MemifSettings { queues: 0, ..usual() }, "0 queues"),
        (MemifSettings { queues: 257, ..usual() }, "257 queues"),
        (MemifSettings { ring_size: 1000, ..usual() }, "1000 slots"),
        (MemifSettings { ring_size: 1 << 15, ..usual() }, "32768 slots"),
        (MemifSettings { buffer_size: 100, ..usual() }, "100 octets"),
        (MemifSettings { queues: 256, ring_size: 16384, ..usual() }, "MiB"),
        (MemifSettings { secret: Some("s".repeat(25)), ..usual() }, "secret"),
        (MemifSettings { name: "n".repeat(32), ..usual() }, "name"),
    ];
    for (settings, named) in cases {
        let error = refusal(settings).to_string();
        assert!(error.contains(named) && error.contains("; "), "{error}");
    }
}
