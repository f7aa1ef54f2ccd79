//! `plugin/plugin.h` and `plugin/packet.h` in Rust.

use std::ffi::{c_char, c_int};

use fastlane_core::{METADATA_LENGTH, Packet, RegionId};

/// A change of anything in this file is a change of this number, here and in `plugin.h`.
pub(crate) const VERSION: u32 = 2;

/// What DPDK refused: a text that ends with a zero.
#[repr(C)]
pub(crate) struct ErrorText {
    pub(crate) text: [c_char; 240],
}

/// A mempool, known by its address.
#[repr(C)]
pub(crate) struct MemoryHandle {
    opaque: [u8; 0],
}

/// A queue, known by its address.
#[repr(C)]
pub(crate) struct QueueHandle {
    opaque: [u8; 0],
}

/// What a device is.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Facts {
    pub(crate) driver: [c_char; 40],
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: u16,
    pub(crate) least_mtu: u16,
    pub(crate) most_mtu: u16,
    pub(crate) most_receive_queues: u16,
    pub(crate) most_transmit_queues: u16,
    pub(crate) socket: i32,
    pub(crate) checksums: u8,
    pub(crate) spreads: u8,
    pub(crate) reserved: [u8; 2],
}

/// What a device shall be; the descriptors and the last three come back as they are.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(crate) struct Settings {
    pub(crate) queues: u16,
    pub(crate) receive_descriptors: u16,
    pub(crate) transmit_descriptors: u16,
    pub(crate) mtu: u16,
    pub(crate) promiscuous: u8,
    pub(crate) checksums: u8,
    pub(crate) interrupts: u8,
    pub(crate) spreads: u8,
}

/// What a device has lost.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Losses {
    pub(crate) missed: u64,
    pub(crate) receive_errors: u64,
    pub(crate) transmit_errors: u64,
    pub(crate) no_frames: u64,
}

/// What a queue could not receive.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct QueueLosses {
    pub(crate) length: u64,
    pub(crate) invalid: u64,
}

/// What was received.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Received {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
}

/// What became of a run of packets.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Outcome {
    pub(crate) bytes: u64,
    pub(crate) taken: u32,
    pub(crate) stopped: u32,
}

/// A steering rule; numbers in network byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct FlatRule {
    pub(crate) ethertype: [u8; 2],
    pub(crate) first_port: [u8; 2],
    pub(crate) last_port: [u8; 2],
    pub(crate) fields: u16,
    pub(crate) version: u8,
    pub(crate) protocol: u8,
    pub(crate) reserved: [u8; 2],
    pub(crate) source: [u8; 16],
    pub(crate) source_mask: [u8; 16],
    pub(crate) destination: [u8; 16],
    pub(crate) destination_mask: [u8; 16],
}

/// Which fields of a rule hold.
pub(crate) mod fields {
    pub(crate) const ETHERTYPE: u16 = 1;
    pub(crate) const PROTOCOL: u16 = 2;
    pub(crate) const PORT: u16 = 4;
    pub(crate) const GTP_U: u16 = 8;
}

/// The size of a packet and the offset of each of its fields: data, token, length, headroom,
/// tailroom, port, flags, verdict. A test compares them with packets as core makes them.
pub(crate) const LAYOUT: [u32; 9] = [size_of::<Packet>() as u32, 0, 8, 16, 20, 22, 24, 26, 28];

type Text = *mut ErrorText;
type Port = u16;

/// The functions of the plugin; `plugin.h` says what they do.
#[repr(C)]
#[derive(Clone)]
pub(crate) struct Table {
    pub(crate) version: u32,
    pub(crate) size: u32,
    pub(crate) layout: [u32; 9],
    pub(crate) metadata: u32,
    pub(crate) dpdk_version: unsafe extern "C" fn() -> *const c_char,
    pub(crate) start: unsafe extern "C" fn(c_int, *mut *mut c_char, Text) -> c_int,
    pub(crate) stop: unsafe extern "C" fn() -> c_int,
    pub(crate) thread_register: unsafe extern "C" fn() -> c_int,
    pub(crate) thread_unregister: unsafe extern "C" fn(),
    pub(crate) memory_create: unsafe extern "C" fn(
        *const c_char,
        u32,
        u32,
        u32,
        c_int,
        *mut *mut MemoryHandle,
        Text,
    ) -> c_int,
    pub(crate) memory_in_use: unsafe extern "C" fn(*const MemoryHandle) -> u32,
    pub(crate) memory_free: unsafe extern "C" fn(*mut MemoryHandle),
    pub(crate) probe: unsafe extern "C" fn(*const c_char, Text) -> c_int,
    pub(crate) facts: unsafe extern "C" fn(Port, *mut Facts, Text) -> c_int,
    pub(crate) configure: unsafe extern "C" fn(Port, *mut Settings, Text) -> c_int,
    pub(crate) begin:
        unsafe extern "C" fn(Port, *const Settings, *const *mut MemoryHandle, Text) -> c_int,
    pub(crate) link_up: unsafe extern "C" fn(Port) -> c_int,
    pub(crate) losses: unsafe extern "C" fn(Port, *mut Losses) -> c_int,
    pub(crate) steer: unsafe extern "C" fn(Port, u16, *const FlatRule, u32, Text) -> c_int,
    pub(crate) set_link: unsafe extern "C" fn(Port, c_int) -> c_int,
    pub(crate) remove: unsafe extern "C" fn(Port, u16) -> c_int,
    pub(crate) ring_pair:
        unsafe extern "C" fn(*const c_char, u16, u32, *mut [Port; 2], Text) -> c_int,
    pub(crate) queue_create: unsafe extern "C" fn(
        Port,
        u16,
        u16,
        u64,
        u32,
        c_int,
        c_int,
        *mut MemoryHandle,
        *mut *mut QueueHandle,
    ) -> c_int,
    pub(crate) queue_losses: unsafe extern "C" fn(*const QueueHandle, *mut QueueLosses),
    pub(crate) queue_free: unsafe extern "C" fn(*mut QueueHandle),
    pub(crate) interrupt: unsafe extern "C" fn(*const QueueHandle) -> c_int,
    pub(crate) arm: unsafe extern "C" fn(*const QueueHandle) -> c_int,
    pub(crate) disarm: unsafe extern "C" fn(*const QueueHandle),
    pub(crate) receive: unsafe extern "C" fn(*mut QueueHandle, *mut Packet, u32) -> Received,
    pub(crate) transmit: unsafe extern "C" fn(*mut QueueHandle, *mut Packet, u32) -> Outcome,
    pub(crate) blank: unsafe extern "C" fn(*mut QueueHandle, *mut Packet, u32) -> u32,
    pub(crate) release: unsafe extern "C" fn(*mut u64, u32),
}

/// What differs in the first two words of a table, if anything does. Nothing behind them may be
/// looked at before.
pub(crate) fn fault_of_head([version, size]: [u32; 2]) -> Option<String> {
    if version != VERSION {
        return Some(format!("its table has version {version}, not {VERSION}"));
    }
    let wanted = size_of::<Table>();
    (size as usize != wanted).then(|| format!("its table has {size} bytes, not {wanted}"))
}

impl Table {
    /// What differs from what this program was built for, if anything does.
    pub(crate) fn fault(&self) -> Option<String> {
        if self.layout != LAYOUT || self.metadata as usize != METADATA_LENGTH {
            return Some("its packets are laid out in another way".to_owned());
        }
        None
    }
}

/// The token of no frame in particular of a home.
pub(crate) fn token_base(home: RegionId) -> u64 {
    home.token(0)
}
