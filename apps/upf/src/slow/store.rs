//! What is kept of sessions and of answers, across the death of this process.

pub mod record;
