//! Hostile peers, which violate the protocol.
//!
//! None of them may make us access other memory, block, or panic. Their errors are counted, or they
//! are disconnected; and the next peer is served.

mod support;

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fastlane_core::{Burst, Pool, PortId, Queue};
use fastlane_memif::{Link, MemifQueue, Role};
use fastlane_testing::{Peer, Spec};
use support::raw::{
    BUFFER, BUFFERS, CONNECT, Client, Descriptor, HELLO, LENGTH, Memory, RING, Raw, SLOTS,
    add_region, add_ring, doorbell, frame, init, part, record,
};
use support::{End, directory, settings, until};
use tempfile::TempDir;

/// A server under test with its one queue.
struct Server {
    directory: TempDir,
    link: Link,
    queue: MemifQueue,
    pool: Pool,
    burst: Burst,
}

impl Server {
    fn open() -> Self {
        let directory = directory();
        let (link, mut queues) =
            fastlane_memif::open(settings(&directory, Role::Server), PortId(0)).unwrap();
        let (pool, burst) = (Spec { frames: 256, ..Spec::default() }.pool(), Burst::new(32));
        Self { directory, link, queue: queues.remove(0), pool, burst }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("memif.sock")
    }

    fn client(&mut self) -> Client {
        let client = Client::connect(&self.socket());
        until("a connection", || self.link.state().connected);
        assert_eq!(self.receive(), Vec::<usize>::new());
        client
    }

    /// Receives a burst and returns the lengths of its frames. Asserts that no peer can make the
    /// call slow.
    #[track_caller]
    fn receive(&mut self) -> Vec<usize> {
        let began = Instant::now();
        self.queue.receive(&mut self.burst, &mut self.pool);
        let lengths = self.burst.packets().iter().map(|packet| packet.bytes().len()).collect();
        self.burst.clear(&mut self.pool);
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        lengths
    }

    /// Sends frames; returns how many were taken.
    fn transmit(&mut self, count: usize) -> usize {
        for _ in 0..count {
            let packet = self.pool.alloc_packet(100, PortId(0)).unwrap();
            self.burst.push(packet).unwrap();
        }
        let sent = self.queue.transmit(self.burst.packets(), &mut self.pool);
        self.queue.flush(&mut self.pool);
        self.burst.clear(&mut self.pool);
        sent.taken
    }

    /// Asserts that the peer was disconnected, that no frame is lost and that the next peer is
    /// served.
    #[track_caller]
    fn assert_disconnected(&mut self, client: &Client) {
        assert_eq!(client.raw.refusal(), "the rings were broken");
        until("the end of the connection", || !self.link.state().connected);
        self.assert_serves_next();
    }

    #[track_caller]
    fn assert_serves_next(&mut self) {
        let client = self.client();
        client.memory.describe(0, 0, frame(60, BUFFERS as u32));
        client.memory.set_head(0, 1);
        assert_eq!(self.receive(), [60]);
        assert_eq!(client.memory.tail(0), 1);
        drop(client);
        until("the end of the connection", || !self.link.state().connected);
        self.receive();
        assert_eq!(self.pool.missing(), 0);
    }
}

#[test]
fn heads_and_tails_that_jump_end_the_connection() {
    for head in [SLOTS as u16 + 1, 0x8000, 0xffff] {
        let mut server = Server::open();
        let client = server.client();
        client.memory.set_head(0, head);
        assert_eq!(server.receive(), Vec::<usize>::new());
        server.assert_disconnected(&client);
        let client = server.client();
        client.memory.set_head(1, head);
        assert_eq!(server.transmit(8), 0);
        server.assert_disconnected(&client);
    }
}

