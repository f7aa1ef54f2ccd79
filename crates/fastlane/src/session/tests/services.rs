//! Sessions of services that are made for a test: one that waits, one of another user.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use fastlane_table::SharedMemory;
use fastlane_table::counters::Counters;
use fastlane_testing::skip;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;
use serde_json::json;

use super::super::protocol::{Kind, message};
use super::super::transfer::receive;
use super::super::*;
use super::application;
use crate::app_service::SessionResources;
use crate::describe::Description;
use crate::handover::{Handover, Manifest, Offer};
use crate::open::PortManifest;

/// Service whose replies to requests for shards wait for a permission.
struct Waiting {
    permission: Arc<Mutex<mpsc::Receiver<()>>>,
    /// Number of requests that wait or have waited.
    begun: Arc<AtomicUsize>,
}

impl Waiting {
    fn new(permission: mpsc::Receiver<()>) -> Self {
        Self { permission: Arc::new(Mutex::new(permission)), begun: Arc::default() }
    }
}

impl Service for Waiting {
    fn greeting(&mut self) -> Reply {
        Reply { kind: Kind::Handover, body: b"{}".to_vec(), descriptors: vec![] }
    }

    fn reply(
        &mut self,
        _: &Arc<ClientIdentity>,
        kind: Kind,
        body: &[u8],
    ) -> Result<Response, String> {
        let reply = Reply { kind, body: body.to_vec(), descriptors: vec![] };
        if kind != Kind::Shards {
            return Ok(Response::Reply(reply));
        }
        let (permission, begun) = (Arc::clone(&self.permission), Arc::clone(&self.begun));
        Ok(Response::Work(Box::new(move || {
            begun.fetch_add(1, Ordering::Relaxed);
            permission.lock().unwrap().recv().map_err(|error| error.to_string())?;
            Ok(reply)
        })))
    }

    fn disconnected(&mut self, _: &ClientIdentity) {}

    fn sweep(&mut self, _: Instant) -> Option<Instant> {
        None
    }
}

#[test]
fn a_request_that_waits_for_lanes_keeps_no_other_client_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.sock");
    let (permit, permission) = mpsc::channel();
    let session = serve_at(&path, Waiting::new(permission)).unwrap();
    let client = || connect_to_holder(&path, Duration::from_secs(5)).expect("it is let in");
    let (waits, leaves) = (client(), client());
    for stream in [&waits, &leaves] {
        let mut stream = stream;
        stream.write_all(&message(Kind::Shards, b"\"slow\"", 0).unwrap()).unwrap();
    }
    // Others are let in and get replies, and who leaves is released meanwhile.
    drop(leaves);
    let (body, _) = converse(&client(), Kind::Tables, &"quick").unwrap();
    assert_eq!(body, b"\"quick\"");
    permit.send(()).unwrap();
    permit.send(()).unwrap();
    let reply = receive(&waits).map_err(|_| "no reply").unwrap();
    assert_eq!((reply.header.kind, &*reply.body), (Kind::Shards, &b"\"slow\""[..]));
    let (body, _) = converse(&waits, Kind::Tables, &"again").unwrap();
    assert_eq!(body, b"\"again\"");
    drop((permit, session));
}

