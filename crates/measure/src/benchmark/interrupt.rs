//! SIGINT and SIGTERM: the trial ends and all programs are terminated.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::Result;

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Installs the signal handlers. [`check`] reports the signals from then on.
///
/// # Errors
/// Returns an error if a handler cannot be installed.
pub(super) fn install() -> Result<()> {
    let interrupted = INTERRUPTED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(interrupted))?;
    }
    Ok(())
}

/// Checks for a signal.
///
/// # Errors
/// Returns an error if a signal was received.
pub(super) fn check() -> Result<()> {
    match INTERRUPTED.get().is_some_and(|interrupted| interrupted.load(Relaxed)) {
        true => Err("interrupted".into()),
        false => Ok(()),
    }
}