#[test]
fn frames_outside_of_the_memory_are_counted() {
    let mut server = Server::open();
    let client = server.client();
    let outside = [
        (1, 60, BUFFERS as u32),
        (u16::MAX, 60, 0),
        (0, 60, LENGTH as u32 - 59),
        (0, 60, u32::MAX),
        (0, 1700, LENGTH as u32 - 1000),
        (0, 0, BUFFERS as u32),
    ];
    for (slot, (region, length, offset)) in outside.into_iter().enumerate() {
        client.memory.describe(0, slot, Descriptor { flags: 0, region, length, offset });
    }
    client.memory.describe(0, 6, frame(u32::MAX, 0));
    client.memory.describe(0, 7, frame(60, LENGTH as u32 - 60));
    client.memory.set_head(0, 8);
    assert_eq!(server.receive(), [60]);
    assert_eq!(client.memory.tail(0), 8, "all were given back");
    let statistics = server.queue.statistics();
    assert_eq!((statistics.device_invalid, statistics.receive_length), (6, 1));
    drop(client);
    until("the end of the connection", || !server.link.state().connected);
    server.receive();
    server.assert_serves_next();
}

#[test]
fn chains_are_made_one_or_counted() {
    let mut server = Server::open();
    let client = server.client();
    let memory = &client.memory;
    let at = |slot: usize| (BUFFERS + slot * BUFFER) as u32;
    memory.describe(0, 0, part(100, at(0)));
    memory.describe(0, 1, part(1, at(1)));
    memory.set_head(0, 2);
    assert_eq!(server.receive(), Vec::<usize>::new(), "its end has not arrived");
    memory.describe(0, 2, frame(50, at(2)));
    memory.describe(0, 3, part(1000, at(3))); // too long together
    memory.describe(0, 4, frame(1000, at(4)));
    memory.describe(0, 5, part(60, at(5))); // a part is outside
    memory.describe(0, 6, Descriptor { flags: 0, region: 7, length: 60, offset: at(6) });
    memory.describe(0, 7, frame(64, at(7)));
    memory.set_head(0, 8);
    assert_eq!(server.receive(), [151, 64]);
    assert_eq!(client.memory.tail(0), 8);
    let statistics = server.queue.statistics();
    assert_eq!((statistics.device_invalid, statistics.receive_length), (1, 1));
    // A chain without an end, which fills the ring again and again.
    (0..SLOTS).for_each(|slot| memory.describe(0, slot, part(10, at(slot))));
    for turn in 1..100 {
        memory.set_head(0, memory.tail(0).wrapping_add(SLOTS as u16));
        assert_eq!(server.receive(), Vec::<usize>::new(), "{turn}");
    }
    assert_eq!(server.queue.statistics().device_invalid, 2, "one frame without an end");
    drop(client);
    until("the end of the connection", || !server.link.state().connected);
    until("release of the memory", || server.receive().is_empty() && server.pool.missing() == 0);
}

#[test]
fn buffers_outside_of_the_memory_end_the_connection() {
    for (region, length, offset) in
        [(1, 2048, 0), (0, 2048, LENGTH as u32 - 99), (0, 2048, u32::MAX), (0, 0, 0)]
    {
        let mut server = Server::open();
        let client = server.client();
        client.memory.describe(1, 3, Descriptor { flags: 0, region, length, offset });
        client.memory.set_head(1, SLOTS as u16);
        assert_eq!(server.transmit(8), 3, "those before are sent");
        server.assert_disconnected(&client);
    }
}

#[test]
fn a_tail_that_the_peer_moves_is_overwritten() {
    let mut server = Server::open();
    let client = server.client();
    client.memory.set_head(1, SLOTS as u16);
    assert_eq!(server.transmit(4), 4);
    client.memory.set_tail(1, 40); // the server keeps its own copy
    assert_eq!(server.transmit(4), 4);
    assert_eq!(client.memory.tail(1), 8);
}

