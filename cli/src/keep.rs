//! `fastlane keep`: holds the resources of an application for its successor (handover).

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastlane::slow::HandoverHolder;

use crate::Error;

/// Interval at which the stop flag and the state are checked.
const STEP: Duration = Duration::from_millis(50);

/// Holds the tables, message rings, AF_XDP sockets and TAP devices of an application for its
/// successor.
///
/// The successor must be the same program of the same release with the same configuration (steering
/// rules may differ). Otherwise it starts with new resources and logs the reason. The command
/// serves one application of this name after the other until SIGINT or SIGTERM.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name of the application, or path of its session socket (any argument with a `/`)
    #[arg(value_name = "NAME|PATH")]
    application: String,
    /// Seconds to wait for a successor after the end of an application
    #[arg(long, value_name = "S", default_value = "60",
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let stop = crate::capture::stop_by_signal()?;
    let hold = Duration::from_secs(arguments.seconds);
    let keeper = HandoverHolder::start(&arguments.application, hold);
    let keeper = keeper.map_err(|error| Error::Failed(error.to_string()))?;
    let mut said = None;
    while !stop.load(Ordering::Relaxed) {
        let now = (keeper.descriptors(), keeper.application());
        if said.replace(now) != Some(now) {
            let (kept, name) = (now.0, &arguments.application);
            match now.1 {
                Some(pid) => eprintln!("fastlane: {name}: process {pid}, {kept} descriptors kept"),
                None => eprintln!("fastlane: {name}: does not run, {kept} descriptors kept"),
            }
        }
        std::thread::sleep(STEP);
    }
    Ok(ExitCode::SUCCESS)
}
