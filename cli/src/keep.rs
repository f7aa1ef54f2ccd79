//! `fastlane keep`: what a successor of an application needs.

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastlane::slow::HandoverHolder;

use crate::Error;

/// How often it is looked whether to end, and what there is to be said.
const STEP: Duration = Duration::from_millis(50);

/// Keeps what an application has for its successor: tables, messages, AF_XDP sockets, TAP devices.
///
/// The successor must be the same program of the same release with the same configuration (steering
/// rules may differ). Else it begins anew and says why. It runs until it is ended
/// (SIGINT, SIGTERM), and keeps what each application of this name has.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The name of the application, or the path of its session socket (anything with a `/`)
    #[arg(value_name = "NAME|PATH")]
    application: String,
    /// For how many seconds after the end of an application its successor is waited for
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
