//! Ports over DPDK: network cards, virtual functions and virtual devices.
//!
//! Only the plugin in C, `plugin/`, uses DPDK. It is opened when a port needs it, so a program that
//! uses this crate neither links nor needs DPDK. The plugin is searched at `FASTLANE_DPDK_PLUGIN`,
//! beside the program and one folder above, in `/usr/lib/fastlane` and in
//! `/usr/local/lib/fastlane`. A program with file capabilities or set-user-ID (`AT_SECURE`)
//! searches the last two only, and takes no EAL arguments.
//!
//! ```text
//! Environment::start          DPDK itself, once per process, in a thread of its own
//! LaneMemory::new             the frames of a lane that DPDK can use
//! Device::open                a device whose queues receive into such memories
//! Device::queue               one queue, for the lane of that memory
//! ```
//!
//! If too few huge pages are free, DPDK starts without them and [`Environment::warning`] reports
//! it, unless the settings require them. Two programs can run on one machine: each has a file
//! prefix of its own.
//!
//! Limits of DPDK's virtual devices (22.11) that this crate cannot remove:
//! * `net_memif` unmaps its peer's memory as soon as the peer disconnects, even while a lane uses
//!   it: a lane that forwards at this moment crashes. Fastlane's driver `memif` does not.
//! * `net_af_xdp` keeps its socket, and so the queue, until the process ends.
//! * `net_af_packet` and `net_af_xdp` do not report partial checksums, so turn the peer's checksum
//!   offload off.
//! * `net_tap` takes real-time signals of the process for itself.
//! * None of them has interrupts that a lane can wait for, so an idle lane naps.
//!
//! A burst costs one call into the plugin, which writes the packets itself. No Rust code of this
//! crate runs once per packet.

mod device;
mod environment;
mod error;
mod ethdev;
mod flow;
mod memory;
mod plugin;
mod queue;
mod vfio;

pub use device::{Device, DeviceSettings, Link, RECEIVE_DESCRIPTORS, TRANSMIT_DESCRIPTORS};
pub use environment::{Environment, EnvironmentSettings, HugePages, installed};
pub use error::Error;
pub use flow::Steering;
pub use memory::{CACHE, LaneMemory};
pub use queue::DpdkQueue;
