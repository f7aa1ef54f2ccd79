//! A packet as programs in C see it.

use std::mem::offset_of;

/// The version of what a program is compiled against: the layouts and the inline functions here.
/// Checked when the program starts.
pub const FL_ABI: u32 = 2;

/// Verdict: it belongs to Linux. What a packet has until it gets another.
pub const FL_KERNEL: u32 = 0;
/// Verdict: nobody needs it.
pub const FL_DROP: u32 = 1 << 24;
/// Verdict: back out of the port that it came from.
pub const FL_REFLECT: u32 = 2 << 24;
/// Verdict: out of the port whose number is in the lower 16 bits; see fl_forward.
pub const FL_FORWARD: u32 = 3 << 24;
/// Verdict: the lane keeps it until the key in the lower 24 bits is resumed; see fl_hold.
pub const FL_HOLD: u32 = 4 << 24;
/// The greatest key that packets can be held under.
pub const FL_HOLD_MOST: u32 = (1 << 24) - 1;

/// The kind of a message that is a packet; see fl_punt. Applications use the others.
pub const FL_PUNT: u32 = 0xffffffff;

/// Flag: a checksum of the packet is not complete; see fl_complete_checksum.
pub const FL_PARTIAL: u16 = 1;
/// Flag: the packet came from Linux.
pub const FL_FROM_KERNEL: u16 = 2;

/// A packet: which bytes of which frame, where it came from, what shall become of it. It is the
/// application's from the call that shows it to the return from that call, to read and write its
/// bytes, to move its ends and to label it; never to keep.
///
/// An application writes `verdict`, and the others through fl_prepend, fl_append, fl_trim_front and
/// fl_truncate only. A verdict that means nothing is a drop, counted as `drop_bad_verdict`; a port
/// that does not exist is one too, counted as `drop_no_port`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Packet {
    /// The first byte, of the Ethernet header.
    pub data: *mut u8,
    /// Which frame it is. Not the application's to write.
    pub token: u64,
    /// Bytes from `data` on, without the frame check sequence.
    pub length: u32,
    /// Bytes that can be prepended.
    pub headroom: u16,
    /// Bytes that can be appended.
    pub tailroom: u16,
    /// The number of the port that it came from; of a new packet, that it was made for.
    pub port: u16,
    /// FL_PARTIAL, FL_FROM_KERNEL; others are the framework's. Not the application's to write.
    pub flags: u16,
    /// The label: FL_KERNEL, FL_DROP, FL_REFLECT, fl_forward(port) or fl_hold(key).
    pub verdict: u32,
}

// The tests compare with a live packet what cannot be compared here.
const _: () = assert!(size_of::<Packet>() == size_of::<fastlane::Packet>());
const _: () = assert!(align_of::<Packet>() == align_of::<fastlane::Packet>());
const _: () = assert!(offset_of!(Packet, verdict) == 28);
