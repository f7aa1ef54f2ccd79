use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::{Duration, Instant};

use fastlane_table::counters::{Counters, LaneCounter, PortCounter};
use fastlane_testing::skip;

use super::protocol::{HEADER, HELLO, Header, Kind, VERSION, hello, message};
use super::*;
use crate::describe::{Application, LaneFacts, PortFacts};

mod services;

/// Session of an application with two lanes and one port, in a directory of its own.
struct Bench {
    _directory: tempfile::TempDir,
    path: PathBuf,
    counters: Counters,
    session: Option<Session>,
}

fn application() -> Application {
    let lane = |cpu| LaneFacts { cpu: Some(cpu), idle: "adaptive".to_owned() };
    let port = PortFacts {
        name: "wire".to_owned(),
        driver: "af-xdp".to_owned(),
        mode: "native copy".to_owned(),
        interface: Some("eth0".to_owned()),
        queues: 2,
        kernel: None,
        switches: 0,
    };
    Application {
        name: "test".to_owned(),
        version: "1.2.3".to_owned(),
        pid: std::process::id(),
        lanes: vec![lane(2), lane(3)],
        ports: vec![port],
    }
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/test.sock");
        let counters = Counters::create(2, 1).unwrap();
        let session = Some(Session::open(&path, &application(), &counters).unwrap());
        Self { _directory: directory, path, counters, session }
    }

    fn stream(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }
}

/// Starts a peer that plays the application and sends `bytes` as its only reply.
fn impostor(bytes: Vec<u8>) -> (tempfile::TempDir, PathBuf, std::thread::JoinHandle<()>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read_exact(&mut [0; HELLO]);
        let _ = stream.write_all(&bytes);
    });
    (directory, path, thread)
}

fn answer_to(bytes: &[u8], bench: &Bench) -> String {
    let mut stream = bench.stream();
    stream.write_all(bytes).unwrap();
    let mut header = [0; HEADER];
    stream.read_exact(&mut header).unwrap();
    let header = Header::read(&header).unwrap();
    assert_eq!(header.kind, Kind::Refusal);
    let mut message = vec![0; header.length];
    stream.read_exact(&mut message).unwrap();
    String::from_utf8(message).unwrap()
}

/// Returns the reason of the refusal of a request.
fn refused(client: &Client, kind: Kind, request: &[u8]) -> String {
    client.converse(kind, request).unwrap_err().to_string()
}

#[test]
fn a_client_sees_the_application_and_its_counters_until_it_ends() {
    let mut bench = Bench::new();
    bench.counters.port(1, 0).add(PortCounter::ReceivedPackets, 41);
    let client = connect(&bench.path).unwrap();
    assert_eq!(client.application, application());
    bench.counters.port(1, 0).add(PortCounter::ReceivedPackets, 1);
    assert_eq!(client.counters.port(1, 0).load(PortCounter::ReceivedPackets), 42);
    assert!(client.is_alive());
    assert_eq!(client.cpu_seconds(0), None, "the lane does not run");
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    bench.counters.lane(0).publish(LaneCounter::Thread, thread as u64);
    assert!(client.cpu_seconds(0).unwrap() > 0.0);
    drop(bench.session.take());
    assert!(!client.is_alive());
    assert!(!bench.path.exists(), "the socket is removed");
    let error = connect(&bench.path).unwrap_err();
    assert!(matches!(error, SessionError::Absent { .. }), "{error}");
    bench.counters.lane(0).publish(LaneCounter::Turn, 7);
    assert_eq!(client.counters.lane(0).load(LaneCounter::Turn), 7, "still readable");
}

#[test]
fn the_counters_that_a_client_gets_cannot_be_written() {
    let bench = Bench::new();
    let client = connect(&bench.path).unwrap();
    let memory = client.counters.memory();
    assert!(!memory.is_writable());
    let flags = rustix::fs::fcntl_getfl(memory.as_fd()).unwrap();
    assert!(!flags.intersects(rustix::fs::OFlags::RDWR | rustix::fs::OFlags::WRONLY));
    assert!(rustix::io::pwrite(memory.as_fd(), b"x", 0).is_err());
    client.counters.lane(0).publish(LaneCounter::Turn, 9);
    assert_eq!(bench.counters.lane(0).load(LaneCounter::Turn), 0);
}

