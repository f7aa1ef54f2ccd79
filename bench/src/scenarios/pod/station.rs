//! A program in a pod or on the host, of which the lane is measured, with its interfaces.

use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fastlane_tests::cluster::pod::{Pod, Pods};
use fastlane_tests::{Cluster, Process, binary, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::subject::{SESSIONS, Subject, uplink};
use crate::Result;
use crate::device::veth_pair::Veth;
use crate::slices::{Contender, Slice};

/// Longest wait for the frames of a batch, and for a program to stop.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two looks at the frames that have come back.
const STEP: Duration = Duration::from_micros(100);
/// Length of a 64-byte Ethernet frame without the check sequence.
const LENGTH: usize = 60;
/// Address of a UPF on the host for N4, and those of the SMFs of program 1 and 2.
const UPF: &str = "192.0.2.9";
const SMFS: [&str; 2] = ["192.0.2.11", "192.0.2.12"];

/// Site of a program.
#[derive(Clone, Copy, Debug)]
pub enum Site<'a> {
    /// A pod without privilege, whose ports the agent has opened.
    Pod(&'a Pods<'a>),
    /// A process of root on the node.
    Host,
}

impl fmt::Display for Site<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Pod(_) => "pod",
            Self::Host => "host",
        })
    }
}

/// Running program of which one lane is measured. Dropping it ends the program.
struct Measured<'a> {
    process: Pid,
    /// Folder of the lane's thread in `/proc`.
    thread: PathBuf,
    /// Address for N4.
    address: String,
    _on_host: Option<Process>,
    pod: Option<Pod<'a>>,
}

impl<'a> Measured<'a> {
    fn in_pod(cluster: &Cluster, pods: &Pods<'a>, subject: Subject) -> Result<Self> {
        let pod = pods.run(&subject.pod());
        let address = pod.object()["status"]["podIP"].as_str().ok_or("no address")?.to_owned();
        let process = cluster.process(&subject.command_line(&address));
        Self::of(process, address, None, Some(pod))
    }

    fn on_host(cluster: &Cluster, subject: Subject, number: usize) -> Result<Self> {
        let interfaces = subject.pairs(number).into_iter().map(|pair| format!("near{pair}"));
        let mut configuration = subject.configuration(&interfaces.collect::<Vec<_>>());
        configuration["session"] = json!(cluster.file(&format!("host{number}.sock")));
        let file = cluster.file(&format!("host{number}.json"));
        std::fs::write(&file, configuration.to_string())?;
        let mut command = Command::new(binary(subject.name()));
        command.arg(file).stdin(Stdio::null());
        let process = Process::start(command);
        process.wait_for("running; ");
        Self::of(process.id(), UPF.to_owned(), Some(process), None)
    }

    /// Finds the lane in a process or in one that it supervises.
    fn of(
        process: u32,
        address: String,
        on_host: Option<Process>,
        pod: Option<Pod<'a>>,
    ) -> Result<Self> {
        let path = format!("/proc/{process}/task/{process}/children");
        let end = Instant::now() + PATIENCE;
        let (process, thread) = loop {
            let children = std::fs::read_to_string(&path)?;
            let children = children.split_whitespace().filter_map(|id| id.parse().ok());
            let mut found = std::iter::once(process).chain(children);
            match found.find_map(|id| Some((id, lane_of(id)?))) {
                Some(lane) => break lane,
                None if Instant::now() > end => return Err("no lane".into()),
                None => std::thread::sleep(Duration::from_millis(10)), // the program starts
            }
        };
        let process = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or("no process")?;
        Ok(Self { process, thread, address, _on_host: on_host, pod })
    }

    fn resume(&self) -> Result<()> {
        Ok(kill_process(self.process, Signal::CONT)?)
    }

    /// Stops the program and waits until its lane has stopped.
    fn stop(&self) -> Result<()> {
        kill_process(self.process, Signal::STOP)?;
        let end = Instant::now() + PATIENCE;
        loop {
            // The state follows the name in parentheses (proc_pid_stat(5)).
            let stat = std::fs::read_to_string(self.thread.join("stat"))?;
            if stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')) {
                return Ok(());
            }
            if Instant::now() > end {
                return Err("a program does not stop".into());
            }
            std::thread::yield_now();
        }
    }

    /// Returns the CPU time of the lane in nanoseconds. It is exact while the program is stopped.
    fn cpu(&self) -> Result<u64> {
        let text = std::fs::read_to_string(self.thread.join("schedstat"))?;
        Ok(text.split(' ').next().unwrap_or_default().parse()?)
    }
}

