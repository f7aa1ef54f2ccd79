//! A program between two veth pairs, of which all CPU time is measured: that of its lane and of the
//! threads that poll its interfaces. All of them are on one CPU.

use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fastlane_tests::upf::Session;
use fastlane_tests::upf::frames::{self, GNB, N3};
use fastlane_tests::{Process, binary};
use serde_json::{Value, json};

use crate::Result;
use crate::device::cpu_time::pin;
use crate::device::measured_program::{MeasuredProgram, cpu_of};
use crate::device::napi_thread::{poll_by_thread, run};
use crate::device::veth_pair::Veth;
use crate::loops::user_plane::Direction;
use crate::rivals::eal::CPU;
use crate::scenarios::pod::station::{SMFS, UPF, establish};
use crate::scenarios::pod::subject::{NEAR, SERVER, Subject};

/// Number of packets that are sent at once; the buffer of a UDP socket has room for them.
const BATCH: u64 = 64;
/// Longest wait until they have passed.
const PATIENCE: Duration = Duration::from_secs(5);
/// CPU of the sender, and of what is behind the far ends.
const OTHER_CPU: usize = 0;
const SMF: &str = SMFS[0];
/// TAP of the UPF without a fast path, and the Ethernet address of Linux there.
const TAP: &str = "users";
const TAP_MAC: &str = "02:00:00:00:06:01";

/// Program, and its mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// macswap on AF_XDP, which returns packets of the users' lengths.
    Macswap,
    /// UPF on AF_XDP.
    Upf,
    /// The same UPF on a UDP socket and a TAP, from and to which Linux routes.
    SocketUpf,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Macswap, Self::Upf, Self::SocketUpf];
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Macswap => "macswap on AF_XDP",
            Self::Upf => "UPF on AF_XDP",
            Self::SocketUpf => "UPF on sockets",
        })
    }
}

/// Running program with its interfaces and sessions, in the network namespace of the caller.
pub struct Path {
    lane: MeasuredProgram, // dropped before the process, which must run to end
    direction: Direction,
    sessions: Vec<Session>,
    /// Threads that poll the interfaces of the program.
    threads: Vec<PathBuf>,
    veths: Vec<Veth>,
    _smf: Option<Process>,
    _program: Process,
    _folder: tempfile::TempDir,
}

impl Path {
    /// Starts a program and stops it again, without packets. The calling thread, which sends, stays
    /// on one CPU afterwards.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses something.
    pub fn new(kind: Kind, direction: Direction) -> Result<Self> {
        ip("link set lo up")?;
        let subject = if kind == Kind::Macswap { Subject::Macswap } else { Subject::Upf };
        let pairs = subject.pairs(1);
        let mut veths = Vec::new();
        let mut threads = Vec::new();
        for pair in pairs {
            veths.push(Veth::new(pair, 64, false)?);
            for (end, cpu) in [(format!("near{pair}"), CPU), (format!("far{pair}"), OTHER_CPU)] {
                // Then the end has a NAPI thread.
                run(&format!("ethtool -K {end} gro on tso off"))?;
                let thread = poll_by_thread(&end, cpu)?;
                threads.extend((cpu == CPU).then_some(thread));
            }
        }
        let folder = tempfile::tempdir()?;
        let names: Vec<String> = veths.iter().map(|veth| veth.name.clone()).collect();
        let (program, smf, sessions) = match subject {
            Subject::Macswap => (start(kind, &names, folder.path())?, None, vec![]),
            Subject::Upf => {
                [UPF, SMF].iter().try_for_each(|it| ip(&format!("address add {it}/32 dev lo")))?;
                let program = match kind {
                    Kind::SocketUpf => start_between_sockets(&names, folder.path())?,
                    _ => start(kind, &names, folder.path())?,
                };
                let (smf, sessions) = establish(UPF, SMF)?;
                (program, Some(smf), sessions)
            }
        };
        if direction == Direction::Downlink {
            veths.reverse();
        }
        let lane = MeasuredProgram::of(program.id())?;
        lane.stop()?;
        pin(OTHER_CPU);
        let (_smf, _program, _folder) = (smf, program, folder);
        Ok(Self { lane, direction, sessions, threads, veths, _smf, _program, _folder })
    }

