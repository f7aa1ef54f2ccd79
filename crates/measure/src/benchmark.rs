//! Benchmark of a network function: throughput, latency, bursts and CPU time of a device under
//! test, alone or against a rival (RFC 2544, RFC 8219).
//!
//! A description, a JSON file, defines device, generator and tests. A rig runs the device and its
//! generator.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::machine::{Machine, load_average, today};

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

pub use builtin::Mechanism;
pub use description::{Test, schema};

use comparison::Turns;
use description::Description;
use results::Results;
use rig::Rig;

/// Benchmark to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Path of the description; without one, macswap is measured on the mechanism `on`.
    pub description: Option<PathBuf>,
    /// Mechanism between generator and macswap.
    pub on: Mechanism,
    /// Mechanism of a second macswap, to compare the first with.
    pub against: Option<Mechanism>,
    /// True to run in a new network namespace with veth pairs.
    pub veth: bool,
    /// Tests to run; empty for those of the description.
    pub tests: Vec<Test>,
    /// True for few, short trials.
    pub quick: bool,
    /// Folder in which the folder of results is created.
    pub output: PathBuf,
}

/// Runs the tests and publishes the results. Returns the report and its folder.
///
/// # Errors
/// Returns an error if the description is invalid, the device or its generator does not start or
/// ends, or the results cannot be written.
pub fn run(options: &Options) -> Result<(String, PathBuf)> {
    let mechanisms = [Some(options.on), options.against];
    let builtin = options.description.is_none();
    let needs_veth = mechanisms.into_iter().flatten().any(Mechanism::needs_veth);
    // Errors of the description are reported before anything is created.
    let described = options.description.as_deref().map(Description::load).transpose()?;
    if options.veth || builtin && needs_veth {
        veth::enter()?;
    }
    interrupt::install()?;
    // The length of a socket path is limited, and the path of the folder of results may be long.
    let scratch = tempfile::Builder::new().prefix("fastlane-bench").tempdir()?;
    let mut description = match described {
        Some(description) => description,
        None => builtin::description(options.on, options.against, scratch.path())?,
    };
    if !options.tests.is_empty() {
        description.tests = Some(options.tests.clone());
    }
    if description.rival.is_none() && description.tests.as_deref() == Some(&[Test::Comparison]) {
        return Err("there is nothing to compare with; describe a `rival`, or use --against".into());
    }
    if options.quick {
        description.make_quick();
    }
    let results = measure(description, options.quick, scratch.path())?;
    publish(&results, &options.output)
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