impl Drop for Measured<'_> {
    fn drop(&mut self) {
        // A stopped program would not end.
        let _ = self.resume();
        if let Some(pod) = self.pod.take() {
            pod.delete();
        }
    }
}

/// Returns the folder of the lane's thread of a process.
fn lane_of(process: u32) -> Option<PathBuf> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
    let is_lane = |thread: &PathBuf| {
        std::fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.trim() == "lane-0")
    };
    threads.map(|thread| thread.path()).find(is_lane)
}

/// Program with its veth pairs. Frames are sent on the first one and leave by the last one.
pub struct Station<'a> {
    program: Measured<'a>, // dropped before the pairs
    _smf: Option<Process>,
    veths: Vec<Veth>,
}

impl<'a> Station<'a> {
    /// Starts program number 1 or 2, with interfaces of its own, and stops it until its first
    /// slice. The caller is in the network namespace of the node.
    ///
    /// # Errors
    /// Returns an error if it does not forward frames.
    pub fn start(
        cluster: &Cluster,
        subject: Subject,
        site: Site<'a>,
        number: usize,
    ) -> Result<Self> {
        let veths = subject.pairs(number).into_iter().map(|pair| Veth::new(pair, LENGTH, false));
        let mut veths = veths.collect::<Result<Vec<_>>>()?;
        if subject == Subject::Upf {
            // Before the UPF, which listens at one of them.
            for address in [UPF, SMFS[number - 1]] {
                ip(&["address", "replace", &format!("{address}/32"), "dev", "lo"])?;
            }
        }
        let program = match site {
            Site::Pod(pods) => Measured::in_pod(cluster, pods, subject)?,
            Site::Host => Measured::on_host(cluster, subject, number)?,
        };
        let smf = match subject {
            Subject::Macswap => None,
            Subject::Upf => {
                let (smf, frames) = sessions(&program.address, SMFS[number - 1])?;
                veths.iter_mut().take(1).for_each(|veth| veth.send_frames(frames.clone()));
                Some(smf)
            }
        };
        program.stop()?;
        let station = Self { program, _smf: smf, veths };
        station.batch()?;
        Ok(station)
    }

    /// Queues frames while the program is stopped, then lets it run until all have left it.
    fn batch(&self) -> Result<Slice> {
        let ends = self.veths.first().zip(self.veths.last());
        let (entry, exit) = ends.ok_or("a program without interfaces")?;
        let arrived = entry.queue()?;
        let (before, cpu) = (exit.returned()?, self.program.cpu()?);
        self.program.resume()?;
        let end = Instant::now() + PATIENCE;
        let mut left = 0;
        while left < arrived && Instant::now() < end {
            std::thread::sleep(STEP);
            left = exit.returned()? - before;
        }
        self.program.stop()?;
        match left == arrived {
            true => Ok(Slice { cpu: self.program.cpu()? - cpu, packets: arrived }),
            false => Err(format!("{arrived} frames came, {left} left the program").into()),
        }
    }
}

impl Contender for Station<'_> {
    fn run(&mut self, length: Duration) -> Result<Slice> {
        let end = Instant::now() + length;
        let mut sum = Slice::default();
        while Instant::now() < end {
            let batch = self.batch()?;
            sum.cpu += batch.cpu;
            sum.packets += batch.packets;
        }
        Ok(sum)
    }
}

/// Establishes the sessions of a UPF. Returns the SMF, and uplink packets of them.
fn sessions(upf: &str, local: &str) -> Result<(Process, Vec<Vec<u8>>)> {
    let count = SESSIONS.to_string();
    let mut command = Command::new(binary("smf"));
    command.args(["hold", "--local", local, "--upf", upf, "--gnb", "10.30.0.2"]);
    // The QoS flow of the frames.
    command.args(["--sessions", &count, "--qfi", "1"]).stdin(Stdio::null());
    let smf = Process::start(command);
    eventually("all sessions are set up", || smf.stdout().lines().count() == SESSIONS);
    let frames = uplink(&smf.stdout().lines().collect::<Vec<_>>())?;
    Ok((smf, frames))
}

/// Runs `ip` in the namespace of the calling thread.
fn ip(words: &[&str]) -> Result<()> {
    match Command::new("ip").args(words).status()?.success() {
        true => Ok(()),
        false => Err(format!("ip {} fails", words.join(" ")).into()),
    }
}
