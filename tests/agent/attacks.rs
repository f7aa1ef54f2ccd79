//! Attacks on the agent: it refuses with the reason, neither crashes nor leaks a descriptor, and
//! serves others meanwhile.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use fastlane::agent::records::{self, DESCRIPTORS, RECORD_LIMIT, Request, Response};
use fastlane::agent::seqpacket;
use fastlane_tests::{Agent, Lab, Mechanism, eventually};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags, XdpUmemReg, XdpUmemRegFlags};
use serde_json::{Value, json};

use crate::hostile::{Hostile, SEALS, memory};
use crate::{configuration, traffic};

const MEMORY: u64 = 1 << 20;
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Runs attacks on an agent whose pool has two of four queues and a MiB of memory. Afterwards the
/// agent must have what it had before, and serve an application.
fn attack(story: &str, attacks: impl FnOnce(&Lab, &Agent)) {
    let Some(lab) = Lab::new(story, 4) else { return };
    let mut pools = Agent::pools();
    pools["upf"]["interfaces"]["wire0"]["queues"] = json!(2);
    pools["upf"]["memory-mib"] = json!(16);
    let Some(agent) = Agent::start(&lab, &pools) else { return };
    let before = agent.descriptors();
    attacks(&lab, &agent);
    eventually("the agent releases everything", || {
        agent.descriptors() == before && agent.pinned() == 0
    });
    let macswap = agent.macswap(&lab, configuration(Mechanism::XdpNative));
    macswap.stop();
}

/// Asserts that a request is refused for a reason with these words.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, String>, words: &str) {
    let reason = result.expect_err("a refusal");
    assert!(reason.contains(words), "no `{words}` in {reason}");
}

#[test]
fn records_that_are_none_end_the_connection() {
    attack("agent-garbage", |_, agent| {
        let whole = records::encode(1, &Request::Counts { device: TOKEN.to_owned() });
        let whole = whole.expect("a short record");
        let (mut magic, mut version) = (whole.clone(), whole.clone());
        (magic[3], version[8]) = (0, 77);
        let nested = [&whole[..16], "[".repeat(RECORD_LIMIT - 16).as_bytes()].concat();
        for (bytes, words) in [
            (&b"x"[..], "at least 16 bytes"),
            (&whole[..15], "at least 16 bytes"),
            (&magic, "wrong magic"),
            (&version, "version 77 of the protocol, not 2"),
            (&whole[..whole.len() - 1], "EOF"),
            (&nested, "expected value"),
            (&vec![b'F'; RECORD_LIMIT + 1], "more than 65536 bytes"),
            (&vec![0; 150_000], "more than 65536 bytes"),
        ] {
            let client = Hostile::connect(agent);
            client.send(bytes, &[]);
            match client.receive() {
                Some((0, Response::Refused(reason), _)) => {
                    assert!(reason.contains(words), "no `{words}` in {reason}");
                }
                other => panic!("{words}: {other:?}"),
            }
            assert!(client.receive().is_none(), "the connection ends");
        }
        // An empty record is the end of the connection.
        let client = Hostile::connect(agent);
        client.send(&[], &[]);
        assert!(client.receive().is_none());
    });
}

#[test]
fn a_client_that_takes_no_responses_is_disconnected_and_disturbs_nobody() {
    attack("agent-endless", |_, agent| {
        let flood = Hostile::connect(agent);
        let request = Request::Counts { device: "x".repeat(20_000) };
        let record = records::encode(1, &request).expect("a record");
        let mut sent = 0;
        // Responses to it fill the socket, then requests do.
        while seqpacket::send(&flood.socket, &record, &[], Duration::from_millis(200)).is_ok() {
            sent += 1;
            assert!(sent < 1_000_000, "the agent takes endless requests");
        }
        let mut other = Hostile::connect(agent);
        refused(other.request(&json!({"detach": {"device": TOKEN}}), &[]), "no such device");
        eventually("the flood ends", || {
            let end = seqpacket::send(&flood.socket, &record, &[], Duration::from_millis(10));
            end.is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
        });
    });
}

#[test]
fn a_thousand_connections_are_too_many_for_one_user() {
    attack("agent-thousand", |_, agent| {
        let clients: Vec<Hostile> = (0..1000).map(|_| Hostile::connect(agent)).collect();
        let mut served = 0;
        for mut client in clients.into_iter().rev() {
            match client.request(&json!({"detach": {"device": TOKEN}}), &[]) {
                Err(reason) if reason.contains("no such device") => served += 1,
                other => refused(other, "too many connections"),
            }
        }
        assert_eq!(served, 32);
    });
}

