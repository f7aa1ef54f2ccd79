//! Shared test support: private network namespaces, veth pairs, a peer that sends and counts.
#![allow(unsafe_code, reason = "system calls without a safe form")]
#![allow(
    unreachable_pub,
    dead_code,
    reason = "each test file is a crate of its own and uses a part"
)]

pub mod fd_passing;
pub mod handover;

use std::time::{Duration, Instant};

use fastlane_af_xdp::{Device, Mode, OpenRequest, OpenedQueue, Settings, longest_frame, open_lane};
use fastlane_core::{Burst, Pool, PortId, Queue};
use fastlane_steer::Rules;
use fastlane_table::SharedMemory;
use fastlane_testing::Peer;
use fastlane_testing::namespace::{self, Wire};

/// Runs `body` on a thread in a new network namespace, which ends with the thread. Threads that it
/// spawns are in the same namespace.
pub fn in_namespace(test: &str, body: impl FnOnce() + Send + 'static) {
    let name = format!("af-xdp/{test}");
    let thread = std::thread::Builder::new().name(test.to_owned()).spawn(move || {
        if namespace::private(&name) {
            body();
        }
    });
    if let Err(panic) = thread.expect("a thread").join() {
        std::panic::resume_unwind(panic);
    }
}

/// Makes mmap(2) of the fill and the completion ring fail with EINVAL in this thread, as Linux
/// before 6.4 does for a bound socket (seccomp(2)).
pub fn map_as_before_linux_6_4() {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let load = |offset: u32| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    let unless = |k: u32, jf: u8| {
        let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        libc::sock_filter { code, jt: 0, jf, k }
    };
    let action = |value: u32| statement(libc::BPF_RET | libc::BPF_K, value);
    // struct seccomp_data has the number of the system call at 0 and, on a little-endian machine,
    // the upper half of its last argument at 60. That half is 1 for both rings (linux/if_xdp.h).
    let mut filter = [
        load(0),
        unless(libc::SYS_mmap as u32, 3),
        load(60),
        unless(1, 1),
        action(libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32),
        action(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its statements outlive the call, and the filter applies to this
    // thread only.
    let result = unsafe {
        let (set, filter) = (libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER);
        libc::prctl(set, filter, &raw const program)
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Returns the index of an interface in this thread's network namespace.
pub fn index_of(interface: &str) -> u32 {
    let name = std::ffi::CString::new(interface).expect("a name");
    // SAFETY: the name is a C string that outlives the call.
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

/// Opens a device that claims every frame.
pub fn device(settings: Settings) -> Device {
    Device::open(settings, &Rules::default(), longest_frame(2048)).expect("a device")
}

/// Opens these queues of a device.
pub fn open(pool: &mut Pool, device: &mut Device, queues: Vec<u32>) -> Vec<OpenedQueue> {
    open_lane(pool, &mut [OpenRequest { device, port: PortId(0), queues }]).expect("queues")
}

/// Opens the peer end of a veth pair.
pub fn wire(interface: &str) -> Wire {
    Wire::open(interface).expect("a raw socket on the interface")
}

/// Returns a frame of the local experimental EtherType (0x88b5) that carries its number.
pub fn frame(number: u32, length: usize) -> Vec<u8> {
    let mut frame = vec![0; length];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Returns an IPv4 UDP frame of 60 bytes whose source port is `port`, without checksums.
pub fn datagram(port: u16) -> Vec<u8> {
    let mut frame = frame(0, 60);
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[16..18].copy_from_slice(&46_u16.to_be_bytes());
    frame[18..34].copy_from_slice(&[0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 77, 192, 0, 2, 1]);
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame[36..42].copy_from_slice(&[0x9c, 0x40, 0, 26, 0, 0]);
    frame
}

/// Returns the number of frames made by [`frame`] or [`datagram`] that the peer received since the
/// last call. Linux sends frames of its own (neighbour discovery, multicast).
pub fn count_new(peer: &mut Wire) -> usize {
    let is_datagram = |frame: &[u8]| frame[12..14] == [8, 0] && frame.get(23) == Some(&17);
    let is_ours = |frame: &Vec<u8>| number(frame).is_some() || is_datagram(frame);
    std::iter::from_fn(|| peer.receive(Duration::ZERO)).filter(is_ours).count()
}

/// Returns the number in a frame made by [`frame`].
pub fn number(frame: &[u8]) -> Option<u32> {
    if frame.get(12..14)? != [0x88, 0xb5] {
        return None;
    }
    frame.get(14..18)?.try_into().ok().map(u32::from_be_bytes)
}

/// Runs one turn of an echo: sends all received frames back. Returns the amount of work done.
pub fn echo(queue: &mut dyn Queue, burst: &mut Burst, pool: &mut Pool) -> usize {
    queue.receive(burst, pool);
    let count = burst.len();
    send_all(queue, burst, pool);
    count + usize::from(queue.flush(pool))
}

/// Sends a whole burst. If the queue has used its quota of frames, waits for sent ones to come
/// back.
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

/// Calls `turn` until `done` returns true or ten seconds pass without progress; returns true if
/// done.
pub fn until(turn: impl FnMut() -> usize, done: impl FnMut() -> bool) -> bool {
    until_idle_for(Duration::from_secs(10), turn, done)
}

/// Calls `turn` until `done` returns true or `limit` passes without progress; returns true if done.
pub fn until_idle_for(
    limit: Duration,
    mut turn: impl FnMut() -> usize,
    mut done: impl FnMut() -> bool,
) -> bool {
    let mut idle_since = Instant::now();
    loop {
        if turn() > 0 {
            idle_since = Instant::now();
        }
        if done() {
            return true;
        }
        if idle_since.elapsed() > limit {
            return false;
        }
    }
}
