//! AF_XDP ports: frames between a network interface and a lane's pool, past the network stack.
//!
//! A [`Device`] is the interface with the steering program on it, one for each port. [`open_lane`]
//! opens the queues of one lane: the lane's pool is their UMEM, so a frame received on one queue
//! leaves by any other without being copied. Each queue has its own four rings and one thread.
//!
//! A process that keeps the descriptors of another ([`Device::kept`], [`XskQueue::kept`], and the
//! pool's memory) keeps its device and queues open: a successor takes them over by
//! [`Device::adopt`] and [`adopt_lane`], and in between the kernel loses a frame only for want of
//! space.
//!
//! Kernel document: Documentation/networking/af_xdp.rst. Linux 6.1 is the oldest supported.

mod active;
mod adopt;
mod census;
mod description;
mod device;
mod error;
mod ladder;
mod lent;
mod link;
mod mapping;
mod queue;
mod ring;
mod settings;
mod socket;

pub use adopt::{Inheritance, adopt_lane};
pub use description::{DeviceDescription, QueueDescription};
pub use device::Device;
pub use error::Error;
pub use ladder::{Opened, Request, open_lane};
pub use queue::XskQueue;
pub use settings::{BusyPoll, Mode, Obtained, Settings, longest_frame};
