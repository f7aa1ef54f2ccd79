//! Macswap over memif: the CPU time it costs a device and the round-trip time of a frame.
//!
//! The devices are processes on CPU 1, each a memif server. One memif client in this process, on
//! CPU 0, measures all of them. Only one device runs at a time.

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
use crate::device::application::{Application, ApplicationKind, dpdk_driver};
use crate::device::cpu_time::{pinned, undisturbed};
use crate::rivals::dpdk_loop::{ByHand, Compiled};
use crate::rivals::eal::Eal;
use crate::rivals::macswap_in_c;
use crate::rivals::testpmd::Testpmd;
use crate::slices::{Contender, Effort, Pairs, Slice, pair};

/// Maximum number of frames in flight when CPU time is measured. It is large enough that a device
/// never waits for frames.
const WINDOW: u64 = 512;
/// CPU of the client; devices run on CPU 1.
const CPU: usize = 0;
/// Number of pairs of slices after which the programs are restarted. Where the kernel puts the
/// memory of a start changes its time by 3 ns a packet, so each pair has a start of its own.
const RESTART: usize = 1;

/// Program that swaps the addresses behind a memif socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemifContender {
    /// Fastlane application on native memif.
    Native,
    /// Fastlane application written in C, on native memif.
    NativeInC,
    /// Fastlane application on the memif driver of DPDK.
    OnDpdk,
    /// `dpdk-testpmd --forward-mode=macswap`.
    Testpmd,
    /// The hand-written loop on the memif driver of DPDK, `c/dpdk_macswap.c`.
    ByHand,
}

impl std::fmt::Display for MemifContender {
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

/// Running program that moves packets.
pub(crate) struct RunningProgram {
    program: Program,
    /// Thread that moves the packets.
    thread: u64,
    eal: Eal,
}

impl From<Application> for RunningProgram {
    fn from(application: Application) -> Self {
        let Application { program, thread, .. } = application;
        Self { program, thread, eal: Eal::new() }
    }
}

/// Device under test: a program that serves a memif socket, and the client that sends frames to it.
/// The program is stopped unless it is being measured.
pub struct Device {
    /// Declared before the program so that the client is dropped first.
    client: Client,
    program: Program,
    thread: u64,
    _eal: Eal,
    _sockets: Vec<Socket>,
}

impl Device {
    /// Starts a device for frames of `length` bytes. `idle` is the idle policy of Fastlane
    /// applications.
    ///
    /// # Errors
    /// Returns an error if the device does not start or does not respond.
    pub fn start(
        who: MemifContender,
        length: usize,
        idle: &str,
        compiled: &Compiled,
    ) -> Result<Self> {
        let socket = Socket::new();
        let path = socket.0.display();
        let vdev = format!(
            "net_memif0,role=server,id=0,socket={path},socket-abstract=no,bsize={BUFFER},\
             rsize={LOG2_PLACES}"
        );
        let native = json!({ "memif": { "socket": socket.0, "role": "server" } });
        let ours = |which, driver| {
            let lanes = json!({ "idle": idle });
            Application::start(&which, &driver, &lanes).map(RunningProgram::from)
        };
        let rival = |(program, thread, eal)| RunningProgram { program, thread, eal };
        let program = match who {
            MemifContender::Native => ours(ApplicationKind::Macswap, native)?,
            MemifContender::NativeInC => {
                let compiled = macswap_in_c::Compiled::new()?;
                ours(ApplicationKind::Other(compiled.program()), native)?
            }
            MemifContender::OnDpdk => ours(ApplicationKind::Macswap, dpdk_driver(&vdev))?,
            MemifContender::Testpmd => rival(Testpmd::start(&vdev, 32, 0)?.process()),
            MemifContender::ByHand => rival(ByHand::start(compiled, &vdev, 32, 0)?.process()?),
        };
        Self::attach(program, vec![socket], Frames::alike(length))
    }

    /// Connects to a running program as a device. Frames go to the first of `sockets` and come back
    /// from the last.
    ///
    /// # Errors
    /// Returns an error if the device does not respond.
    pub(crate) fn attach(
        program: RunningProgram,
        sockets: Vec<Socket>,
        frames: Frames,
    ) -> Result<Self> {
        let RunningProgram { mut program, thread, eal } = program;
        let (Some(first), Some(last)) = (sockets.first(), sockets.last()) else {
            return Err("a device without sockets".into());
        };
        let frames = Arc::new(frames);
        let connect = |_: &mut Program| Client::through([&first.0, &last.0], &frames).ok();
        let mut client = program.wait_for("its memif socket", connect)?;
        // DPDK accepts a client before its link is up and does not read frames sent before that.
        let mut trip = || pinned(CPU, || client.trip(Duration::from_millis(100)));
        program.wait_for("the first frame", |_| trip())?;
        program.stop()?;
        // The device gets the client's priority. Without the permission the result is noisier, but
        // still correct.
        let _ = crate::rivals::ffi::set_real_time_of(thread, true);
        Ok(Self { client, program, thread, _eal: eal, _sockets: sockets })
    }

    /// Runs `measure` while the device runs. Returns its result and the CPU time of the device.
    ///
    /// # Errors
    /// Returns an error if the device ends, and the error of `measure`.
    pub fn during<T>(
        &mut self,
        measure: impl FnOnce(&mut Client) -> Result<T>,
    ) -> Result<(T, Duration)> {
        let before = self.program.cpu(self.thread)?;
        self.program.resume()?;
        // If another program took the client's CPU, the device would poll empty rings, which costs
        // CPU time too.
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

/// Contender that records the cost of every turn, to show the spread of the turns.
pub struct Noted<'a> {
    /// The contender that does the work.
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

/// Pairs and the turns of 50 ms that they consist of: ours, then the rival's.
pub type Noting = (Pairs, [Vec<f64>; 2]);

/// Compares the CPU time of two devices for frames of `length` bytes.
///
/// # Errors
/// Returns an error if a program does not start, ends, or loses a frame.
pub fn compare(
    who: [MemifContender; 2],
    length: usize,
    effort: Effort,
    compiled: &Compiled,
    mut progress: impl FnMut(usize),
) -> Result<Noting> {
    let (mut pairs, mut turns) = (Pairs::default(), [Vec::new(), Vec::new()]);
    let mut number = 0;
    while number < effort.pairs {
        // The first one to start may get the better memory, so the order alternates.
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

/// Path of a socket that is removed on drop.
pub(crate) struct Socket(pub(crate) PathBuf);

impl Socket {
    /// Creates a unique path.
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
