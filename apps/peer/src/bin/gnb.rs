//! A base station for trying a UPF: users' packets between a TUN device and GTP-U.

#![forbid(unsafe_code)]

use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;
use peer::gnb::{Gnb, GnbError};

/// A base station: users are addresses on a TUN device of Linux, whose packets go through GTP-U
/// tunnels. Reads lines from standard input: `tunnel USER UPF UPLINK DOWNLINK QFI`, with both
/// tunnel endpoint identifiers (0x1234), or `release USER`. `smf` writes such lines.
#[derive(Debug, Parser)]
struct Arguments {
    /// The address of this base station on N3.
    #[arg(long)]
    listen: IpAddr,

    /// The name of the interface that users' addresses are on.
    #[arg(long, default_value = "ue0")]
    interface: String,

    /// Its MTU: what fits a tunnel on a link of 1500 octets.
    #[arg(long, default_value_t = 1400)]
    mtu: u32,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gnb: {error}");
            ExitCode::from(4)
        }
    }
}

fn run(Arguments { listen, interface, mtu }: &Arguments) -> Result<(), GnbError> {
    let stop = Arc::<AtomicBool>::default();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(GnbError::Wait)?;
    }
    let mut gnb = Gnb::open(*listen, interface, *mtu)?;
    eprintln!("gnb: running; users on {interface}, GTP-U at {listen}");
    let counts = gnb.run(std::io::stdin().lock(), &stop)?;
    eprintln!("gnb: {counts}");
    Ok(())
}
