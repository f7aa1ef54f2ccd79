//! AF_XDP ports: frames between a network interface and a lane's pool, past the network stack.
//!
//! A [`Device`] is an interface with the steering program attached, one for each port.
//! [`open_lane`] opens the queues of one lane: the lane's pool is their UMEM, so a frame received
//! on one queue leaves by any other without a copy. Each queue has its own four rings and one
//! thread.
//!
//! A packet's way through the driver: `queue` reads and writes descriptors, `ring` has the rings
//! and the wake-up calls, and `in_flight` accounts for the frames that the kernel has.
//!
//! Hot restart: a process that holds duplicates of another's descriptors ([`Device::handover`],
//! [`XskQueue::handover`], and the pool's memory) keeps its device and queues open. A successor
//! takes them over by [`Device::adopt`] and [`adopt_lane`]. In between, the kernel drops a frame
//! only when a ring has no space.
//!
//! Kernel document: Documentation/networking/af_xdp.rst. Linux 6.1 is the minimum.

mod adopt;
mod bind;
mod description;
mod device;
mod error;
mod frame_set;
mod in_flight;
mod kernel_state;
mod mtu;
mod queue;
mod ring;
mod ring_scan;
mod settings;
mod socket;
mod steering;

pub use adopt::{AdoptRequest, adopt_lane, open_bound_lane, take_bound};
pub use bind::{BoundQueue, OpenRequest, OpenedQueue, bind_lane, open_lane, reopen};
pub use description::{DeviceDescription, QueueDescription};
pub use device::Device;
pub use error::Error;
pub use fastlane_steer::Counts;
pub use queue::XskQueue;
pub use settings::{BoundMode, BusyPoll, Mode, Settings, longest_frame};
pub use socket::set_busy_poll;
pub use steering::Steering;
