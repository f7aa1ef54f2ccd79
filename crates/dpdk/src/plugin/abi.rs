//! Binary interface of the plugin: the declarations of `plugin/plugin.h` and `plugin/packet.h` in
//! Rust.

use std::ffi::{c_char, c_int};

use fastlane_core::{METADATA_LENGTH, Packet, RegionId};

/// Version of the interface. Every change of a layout or a function increments it, here and in
/// `plugin.h`.
pub(crate) const VERSION: u32 = 6;

/// Error text of DPDK, terminated by a zero.
#[repr(C)]
pub(crate) struct ErrorText {
    pub(crate) text: [c_char; 240],
}

/// Opaque mempool.
#[repr(C)]
pub(crate) struct MemoryHandle {
    opaque: [u8; 0],
}

/// Opaque queue.
#[repr(C)]
pub(crate) struct QueueHandle {
    opaque: [u8; 0],
}

/// Properties of a device.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct DeviceInfo {
    pub(crate) driver: [c_char; 40],
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: u16,
    pub(crate) min_mtu: u16,
    pub(crate) max_mtu: u16,
    pub(crate) max_receive_queues: u16,
    pub(crate) max_transmit_queues: u16,
    pub(crate) socket: i32,
    pub(crate) checksums: u8,
    pub(crate) rss: u8,
    pub(crate) reserved: [u8; 2],
}

/// Configuration of a device. The plugin overwrites the numbers of descriptors and the last three
/// fields with the values in effect.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(crate) struct DeviceConfig {
    pub(crate) queues: u16,
    pub(crate) receive_descriptors: u16,
    pub(crate) transmit_descriptors: u16,
    pub(crate) mtu: u16,
    pub(crate) promiscuous: u8,
    pub(crate) checksums: u8,
    pub(crate) interrupts: u8,
    pub(crate) symmetric_rss: u8,
}

/// Losses of a device.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct DeviceLosses {
    pub(crate) missed: u64,
    pub(crate) receive_errors: u64,
    pub(crate) transmit_errors: u64,
    pub(crate) no_frames: u64,
}

/// Packets that a queue could not receive.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct QueueLosses {
    pub(crate) length: u64,
    pub(crate) invalid: u64,
}

/// Result of a receive call.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Received {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
}

/// Result of a transmit call.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct SendResult {
    pub(crate) bytes: u64,
    pub(crate) taken: u32,
    pub(crate) stopped: u32,
}

/// A steering rule. Numbers are in network byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct FlowRule {
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

/// Flags of the valid fields of a rule.
pub(crate) mod fields {
    pub(crate) const ETHERTYPE: u16 = 1;
    pub(crate) const PROTOCOL: u16 = 2;
    pub(crate) const PORT: u16 = 4;
    pub(crate) const GTP_U: u16 = 8;
}

/// Size of a packet, then the offset of each field: data, token, length, headroom, tailroom, port,
/// flags, verdict. A test compares them with packets of core.
pub(crate) const LAYOUT: [u32; 9] = [size_of::<Packet>() as u32, 0, 8, 16, 20, 22, 24, 26, 28];

type Text = *mut ErrorText;
type Port = u16;

/// Function table of the plugin; `plugin.h` documents the functions.
#[repr(C)]
#[derive(Clone)]
pub(crate) struct Table {
    pub(crate) version: u32,
    pub(crate) size: u32,
    pub(crate) layout: [u32; 9],
    pub(crate) metadata: u32,
    pub(crate) dpdk_version: unsafe extern "C" fn() -> *const c_char,
    pub(crate) eal_init: unsafe extern "C" fn(c_int, *mut *mut c_char, Text) -> c_int,
    pub(crate) eal_cleanup: unsafe extern "C" fn() -> c_int,
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
    pub(crate) mapped_memory: unsafe extern "C" fn() -> u64,
    pub(crate) probe: unsafe extern "C" fn(*const c_char, Text) -> c_int,
    pub(crate) device_info: unsafe extern "C" fn(Port, *mut DeviceInfo, Text) -> c_int,
    pub(crate) configure: unsafe extern "C" fn(Port, *mut DeviceConfig, Text) -> c_int,
    pub(crate) device_start:
        unsafe extern "C" fn(Port, *const DeviceConfig, *const *mut MemoryHandle, Text) -> c_int,
    pub(crate) link_up: unsafe extern "C" fn(Port) -> c_int,
    pub(crate) losses: unsafe extern "C" fn(Port, *mut DeviceLosses) -> c_int,
    pub(crate) steer: unsafe extern "C" fn(Port, u16, *const FlowRule, u32, Text) -> c_int,
    pub(crate) set_link: unsafe extern "C" fn(Port, c_int) -> c_int,
    pub(crate) removal_events: unsafe extern "C" fn() -> c_int,
    pub(crate) is_removed: unsafe extern "C" fn(Port) -> c_int,
    pub(crate) device_remove: unsafe extern "C" fn(Port, u16) -> c_int,
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
    pub(crate) transmit: unsafe extern "C" fn(*mut QueueHandle, *mut Packet, u32) -> SendResult,
    pub(crate) transmit_run: unsafe extern "C" fn(*mut QueueHandle, *mut Packet, u32) -> SendResult,
    pub(crate) alloc_packets: unsafe extern "C" fn(*mut QueueHandle, *mut Packet, u32) -> u32,
    pub(crate) release: unsafe extern "C" fn(*mut u64, u32),
}

/// Checks the first two words of a table; returns the difference, if any. Nothing behind these
/// words may be read before.
pub(crate) fn check_header([version, size]: [u32; 2]) -> Option<String> {
    if version != VERSION {
        return Some(format!("its table has version {version}, not {VERSION}"));
    }
    let wanted = size_of::<Table>();
    (size as usize != wanted).then(|| format!("its table has {size} bytes, not {wanted}"))
}

impl Table {
    /// Checks the packet layout of the plugin; returns the difference, if any.
    pub(crate) fn check(&self) -> Option<String> {
        if self.layout != LAYOUT || self.metadata as usize != METADATA_LENGTH {
            return Some("its packet layout differs".to_owned());
        }
        None
    }
}

/// Returns the token of a memory region without a frame.
pub(crate) fn token_base(region: RegionId) -> u64 {
    region.token(0)
}
