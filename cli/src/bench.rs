//! `fastlane bench`: measures a network function on this machine.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use fastlane_measure::Result;
use fastlane_measure::machine::{Machine, load_average, today};

use crate::Error;

mod builtin;
mod comparison;
mod description;
mod interrupt;
mod markdown;
mod plots;
mod results;
mod rig;
mod search;
mod suite;
mod trial;
mod veth;

use builtin::Mechanism;
use comparison::Turns;
use description::{Description, Test};
use results::Results;
use rig::Rig;

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

pub(crate) fn run(arguments: &Arguments) -> std::result::Result<ExitCode, Error> {
    if arguments.schema {
        write!(std::io::stdout().lock(), "{}", description::schema())?;
        return Ok(ExitCode::SUCCESS);
    }
    let (report, folder) = bench(arguments).map_err(|error| Error::Failed(error.to_string()))?;
    write!(std::io::stdout().lock(), "{report}")?;
    eprintln!("wrote {}", folder.display());
    Ok(ExitCode::SUCCESS)
}

/// Runs the tests and publishes the results. Returns the report and its folder.
fn bench(arguments: &Arguments) -> Result<(String, PathBuf)> {
    let mechanisms = [Some(arguments.on), arguments.against];
    let builtin = arguments.description.is_none();
    let needs_veth = mechanisms.into_iter().flatten().any(Mechanism::needs_veth);
    // Errors of the description are reported before anything is created.
    let described = arguments.description.as_deref().map(Description::load).transpose()?;
    if arguments.veth || builtin && needs_veth {
        veth::enter()?;
    }
    interrupt::install()?;
    // The length of a socket path is limited, and the path of the folder of results may be long.
    let scratch = tempfile::Builder::new().prefix("fastlane-bench").tempdir()?;
    let mut description = match described {
        Some(description) => description,
        None => builtin::description(arguments.on, arguments.against, scratch.path())?,
    };
    if !arguments.test.is_empty() {
        description.tests = Some(arguments.test.clone());
    }
    if description.rival.is_none() && description.tests.as_deref() == Some(&[Test::Comparison]) {
        return Err("there is nothing to compare with; describe a `rival`, or use --against".into());
    }
    if arguments.quick {
        description.make_quick();
    }
    let results = measure(description, arguments.quick, scratch.path())?;
    publish(&results, &arguments.output)
}

fn measure(description: Description, quick: bool, scratch: &Path) -> Result<Results> {
    let mut results = Results {
        fastlane: env!("CARGO_PKG_VERSION").to_owned(),
        began: today(),
        ended: String::new(),
        machine: Machine::this(),
        load_average: [load_average(); 2],
        quick,
        description,
        idle_cores: None,
        sizes: Vec::new(),
        comparisons: Vec::new(),
    };
    let description = &results.description;
    let mut rig = Rig::start("generator", &description.device, &description.generator, scratch)?;
    if [Test::Throughput, Test::Latency, Test::BackToBack].iter().any(|it| description.makes(*it)) {
        results.idle_cores = Some(suite::idle(&rig)?);
        for size in &description.frame_sizes {
            results.sizes.push(suite::size(&mut rig, description, *size)?);
        }
    }
    match description.rival.as_ref().filter(|_| description.makes(Test::Comparison)) {
        None => rig.finish()?,
        Some(theirs) => {
            let settings = &description.comparison;
            let turns = |rig| Turns::new(rig, settings.frame_size, settings.outstanding_packets);
            let mut ours = turns(rig)?;
            let rival = Rig::start("rival", &theirs.device, &theirs.generator, scratch)?;
            let mut rival = turns(rival)?;
            let names = [&description.device, &theirs.device].map(|it| it.command.join(" "));
            let [our_name, rival_name] = names.each_ref().map(String::as_str);
            if settings.control {
                results.comparisons.push(comparison::control(settings, our_name, &mut ours)?);
            }
            let names = [our_name, rival_name];
            let compared = comparison::compare(settings, names, &mut ours, &mut rival)?;
            results.comparisons.push(compared);
            ours.finish()?;
            rival.finish()?;
        }
    }
    results.load_average[1] = load_average();
    results.ended = today();
    Ok(results)
}

/// Writes everything into a new folder in `output`. Returns the report and that folder.
fn publish(results: &Results, output: &Path) -> Result<(String, PathBuf)> {
    let folder = output.join(results.began.replace(':', ""));
    std::fs::create_dir_all(output)
        .and_then(|()| std::fs::create_dir(&folder))
        .map_err(|error| format!("{}: {error}; choose another --output", folder.display()))?;
    let plots = plots::plots(results);
    let report = markdown::report(results, &plots);
    let json = serde_json::to_string_pretty(results)? + "\n";
    let mut files = vec![("results.json", &*json), ("report.md", &*report)];
    files.extend(plots.iter().map(|plot| (plot.file, &*plot.svg)));
    for (name, content) in files {
        let path = folder.join(name);
        File::create_new(&path)
            .and_then(|mut file| file.write_all(content.as_bytes()))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok((report, folder))
}

#[cfg(test)]
mod tests;
