//! Shared support of this crate's tests.
#![allow(dead_code, reason = "each test uses some of it")]

pub(crate) mod raw;
pub(crate) mod testpmd;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fastlane_core::{Burst, Pool, PortId, Queue};
use fastlane_memif::{Address, Link, MemifQueue, MemifSettings, Role};
use fastlane_testing::{Peer, Spec};
use tempfile::TempDir;

/// Creates a private directory that other users may enter.
pub(crate) fn directory() -> TempDir {
    tempfile::Builder::new().prefix("memif-").tempdir().expect("a directory")
}

/// Returns the address of the socket in the directory.
pub(crate) fn socket(directory: &TempDir) -> Address {
    Address::Path(directory.path().join("memif.sock"))
}

/// Returns the usual settings for that socket.
pub(crate) fn settings(directory: &TempDir, role: Role) -> MemifSettings {
    MemifSettings { ring_size: 256, ..MemifSettings::new(socket(directory), role) }
}

pub(crate) fn other(role: Role) -> Role {
    match role {
        Role::Server => Role::Client,
        Role::Client => Role::Server,
    }
}

/// Waits until the condition holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within 20 seconds");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A port without a lane, used as the peer of the port under test.
pub(crate) struct End {
    pub(crate) link: Link,
    pub(crate) queues: Vec<MemifQueue>,
    pub(crate) pool: Pool,
    burst: Burst,
    received: VecDeque<Vec<u8>>,
    next: usize,
}

impl End {
    pub(crate) fn open(settings: MemifSettings) -> Self {
        Self::with_pool(settings, Spec { frame_size: 4096, frames: 2048, ..Spec::default() }.pool())
    }

    pub(crate) fn with_pool(settings: MemifSettings, pool: Pool) -> Self {
        let (link, queues) = fastlane_memif::open(settings, PortId(9)).expect("a port");
        let (burst, received) = (Burst::new(32), VecDeque::new());
        Self { link, queues, pool, burst, received, next: 0 }
    }

    /// Waits for a peer, and lets the queues take their rings.
    #[track_caller]
    pub(crate) fn connect(&mut self) {
        until("a connection", || self.link.state().connected);
        self.look();
    }

    /// Receives all available frames; returns how many are buffered.
    pub(crate) fn look(&mut self) -> usize {
        for queue in &mut self.queues {
            queue.receive(&mut self.burst, &mut self.pool);
            let packets = self.burst.packets().iter();
            self.received.extend(packets.map(|packet| packet.bytes().to_vec()));
            self.burst.clear(&mut self.pool);
        }
        self.received.len()
    }

    pub(crate) fn close(&mut self) {
        self.queues.iter_mut().for_each(|queue| queue.close(&mut self.pool));
        assert_eq!(self.pool.missing(), 0, "frames of the peer's that did not come back");
    }
}

impl Peer for End {
    fn send(&mut self, frame: &[u8]) -> bool {
        self.next = (self.next + 1) % self.queues.len();
        let queue = &mut self.queues[self.next];
        let Some(mut packet) = self.pool.alloc_packet(frame.len(), PortId(9)) else { return false };
        packet.bytes_mut().copy_from_slice(frame);
        let sent = queue.transmit(std::slice::from_mut(&mut packet), &mut self.pool);
        queue.flush(&mut self.pool);
        self.pool.release(&mut packet);
        sent.packets == 1
    }

    fn receive(&mut self, within: Duration) -> Option<Vec<u8>> {
        let end = Instant::now() + within;
        while self.look() == 0 && Instant::now() < end {
            std::thread::yield_now();
        }
        self.received.pop_front()
    }
}