/// Sends invalid message sequences, each of which must be refused in the handshake.
#[test]
fn wrong_messages_are_refused() {
    let server = Server::open();
    let memory = Memory::new();
    let (file, eventfd) = (memory.file.as_fd(), doorbell());
    let (reader, _writer) = std::io::pipe().unwrap();
    let zero = std::fs::File::open("/dev/zero").unwrap();
    let region = (add_region(0, LENGTH as u64), Some(file));
    let log = SLOTS.trailing_zeros() as u8;
    let ring = |offset| (add_ring(true, 0, 0, offset, log), Some(eventfd.as_fd()));
    let connect = || (record(CONNECT, &[b"raw"]), None);
    type Messages<'a> = Vec<(Vec<u8>, Option<std::os::fd::BorrowedFd<'a>>)>;
    let cases: Vec<(&str, Messages)> = vec![
        ("before init", vec![connect()]),
        ("unknown type", vec![(record(99, &[]), None)]),
        ("octets", vec![(vec![3; 127], None)]),
        ("octets", vec![(vec![3], None)]),
        ("is not supported", vec![(record(3, &[&[9; 2]]), None)]),
        ("no interface", vec![(record(3, &[&0x200u16.to_ne_bytes(), &[1; 4]]), None)]),
        ("ethernet", vec![(record(3, &[&0x200u16.to_ne_bytes(), &[0; 4], &[1]]), None)]),
        ("init from", vec![(init(), None), (init(), None)]),
        ("hello from", vec![(init(), None), (record(HELLO, &[]), None)]),
        ("without its descriptor", vec![(init(), None), (region.0.clone(), None)]),
        ("no memfd", vec![(init(), None), (region.0.clone(), Some(reader.as_fd()))]),
        ("no memfd", vec![(init(), None), (region.0.clone(), Some(zero.as_fd()))]),
        ("no memfd", vec![(init(), None), (region.0.clone(), Some(eventfd.as_fd()))]),
        ("longer", vec![(init(), None), (add_region(0, LENGTH as u64 + 1), Some(file))]),
        ("MiB", vec![(init(), None), region.clone(), (add_region(1, u64::MAX), Some(file))]),
        ("not the next", vec![(init(), None), (add_region(1, 4096), Some(file))]),
        ("without its eventfd", vec![(init(), None), region.clone(), (ring(0).0, None)]),
        ("no eventfd", vec![(init(), None), region.clone(), (ring(0).0, Some(reader.as_fd()))]),
        ("no eventfd", vec![(init(), None), region.clone(), (ring(0).0, Some(file))]),
        ("second time", vec![(init(), None), region.clone(), ring(0), ring(0)]),
        (
            "no ring",
            vec![
                (init(), None),
                region.clone(),
                (add_ring(true, 1, 0, 0, 1), Some(eventfd.as_fd())),
            ],
        ),
        ("not inside", vec![(init(), None), ring(0), connect()]),
        ("not inside", vec![(init(), None), region.clone(), ring(LENGTH as u32 - 8), connect()]),
        ("not inside", vec![(init(), None), region.clone(), ring(4), connect()]),
        (
            "not inside",
            vec![
                (init(), None),
                region.clone(),
                (add_ring(true, 0, 0, 0, 200), Some(eventfd.as_fd())),
                connect(),
            ],
        ),
        ("cookie", vec![(init(), None), region.clone(), ring(2 * RING as u32), connect()]),
        ("connected from", vec![(init(), None), (record(7, &[]), None)]),
    ];
    for (reason, messages) in cases {
        let raw = Raw::connect(&server.socket());
        assert_eq!(raw.receive().expect("a hello").0, HELLO);
        for (record, file) in &messages {
            raw.send(record, *file);
        }
        let sent = raw.refusal();
        let recorded = server.link.state().last_end.unwrap_or_default();
        let is_named = sent.contains(reason) || recorded.contains(reason);
        assert!(is_named, "{reason}: {sent:?} {recorded:?}");
    }
    let mut server = server;
    server.assert_serves_next();
}

