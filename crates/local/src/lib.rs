//! Ports without a device: [`memory`] loops, a [`ring`] between two lanes, [`pcap`] files, and the
//! VLANs of other ports ([`vlan`]).
//!
//! Each module has a small driver, an implementation of [`Queue`](fastlane_core::Queue).
//! [`memory::Memory`] is the shortest and a good start for a new driver. VLANs have no queues of
//! their own: they implement [`LogicalPorts`](fastlane_core::LogicalPorts).

#![deny(unsafe_code)]

pub mod memory;
pub mod pcap;
pub mod ring;
pub mod vlan;
