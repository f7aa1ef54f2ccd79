//! Macswap over memif: what it costs a device, and how long a frame is on its way to it and back.
//!
//! The devices are processes on CPU 1, each a memif server; the one instrument that measures all of
//! them is a memif client in this process, on CPU 0. Only one device runs at a time.

mod handshake;
mod rings;
mod static_client;
mod windowed_client;

pub use rings::{BUFFER, Frames, LOG2_PLACES};
pub use static_client::{Came, Listed};
pub use windowed_client::{Client, Trips};

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fastlane_measure::program::Program;
use serde_json::json;

use crate::Result;
use crate::device::application::{Application, Which};
use crate::device::cpu_time::{pinned, undisturbed};
use crate::rivals::dpdk_loop::{ByHand, Compiled};
use crate::rivals::eal::Eal;
use crate::rivals::macswap_in_c;
use crate::rivals::testpmd::Testpmd;
use crate::slices::{Contender, Effort, Pairs, Slice, pair};

/// Frames on their way at most when what counts is CPU time: a device never waits for them.
const WINDOW: u64 = 512;
/// Where the client runs: away from the devices.
const CPU: usize = 0;
/// Pairs of slices after which the programs start anew.
const RESTART: usize = 8;

/// Who swaps the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// An application of ours on our memif.
    Native,
    /// As [`Native`](Self::Native), the application written in C.
    NativeInC,
    /// An application of ours on the memif of DPDK.
    OnDpdk,
    /// `dpdk-testpmd --forward-mode=macswap`.
    Testpmd,
    /// The loop by hand on the memif of DPDK, `c/dpdk_macswap.c`.
    ByHand,
}

impl std::fmt::Display for Who {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Native => "Fastlane, native memif",
            Self::NativeInC => "Fastlane, native memif, in C",
            Self::OnDpdk => "Fastlane, memif of DPDK",
            Self::Testpmd => "testpmd",
            Self::ByHand => "loop by hand on DPDK",
        })
    }
}

/// A device under test: a program that serves a memif socket, stopped unless it is measured, and
/// the client that sends frames to it.
pub struct Device {
    /// Before the program: it goes first.
    client: Client,
    program: Program,
    thread: u64,
    _eal: Eal,
    _sockets: Vec<Socket>,
}

impl Device {
    /// Starts one, for frames of `length` bytes, with the idle policy `idle` if it is ours.
    ///
    /// # Errors
    /// When it does not start, or does not answer.
    pub fn start(who: Who, length: usize, idle: &str, compiled: &Compiled) -> Result<Self> {
        let socket = Socket::new();
        let path = socket.0.display();
        let vdev = format!(
            "net_memif0,role=server,id=0,socket={path},socket-abstract=no,bsize={BUFFER},\
             rsize={LOG2_PLACES}"
        );
        let native = json!({ "memif": { "socket": socket.0, "role": "server" } });
        let ours = |which, driver| {
            let lanes = json!({ "idle": idle });
            let Application { program, thread, .. } = Application::start(&which, &driver, &lanes)?;
            Ok::<_, crate::Error>((program, thread, Eal::new()))
        };
        let (program, thread, eal) = match who {
            Who::Native => ours(Which::Macswap, native)?,
            Who::NativeInC => {
                let compiled = macswap_in_c::Compiled::new()?;
                ours(Which::Other(compiled.program()), native)?
            }
            Who::OnDpdk => {
                ours(Which::Macswap, crate::scenarios::dpdk::virtual_devices::driver(&vdev))?
            }
            Who::Testpmd => Testpmd::start(&vdev, 32, 0)?.process(),
            Who::ByHand => ByHand::start(compiled, &vdev, 32, 0)?.process()?,
        };
        Self::attach((program, thread, eal), vec![socket], Frames::alike(length))
    }

