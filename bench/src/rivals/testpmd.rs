//! The rival `dpdk-testpmd --forward-mode=macswap`.

use std::os::fd::OwnedFd;
use std::time::Duration;

use fastlane_measure::program::{Looping, Odometer, Program};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with, sockopt,
};

use crate::Result;
use crate::rivals::eal::{CPU, Eal};

/// Name that DPDK gives the thread in which testpmd moves packets.
const THREAD: &str = "rte-worker-1";

/// Process of testpmd that forwards on one virtual device.
pub struct Testpmd {
    /// The process.
    pub program: Program,
    /// Thread that moves the packets.
    pub thread: u64,
    eal: Eal,
}

impl Testpmd {
    /// Starts testpmd on `device` with bursts of `burst` packets. It first sends `fill` packets, a
    /// multiple of `burst`.
    ///
    /// # Errors
    /// Returns an error if testpmd is not installed or does not start.
    pub fn start(device: &str, burst: u32, fill: u32) -> Result<Self> {
        let eal = Eal::new();
        let mut arguments = eal.arguments(device);
        let more = format!(
            "--lcores 0@0,1@{CPU} --main-lcore 0 -- -i --nb-cores=1 --forward-mode=macswap \
             --port-topology=loop --total-num-mbufs=16384 --mbcache=512 --no-flush-rx \
             --burst={burst}"
        );
        arguments.extend(more.split_whitespace().map(str::to_owned));
        let mut program = Program::start("dpdk-testpmd", "dpdk-testpmd", arguments)
            .map_err(|error| format!("{error}; install the package `dpdk`"))?;
        // testpmd reads its commands once the device is ready.
        program.say(&match fill / burst {
            0 => "start".to_owned(),
            bursts => format!("start tx_first {bursts}"),
        })?;
        let thread = program.wait_for("its thread", |program| program.thread(THREAD))?;
        Ok(Self { program, thread, eal })
    }

    /// Returns the process, the thread that moves the packets, and the EAL directory, which must
    /// live as long.
    #[must_use]
    pub fn process(self) -> (Program, u64, Eal) {
        (self.program, self.thread, self.eal)
    }

    /// Waits until testpmd moves packets, then stops it until its first slice.
    ///
    /// # Errors
    /// Returns an error if testpmd ends or moves no packets.
    pub fn looping(mut self) -> Result<Looping<Telemetry>> {
        let path = self.eal.directory().join("dpdk_telemetry.v2");
        let mut telemetry = self.program.wait_for("telemetry", |_| Telemetry::open(&path).ok())?;
        self.program
            .wait_for("packets", |_| telemetry.packets().ok().filter(|&count| count > 0))?;
        Looping::new(self.program, self.thread, telemetry)
    }
}

/// Telemetry socket of a DPDK program (DPDK How To Guides, "DPDK Telemetry User Guide").
pub struct Telemetry(OwnedFd);

impl Telemetry {
    fn open(path: &std::path::Path) -> Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let patience = Some(Duration::from_secs(3));
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, patience)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        let telemetry = Self(socket);
        telemetry.receive()?; // greeting of the server
        Ok(telemetry)
    }

    fn receive(&self) -> Result<String> {
        let mut answer = vec![0; 16384];
        let (length, _) = recv(&self.0, &mut answer[..], RecvFlags::empty())?;
        answer.truncate(length);
        Ok(String::from_utf8(answer)?)
    }
}

impl Odometer for Telemetry {
    fn packets(&mut self) -> Result<u64> {
        send(&self.0, b"/ethdev/stats,0", SendFlags::NOSIGNAL)?;
        let answer = self.receive()?;
        let packets = answer.split_once("\"opackets\":").and_then(|(_, rest)| {
            rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
        });
        packets.ok_or_else(|| format!("no `opackets` in telemetry: {answer}").into())
    }
}