    /// Returns the CPU time of a packet of this length, in nanoseconds.
    ///
    /// # Errors
    /// Returns an error if a packet does not pass.
    pub fn cost(&mut self, size: usize, time: Duration) -> Result<f64> {
        let frames = self.frames(size);
        self.veths.iter_mut().take(1).for_each(|entry| entry.send_frames(frames.clone()));
        self.batch()?; // warm
        let end = Instant::now() + time;
        let (mut cpu, mut packets) = (0, 0);
        while Instant::now() < end {
            cpu += self.batch()?;
            packets += BATCH;
        }
        Ok(cpu as f64 / packets as f64)
    }

    fn frames(&self, size: usize) -> Vec<Vec<u8>> {
        if self.sessions.is_empty() {
            return vec![frames::downlink_of(NEAR, SERVER, GNB, size)];
        }
        let frame = |session: &Session| match self.direction {
            Direction::Uplink => frames::uplink_of(NEAR, session, SERVER, size),
            Direction::Downlink => frames::downlink_of(NEAR, SERVER, session.ue, size),
        };
        self.sessions.iter().map(frame).collect()
    }

    /// Queues frames while the program is stopped, then lets it run until all have left it. Returns
    /// the CPU time in nanoseconds.
    fn batch(&self) -> Result<u64> {
        let ends = self.veths.first().zip(self.veths.last());
        let (entry, exit) = ends.ok_or("a program without interfaces")?;
        let (cpu, before) = (self.cpu()?, exit.returned()?);
        let arrived = entry.queue(BATCH)?;
        self.lane.resume()?;
        let end = Instant::now() + PATIENCE;
        let mut left = 0;
        while left < BATCH && Instant::now() < end {
            std::thread::yield_now();
            left = exit.returned()? - before;
        }
        self.lane.stop()?;
        match left == BATCH {
            true => Ok(self.cpu()? - cpu),
            false => {
                Err(format!("{BATCH} frames were sent, {arrived} came, {left} left the program")
                    .into())
            }
        }
    }

    fn cpu(&self) -> Result<u64> {
        let mut sum = self.lane.cpu()?;
        for thread in &self.threads {
            sum += cpu_of(thread)?;
        }
        Ok(sum)
    }
}

/// Starts a program on AF_XDP.
fn start(kind: Kind, names: &[String], folder: &std::path::Path) -> Result<Process> {
    let subject = if kind == Kind::Macswap { Subject::Macswap } else { Subject::Upf };
    start_with(subject.name(), subject.configuration(names), folder)
}

/// Starts the UPF on a UDP socket and a TAP, with Linux as the router between it and the data
/// network.
fn start_between_sockets(names: &[String], folder: &std::path::Path) -> Result<Process> {
    let [n3, n6] = names else { return Err("two interfaces".into()) };
    ip(&format!("address add {N3}/24 dev {n3}"))?;
    let mut configuration = Subject::Upf.configuration(names);
    configuration["ports"] = json!({
        "n3": {"driver": {"udp": {"address": format!("{N3}:2152")}}},
        "n6": {"driver": {"tap": {"name": TAP, "mac": TAP_MAC, "addresses": ["10.60.0.1/24"]}}},
    });
    configuration["app"]["interfaces"]["n6"]["next-hop"] = json!(TAP_MAC);
    let program = start_with("upf", configuration, folder)?;
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    ip(&format!("link set {TAP} arp off"))?;
    ip(&format!("route replace 10.45.0.0/16 dev {TAP}"))?;
    ip(&format!("route replace {SERVER}/32 dev {n6}"))?;
    Ok(program)
}

fn start_with(name: &str, mut configuration: Value, folder: &std::path::Path) -> Result<Process> {
    configuration["session"] = json!(folder.join("program.sock"));
    let file = folder.join("program.json");
    std::fs::write(&file, configuration.to_string())?;
    let mut command = Command::new(binary(name));
    command.arg(file).stdin(Stdio::null());
    let process = Process::start(command);
    process.wait_for("running; watch it with");
    Ok(process)
}

fn ip(words: &str) -> Result<()> {
    run(&format!("ip {words}"))
}
