//! Ports without a device: plain [`memory`].

#![forbid(unsafe_code)]

pub mod memory;
