//! The agent as a program: serves the pools of its configuration until a signal ends it.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::agent::Agent;
use crate::{Configuration, Error};

/// Runs the agent with a configuration until SIGINT or SIGTERM. The programs of its
/// clients stay pinned.
///
/// # Errors
/// Returns an error if the start fails.
pub fn run(configuration: Configuration) -> Result<(), Error> {
    let refuse = |error: io::Error| Error::Settings(format!("signals: {error}"));
    let (mut stop, signals) = UnixStream::pair().map_err(refuse)?;
    for signal in [SIGINT, SIGTERM] {
        let signals = signals.try_clone().map_err(refuse)?;
        signal_hook::low_level::pipe::register(signal, signals).map_err(refuse)?;
    }
    let _agent = Agent::start(configuration)?;
    loop {
        match stop.read(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return Ok(()),
        }
    }
}
