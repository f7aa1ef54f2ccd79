//! What is asked of a device, and what was got.

use std::fmt;

/// Bytes that the kernel keeps free before a received frame (XDP_PACKET_HEADROOM in linux/bpf.h):
/// `bpf_xdp_adjust_head` may use them, and they hold this framework's metadata and head room.
pub(crate) const KERNEL_HEADROOM: usize = 256;

/// The longest frame, in bytes from the Ethernet header on, that a pool frame of `frame_size` bytes
/// receives.
#[must_use]
pub fn longest_frame(frame_size: usize) -> usize {
    frame_size.saturating_sub(KERNEL_HEADROOM)
}

/// How frames shall come from the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The best that there is: zero-copy, else native copy, else generic copy.
    #[default]
    Auto,
    /// The device itself reads and writes the pool's frames.
    ZeroCopy,
    /// The program runs in the driver, the kernel copies the frames.
    NativeCopy,
    /// The program runs in the network stack, on socket buffers: works with every driver.
    GenericCopy,
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Auto => "auto",
            Self::ZeroCopy => "zero-copy",
            Self::NativeCopy => "native copy",
            Self::GenericCopy => "generic copy",
        })
    }
}

/// How the frames of a queue come from the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obtained {
    /// The device itself reads and writes the pool's frames.
    ZeroCopy,
    /// The program runs in the driver, the kernel copies the frames.
    NativeCopy,
    /// The program runs in the network stack, on socket buffers.
    GenericCopy,
}

impl Obtained {
    const ALL: [Self; 3] = [Self::ZeroCopy, Self::NativeCopy, Self::GenericCopy];

    /// Its place in the order above, from 0 on.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }

    /// The one at this place.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

impl fmt::Display for Obtained {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::ZeroCopy => "zero-copy",
            Self::NativeCopy => "native copy",
            Self::GenericCopy => "generic copy",
        })
    }
}

/// Busy polling: the lane's thread runs the driver's receive code itself (socket(7), SO_BUSY_POLL;
/// SO_PREFER_BUSY_POLL and SO_BUSY_POLL_BUDGET in af_xdp.rst).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// How long a call may poll, in microseconds.
    pub microseconds: u32,
    /// The most frames in one call.
    pub budget: u32,
}

/// What is asked of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The interface's name.
    pub interface: String,
    /// Its index, in the network namespace of the thread that opens it.
    pub index: u32,
    /// How frames shall come from the driver.
    pub mode: Mode,
    /// Places in the fill and in the receive ring of each queue; a power of two.
    pub receive_ring: u32,
    /// Places in the transmit and in the completion ring of each queue; a power of two.
    pub transmit_ring: u32,
    /// Whether the driver may sleep until it is woken, which it says in a flag: saves system calls.
    pub need_wakeup: bool,
    /// Busy polling, if wanted.
    pub busy_poll: Option<BusyPoll>,
    /// A device of this machine (veth, TAP): its frames may carry partial checksums, and no
    /// descriptor says so; they are looked for, at about 5 ns a frame.
    pub virtual_device: bool,
}

impl Settings {
    /// The default settings for an interface.
    #[must_use]
    pub fn new(interface: &str, index: u32) -> Self {
        Self {
            interface: interface.to_owned(),
            index,
            mode: Mode::Auto,
            receive_ring: 2048,
            transmit_ring: 2048,
            need_wakeup: true,
            busy_poll: None,
            virtual_device: false,
        }
    }
}