#[test]
fn many_clients_are_served_and_too_many_are_told() {
    let bench = Bench::new();
    let clients: Vec<_> = (0..32).map(|_| connect(&bench.path).unwrap()).collect();
    let error = connect(&bench.path).unwrap_err();
    assert!(error.to_string().contains("too many clients"), "{error}");
    assert!(clients.iter().all(Client::is_alive));
    drop(clients);
    let end = Instant::now() + Duration::from_secs(20);
    while connect(&bench.path).is_err() {
        assert!(Instant::now() < end, "a place is free again when a client has gone");
    }
}

#[test]
fn another_version_is_refused_on_both_sides() {
    let bench = Bench::new();
    let said = answer_to(&hello(VERSION + 1, "x"), &bench);
    assert!(said.contains("version 4") && said.contains("version 3"), "{said}");
    let error = client::connect_as(&bench.path, VERSION + 1).unwrap_err();
    assert!(matches!(error, SessionError::Version { theirs: VERSION, .. }), "{error}");

    let mut other = message(Kind::Application, b"{}", 0).unwrap();
    other[8] = 77;
    let (_directory, path, thread) = impostor(other);
    let error = connect(&path).unwrap_err();
    assert!(matches!(error, SessionError::Version { theirs: 77, ours: VERSION, .. }), "{error}");
    thread.join().unwrap();
}

#[test]
fn hostile_clients_hurt_nobody() {
    let bench = Bench::new();
    assert!(answer_to(&[0; HELLO], &bench).contains("wrong magic"));
    assert!(answer_to(b"GET /metrics HTTP/1.1\r\n\r\n", &bench).contains("wrong magic"));
    drop(bench.stream()); // says nothing and goes
    bench.stream().write_all(&hello(VERSION, "")[..7]).unwrap(); // goes in the middle of a word
    bench.stream().write_all(&hello(VERSION, "")).unwrap(); // goes before its answer

    let mut talker = bench.stream();
    talker.write_all(&[&hello(VERSION, "")[..], b"and more"].concat()).unwrap();
    let mut bytes = vec![];
    let _ = talker.read_to_end(&mut bytes); // ended by the application, maybe by a reset
    assert!(bytes.len() > HEADER);

    for (kind, body, reason) in [
        (Kind::Application, &b"{}"[..], "not a request"),
        (Kind::Capture, b"{}", "cannot be read"),
        (Kind::Capture, &[b'['; 1 << 17], "cannot be read"),
        (Kind::Capture, &[b'['; (1 << 18) + 1], "are accepted"),
        (Kind::Write, b"{\"tables\":[\"x\"]}", "no table `x`"),
        (Kind::Write, b"{\"tables\":7}", "cannot be read"),
        (Kind::Write, b"{\"tables\":[\"x\",\"y\",\"x\"]}", "named twice"),
        (Kind::Rules, b"{\"port\":\"wire\",\"rules\":[{\"udp-prt\":1}]}", "unknown field"),
        (Kind::Rules, b"{\"port\":\"wire\",\"rules\":[]}", "cannot be replaced"),
        (Kind::Messages, b"{}", "has no messages"),
    ] {
        let client = connect(&bench.path).unwrap();
        let said = refused(&client, kind, &message(kind, body, 0).unwrap());
        assert!(said.contains(reason), "{said}");
    }
    let mut slow = bench.stream();
    slow.write_all(&hello(VERSION, "")).unwrap();
    let begun = message(Kind::Capture, &[b'['; 99], 0).unwrap();
    slow.write_all(&begun[..50]).unwrap();
    let mut bytes = vec![];
    let _ = slow.read_to_end(&mut bytes); // given up after a second

    let mut silent = bench.stream();
    let client = connect(&bench.path).unwrap(); // not held up by the silent one
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0, "given up after a second");
    assert!(client.is_alive(), "a silent client that has its answer stays");
}