#[test]
fn descriptors_that_nobody_asked_for_are_closed() {
    attack("agent-descriptors", |_, agent| {
        let mut client = Hostile::connect(agent);
        let file = std::fs::File::open("/dev/null").expect("it exists");
        let many: Vec<BorrowedFd<'_>> = (0..DESCRIPTORS).map(|_| file.as_fd()).collect();
        for _ in 0..20 {
            let detach = json!({"detach": {"device": TOKEN}});
            refused(client.request(&detach, &many), "250 descriptors came instead of 0");
        }
        let claim = json!({"claim": {"device": TOKEN, "queue": 0}});
        refused(client.request(&claim, &many[..2]), "2 descriptors came instead of 1");
        refused(client.request(&claim, &[]), "0 descriptors came instead of 1");
        client.send(b"garbage with descriptors", &many);
        assert!(matches!(client.receive(), Some((0, Response::Refused(_), _))));
    });
}

#[test]
fn memory_that_could_change_or_is_somebody_elses_is_refused() {
    attack("agent-memory", |_, agent| {
        let mut client = Hostile::connect(agent);
        let device = client.attach();
        let none = MemfdFlags::empty();
        for missing in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
            let file = memory(MEMORY, none, SEALS.difference(missing));
            refused(client.bind(&device, &[0], &file), "not sealed");
        }
        let file = memory(MEMORY, none, SEALS | SealFlags::WRITE);
        refused(client.bind(&device, &[0], &file), "cannot be written");
        let huge = memory(2 * MEMORY, MemfdFlags::HUGETLB, SEALS);
        refused(client.bind(&device, &[0], &huge), "huge pages");
        let roots = rustix::fs::memfd_create("root", none | MemfdFlags::ALLOW_SEALING);
        let roots = roots.expect("a memfd");
        rustix::fs::fallocate(&roots, rustix::fs::FallocateFlags::empty(), 0, MEMORY).unwrap();
        rustix::fs::fcntl_add_seals(&roots, SEALS).unwrap();
        refused(client.bind(&device, &[0], &roots), "another user");
        let file = std::fs::File::open("/dev/null").expect("it exists");
        refused(client.bind(&device, &[0], &file), "is no memfd");
        let large = memory(17 << 20, none, SEALS);
        refused(client.bind(&device, &[0], &large), "17 MiB, and the pool allows 16 MiB");
        // The control: what was refused before is used with all seals; twice it counts once.
        let sound = memory(9 << 20, none, SEALS);
        for queue in 0..2 {
            client.bind(&device, &[queue], &sound).expect("two queues over one memory");
        }
        let other = memory(8 << 20, none, SEALS);
        refused(client.bind(&device, &[0], &other), "17 MiB, and the pool allows 16 MiB");
    });
}

