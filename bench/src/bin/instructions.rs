//! Counts the instructions per packet of the whole loop on a memory port.
//!
//! `instructions loop PACKETS BURST` moves that many packets; `instructions` runs itself so under
//! cachegrind, for two numbers of packets, and takes the difference, so that the start cancels out.
//! It prints what `bench/instructions.json` holds.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};

use fastlane_bench::Result;
use fastlane_bench::instructions::{BURSTS, Committed, PACKETS, name};
use fastlane_bench::memory::{MemoryLane, macswap};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => measure(),
        ["loop", packets, burst] => turn(packets, burst),
        _ => Err("usage: instructions [loop PACKETS BURST]".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

fn turn(packets: &str, burst: &str) -> Result<()> {
    let moved = MemoryLane::new(macswap, burst.parse()?, 60)?.turns(packets.parse()?);
    println!("{moved} packets");
    Ok(())
}

fn measure() -> Result<()> {
    let mut counts = BTreeMap::new();
    for burst in BURSTS {
        let few = instructions(PACKETS, burst)?;
        let many = instructions(2 * PACKETS, burst)?;
        let each = (many - few) as f64 / PACKETS as f64;
        counts.insert(name(burst), (each * 10.0).round() / 10.0);
    }
    let measured =
        Committed { packets: PACKETS, instructions_per_packet: counts, ..Committed::default() };
    println!("{}", serde_json::to_string_pretty(&measured)?);
    Ok(())
}

/// Instructions executed by a whole run.
fn instructions(packets: u64, burst: usize) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["loop", &packets.to_string(), &burst.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}; install the package `valgrind`"))?;
    let report = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("valgrind failed: {report}").into());
    }
    let refs =
        report.lines().find_map(|line| line.split_once("I   refs:").or(line.split_once("I refs:")));
    let (_, count) = refs.ok_or_else(|| format!("no `I refs` in what valgrind said: {report}"))?;
    Ok(count.trim().replace(',', "").parse()?)
}
