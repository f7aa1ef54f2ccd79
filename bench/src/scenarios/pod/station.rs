//! A program in a pod or on the host, of which the lane is measured, with its interfaces.

use std::fmt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fastlane_tests::cluster::pod::{Pod, Pods};
use fastlane_tests::upf::Session;
use fastlane_tests::{Cluster, Process, binary, eventually};
use serde_json::json;

use super::subject::{SESSIONS, Subject, uplink};
use crate::Result;
use crate::device::measured_program::MeasuredProgram;
use crate::device::veth_pair::{BATCH, Veth};
use crate::slices::{Contender, Slice};

/// Longest wait for the frames of a batch, and for a program to stop.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two looks at the frames that have come back.
const STEP: Duration = Duration::from_micros(100);
/// Length of a 64-byte Ethernet frame without the check sequence.
const LENGTH: usize = 60;
/// Address of a UPF on the host for N4.
pub const UPF: &str = "192.0.2.9";
/// Addresses of the SMFs of program 1 and 2.
pub const SMFS: [&str; 2] = ["192.0.2.11", "192.0.2.12"];

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

/// Program of which one lane is measured. Dropping it ends the program.
struct Measured<'a> {
    lane: MeasuredProgram, // dropped before the process, which must run to end
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
        let lane = MeasuredProgram::of(process)?;
        Ok(Self { lane, address, _on_host: None, pod: Some(pod) })
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
        process.wait_for("running; watch it with");
        let lane = MeasuredProgram::of(process.id())?;
        Ok(Self { lane, address: UPF.to_owned(), _on_host: Some(process), pod: None })
    }
}

impl Drop for Measured<'_> {
    fn drop(&mut self) {
        // A stopped program would not end.
        let _ = self.lane.resume();
        if let Some(pod) = self.pod.take() {
            pod.delete();
        }
    }
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
                let (smf, sessions) = establish(&program.address, SMFS[number - 1])?;
                veths.iter_mut().take(1).for_each(|veth| veth.send_frames(uplink(&sessions)));
                Some(smf)
            }
        };
        program.lane.stop()?;
        let station = Self { program, _smf: smf, veths };
        station.batch()?;
        Ok(station)
    }

    /// Queues frames while the program is stopped, then lets it run until all have left it.
    fn batch(&self) -> Result<Slice> {
        let ends = self.veths.first().zip(self.veths.last());
        let (entry, exit) = ends.ok_or("a program without interfaces")?;
        let arrived = entry.queue(BATCH)?;
        let (before, cpu) = (exit.returned()?, self.program.lane.cpu()?);
        self.program.lane.resume()?;
        let end = Instant::now() + PATIENCE;
        let mut left = 0;
        while left < arrived && Instant::now() < end {
            std::thread::sleep(STEP);
            left = exit.returned()? - before;
        }
        self.program.lane.stop()?;
        match left == arrived {
            true => Ok(Slice { cpu: self.program.lane.cpu()? - cpu, packets: arrived }),
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

/// Establishes the sessions of a UPF. Returns the SMF, and the sessions.
///
/// # Errors
/// Returns an error if the SMF writes something else.
///
/// # Panics
/// When they are not set up.
pub fn establish(upf: &str, local: &str) -> Result<(Process, Vec<Session>)> {
    let count = SESSIONS.to_string();
    let mut command = Command::new(binary("smf"));
    command.args(["hold", "--local", local, "--upf", upf, "--gnb", "10.30.0.2"]);
    // The QoS flow of the frames.
    command.args(["--sessions", &count, "--qfi", "1"]).stdin(Stdio::null());
    let smf = Process::start(command);
    eventually("all sessions are set up", || smf.stdout().lines().count() == SESSIONS);
    let output = smf.stdout();
    let sessions: Option<_> = output.lines().map(|line| Session::held(1, line)).collect();
    Ok((smf, sessions.ok_or("lines of the SMF")?))
}

/// Runs `ip` in the namespace of the calling thread.
fn ip(words: &[&str]) -> Result<()> {
    match Command::new("ip").args(words).status()?.success() {
        true => Ok(()),
        false => Err(format!("ip {} fails", words.join(" ")).into()),
    }
}
