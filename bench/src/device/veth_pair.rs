//! A veth pair in a network namespace of the benchmark: one end is the device under test, the other
//! sends and receives the frames.

use std::cell::Cell;
use std::process::Command;
use std::time::{Duration, Instant};

use fastlane_kernel::Interface;
use rustix::net::{RecvFlags, SendFlags};

use crate::Result;
use crate::device::load::Sender;
use crate::device::memory_lane;
use crate::rivals::ffi::{self, RawSocket};

/// Number of frames queued at once. They fit the rings of 2048 slots with some margin.
pub const BATCH: u64 = 1900;

/// Runs `body` on a thread in a new network namespace that ends with the thread. Threads and
/// processes that `body` starts are in the namespace too.
///
/// # Errors
/// Returns the error of `body`, or an error if the kernel gives no namespace: it requires
/// CAP_SYS_ADMIN.
pub fn in_namespace<T: Send>(body: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            ffi::unshare_network().map_err(|error| {
                format!("no network namespace ({error}): it takes CAP_SYS_ADMIN")
            })?;
            body()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Veth pair with both ends up and without addresses. Only this benchmark sends on it.
pub struct Veth {
    /// Name of the device under test.
    pub name: String,
    far: String,
    socket: RawSocket,
    /// Frames that are sent in turn.
    frames: Vec<Vec<u8>>,
    next: Cell<usize>,
}

impl Veth {
    /// Creates pair number `number` for frames of `length` bytes without check sequence. `hears`
    /// enables [`receive`](Self::receive).
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub fn new(number: usize, length: usize, hears: bool) -> Result<Self> {
        let (name, far) = (format!("near{number}"), format!("far{number}"));
        ip(&format!(
            "link add {name} address 02:00:00:00:00:01 type veth \
             peer name {far} address 02:00:00:00:00:02"
        ))?;
        for end in [&name, &far] {
            ip(&format!("link set {end} addrgenmode none"))?;
            ip(&format!("link set {end} arp off up"))?;
        }
        let socket = RawSocket::open(Interface::query(&far)?.index, hears)?;
        Ok(Self { name, far, socket, frames: vec![memory_lane::frame(length)], next: Cell::new(0) })
    }

    /// Replaces the frames that are sent.
    pub fn send_frames(&mut self, frames: Vec<Vec<u8>>) {
        self.frames = frames;
    }

    /// Takes a returned frame. Returns false if none has come back.
    pub fn receive(&self) -> bool {
        let mut frame = [0; 64];
        rustix::net::recv(&self.socket, &mut frame, RecvFlags::TRUNC).is_ok()
    }

    /// Sends frames, at most [`BATCH`], and waits until all have reached the device under test.
    /// Returns the number that arrived.
    ///
    /// # Errors
    /// Returns an error if the interface counters cannot be read.
    pub fn queue(&self, count: u64) -> Result<u64> {
        let before = received(&self.name)?;
        for _ in 0..count {
            self.send();
        }
        let end = Instant::now() + Duration::from_millis(20);
        loop {
            let arrived = received(&self.name)? - before;
            if arrived >= count || Instant::now() > end {
                return Ok(arrived);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Returns the number of frames that have come back since the pair was created.
    ///
    /// # Errors
    /// Returns an error if the interface counters cannot be read.
    pub fn returned(&self) -> Result<u64> {
        received(&self.far)
    }
}

impl Sender for Veth {
    fn send(&self) -> bool {
        let next = self.next.get();
        self.next.set(if next + 1 < self.frames.len() { next + 1 } else { 0 });
        let frame = self.frames.get(next).map_or(&[][..], Vec::as_slice);
        rustix::net::send(&self.socket, frame, SendFlags::empty()).is_ok()
    }
}

/// Linux side of a TAP device that another program created.
pub struct TapSide {
    socket: RawSocket,
    frame: Vec<u8>,
}

impl TapSide {
    /// Opens the device `name` for frames of `length` bytes.
    ///
    /// # Errors
    /// Returns an error if the device does not exist.
    pub fn new(name: &str, length: usize) -> Result<Self> {
        let socket = RawSocket::open(Interface::query(name)?.index, false)?;
        Ok(Self { socket, frame: memory_lane::frame(length) })
    }
}

impl Sender for TapSide {
    fn send(&self) -> bool {
        rustix::net::send(&self.socket, &self.frame, SendFlags::empty()).is_ok()
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        let _ = ip(&format!("link delete {}", self.name));
    }
}

/// Runs `ip` in the namespace of the calling thread.
fn ip(words: &str) -> Result<()> {
    let output = Command::new("ip").args(words.split_whitespace()).output();
    let output = output.map_err(|error| format!("ip: {error}; install the package `iproute2`"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {words}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// Returns the number of frames that an interface has received.
fn received(interface: &str) -> Result<u64> {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    let line = table.lines().find_map(|line| line.trim_start().strip_prefix(interface));
    let counts = line.and_then(|line| line.strip_prefix(':'));
    let packets = counts.and_then(|counts| counts.split_whitespace().nth(1));
    let packets = packets.ok_or_else(|| format!("{interface} is not in /proc/net/dev"))?;
    Ok(packets.parse()?)
}
