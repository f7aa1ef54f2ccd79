//! The framework: what the author of a network application imports.

#![forbid(unsafe_code)]

pub mod describe;
pub mod metrics;
pub mod session;