#[test]
fn silent_clients_keep_nobody_out() {
    let mut server = Server::open();
    let silent: Vec<_> = (0..4).map(|_| Raw::connect(&server.socket())).collect();
    server.assert_serves_next();
    let client = server.client();
    let second = Raw::connect(&server.socket());
    assert_eq!(second.receive().expect("a hello").0, HELLO);
    assert!(server.link.state().connected, "it has not taken the first one's place");
    for raw in &silent {
        raw.refusal();
    }
    drop((client, second));
}

/// Writes arbitrary values into the shared memory while the lane works.
#[test]
fn garbage_while_traffic_runs() {
    let mut server = Server::open();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for _ in 0..40 {
        let client = server.client();
        let Client { raw, memory, .. } = client;
        let copy: OwnedFd = memory.file.try_clone().unwrap();
        let seed = next();
        let writer = std::thread::spawn(move || {
            let memory = Memory { file: copy };
            let mut state = seed | 1;
            let mut next = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state
            };
            for round in 0..3000u64 {
                let (ring, slot) = (next() as usize % 2, next() as usize % SLOTS);
                let wild = next().is_multiple_of(4);
                let length = if wild { next() as u32 } else { next() as u32 % 1800 };
                let offset = if wild { next() as u32 } else { next() as u32 % LENGTH as u32 };
                let region = if wild { next() as u16 % 3 } else { 0 };
                memory.describe(
                    ring,
                    slot,
                    Descriptor { flags: next() as u16 & 1, region, length, offset },
                );
                let tail = memory.tail(ring);
                memory.set_head(ring, tail.wrapping_add(next() as u16 % (SLOTS as u16 + 1)));
                if round % 1000 == 999 {
                    memory.set_head(ring, next() as u16);
                }
            }
        });
        while !writer.is_finished() {
            server.receive();
            server.transmit(4);
        }
        writer.join().unwrap();
        drop(raw);
        until("the end of the connection", || !server.link.state().connected);
        until("release of the memory", || {
            server.receive();
            server.pool.missing() == 0
        });
    }
    server.assert_serves_next();
}

/// Fills the counter of a doorbell and makes writes to it block. This may stop the peer's own
/// doorbells, but not the lane.
#[test]
fn a_doorbell_that_blocks_stops_no_lane() {
    let mut server = Server::open();
    let client = server.client();
    client.memory.set_head(1, SLOTS as u16);
    client.memory.put(RING + 4, &[0, 0]); // unmask the doorbell
    let doorbell = &client.doorbells[1];
    assert_eq!(server.transmit(1), 1);
    until("the bell", || rustix::io::read(doorbell, &mut [0; 8]).is_ok());
    rustix::io::write(doorbell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    rustix::fs::fcntl_setfl(doorbell, rustix::fs::OFlags::RDWR).unwrap();
    for _ in 0..10 {
        assert_eq!(server.transmit(1), 1);
    }
    drop(client);
    until("the end of the connection", || !server.link.state().connected);
    server.receive();
    server.assert_serves_next();
}

/// Runs our client against a server that violates the protocol: it disconnects and waits for
/// another.
#[test]
fn a_hostile_server_is_left() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let directory = directory();
    let path = directory.path().join("memif.sock");
    let flags = SocketFlags::CLOEXEC;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&socket, 8).unwrap();
    let mut end = End::open(settings(&directory, Role::Client));
    let wild = [
        record(9, &[]),
        record(HELLO, &[&[0; 32], &[0, 9, 0, 9]]),
        record(7, &[]),
        record(1, &[]),
        vec![1; 60],
    ];
    for record in &wild {
        let raw = Raw { socket: rustix::net::accept(&socket).unwrap() };
        raw.send(record, None);
        raw.refusal();
        assert!(!end.link.state().connected);
    }
    drop(socket);
    std::fs::remove_file(&path).unwrap();
    let mut server = End::open(settings(&directory, Role::Server));
    end.connect();
    server.connect();
    assert!(end.send(&[1; 60]));
    assert_eq!(server.receive(Duration::from_secs(10)), Some(vec![1; 60]));
}
