//! Counts the instructions per packet of loops, on a memory port, over memif, on DPDK, and per
//! lookup in tables.
//!
//! The program runs itself under cachegrind for two numbers of packets and takes the difference,
//! which removes the cost of the start. It prints the contents of `bench/instructions.json`. Rows
//! that this machine cannot run are reported on standard error and left out.
//!
//! `instructions only ROW...` counts the given rows. `instructions bless FILE [ROW...]` writes the
//! counts into the committed file.
//!
//! `instructions panicking-lane CONFIGURATION` runs an application whose lane panics, for a test of
//! what a release build makes of it: no other program needs to be built for it.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use fastlane_bench::Result;
use fastlane_bench::device::application;
use fastlane_bench::device::memory_lane::{MemoryLane, macswap};
use fastlane_bench::instruction_counts::{Committed, Count};
use fastlane_bench::loops::lookup::counted_lookups;
use fastlane_bench::loops::user_plane::{self, Shape, counted_packets};
use serde_json::{Value, json};

#[expect(dead_code, reason = "the file is also a program of its own, which begins at `main`")]
#[path = "../../../tests/src/bin/panics.rs"]
mod panicking_lane;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    let result = match words[..] {
        [] => print(&[]),
        ["only", ref rows @ ..] => print(rows),
        ["bless", file, ref rows @ ..] => bless(Path::new(file), rows),
        ["memory", packets, burst] => turn(packets, burst),
        [name @ ("hash" | "lpm4" | "steering"), lookups] => look_up(name, lookups),
        ["flows", packets] => translate(packets),
        ["upf", direction, packets] => forward(direction, Shape::Simple, packets),
        ["upf-8-pdrs", direction, packets] => forward(direction, Shape::EIGHT, packets),
        ["upf-16-pdrs", direction, packets] => forward(direction, Shape::SIXTEEN, packets),
        ["upf-nat", direction, packets] => forward_flows(direction, packets),
        ["panicking-lane", _] => return ExitCode::from(panicking_lane::run(arguments)),
        [application::LOOP, _] => return ExitCode::from(application::run(arguments)),
        _ => Err("usage: instructions [only ROW...|bless FILE [ROW...]]".into()),
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

fn forward_flows(direction: &str, packets: &str) -> Result<()> {
    let moved = user_plane::forward_flows(direction, true, packets.parse()?)?;
    println!("{moved} packets");
    Ok(())
}

fn translate(packets: &str) -> Result<()> {
    let moved = fastlane_bench::loops::flow_lane::translate(packets.parse()?)?;
    println!("{moved} packets");
    Ok(())
}

fn forward(direction: &str, shape: Shape, packets: &str) -> Result<()> {
    let moved = counted_packets::forward(direction, shape, packets.parse()?)?;
    println!("{moved} packets");
    Ok(())
}

fn look_up(name: &str, lookups: &str) -> Result<()> {
    let lookups = lookups.parse()?;
    let sum = match name {
        "hash" => counted_lookups::hash(lookups)?,
        "lpm4" => counted_lookups::lpm4(lookups)?,
        _ => counted_lookups::steering(lookups)?,
    };
    println!("{lookups} lookups, sum of the results {sum}");
    Ok(())
}

fn print(rows: &[&str]) -> Result<()> {
    let measured = Committed { instructions_per_packet: measure(rows)?, ..Committed::default() };
    println!("{}", serde_json::to_string_pretty(&measured)?);
    Ok(())
}

/// Replaces the given rows of the committed file, or all rows that can be counted here.
fn bless(file: &Path, rows: &[&str]) -> Result<()> {
    let mut committed: Committed = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    for (row, count) in measure(rows)? {
        let before = committed.instructions_per_packet.insert(row.clone(), count);
        let before = before.map_or("none".to_owned(), |before| before.to_string());
        eprintln!("{row}: {count}, was {before}");
    }
    Ok(std::fs::write(file, serde_json::to_string_pretty(&committed)? + "\n")?)
}

/// Counts the given rows, or all rows.
fn measure(rows: &[&str]) -> Result<BTreeMap<String, f64>> {
    let names = Count::ALL.map(Count::name);
    if let Some(row) = rows.iter().find(|row| names.iter().all(|name| name != *row)) {
        return Err(format!("no row `{row}`; the rows are {}", names.join(", ")).into());
    }
    let mut counts = BTreeMap::new();
    let folder = Folder::new()?;
    for count in Count::ALL {
        if !rows.is_empty() && !rows.contains(&count.name().as_str()) {
            continue;
        }
        let packets = count.packets();
        let difference = instructions(count, packets, &folder.0)
            .and_then(|few| Ok(instructions(count, 2 * packets, &folder.0)?.saturating_sub(few)));
        match difference {
            Ok(difference) => {
                let each = difference as f64 / packets as f64;
                counts.insert(count.name(), (each * 10.0).round() / 10.0);
            }
            Err(error) => eprintln!("{}: not counted: {error}", count.name()),
        }
    }
    Ok(counts)
}

/// Returns the number of instructions that a whole run executes.
fn instructions(count: Count, packets: u64, folder: &Path) -> Result<u64> {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?);
    let number = packets.to_string();
    match count {
        Count::Memory(burst) => command.args(["memory", &number, &burst.to_string()]),
        Count::Hash => command.args(["hash", &number]),
        Count::Lpm4 => command.args(["lpm4", &number]),
        Count::Steering => command.args(["steering", &number]),
        Count::Flows => command.args(["flows", &number]),
        Count::Upf(direction) => command.args(["upf", direction, &number]),
        Count::UpfFilters(pdrs, direction) => {
            command.args([&format!("upf-{pdrs}-pdrs"), direction, &number])
        }
        Count::UpfNat(direction) => command.args(["upf-nat", direction, &number]),
        Count::Memif | Count::Dpdk => {
            let path = folder.join("configuration.json");
            std::fs::write(&path, configuration(count, packets, folder).to_string())?;
            command.arg(application::LOOP).arg(path)
        }
    };
    let output = command
        .output()
        .map_err(|error| format!("valgrind: {error}; install the package `valgrind`"))?;
    let report = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("under valgrind: {report}").into());
    }
    let refs =
        report.lines().find_map(|line| line.split_once("I   refs:").or(line.split_once("I refs:")));
    let (_, count) =
        refs.ok_or_else(|| format!("no `I refs` in the output of valgrind: {report}"))?;
    Ok(count.trim().replace(',', "").parse()?)
}

/// Creates the configuration of an application with one lane that swaps `packets` packets, with 256
/// of them in flight.
fn configuration(count: Count, packets: u64, folder: &Path) -> Value {
    let memif =
        |role| json!({ "driver": { "memif": { "socket": folder.join("memif"), "role": role } } });
    let ports = match count {
        Count::Dpdk => json!({ "ring": { "driver": { "dpdk": { "vdev": "net_ring0" } } } }),
        _ => json!({ "one": memif("server"), "two": memif("client") }),
    };
    let mut configuration = json!({
        "name": format!("instructions-{}", std::process::id()),
        "session": folder.join("session"),
        // Sleeping until both memif ends are connected keeps the waiting time out of the count.
        "lanes": { "idle": "adaptive" },
        "ports": ports,
        "app": { "packets": 256, "length": 60, "limit": packets, "delay-ms": 2000 },
    });
    if count == Count::Dpdk {
        configuration["dpdk"] = json!({ "huge-pages": "none" });
    }
    configuration
}

/// Temporary folder that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let name = format!("fastlane-instructions-{}", std::process::id());
        let folder = Self(std::env::temp_dir().join(name));
        std::fs::create_dir(&folder.0)?;
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
