//! Program `gnb`: a small base station to test a UPF. It passes packets between a TUN device and
//! GTP-U tunnels.

#![forbid(unsafe_code)]

use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;
use peer::gnb::{Gnb, GnbError};

/// A small base station to test a UPF. Each user is an address on a TUN device of Linux. The
/// packets of users go through GTP-U tunnels.
///
/// It reads lines from standard input: `tunnel USER UPF UPLINK DOWNLINK QFI`, with both tunnel
/// endpoint identifiers (0x1234), or `release USER`. `smf` writes these lines.
#[derive(Debug, Parser)]
struct Arguments {
    /// Address of this base station on N3.
    #[arg(long)]
    listen: IpAddr,

    /// Name of the interface that has the users' addresses.
    #[arg(long, default_value = "ue0")]
    interface: String,

    /// MTU of the interface; the default fits into a tunnel on a link of 1500 octets.
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
