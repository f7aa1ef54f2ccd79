//! SIGTERM and SIGINT of the control plane process, and of a command that waits for them.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown};

use super::supervise::{is_exiting, is_orphan};
use crate::pfcp::Shutdown;

/// Exit status if the process does not end after two signals.
const STUCK: i32 = 5;

/// Follows the signals in a thread of its own. The first one requests a drain, the second one the
/// end, the third one ends the process. A process that is started by a supervisor that is ending
/// begins with the drain. One whose supervisor has died has no lanes to wait for.
///
/// # Errors
/// If a signal handler or the thread cannot be installed.
pub(super) fn follow() -> io::Result<Arc<Shutdown>> {
    let shutdown = Arc::<Shutdown>::default();
    if is_exiting() {
        shutdown.request();
    }
    let mut signals = signals()?;
    let requested = Arc::clone(&shutdown);
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        // One octet is one signal.
        while signals.read_exact(&mut [0]).is_ok() {
            if !requested.request() {
                std::process::exit(STUCK);
            }
            if is_orphan() {
                requested.request_now();
            }
        }
    })?;
    Ok(shutdown)
}

/// Waits for SIGTERM or SIGINT. A second one ends the process.
///
/// # Errors
/// If a signal handler cannot be installed.
pub fn wait_for_end() -> io::Result<()> {
    let mut signals = signals()?;
    signals.read_exact(&mut [0])?;
    let watch = move || {
        if signals.read_exact(&mut [0]).is_ok() {
            std::process::exit(STUCK);
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(watch)?;
    Ok(())
}

/// Returns a flag that SIGTERM and SIGINT set. A second one ends the process.
///
/// # Errors
/// If a signal handler cannot be installed.
pub fn stop_by_signal() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::<AtomicBool>::default();
    for signal in [SIGTERM, SIGINT] {
        // In this order: the first one finds the flag not set.
        register_conditional_shutdown(signal, STUCK, Arc::clone(&stop))?;
        register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// Handles both signals. Returns a stream with an octet for each one that comes.
fn signals() -> io::Result<UnixStream> {
    let (signals, theirs) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(SIGTERM, theirs.try_clone()?)?;
    signal_hook::low_level::pipe::register(SIGINT, theirs)?;
    Ok(signals)
}
