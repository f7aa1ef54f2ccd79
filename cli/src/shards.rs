//! `fastlane shards`: lists and moves the shards of keys among lanes.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::Error;

/// Lists the shards and packets of each lane, or moves a shard while traffic flows.
///
/// Packets are passed to the lane of their shard if a port has a `lane-by` other than `rss`, or in
/// the model master-worker. During a move the packets of the shard are buffered until the previous
/// lane has finished its own.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name of the application, or path of its session socket (any argument with a `/`)
    #[arg(value_name = "NAME|PATH")]
    application: String,
    /// Move a shard (0 to 255) to a lane; can be repeated
    #[arg(long = "move", value_name = "SHARD=LANE", value_parser = pair)]
    moves: Vec<(u8, usize)>,
    /// List each shard
    #[arg(long)]
    all: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let client = crate::top::attach(&arguments.application)?;
    let failed = |error: fastlane::session::SessionError| Error::Failed(error.to_string());
    for moved in &arguments.moves {
        client.shards(Some(*moved)).map_err(failed)?;
    }
    let list = client.shards(None).map_err(failed)?;
    let mut stdout = io::stdout().lock();
    let shards = || list.lanes.iter().zip(&list.packets).enumerate();
    if arguments.all {
        writeln!(stdout, "{:>5} {:>5} {:>16}", "shard", "lane", "packets")?;
        for (shard, (lane, packets)) in shards() {
            writeln!(stdout, "{shard:>5} {lane:>5} {packets:>16}")?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(stdout, "{:>5} {:>6} {:>16}", "lane", "shards", "packets")?;
    let mut lanes: Vec<usize> = list.lanes.clone();
    lanes.sort_unstable();
    lanes.dedup();
    for lane in lanes {
        let mine = || shards().filter(|(_, (other, _))| **other == lane);
        let packets = mine().map(|(_, (_, packets))| *packets).fold(0, u64::wrapping_add);
        writeln!(stdout, "{lane:>5} {:>6} {packets:>16}", mine().count())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn pair(text: &str) -> Result<(u8, usize), String> {
    let pair = text
        .split_once('=')
        .and_then(|(shard, lane)| Some((shard.trim().parse().ok()?, lane.trim().parse().ok()?)));
    pair.ok_or_else(|| "write a shard from 0 to 255, `=`, and the number of a lane".to_owned())
}
