//! Program `smf`: a small session management function to test a UPF. It establishes sessions over
//! PFCP.

#![forbid(unsafe_code)]

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Parser, Subcommand, ValueEnum};
use peer::smf::{CpuTime, Phase, Report, Sessions, Smf, SmfError};
use peer::tunnel::Line;

/// A small session management function to test a UPF. It sets up an association and sessions of two
/// PDRs, two FARs, a QER and a URR each. The UPF chooses tunnel endpoints and, unless --users is
/// given, the users' addresses.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Establish sessions, write a line for each (`tunnel USER UPF UPLINK DOWNLINK QFI`, which
    /// `gnb` reads), and answer the UPF until SIGINT or SIGTERM; then release the association.
    Hold(Common),
    /// Establish sessions as fast as the window allows, and report the rate.
    Load(Load),
}

#[derive(Debug, Args)]
struct Common {
    /// Address of the UPF on N4.
    #[arg(long)]
    upf: IpAddr,

    /// Address of the base station on N3, to which the UPF sends downlink packets.
    #[arg(long)]
    gnb: IpAddr,

    /// Local address; by default the one from which the UPF is reached.
    #[arg(long)]
    local: Option<IpAddr>,

    /// UDP port of both this program and the UPF; change it only for a relay between them.
    #[arg(long, default_value_t = fastlane_pfcp::PORT)]
    port: u16,

    /// Number of sessions.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    sessions: u32,

    /// Maximum number of outstanding requests.
    #[arg(long, default_value_t = 64)]
    window: usize,

    /// Address family of the users.
    #[arg(long, value_enum, default_value_t = Family::V4)]
    family: Family,

    /// IPv4 address of the first user; the other users get the following ones. By default the UPF
    /// chooses.
    #[arg(long)]
    users: Option<Ipv4Addr>,

    /// Network instance of N3.
    #[arg(long, default_value = "access")]
    access: String,

    /// Network instance of N6.
    #[arg(long, default_value = "internet")]
    core: String,

    /// QoS flow identifier of all packets.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u8).range(0..=63))]
    qfi: u8,

    /// Maximum bit rate of each direction, in kilobits a second.
    #[arg(long, default_value_t = 10_000_000)]
    rate: u64,

    /// Volume threshold, in octets, after which the UPF reports usage.
    #[arg(long, default_value_t = 1 << 30)]
    threshold: u64,

    /// URL to which HTTP requests of users are redirected; all their other packets are dropped.
    #[arg(long)]
    redirect: Option<String>,
}

#[derive(Debug, Args)]
struct Load {
    #[command(flatten)]
    common: Common,

    /// Measure the CPU time of the process with this id, such as the UPF's slow path.
    #[arg(long)]
    pid: Option<u32>,

    /// Modify the downlink FAR of each session too.
    #[arg(long)]
    modify: bool,

    /// Delete each session too.
    #[arg(long)]
    delete: bool,

    /// Keep the established sessions: do not release the association.
    #[arg(long)]
    keep: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Family {
    /// IPv4 address.
    V4,
    /// IPv6 prefix of 64 bits.
    V6,
    /// IPv4 address and IPv6 prefix.
    Both,
}

fn main() -> ExitCode {
    let ended = match Arguments::parse().command {
        Command::Hold(common) => hold(&common),
        Command::Load(load) => measure(&load),
    };
    match ended {
        Ok(code) => code,
        Err(error) => {
            eprintln!("smf: {error}");
            ExitCode::from(4)
        }
    }
}

fn associate(common: &Common, watched: Option<CpuTime>) -> Result<Smf, SmfError> {
    let any = match common.upf {
        IpAddr::V4(_) => IpAddr::from([0; 4]),
        IpAddr::V6(_) => IpAddr::from([0; 16]),
    };
    let local = SocketAddr::new(common.local.unwrap_or(any), common.port);
    let sessions = Sessions {
        count: common.sessions,
        gnb: common.gnb,
        v4: common.family != Family::V6,
        v6: common.family != Family::V4,
        first_user: common.users,
        access: common.access.clone(),
        core: common.core.clone(),
        qfi: common.qfi,
        rate: common.rate,
        threshold: common.threshold,
        redirect: common.redirect.clone(),
    };
    Smf::associate(
        local,
        SocketAddr::new(common.upf, common.port),
        sessions,
        common.window,
        watched,
    )
}

/// Writes the result of a phase to standard error. Returns true if the UPF accepted all requests.
fn say(phase: Phase, report: &Report) -> bool {
    let Report { accepted, refused, fault, took, cpu } = report;
    let seconds = took.as_secs_f64();
    let rate = f64::from(*accepted) / seconds.max(1e-9);
    eprint!("smf: {phase}: {accepted} accepted, {refused} refused in {seconds:.3} s: {rate:.0}/s");
    if let Some(cpu) = cpu {
        let each = cpu.as_secs_f64() * 1e6 / f64::from((*accepted).max(1));
        eprint!(", {each:.1} us of CPU each");
    }
    match fault {
        Some(fault) => eprintln!("; the first refusal: {fault}"),
        None => eprintln!(),
    }
    *refused == 0
}

fn hold(common: &Common) -> Result<ExitCode, SmfError> {
    let stop = Arc::<AtomicBool>::default();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        if let Err(error) = signal_hook::flag::register(signal, Arc::clone(&stop)) {
            eprintln!("smf: signal {signal} cannot be waited for: {error}");
        }
    }
    let mut smf = associate(common, None)?;
    let report = smf.carry_out(Phase::Establish)?;
    let all = say(Phase::Establish, &report);
    let mut output = std::io::stdout().lock();
    for tunnel in smf.tunnels() {
        // The reader of the pipe may have ended; the sessions stay.
        if writeln!(output, "{}", Line::Tunnel(tunnel)).is_err() {
            break;
        }
    }
    let _ = output.flush();
    smf.hold(|| stop.load(Ordering::Relaxed))?;
    let counts = smf.release()?;
    eprintln!("smf: {counts:?}");
    Ok(ExitCode::from(u8::from(!all)))
}

/// Runs the phases and writes one line of JSON for each to standard output.
fn measure(load: &Load) -> Result<ExitCode, SmfError> {
    let mut smf = associate(&load.common, load.pid.map(CpuTime::of))?;
    let phases =
        [(Phase::Establish, true), (Phase::Modify, load.modify), (Phase::Delete, load.delete)];
    let mut all = true;
    for (phase, _) in phases.into_iter().filter(|(_, wanted)| *wanted) {
        let report = smf.carry_out(phase)?;
        all &= say(phase, &report);
        let Report { accepted, refused, took, cpu, .. } = report;
        let cpu = cpu.map_or_else(|| "null".to_owned(), |cpu| cpu.as_nanos().to_string());
        let ns = took.as_nanos();
        print!("{{\"phase\":\"{phase}\",\"accepted\":{accepted},\"refused\":{refused},");
        println!("\"ns\":{ns},\"cpu_ns\":{cpu}}}");
    }
    let counts = if load.keep { smf.counts() } else { smf.release()? };
    eprintln!("smf: {counts:?}");
    Ok(ExitCode::from(u8::from(!all)))
}