#[test]
fn clients_that_ask_and_leave_occupy_a_bounded_number_of_threads() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.sock");
    let (permit, permission) = mpsc::channel();
    let service = Waiting::new(permission);
    let begun = Arc::clone(&service.begun);
    let session = serve_at(&path, service).unwrap();
    let client = || connect_to_holder(&path, Duration::from_secs(5)).expect("it is let in");
    let request = message(Kind::Shards, b"\"slow\"", 0).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    for requests in 1..=32 {
        let mut leaves = client();
        leaves.write_all(&request).unwrap();
        while begun.load(Ordering::Relaxed) < requests {
            assert!(Instant::now() < end, "request {requests} is not worked on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let asks = client();
    let refusal = converse(&asks, Kind::Shards, &"slow").unwrap_err().to_string();
    assert!(refusal.contains("still works on 32 requests"), "{refusal}");
    assert_eq!(begun.load(Ordering::Relaxed), 32);
    (0..33).for_each(|_| permit.send(()).unwrap());
    while converse(&asks, Kind::Shards, &"slow").is_err() {
        assert!(Instant::now() < end, "the threads have ended");
    }
    drop((permit, session));
}

/// Service of an application of another user: its counters, and memory as its table.
struct Foreign {
    counters: Arc<OwnedFd>,
    table: Arc<OwnedFd>,
}

impl Service for Foreign {
    fn greeting(&mut self) -> Reply {
        let body = serde_json::to_vec(&application()).unwrap();
        let descriptors = vec![Arc::clone(&self.counters)];
        Reply { kind: Kind::Application, body, descriptors }
    }

    fn reply(&mut self, _: &Arc<ClientIdentity>, kind: Kind, _: &[u8]) -> Result<Response, String> {
        let body = serde_json::to_vec(&TableList::default()).unwrap();
        let descriptors = vec![Arc::clone(&self.table)];
        Ok(Response::Reply(Reply { kind, body, descriptors }))
    }

    fn disconnected(&mut self, _: &ClientIdentity) {}

    fn sweep(&mut self, _: Instant) -> Option<Instant> {
        None
    }
}

/// Serves as `user` with memory of these flags, and sends a request that returns it.
fn ask(user: u32, flags: MemfdFlags, counters: OwnedFd, kind: Kind) -> Result<(), SessionError> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let path = directory.path().join("test.sock");
    let table = memfd_create("foreign", flags | MemfdFlags::ALLOW_SEALING).unwrap();
    let service = Foreign { counters: counters.into(), table: table.into() };
    let theirs = path.clone();
    // The credentials of a thread become those of its listening socket.
    let session = std::thread::spawn(move || {
        let user = Uid::from_raw(user);
        set_thread_res_uid(user, user, user).unwrap();
        serve_at(&theirs, service).unwrap()
    });
    let session = session.join().unwrap();
    let asked = connect(&path).and_then(|client| client.ask::<_, TableList>(kind, &()).map(drop));
    drop(session);
    asked
}

#[test]
fn memory_that_another_user_could_take_away_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return skip("session-foreign", "it needs root");
    }
    let huge = MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let small = MemfdFlags::empty();
    let sealed = || {
        let counters = Counters::create(2, 1).unwrap();
        counters.memory().as_fd().try_clone_to_owned().unwrap()
    };
    for (user, flags) in [(65_534, small), (0, small), (0, huge)] {
        ask(user, flags, sealed(), Kind::Tables)
            .unwrap_or_else(|error| panic!("{user} {flags:?}: {error}"));
    }
    let error = ask(65_534, huge, sealed(), Kind::Tables).unwrap_err();
    assert!(matches!(error, SessionError::ForeignMemory { user: 65_534, .. }), "{error}");
    ask(65_534, huge, sealed(), Kind::Handover).expect("a holder does not map it");
    let open = SharedMemory::create("open", 4096).unwrap();
    let open = open.as_fd().try_clone_to_owned().unwrap();
    let error = ask(0, small, open, Kind::Tables).unwrap_err().to_string();
    assert!(error.contains("counters are not sealed"), "{error}");
}

/// Returns a handover that offers a port, which is this descriptor.
fn offering(port: OwnedFd) -> Handover {
    let manifest: Manifest = serde_json::from_value(json!({
        "release": "1", "program": "test", "configuration": null, "tables": [],
        "ports": (PortManifest::default(), 0), "messages": null, "descriptors": 1,
    }))
    .unwrap();
    Handover::of(Offer { manifest, descriptors: vec![Arc::new(port)] })
}

#[test]
fn the_ports_are_held_only_while_their_holder_is_connected() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.sock");
    let port = memfd_create("port", MemfdFlags::CLOEXEC).unwrap();
    let handover = Arc::new(offering(port));
    let resources =
        SessionResources { handover: Some(Arc::clone(&handover)), ..SessionResources::default() };
    let (description, counters) =
        (Description::new(application()), Counters::create(2, 1).unwrap());
    let reservation = Reservation::new(&path).unwrap();
    let session = Session::serve(reservation, description, &counters, resources).unwrap();
    for _ in 0..2 {
        assert!(!handover.is_held());
        let holder = connect(&path).unwrap();
        holder.ask::<_, Manifest>(Kind::Handover, &HandoverRequest::from(0)).unwrap();
        assert!(handover.is_held());
        drop(holder);
        let end = Instant::now() + Duration::from_secs(20);
        // An end that leaves the ports to a holder that has none would lose frames uncounted.
        while handover.is_held() {
            assert!(Instant::now() < end, "the holder has gone");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    drop(session);
}

#[test]
fn no_duplicate_of_a_port_is_open_once_the_application_ends_and_nobody_holds_it() {
    for (is_asked, has_started, is_left) in
        [(false, true, false), (true, false, false), (true, true, true)]
    {
        let (mut ours, port) = UnixStream::pair().unwrap();
        let handover = offering(port.into());
        if is_asked {
            drop(handover.reply(0).unwrap());
        }
        assert_eq!(handover.leave_ports(has_started), is_left);
        ours.set_nonblocking(true).unwrap();
        let is_closed = ours.read(&mut [0; 1]).is_ok();
        assert_eq!(is_closed, !is_left, "{is_asked} {has_started}");
    }
}
