//! A client made of raw sockets and memory, which may violate the protocol.

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
/// Offset of the buffers, one for each slot of the two rings.
pub(crate) const BUFFERS: usize = 4096;
pub(crate) const BUFFER: usize = 2048;
pub(crate) const LENGTH: usize = BUFFERS + 2 * SLOTS * BUFFER;
const COOKIE: u32 = 0x3e3_1f20;

/// Message types of the protocol.
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

/// Returns a record of this type with these octets.
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

    /// Sends a record; returns false if the peer has closed the socket.
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

    /// Returns the type and the octets of the next record, or `None` if the server closes the
    /// socket or sends nothing for ten seconds.
    pub(crate) fn receive(&self) -> Option<(u16, Vec<u8>)> {
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

    /// Waits until the server disconnects; returns its reason.
    #[track_caller]
    pub(crate) fn refusal(&self) -> String {
        let mut reason = String::new();
        while let Some((kind, record)) = self.receive() {
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

/// The words of a descriptor, valid or not.
#[derive(Clone, Copy)]
pub(crate) struct Descriptor {
    pub(crate) flags: u16,
    pub(crate) region: u16,
    pub(crate) length: u32,
    pub(crate) offset: u32,
}

/// Returns the descriptor of a whole frame in region 0.
pub(crate) fn frame(length: u32, offset: u32) -> Descriptor {
    Descriptor { flags: 0, region: 0, length, offset }
}

/// Returns the descriptor of a frame in region 0 that continues in the next slot.
pub(crate) fn part(length: u32, offset: u32) -> Descriptor {
    Descriptor { flags: 1, ..frame(length, offset) }
}

/// Memory as a client has it.
pub(crate) struct Memory {
    pub(crate) file: OwnedFd,
}

impl Memory {
    /// Creates the memory with two empty rings of [`SLOTS`] at its start.
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
                memory.describe(ring, slot, frame(BUFFER as u32, offset as u32));
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

    /// Writes the descriptor of a slot.
    pub(crate) fn describe(&self, ring: usize, slot: usize, descriptor: Descriptor) {
        let Descriptor { flags, region, length, offset } = descriptor;
        let mut octets = Vec::new();
        octets.extend(flags.to_ne_bytes());
        octets.extend(region.to_ne_bytes());
        octets.extend(length.to_ne_bytes());
        octets.extend(offset.to_ne_bytes());
        self.put(ring * RING + HEADER + 16 * (slot % SLOTS), &octets);
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

pub(crate) fn doorbell() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

/// A client that has completed the handshake correctly.
pub(crate) struct Client {
    pub(crate) raw: Raw,
    pub(crate) memory: Memory,
    pub(crate) doorbells: [OwnedFd; 2],
}

impl Client {
    #[track_caller]
    pub(crate) fn connect(socket: &Path) -> Self {
        let raw = Raw::connect(socket);
        let (memory, doorbells) = (Memory::new(), [doorbell(), doorbell()]);
        assert_eq!(raw.receive().expect("a hello").0, HELLO);
        let log = SLOTS.trailing_zeros() as u8;
        raw.send(&init(), None);
        raw.send(&add_region(0, LENGTH as u64), Some(memory.file.as_fd()));
        raw.send(&add_ring(true, 0, 0, 0, log), Some(doorbells[0].as_fd()));
        raw.send(&add_ring(false, 0, 0, RING as u32, log), Some(doorbells[1].as_fd()));
        raw.send(&record(CONNECT, &[b"raw"]), None);
        let answers: Vec<_> = (0..5).filter_map(|_| Some(raw.receive()?.0)).collect();
        assert_eq!(answers, [1, 1, 1, 1, CONNECTED]);
        Self { raw, memory, doorbells }
    }
}