    /// The device that a program is, of which `thread` moves the packets: from the first of its
    /// sockets to the last.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) fn attach(
        (mut program, thread, eal): (Program, u64, Eal),
        sockets: Vec<Socket>,
        frames: Frames,
    ) -> Result<Self> {
        let (Some(first), Some(last)) = (sockets.first(), sockets.last()) else {
            return Err("a device without sockets".into());
        };
        let frames = Arc::new(frames);
        let connect = |_: &mut Program| Client::through([&first.0, &last.0], &frames).ok();
        let mut client = program.wait_for("its memif socket", connect)?;
        // DPDK answers a client before its link is up; what comes earlier is not read.
        let mut trip = || pinned(CPU, || client.trip(Duration::from_millis(100)));
        program.wait_for("the first frame", |_| trip())?;
        program.stop()?;
        // As the client; without the right to it the result is noisier, but not wrong.
        let _ = crate::rivals::ffi::set_real_time_of(thread, true);
        Ok(Self { client, program, thread, _eal: eal, _sockets: sockets })
    }

    /// Runs `measure` while the device runs; returns its result and the CPU time of the device.
    ///
    /// # Errors
    /// When the device ends, and that of `measure`.
    pub fn during<T>(
        &mut self,
        measure: impl FnOnce(&mut Client) -> Result<T>,
    ) -> Result<(T, Duration)> {
        let before = self.program.cpu(self.thread)?;
        self.program.resume()?;
        // While others had the CPU of the client, the device would look in vain, which costs too.
        let result = pinned(CPU, || undisturbed(|| measure(&mut self.client)));
        self.program.stop()?;
        let cpu = self.program.cpu(self.thread)? - before;
        Ok((result?, Duration::from_nanos(cpu)))
    }
}

impl Contender for Device {
    fn run(&mut self, length: Duration) -> Result<Slice> {
        let (packets, cpu) = self.during(|client| client.closed(WINDOW, length))?;
        Ok(Slice { cpu: cpu.as_nanos() as u64, packets })
    }
}

/// A contender of which every turn is noted, to see how the turns are spread.
pub struct Noted<'a> {
    /// Who it is.
    pub contender: &'a mut dyn Contender,
    /// Nanoseconds per packet in each turn.
    pub turns: &'a mut Vec<f64>,
}

impl Contender for Noted<'_> {
    fn run(&mut self, length: Duration) -> Result<Slice> {
        let slice = self.contender.run(length)?;
        self.turns.push(slice.cpu as f64 / slice.packets.max(1) as f64);
        Ok(slice)
    }
}

/// Pairs, and the turns of 50 ms that they are made of: ours, then the rival's.
pub type Noting = (Pairs, [Vec<f64>; 2]);

/// Compares the CPU time of two devices for frames of `length` bytes.
///
/// # Errors
/// When a program does not start, ends, or loses a frame.
pub fn compare(
    who: [Who; 2],
    length: usize,
    effort: Effort,
    compiled: &Compiled,
    mut progress: impl FnMut(usize),
) -> Result<Noting> {
    let (mut pairs, mut turns) = (Pairs::default(), [Vec::new(), Vec::new()]);
    let mut number = 0;
    while number < effort.pairs {
        // The first to start may get the better memory: it is not always the same.
        let start = |who| Device::start(who, length, "busy", compiled);
        let swapped = number / RESTART % 2 == 1;
        let early = swapped.then(|| start(who[1])).transpose()?;
        let mut ours = start(who[0])?;
        let mut rival = early.map_or_else(|| start(who[1]), Ok)?;
        ours.run(effort.slice / 10)?;
        rival.run(effort.slice / 10)?;
        let [of_ours, of_rival] = &mut turns;
        let mut ours = Noted { contender: &mut ours, turns: of_ours };
        let mut rival = Noted { contender: &mut rival, turns: of_rival };
        for _ in 0..RESTART.min(effort.pairs - number) {
            progress(number);
            pair(&mut pairs, effort.slice, &mut ours, &mut rival)?;
            number += 1;
        }
    }
    Ok((pairs, turns))
}

/// The path of a socket that is removed in the end.
pub(crate) struct Socket(pub(crate) PathBuf);

impl Socket {
    /// A path that nobody else has.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fl-bench-{}-{number}.memif", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
