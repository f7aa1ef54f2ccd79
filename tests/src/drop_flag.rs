//! A flag for the threads of a test that go on until it is set.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when it is dropped. A test that panics drops it, too: its threads end, and it fails
/// instead of hanging.
#[derive(Debug)]
pub struct DropFlag<'a>(pub &'a AtomicBool);

impl Drop for DropFlag<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
