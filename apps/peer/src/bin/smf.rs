//! A session management function for trying a UPF: sets sessions up over PFCP.

#![forbid(unsafe_code)]

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Parser, Subcommand, ValueEnum};
use peer::smf::{CpuTime, Phase, Report, Sessions, Smf, SmfError};
use peer::tunnel::Line;

/// A session management function: it sets up an association with a UPF and sessions of two PDRs,
/// two FARs, a QER and a URR each. The UPF chooses tunnel endpoints and, unless --users is given,
/// the users' addresses.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Sets sessions up, writes a line for each (`tunnel USER UPF UPLINK DOWNLINK QFI`, which `gnb`
    /// reads), and answers the UPF until it is ended by SIGINT or SIGTERM; then it releases all.
    Hold(Common),
    /// Sets sessions up as fast as the window allows, and says how fast that was.
    Load(Load),
}

#[derive(Debug, Args)]
struct Common {
    /// The UPF's address on N4.
    #[arg(long)]
    upf: IpAddr,

    /// The base station's address on N3, where packets to users go.
    #[arg(long)]
    gnb: IpAddr,

    /// Our address; without it, the one by which the UPF is reached.
    #[arg(long)]
    local: Option<IpAddr>,

    /// Our port, and the UPF's: 8805 unless something stands between.
    #[arg(long, default_value_t = fastlane_pfcp::PORT)]
    port: u16,

    /// How many sessions.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    sessions: u32,

    /// How many requests are outstanding at most.
    #[arg(long, default_value_t = 64)]
    window: usize,

    /// Which addresses users have.
    #[arg(long, value_enum, default_value_t = Family::V4)]
    family: Family,

    /// The first user's IPv4 address, the others follow; without it the UPF chooses.
    #[arg(long)]
    users: Option<Ipv4Addr>,

    /// The network instance of N3.
    #[arg(long, default_value = "access")]
    access: String,

    /// The network instance of N6.
    #[arg(long, default_value = "internet")]
    core: String,

    /// The QoS flow of all packets.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u8).range(0..=63))]
    qfi: u8,

    /// The maximum bit rate of each direction, in kilobits a second.
    #[arg(long, default_value_t = 10_000_000)]
    rate: u64,

    /// The UPF reports usage after so many octets.
    #[arg(long, default_value_t = 1 << 30)]
    threshold: u64,

    /// Web requests of users are redirected to this URL, and nothing else of them is forwarded.
    #[arg(long)]
    redirect: Option<String>,
}

#[derive(Debug, Args)]
struct Load {
    #[command(flatten)]
    common: Common,

    /// Measure the CPU time of this process meanwhile: the UPF's slow half.
    #[arg(long)]
    pid: Option<u32>,

    /// Change the downlink FAR of each session too.
    #[arg(long)]
    modify: bool,

    /// Delete each session too.
    #[arg(long)]
    delete: bool,

    /// Keep the sessions that are up: the association is not released.
    #[arg(long)]
    keep: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Family {
    /// IPv4.
    V4,
    /// IPv6: a prefix of 64 bits.
    V6,
    /// Both.
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

/// Says what a phase came to; whether all was accepted.
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
        // Who reads may have gone; the sessions stay.
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

/// Standard output gets one line of JSON for each phase.
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
