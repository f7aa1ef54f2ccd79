//! Requests to end the control plane process.

use std::sync::atomic::{AtomicU8, Ordering};

/// Number of requests to end: the first one starts a drain, the second one ends at once.
#[derive(Debug, Default)]
pub struct Shutdown(AtomicU8);

impl Shutdown {
    /// Adds a request, usually a signal. Returns false if the process should have ended before.
    pub fn request(&self) -> bool {
        // It never wraps: the process ends with the third one.
        self.0.fetch_add(1, Ordering::Relaxed) < 2
    }

    /// Requests an end without a drain.
    pub fn request_now(&self) {
        self.0.fetch_max(2, Ordering::Relaxed);
    }

    /// Returns true if the process is to end after a drain.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// Returns true if the process is to end now.
    #[must_use]
    pub fn is_immediate(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 1
    }
}
