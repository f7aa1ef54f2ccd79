//! Ports over DPDK: network cards, virtual functions and virtual devices.
//!
//! All that knows DPDK is a plugin in C, `plugin/`, which is opened only when a port asks for it:
//! a program that uses this crate neither links nor needs DPDK. The plugin is looked for at
//! `FASTLANE_DPDK_PLUGIN`, beside the program and one folder above, in `/usr/lib/fastlane` and in
//! `/usr/local/lib/fastlane`.
//!
//! ```text
//! Environment::start          DPDK itself, once in a process, in a thread of its own
//! LaneMemory::new             the frames of a lane that DPDK can use
//! Device::open                a device whose queues receive into such memories
//! Device::queue               one queue, for the lane of that memory
//! ```
//!
//! A burst costs one call into the plugin, which writes the packets itself; nothing here runs once
//! for each packet.

mod device;
mod environment;
mod error;
mod memory;
mod plugin;
mod queue;
mod steering;

pub use device::{Device, DeviceSettings, Link, RECEIVE_DESCRIPTORS, TRANSMIT_DESCRIPTORS};
pub use environment::{Environment, EnvironmentSettings, HugePages};
pub use error::Error;
pub use memory::{CACHE, LaneMemory};
pub use queue::DpdkQueue;
pub use steering::Steering;
