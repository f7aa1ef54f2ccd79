//! What Linux itself offers to frames.
//!
//! * [`Interface`]: the facts of a network interface.
//! * [`af_packet`]: the frames of an interface that Linux keeps.
//! * [`blackhole`]: routes to nowhere, for addresses that an application has to itself.
//! * [`inherited`]: the descriptors that a service manager gives to this process.
//! * [`mirror`]: its routes and neighbours, in tables that lanes read.
//! * [`reentry`]: the way back into an interface for frames that were taken from it.
//! * [`route`]: where Linux sends packets, asked once.
//! * [`tap`]: a TAP device as queues, which is also the kernel peer of a port that Linux does not
//!   have.
//! * [`udp`]: an ordinary UDP socket as queues.
//! * [`tun`]: an interface whose wire is a file of IP packets.
//!
//! Everything here acts in the network namespace of the calling thread, by system calls only: no
//! sysfs, which shows the namespace of whoever mounted it, and no external commands.

pub mod af_packet;
mod error;
mod ffi;
pub mod inherited;
mod interface;
mod link;
pub mod reentry;
mod single_packet_io;
pub mod tap;
pub mod tun;
pub mod udp;
mod virtio;

pub use error::Error;
pub use interface::{Interface, Offload};
