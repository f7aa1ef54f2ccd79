//! Where logs go.

use std::io::{IsTerminal, stderr};

use tracing::Level;

/// From now on what this process logs (by `tracing`) goes to standard error: warnings and what was
/// chosen for 0, why for 1, everything for more. [`main`](crate::main) does it with the number of
/// times that `-v` was given; other programs around the framework, as slow paths, call it once,
/// before anything is logged.
///
/// A line is the level and the message, without time, coloured on a terminal. Where a program has
/// set a subscriber of its own before, nothing is changed.
pub fn log(verbose: u8) {
    let level = match verbose {
        0 => Level::INFO,
        1 => Level::DEBUG,
        _ => Level::TRACE,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .without_time()
        .with_ansi(stderr().is_terminal())
        .with_writer(stderr)
        .finish();
    // Only fails when the program has set its own, which is then the right one.
    let _ = tracing::subscriber::set_global_default(subscriber);
}
