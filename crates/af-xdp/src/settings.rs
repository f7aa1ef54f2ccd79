//! Settings of a device, and the mode in which the kernel bound it.

use std::fmt;

/// Number of bytes that the kernel reserves before a received frame (XDP_PACKET_HEADROOM in
/// linux/bpf.h). `bpf_xdp_adjust_head` may use them, and they hold the framework's metadata and
/// headroom.
pub(crate) const KERNEL_HEADROOM: usize = 256;

/// Returns the maximum length of a frame, in bytes from the Ethernet header on, that a pool frame
/// of `frame_size` bytes receives.
#[must_use]
pub fn longest_frame(frame_size: usize) -> usize {
    frame_size.saturating_sub(KERNEL_HEADROOM)
}

/// Configured mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The best available mode: zero-copy, else native copy, else generic copy.
    #[default]
    Auto,
    /// The device itself reads and writes the pool's frames.
    ZeroCopy,
    /// The program runs in the driver, the kernel copies the frames.
    NativeCopy,
    /// The program runs in the network stack, on socket buffers. Works with every driver.
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

/// Mode in which a queue is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundMode {
    /// The device itself reads and writes the pool's frames.
    ZeroCopy,
    /// The program runs in the driver, the kernel copies the frames.
    NativeCopy,
    /// The program runs in the network stack, on socket buffers.
    GenericCopy,
}

impl BoundMode {
    const ALL: [Self; 3] = [Self::ZeroCopy, Self::NativeCopy, Self::GenericCopy];

    /// Returns the number of the mode in the order of the variants, from 0 on.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Returns the mode with this number, or `None` if there is none.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

impl fmt::Display for BoundMode {
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
    /// Maximum time of one poll, in microseconds.
    pub microseconds: u32,
    /// Maximum number of frames per poll.
    pub budget: u32,
}

/// Settings of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of the interface.
    pub interface: String,
    /// Index of the interface in the network namespace of the thread that opens it.
    pub index: u32,
    /// Configured mode.
    pub mode: Mode,
    /// Slots in the fill and in the receive ring of each queue; a power of two from 64 to 32768.
    pub receive_ring: u32,
    /// Slots in the transmit and in the completion ring of each queue; a power of two from 64 to
    /// 32768.
    pub transmit_ring: u32,
    /// True if the driver may sleep until it is woken; it sets a flag then. Saves system calls
    /// (XDP_USE_NEED_WAKEUP).
    pub need_wakeup: bool,
    /// Busy polling, or `None` for interrupts.
    pub busy_poll: Option<BusyPoll>,
    /// True for a virtual device (veth, TAP). Its frames may carry partial checksums without a mark
    /// in the descriptor, so the driver looks for them, at about 5 ns per frame.
    pub virtual_device: bool,
    /// Defect of the driver for which mode `auto` copies although the driver has zero-copy.
    pub zero_copy_defect: Option<&'static str>,
}

impl Settings {
    /// Returns the default settings of an interface.
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
            zero_copy_defect: None,
        }
    }
}
