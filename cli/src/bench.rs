//! `fastlane bench`: measures a network function on this machine.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use fastlane_measure::benchmark::{Mechanism, Options, Test, run as measure, schema};

use crate::Error;

/// Measure throughput, latency, bursts and CPU time of a network function, alone or against a
/// rival.
///
/// The device under test is any program that sends frames back (or forwards them, with a generator
/// `mode` of `one-way`). The generator is `traffic`. A description, a JSON file (--schema), defines
/// both and the ports that connect them. Without a description macswap is measured on --on.
///
/// Throughput is the highest rate at which no frame is lost, or not more than the acceptable loss.
/// It is found by bisection in trials of one second (RFC 2544 clause 26.1). The result names the
/// limit: the device, the link or the generator. Latency and the CPU time of the device's process
/// are measured at 10, 50 and 90 % of the throughput. Back to back is the longest burst without
/// loss, sent as fast as the generator can.
///
/// The comparison runs the device and its rival in alternating slices. Each is stopped while the
/// other runs. It compares CPU time per packet: the median ratio of the pairs with its bootstrap 95
/// % interval. A bound holds if the upper end of the interval is below it. An interval wider than 4
/// % resolves nothing. The control compares the device with itself: any difference is noise.
///
/// Progress goes to standard error and the report in Markdown to standard output. Report, JSON and
/// plots are also written to a new folder.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Description of the benchmark; without it, macswap is measured on the mechanism of --on
    #[arg(value_name = "DESCRIPTION", conflicts_with_all = ["on", "against"])]
    description: Option<PathBuf>,
    /// Mechanism between generator and macswap
    #[arg(long, value_name = "MECHANISM", value_enum, default_value = "memif")]
    on: Mechanism,
    /// Mechanism of a second macswap, to compare the first with; the same mechanism is an A/A
    /// control
    #[arg(long, value_name = "MECHANISM", value_enum)]
    against: Option<Mechanism>,
    /// Run in a new network namespace with the veth pairs device0-generator0 and
    /// device1-generator1, which DESCRIPTION can name (--on af-xdp and af-packet always do so)
    #[arg(long)]
    veth: bool,
    /// Run only these tests
    #[arg(long, value_name = "TEST", value_enum, value_delimiter = ',')]
    test: Vec<Test>,
    /// Run few, short trials with frames of 64 and 1518 bytes: for orientation, not for figures
    #[arg(long)]
    quick: bool,
    /// Folder in which the folder of results is created
    #[arg(long, value_name = "FOLDER", default_value = "fastlane-bench")]
    output: PathBuf,
    /// Print the JSON schema of a description
    #[arg(long)]
    schema: bool,
}

const AFTER_HELP: &str = "\
Examples:
  fastlane bench --quick                       macswap over memif, in a minute
  fastlane bench --on af-xdp                   macswap on AF_XDP over a veth pair (as root)
  fastlane bench --on af-xdp --against af-packet --test comparison
  fastlane bench mine.json                     what mine.json describes:
    { \"device\": { \"command\": [\"./my-function\", \"config.json\"] },
      \"generator\": { \"configuration\": {
        \"ports\": { \"wire\": { \"driver\": { \"af-xdp\": { \"interface\": \"eth1\" } } } },
        \"lanes\": { \"idle\": \"busy\" },
        \"app\": { \"port\": \"wire\", \"flows\": { \"count\": 16 } } } } }";

pub(crate) fn run(arguments: Arguments) -> std::result::Result<ExitCode, Error> {
    if arguments.schema {
        write!(std::io::stdout().lock(), "{}", schema())?;
        return Ok(ExitCode::SUCCESS);
    }
    let Arguments { description, on, against, veth, test, quick, output, schema: _ } = arguments;
    let options = Options { description, on, against, veth, tests: test, quick, output };
    let (report, folder) = measure(&options).map_err(|error| Error::Failed(error.to_string()))?;
    write!(std::io::stdout().lock(), "{report}")?;
    eprintln!("wrote {}", folder.display());
    Ok(ExitCode::SUCCESS)
}
