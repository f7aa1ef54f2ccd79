//! Packet I/O by Linux itself, without a special driver.
//!
//! * [`Interface`]: properties of a network interface; [`LinkEvents`]: their changes;
//!   [`XdpHolder`]: XDP programs of others on it.
//! * [`af_packet`]: AF_PACKET ports, on interfaces that stay with Linux.
//! * [`inherited`]: descriptors inherited from a service manager.
//! * [`peer`]: the process at the other end of a Unix socket.
//! * [`reentry`]: re-entry of frames into the interface that they were taken from.
//! * [`tap`]: TAP ports; also the kernel peer of a port that Linux does not have.
//! * [`tun`]: TUN devices, for tunnel endpoints in programs.
//! * [`udp`]: UDP sockets as ports.
//!
//! Everything acts in the network namespace of the calling thread and by system calls only. There
//! are no external commands, and no sysfs: it shows the namespace in which it was mounted.

pub mod af_packet;
mod error;
mod ffi;
pub mod inherited;
mod interface;
mod link;
mod pci;
pub mod peer;
pub mod reentry;
mod single_packet_io;
pub mod tap;
pub mod tun;
pub mod udp;
mod virtio;
mod xdp_holder;

pub use error::Error;
pub use fastlane_netlink::{LinkEvent, LinkEvents};
pub use interface::{Interface, Offload};
pub use pci::PciDevice;
pub use xdp_holder::XdpHolder;
