//! SIGINT and SIGTERM: the trial ends, the programs are ended, nothing is left behind.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use fastlane_measure::Result;
use signal_hook::consts::{SIGINT, SIGTERM};

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on the signals are heeded by [`check`].
///
/// # Errors
/// When the system does not let us.
pub(super) fn heed() -> Result<()> {
    let asked = ASKED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(asked))?;
    }
    Ok(())
}

/// # Errors
/// When a signal has come.
pub(super) fn check() -> Result<()> {
    match ASKED.get().is_some_and(|asked| asked.load(Relaxed)) {
        true => Err("interrupted".into()),
        false => Ok(()),
    }
}
