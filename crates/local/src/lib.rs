//! Ports without a device: plain [`memory`], a [`ring`] between two lanes.

#![deny(unsafe_code)]

pub mod memory;
pub mod ring;