#[test]
fn hostile_applications_are_refused() {
    let reason = |bytes: Vec<u8>| {
        let (_directory, path, thread) = impostor(bytes);
        let error = connect(&path).unwrap_err().to_string();
        thread.join().unwrap();
        error
    };
    let welcome = |body: &str| message(Kind::Application, body.as_bytes(), 0).unwrap();
    let facts = serde_json::to_string(&application()).unwrap();
    let mut huge = welcome("");
    huge[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut unknown = welcome("");
    unknown[12] = 99;
    let boasting = message(Kind::Application, facts.as_bytes(), 3).unwrap();
    for (bytes, expected) in [
        (vec![], "without a reply"),
        (vec![0; HEADER], "wrong magic"),
        (welcome("")[..HEADER - 1].to_vec(), "without a reply"),
        (huge, "at most"),
        (unknown, "unknown kind"),
        (welcome("{"), "description"),
        (welcome(&facts), "no counters"),
        (boasting, "3 descriptors were announced and 0 received"),
        (message(Kind::Capture, b"{}", 0).unwrap(), "sent no description"),
        (message(Kind::Refusal, b"not \x1b[31mtoday", 0).unwrap(), "refused: not  [31mtoday"),
    ] {
        let reason = reason(bytes);
        assert!(reason.contains(expected), "{reason}");
    }
}

#[test]
fn facts_that_do_not_fit_are_refused() {
    let bench = Bench::new();
    let attempt = |name: &str, application: &Application| {
        let path = bench.path.with_file_name(name);
        let _session = Session::open(&path, application, &bench.counters).unwrap();
        connect(&path).unwrap_err().to_string()
    };
    let mut facts = application();
    facts.lanes.pop();
    assert!(attempt("few.sock", &facts).contains("lanes and ports"));
    let mut facts = application();
    facts.ports[0].name = "\x1b[2J".to_owned();
    assert!(attempt("escape.sock", &facts).contains("control character"));
    facts.ports[0].name = "x".repeat(2 << 20);
    let path = bench.path.with_file_name("long.sock");
    let error = Session::open(&path, &facts, &bench.counters).unwrap_err();
    assert!(matches!(error, SessionError::TooLong { .. }), "{error}");
}

#[test]
fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
    let bench = Bench::new();
    let error = Session::open(&bench.path, &application(), &bench.counters).unwrap_err();
    let expected = format!("process {} listens there", std::process::id());
    assert!(error.to_string().contains(&expected), "{error}");
    assert!(connect(&bench.path).unwrap().is_alive(), "the first one is unharmed");

    let path = bench.path.with_file_name("dead.sock");
    drop(UnixListener::bind(&path).unwrap());
    let session = Session::open(&path, &application(), &bench.counters).unwrap();
    connect(&path).unwrap();

    // A successor's socket is not removed by the one before it.
    std::fs::remove_file(&path).unwrap();
    let successor = Session::open(&path, &application(), &bench.counters).unwrap();
    drop(session);
    connect(&path).unwrap();
    drop(successor);
    assert!(!path.exists());

    std::fs::write(&path, "a file").unwrap();
    let error = Session::open(&path, &application(), &bench.counters).unwrap_err();
    assert!(matches!(error, SessionError::NotASocket { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"a file");
}

#[test]
fn starters_of_one_name_do_not_rob_each_other() {
    let bench = Bench::new();
    let path = bench.path.with_file_name("race.sock");
    drop(UnixListener::bind(&path).unwrap());
    let open = || Session::open(&path, &application(), &bench.counters);
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    connect(&path).unwrap();
}

#[test]
fn a_path_that_cannot_be_is_named() {
    let bench = Bench::new();
    let below = bench.path.with_file_name("file/test.sock");
    std::fs::write(below.parent().unwrap(), "").unwrap();
    let error = Session::open(&below, &application(), &bench.counters).unwrap_err();
    assert!(matches!(error, SessionError::Directory { .. }), "{error}");
    let long = bench.path.with_file_name("x".repeat(200));
    let error = Session::open(&long, &application(), &bench.counters).unwrap_err();
    assert!(matches!(error, SessionError::Bind { .. }), "{error}");
    assert!(error.to_string().contains(&long.display().to_string()), "{error}");
}

const OTHER_USER: &str = "FASTLANE_TEST_SESSION";

#[test]
fn another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return skip("another_user_is_refused", "needs root, to become another user");
    }
    let bench = Bench::new();
    // Open the way to the socket, so that only the check of the peer stands in it.
    for (path, mode) in bench.path.ancestors().take(3).zip([0o666, 0o755, 0o755]) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    // A copy, since the directory of the tests may be closed to others.
    let program = bench.path.with_file_name("tests");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut client = std::process::Command::new(&program);
    client.args(["session::tests::attach_as_another_user", "--exact", "--ignored", "--nocapture"]);
    let output = client.uid(65534).env(OTHER_USER, &bench.path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
}

#[test]
#[ignore = "run by another_user_is_refused as another user"]
fn attach_as_another_user() {
    let path = std::env::var_os(OTHER_USER).expect("set by another_user_is_refused");
    let error = connect(Path::new(&path)).unwrap_err();
    assert!(error.to_string().contains("only user 0 and root may connect"), "{error}");
}
