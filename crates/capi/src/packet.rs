//! Packet layout and constants for programs in C.

use std::mem::offset_of;

/// Version of the layouts and inline functions that a program is compiled against. It is checked at
/// start.
pub const FL_ABI: u32 = 3;

/// Verdict: pass to Linux. The default.
pub const FL_KERNEL: u32 = 0;
/// Verdict: drop.
pub const FL_DROP: u32 = 1 << 24;
/// Verdict: send back by the port it arrived on.
pub const FL_REFLECT: u32 = 2 << 24;
/// Verdict: send by the port in the lower 16 bits; see fl_forward.
pub const FL_FORWARD: u32 = 3 << 24;
/// Verdict: hold in the lane until the key in the lower 24 bits is resumed; see fl_hold.
pub const FL_HOLD: u32 = 4 << 24;
/// Maximum hold key.
pub const FL_HOLD_MOST: u32 = (1 << 24) - 1;

/// Kind of a message that contains a packet; see fl_punt. Applications may use all other kinds.
pub const FL_PUNT: u32 = 0xffffffff;

/// Flag: a checksum of the packet is partial; see fl_complete_checksum.
pub const FL_PARTIAL: u16 = 1;
/// Flag: the packet came from Linux. No packet that `process` gets has it: such packets leave
/// without the application.
pub const FL_FROM_KERNEL: u16 = 2;
/// Bit of `token`: an end of the packet was moved.
pub const FL_MOVED: u64 = 0x8000000000000000;

/// A packet: a window on a frame, its origin and its verdict. The application may use it only
/// during the call that passes it: read and write its bytes, move its ends and label it.
///
/// An application writes `verdict`, and the others through fl_prepend, fl_append, fl_trim_front and
/// fl_truncate only. A verdict that means nothing is a drop, counted as `drop_bad_verdict`; a port
/// that does not exist is one too, counted as `drop_no_port`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Packet {
    /// First byte, which begins the Ethernet header.
    pub data: *mut u8,
    /// Frame identifier, and FL_MOVED. Applications must not write it.
    pub token: u64,
    /// Length in bytes, without the frame check sequence.
    pub length: u32,
    /// Number of bytes that can be prepended.
    pub headroom: u16,
    /// Number of bytes that can be appended.
    pub tailroom: u16,
    /// Port that the packet arrived on; of a new packet, the port that it was created for.
    pub port: u16,
    /// FL_PARTIAL, FL_FROM_KERNEL and flags of the framework. Applications must not write it.
    pub flags: u16,
    /// Verdict: FL_KERNEL, FL_DROP, FL_REFLECT, fl_forward(port) or fl_hold(key).
    pub verdict: u32,
}

// The tests compare with a live packet what cannot be compared here.
const _: () = assert!(size_of::<Packet>() == size_of::<fastlane::Packet>());
const _: () = assert!(align_of::<Packet>() == align_of::<fastlane::Packet>());
const _: () = assert!(offset_of!(Packet, verdict) == 28);
