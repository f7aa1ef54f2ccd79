//! A client that says and writes what no client should.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

pub(crate) const SLOTS: usize = 64;
const HEADER: usize = 128;
pub(crate) const RING: usize = HEADER + 16 * SLOTS;
/// Where the buffers begin: two for each of the slots of two rings.
pub(crate) const BUFFERS: usize = 4096;
pub(crate) const BUFFER: usize = 2048;
pub(crate) const LENGTH: usize = BUFFERS + 2 * SLOTS * BUFFER;
const COOKIE: u32 = 0x3e3_1f20;

/// The words of the protocol.
pub(crate) const HELLO: u16 = 2;
pub(crate) const INIT: u16 = 3;
pub(crate) const ADD_REGION: u16 = 4;
pub(crate) const ADD_RING: u16 = 5;
pub(crate) const CONNECT: u16 = 6;
pub(crate) const CONNECTED: u16 = 7;
pub(crate) const DISCONNECT: u16 = 8;

/// A connected socket.
pub(crate) struct Raw {
    pub(crate) socket: OwnedFd,
}

/// A record: the type, then these octets.
pub(crate) fn record(kind: u16, parts: &[&[u8]]) -> Vec<u8> {
    let mut record = kind.to_ne_bytes().to_vec();
    parts.iter().for_each(|part| record.extend_from_slice(part));
    record.resize(128, 0);
    record
}

pub(crate) fn init() -> Vec<u8> {
    record(INIT, &[&0x200u16.to_ne_bytes(), &[0; 5]])
}

pub(crate) fn add_region(index: u16, size: u64) -> Vec<u8> {
    record(ADD_REGION, &[&index.to_ne_bytes(), &size.to_ne_bytes()])
}

pub(crate) fn add_ring(
    to_server: bool,
    index: u16,
    region: u16,
    offset: u32,
    slots: u8,
) -> Vec<u8> {
    let flags = u16::from(to_server).to_ne_bytes();
    let (index, region) = (index.to_ne_bytes(), region.to_ne_bytes());
    record(ADD_RING, &[&flags, &index, &region, &offset.to_ne_bytes(), &[slots]])
}

impl Raw {
    pub(crate) fn connect(socket: &Path) -> Self {
        let address = SocketAddrUnix::new(socket).unwrap();
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        );
        let socket = socket.unwrap();
        rustix::net::connect(&socket, &address).unwrap();
        Self { socket }
    }

    /// False when nobody listens any more.
    pub(crate) fn send(&self, record: &[u8], file: Option<BorrowedFd<'_>>) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = file.map(|file| [file]);
        if let Some(files) = &files {
            control.push(SendAncillaryMessage::ScmRights(files));
        }
        let parts = [IoSlice::new(record)];
        rustix::net::sendmsg(&self.socket, &parts, &mut control, SendFlags::NOSIGNAL).is_ok()
    }

    /// The type and the octets of what the server says within two seconds; `None` when it has hung
    /// up, or says nothing.
    pub(crate) fn hear(&self) -> Option<(u16, Vec<u8>)> {
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            let mut record = vec![0; 128];
            let mut control = RecvAncillaryBuffer::default();
            let mut parts = [IoSliceMut::new(&mut record)];
            let flags = RecvFlags::DONTWAIT;
            match rustix::net::recvmsg(&self.socket, &mut parts, &mut control, flags) {
                Ok(received) if received.bytes == 128 => {
                    return Some((u16::from_ne_bytes([record[0], record[1]]), record));
                }
                Ok(_) => return None,
                Err(rustix::io::Errno::AGAIN) => std::thread::sleep(Duration::from_micros(200)),
                Err(_) => return None,
            }
        }
        None
    }

    /// Whether the server hangs up.
    #[track_caller]
    pub(crate) fn is_refused(&self) -> String {
        let mut reason = String::new();
        while let Some((kind, record)) = self.hear() {
            assert_ne!(kind, CONNECTED, "it was accepted");
            if kind == DISCONNECT {
                reason = record[6..]
                    .iter()
                    .take_while(|octet| **octet != 0)
                    .map(|octet| char::from(*octet))
                    .collect();
            }
        }
        reason
    }
}

/// Memory as a client has it.
pub(crate) struct Memory {
    pub(crate) file: OwnedFd,
}

impl Memory {
    /// With two rings of [`SLOTS`] at the start, marked and empty.
    pub(crate) fn new() -> Self {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("memif-raw", flags).unwrap();
        rustix::fs::ftruncate(&file, LENGTH as u64).unwrap();
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        let memory = Self { file };
        for ring in 0..2 {
            memory.put(ring * RING, &COOKIE.to_ne_bytes());
            for slot in 0..SLOTS {
                let offset = BUFFERS + (ring * SLOTS + slot) * BUFFER;
                memory.describe(ring, slot, 0, 0, BUFFER as u32, offset as u32);
            }
        }
        memory
    }

    pub(crate) fn put(&self, offset: usize, octets: &[u8]) {
        rustix::io::pwrite(&self.file, octets, offset as u64).unwrap();
    }

    pub(crate) fn word(&self, offset: usize) -> u16 {
        let mut octets = [0; 2];
        rustix::io::pread(&self.file, &mut octets, offset as u64).unwrap();
        u16::from_ne_bytes(octets)
    }

    pub(crate) fn describe(
        &self,
        ring: usize,
        slot: usize,
        flags: u16,
        region: u16,
        length: u32,
        offset: u32,
    ) {
        let mut descriptor = Vec::new();
        descriptor.extend(flags.to_ne_bytes());
        descriptor.extend(region.to_ne_bytes());
        descriptor.extend(length.to_ne_bytes());
        descriptor.extend(offset.to_ne_bytes());
        self.put(ring * RING + HEADER + 16 * (slot % SLOTS), &descriptor);
    }

    pub(crate) fn set_head(&self, ring: usize, head: u16) {
        self.put(ring * RING + 6, &head.to_ne_bytes());
    }

    pub(crate) fn set_tail(&self, ring: usize, tail: u16) {
        self.put(ring * RING + 64, &tail.to_ne_bytes());
    }

    pub(crate) fn tail(&self, ring: usize) -> u16 {
        self.word(ring * RING + 64)
    }
}

pub(crate) fn bell() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

/// A client that has connected as it should.
pub(crate) struct Client {
    pub(crate) raw: Raw,
    pub(crate) memory: Memory,
    pub(crate) bells: [OwnedFd; 2],
}

impl Client {
    #[track_caller]
    pub(crate) fn connect(socket: &Path) -> Self {
        let raw = Raw::connect(socket);
        let (memory, bells) = (Memory::new(), [bell(), bell()]);
        assert_eq!(raw.hear().expect("a hello").0, HELLO);
        let log = SLOTS.trailing_zeros() as u8;
        raw.send(&init(), None);
        raw.send(&add_region(0, LENGTH as u64), Some(memory.file.as_fd()));
        raw.send(&add_ring(true, 0, 0, 0, log), Some(bells[0].as_fd()));
        raw.send(&add_ring(false, 0, 0, RING as u32, log), Some(bells[1].as_fd()));
        raw.send(&record(CONNECT, &[b"raw"]), None);
        let answers: Vec<_> = (0..5).filter_map(|_| Some(raw.hear()?.0)).collect();
        assert_eq!(answers, [1, 1, 1, 1, CONNECTED]);
        Self { raw, memory, bells }
    }
}
