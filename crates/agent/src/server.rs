//! The agent as a program: serves the pools of its configuration until a signal ends it.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::agent::Agent;
use crate::{Error, config};

/// Runs the agent with the configuration at `path` until SIGINT or SIGTERM. The programs of its
/// clients stay pinned.
///
/// # Errors
/// Returns an error if the start fails.
pub fn run(path: &Path) -> Result<(), Error> {
    let plan = config::load(path)?;
    let refuse = |error: io::Error| Error::Settings(format!("signals: {error}"));
    let (mut stop, signals) = UnixStream::pair().map_err(refuse)?;
    for signal in [SIGINT, SIGTERM] {
        let signals = signals.try_clone().map_err(refuse)?;
        signal_hook::low_level::pipe::register(signal, signals).map_err(refuse)?;
    }
    let _agent = Agent::start_with(plan)?;
    loop {
        match stop.read(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return Ok(()),
        }
    }
}
