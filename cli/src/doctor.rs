//! `fastlane doctor`.
use crate::Error;
use std::process::ExitCode;
/// Doctor.
#[derive(clap::Args)]
pub(crate) struct Arguments {}
pub(crate) fn run(_: &Arguments) -> Result<ExitCode, Error> {
    Ok(ExitCode::SUCCESS)
}
