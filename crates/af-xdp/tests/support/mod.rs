//! What the tests share: private network namespaces, veth pairs, a peer that sends and counts.
#![allow(
    unreachable_pub,
    dead_code,
    reason = "each test file is a crate of its own and uses a part"
)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use fastlane_af_xdp::{Device, Mode, Opened, Request, Settings, longest_frame, open_lane};
use fastlane_core::{Burst, Pool, PortId, Queue};
use fastlane_steer::Rules;
use fastlane_table::SharedMemory;

/// Runs `body` on a thread in a network namespace of its own, which ends with it. Threads that it
/// spawns are in the same namespace.
pub fn in_namespace(test: &str, body: impl FnOnce() + Send + 'static) {
    let thread =
        std::thread::Builder::new().name(test.to_owned()).spawn(move || -> io::Result<()> {
            unshare()?;
            body();
            Ok(())
        });
    match thread.expect("a thread").join() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => fastlane_testing::skip(test, &format!("no network namespace: {error}")),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Moves this thread into a new network namespace.
pub fn unshare() -> io::Result<()> {
    // SAFETY: unshare touches no memory; only this thread changes its namespace.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Runs `ip` with these words in this thread's network namespace.
pub fn ip(words: &str) {
    let output = Command::new("ip").args(words.split_whitespace()).output().expect("ip is there");
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes a pair of veth devices, both up, that say nothing by themselves.
pub fn pair(ours: &str, peer: &str, queues: u32) {
    ip(&format!(
        "link add {ours} numrxqueues {queues} numtxqueues {queues} type veth peer name {peer} \
         numrxqueues {queues} numtxqueues {queues}"
    ));
    for name in [ours, peer] {
        ip(&format!("link set {name} addrgenmode none"));
        ip(&format!("link set {name} arp off up"));
    }
}

/// The index of an interface in this thread's network namespace.
pub fn index_of(interface: &str) -> u32 {
    let name = std::ffi::CString::new(interface).expect("a name");
    // SAFETY: the name is a string that ends with NUL and lives through the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    assert!(index > 0, "no interface {interface}");
    index
}

pub fn settings(interface: &str, mode: Mode) -> Settings {
    Settings { mode, ..Settings::new(interface, index_of(interface)) }
}

pub fn pool(frames: usize) -> Pool {
    let memory = SharedMemory::create("af-xdp-test", frames * 2048).expect("memory");
    Pool::new(memory, 2048, 192).expect("a pool")
}

/// A device on which every frame is fast.
pub fn device(settings: Settings) -> Device {
    Device::open(settings, &Rules::default(), longest_frame(2048)).expect("a device")
}

/// All these queues of a device.
pub fn open(pool: &mut Pool, device: &mut Device, queues: Vec<u32>) -> Vec<Opened> {
    open_lane(pool, &mut [Request { device, port: PortId(0), queues }]).expect("queues")
}

/// The far end of a veth pair.
pub struct Peer(OwnedFd);

impl Peer {
    pub fn new(interface: &str) -> Self {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: socket(2) takes integers only.
        let number = unsafe { libc::socket(libc::AF_PACKET, kind, protocol.into()) };
        assert!(number >= 0, "{}", io::Error::last_os_error());
        // SAFETY: the kernel just made this descriptor for us, and nobody else has it.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        for (level, option, value) in [
            (libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1_i32),
            (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 64 << 20),
        ] {
            // SAFETY: the pointer and the length describe `value`, which lives through the call.
            let result = unsafe {
                libc::setsockopt(
                    number,
                    level,
                    option,
                    (&raw const value).cast(),
                    size_of::<i32>() as u32,
                )
            };
            assert!(result == 0, "{}", io::Error::last_os_error());
        }
        // SAFETY: sockaddr_ll is made of integers, for which zero is a value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index_of(interface) as i32;
        // SAFETY: the pointer and the length describe `address`, which lives through the call.
        let result = unsafe {
            libc::bind(number, (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as u32)
        };
        assert!(result == 0, "{}", io::Error::last_os_error());
        Self(socket)
    }

    /// Sends a frame; false when the kernel does not take it.
    pub fn send(&self, frame: &[u8]) -> bool {
        // SAFETY: the pointer and the length describe `frame`, which is only read.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        sent == frame.len() as isize
    }

    /// Waits for a frame, at most so long.
    pub fn wait(&self, within: Duration) {
        let timeout = rustix::event::Timespec::try_from(within).expect("a short time");
        let events = rustix::event::PollFlags::IN;
        let mut descriptors = [rustix::event::PollFd::new(&self.0, events)];
        let _ = rustix::event::poll(&mut descriptors, Some(&timeout));
    }

    /// A frame that has arrived.
    pub fn receive(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 4096];
        // SAFETY: the pointer and the length describe `frame`, which is ours.
        let length =
            unsafe { libc::recv(self.0.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
        frame.truncate(usize::try_from(length).ok()?);
        Some(frame)
    }
}

/// A frame of the local experimental ethertype that carries its number.
pub fn frame(number: u32, length: usize) -> Vec<u8> {
    let mut frame = vec![0; length];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

/// An IPv4 UDP frame of 60 bytes whose source port is `port`, without checksums.
pub fn datagram(port: u16) -> Vec<u8> {
    let mut frame = frame(0, 60);
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[16..18].copy_from_slice(&46_u16.to_be_bytes());
    frame[18..34].copy_from_slice(&[0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 77, 192, 0, 2, 1]);
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame[36..42].copy_from_slice(&[0x9c, 0x40, 0, 26, 0, 0]);
    frame
}

/// How many frames have come to a peer since it was last asked.
pub fn count_new(peer: &Peer) -> usize {
    std::iter::from_fn(|| peer.receive()).count()
}

/// The number in a frame that [`frame`] made.
pub fn number(frame: &[u8]) -> Option<u32> {
    if frame.get(12..14)? != [0x88, 0xb5] {
        return None;
    }
    frame.get(14..18)?.try_into().ok().map(u32::from_be_bytes)
}

/// One turn of an echo: what has come goes back. Returns how much there was to do.
pub fn echo(queue: &mut dyn Queue, burst: &mut Burst, pool: &mut Pool) -> usize {
    queue.receive(burst, pool);
    let count = burst.len();
    send_all(queue, burst, pool);
    count + usize::from(queue.flush(pool))
}

/// Sends a burst whole: when the queue has lent its share of the pool, its frames soon come back.
pub fn send_all(queue: &mut dyn Queue, burst: &mut Burst, pool: &mut Pool) {
    let start = Instant::now();
    let mut taken = 0;
    loop {
        let sent = queue.transmit(&mut burst.packets()[taken..], pool);
        assert_eq!(sent.taken, sent.packets, "all can be sent");
        taken += sent.taken;
        if taken == burst.len() {
            return burst.clear(pool);
        }
        queue.flush(pool);
        assert!(start.elapsed() < Duration::from_secs(5), "the queue takes no more");
    }
}

/// Turns until `done` or a second without progress; whether it was done.
pub fn until(mut turn: impl FnMut() -> usize, mut done: impl FnMut() -> bool) -> bool {
    let mut idle_since = Instant::now();
    loop {
        if turn() > 0 {
            idle_since = Instant::now();
        }
        if done() {
            return true;
        }
        if idle_since.elapsed() > Duration::from_secs(1) {
            return false;
        }
    }
}
