//! The program around both halves: its command line, its configuration, who starts what.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fastlane::{Error, Packet, Program, Told, Verdict};

use crate::settings::{Settings, defaults};

pub mod ask;
pub mod check;
pub mod pools;
pub mod supervise;

/// The name of the program, and of its session where the configuration has no other.
pub const NAME: &str = "upf";

/// What Fastlane is told of this program.
#[must_use]
pub fn program() -> Program {
    Program::with_settings(defaults)
}

/// Reads the configuration, for all that is not the fast half.
///
/// # Errors
/// The first thing that is wrong.
pub fn read(path: &Path, overrides: &[String]) -> Result<Told<Settings>, Error> {
    program().read(path, overrides, NAME)
}

/// Runs the fast half in this process, with the command line of a Fastlane application, until it
/// is told to end or `stop` is true. Returns the exit status.
pub fn fast(words: impl IntoIterator<Item = OsString>, stop: &Arc<AtomicBool>) -> u8 {
    program().main_from(words, stop, |lane| {
        lane.settings::<Settings>()?;
        Err::<fn(&mut Packet) -> Verdict, _>(Error::application("there are no lanes yet"))
    })
}

/// Runs the slow half in this process until it is told to end.
///
/// # Errors
/// What is wrong with the configuration, or what this machine refuses.
pub fn slow(path: &Path, overrides: &[String], verbose: u8) -> Result<(), Error> {
    let told = read(path, overrides)?;
    log(verbose);
    for problem in pools::close(&told.settings) {
        tracing::warn!("{problem}");
    }
    Err(Error::application("there is no node yet"))
}

/// Logs go to standard error, as those of the fast half.
fn log(verbose: u8) {
    let level = match verbose {
        0 => tracing::Level::INFO,
        1 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .without_time()
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(std::io::stderr)
        .finish();
    // Only fails when somebody has set one before, which is then the right one.
    let _ = tracing::subscriber::set_global_default(subscriber);
}
