//! Ports without a device: plain [`memory`], a [`ring`] between two lanes, [`pcap`] files.

#![deny(unsafe_code)]

pub mod memory;
pub mod pcap;
pub mod ring;
