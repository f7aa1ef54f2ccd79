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
//! Where too few huge pages are free DPDK starts without them and says so
//! ([`Environment::remark`]), unless they are asked for. Two programs run side by side: each has a
//! file prefix of its own.
//!
//! What DPDK's virtual devices cannot (22.11), and nothing here can mend:
//! * `net_memif` unmaps its peer's memory as soon as that goes, whoever uses it: a lane that
//!   forwards at this moment crashes. The driver `memif` of Fastlane does not.
//! * `net_af_xdp` keeps its socket, and so the queue, until the process ends.
//! * `net_af_packet` and `net_af_xdp` do not tell of partial checksums, so turn the peer's checksum
//!   offload off.
//! * `net_tap` takes real-time signals of the process for itself.
//! * None of them has interrupts that a lane could wait for, so an idle lane naps.
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
pub use environment::{Environment, EnvironmentSettings, HugePages, installed};
pub use error::Error;
pub use memory::{CACHE, LaneMemory};
pub use queue::DpdkQueue;
pub use steering::Steering;
