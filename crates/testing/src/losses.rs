//! Losses of a queue.

use fastlane_core::{Queue, Statistics};

/// Returns the losses of a queue and those below it.
#[must_use]
pub fn all_losses(queue: &dyn Queue) -> Statistics {
    let mut losses = queue.statistics();
    if let Some(reader) = queue.loss_reader() {
        losses += reader.read();
    }
    losses
}