#[test]
fn queues_and_devices_outside_of_the_pool_are_refused() {
    attack("agent-queues", |_, agent| {
        let mut client = Hostile::connect(agent);
        let (device, file) = (client.attach(), memory(MEMORY, MemfdFlags::empty(), SEALS));
        refused(client.bind(&device, &[0, 2], &file), "queue 2 of `wire0` is not in the pool");
        refused(client.bind(&device, &[u32::MAX], &file), "is not in the pool");
        refused(client.bind(&device, &[0, 0], &file), "queue 0 is bound already");
        refused(client.bind(&device, &[], &file), "1 to 250 queues, not 0");
        refused(client.bind(&device, &vec![0; 251], &file), "1 to 250 queues, not 251");
        refused(client.bind(TOKEN, &[0], &file), "no such device");
        let twice = json!([{"device": device, "queues": [0]}, {"device": device, "queues": [1]}]);
        let lane = json!({"bind-lane": {"frame-size": 2048, "devices": twice}});
        refused(client.request(&lane, &[file.as_fd()]), "a device comes twice");
        for size in [0, 1, 3000, u32::MAX] {
            let devices = json!([{"device": device, "queues": [0]}]);
            let lane = json!({"bind-lane": {"frame-size": size, "devices": devices}});
            let reason = client.request(&lane, &[file.as_fd()]).unwrap_err();
            assert!(reason.contains("frame"), "{reason}");
        }
        let (_, sockets) = client.bind(&device, &[0, 1], &file).expect("the pool has them");
        refused(client.bind(&device, &[1], &file), "queue 1 is bound already");
        let claim = |queue: u32| json!({"claim": {"device": device, "queue": queue}});
        refused(client.request(&claim(2), &[sockets[0].as_fd()]), "is not in the pool");
        refused(client.request(&claim(0), &[file.as_fd()]), "AF_XDP socket");
        client.request(&claim(0), &[sockets[0].as_fd()]).expect("its socket");
        // Devices and tokens of others.
        let mut other = Hostile::connect(agent);
        refused(other.request(&json!({"release": {"device": device}}), &[]), "no such device");
        let driver = json!({"af-xdp": {"interface": "wire0"}});
        let attach = json!({"driver": driver, "steer": [{"udp-port": 2152}], "max-length": 1792});
        for token in [&device, TOKEN, "../../../../etc", ""] {
            let resume = json!({"resume": {"device": token, "words": [1, 1, 0, 1792],
                "attach": attach, "is-released": false}});
            refused(other.request(&resume, &[]), "no device waits for its client");
        }
        refused(other.request(&json!({"attach": attach}), &[]), "has `wire0`; end it first");
        let rings = |size: u32| -> Value {
            let driver = json!({"af-xdp": {"interface": "wire0", "receive-ring": size}});
            json!({"attach": {"driver": driver, "steer": [{"udp-port": 2152}], "max-length": 0}})
        };
        drop(client);
        for size in [0, 63, 1 << 16, u32::MAX] {
            refused(other.request(&rings(size), &[]), "receive-ring of");
        }
    });
}

#[test]
fn a_passed_socket_cannot_be_bound_again() {
    attack("agent-rebind", |lab, agent| {
        let mut client = Hostile::connect(agent);
        let (device, file) = (client.attach(), memory(MEMORY, MemfdFlags::empty(), SEALS));
        let (_, sockets) = client.bind(&device, &[0], &file).expect("the pool has it");
        let links = lab.left.run(&["ip", "-j", "link", "show", "dev", "wire0"]);
        let links: Value = serde_json::from_str(&links).expect("JSON from ip");
        let index = links[0]["ifindex"].as_u64().expect("a number") as u32;
        for queue in 0..4 {
            let address = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_COPY, index, queue);
            assert!(rustix::net::bind(&sockets[0], &address).is_err(), "queue {queue}");
        }
        let register = XdpUmemReg {
            addr: 4096,
            len: MEMORY,
            chunk_size: 2048,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        assert!(rustix::net::sockopt::set_xdp_umem_reg(&sockets[0], register).is_err());
    });
}

#[test]
fn identity_is_that_of_the_process_that_connected() {
    attack("agent-identity", |lab, agent| {
        // Root is in no pool, so a root process is refused, whatever it sends.
        let socket = seqpacket::connect(agent.socket()).expect("everybody may connect");
        let received = seqpacket::receive(&socket, None).expect("a response");
        let received = received.expect("a response");
        let (number, response) = records::decode(&received.bytes).expect("a response");
        assert_eq!(number, 0);
        assert!(matches!(response, Response::Refused(reason)
            if reason.contains("user 0 (group 0) may use no pool")));
        // The thread that connected has ended, and its id may be another process's by now. The
        // connection stays that of its user.
        let mut client = Hostile::connect(agent);
        client.attach();
        traffic_is_not_claimed(lab);
    });
}

/// Asserts that frames stay in Linux as long as no socket is there for them.
fn traffic_is_not_claimed(lab: &Lab) {
    let ping = ["ping", "-c", "1", "-W", "5", "-q", fastlane_tests::LEFT];
    assert!(lab.right.run(&ping).contains(" 1 received"));
}

#[test]
fn applications_are_served_during_all_this() {
    let Some(lab) = Lab::new("agent-during", 1) else { return };
    let Some(agent) = Agent::start(&lab, &Agent::pools()) else { return };
    let macswap = agent.macswap(&lab, configuration(Mechanism::XdpNative));
    std::thread::scope(|scope| {
        let attacks = scope.spawn(|| {
            for _ in 0..200 {
                let client = Hostile::connect(&agent);
                client.send(&[0xff; 4096], &[]);
                let mut other = Hostile::connect(&agent);
                let _ = other.request(&json!({"counts": {"device": TOKEN}}), &[]);
            }
        });
        traffic(&lab, 5000, 5000).assert_intact();
        attacks.join().expect("no panic");
    });
    macswap.stop();
}
