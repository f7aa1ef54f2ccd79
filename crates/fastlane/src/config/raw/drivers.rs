//! Raw settings of the drivers, one struct each.

use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The drivers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// AF_XDP sockets on the queues of a network interface, which Linux keeps.
    AfXdp(AfXdp),
    /// AF_PACKET rings on a network interface, which Linux keeps.
    AfPacket(AfPacket),
    /// A TAP device, whose other side is Linux.
    Tap(Tap),
    /// An ordinary UDP socket, for tunnels that end at an address of Linux. It needs no privilege.
    Udp(UdpSocket),
    /// Capture files, for tests.
    Pcap(Pcap),
    /// A network card or virtual function driven by DPDK, or one of DPDK's virtual devices.
    Dpdk(Dpdk),
    /// A memif peer: shared memory with another process (Fastlane, DPDK, VPP). It needs no
    /// privilege.
    Memif(Memif),
    /// Memory: transmitted frames are received again. For tests and benchmarks.
    Memory(Memory),
    /// A ring to another port of this application, for example of another lane.
    Ring(Ring),
    /// A VLAN of another port, on any driver but `udp`. Its frames have no tag in the application.
    Vlan(Vlan),
}

/// Settings of an AF_XDP port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AfXdp {
    /// The network interface, or `env:NAME` for the value of a variable.
    pub interface: String,
    /// XDP mode. `auto` selects the best that works.
    #[serde(default)]
    pub mode: AfXdpMode,
    /// Number of descriptors in each receive and fill ring: a power of two.
    #[serde(default = "ring_size")]
    pub receive_ring: u32,
    /// Number of descriptors in each transmit and completion ring: a power of two.
    #[serde(default = "ring_size")]
    pub transmit_ring: u32,
    /// If true, the kernel is woken only when it requests it (XDP_USE_NEED_WAKEUP).
    #[serde(default = "yes")]
    pub need_wakeup: bool,
    /// Busy polling, in which the lane drives the device's NAPI. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_poll: Option<BusyPoll>,
}

/// Modes of AF_XDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AfXdpMode {
    /// Zero-copy if possible, otherwise native copy, otherwise generic copy.
    #[default]
    Auto,
    /// The device reads and writes the frames directly. The start fails if the driver cannot.
    ZeroCopy,
    /// XDP in the driver with one copy per packet. The start fails if the driver cannot.
    NativeCopy,
    /// XDP in the network stack, for any device.
    GenericCopy,
}

/// Busy polling of a socket (kernel document networking/napi).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BusyPoll {
    /// Duration of one poll of the device in microseconds (SO_BUSY_POLL).
    pub time_us: u32,
    /// Maximum number of packets of one poll (SO_BUSY_POLL_BUDGET).
    pub budget: u32,
}

/// Settings of an AF_PACKET port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AfPacket {
    /// The network interface, or `env:NAME` for the value of a variable.
    pub interface: String,
    /// Number of frames in the receive ring of each lane: a power of two.
    #[serde(default = "ring_size")]
    pub ring: u32,
    /// If true, the interface also receives frames that are not addressed to it.
    #[serde(default)]
    pub promiscuous: bool,
}

/// Settings of a DPDK port: exactly one of `device` and `vdev`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Dpdk {
    /// PCI address of a card or virtual function, such as `0000:04:02.0`, optionally followed by a
    /// comma and devargs; or `env:NAME` for the value of a variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Virtual device with its devargs, such as `net_memif0,role=client,socket=/run/m.sock`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vdev: Option<String>,
    /// Number of descriptors in each receive ring. Default: 1024.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_ring: Option<u16>,
    /// Number of descriptors in each transmit ring. Default: 1024.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transmit_ring: Option<u16>,
    /// If true, the device also receives frames that are not addressed to it. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promiscuous: Option<bool>,
}

/// Settings common to all DPDK ports: a process has one environment abstraction layer (EAL).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct DpdkEnvironment {
    /// Source of DPDK's memory.
    pub huge_pages: HugePages,
    /// Size of DPDK's memory without huge pages, in MiB. Default: as much as the ports need.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<usize>,
    /// Additional EAL arguments, as on the command line of a DPDK program.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub eal_arguments: Vec<String>,
}

/// Source of DPDK's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HugePages {
    /// Huge pages if enough are available, otherwise none.
    #[default]
    Auto,
    /// Huge pages. The start fails if too few are available.
    Required,
    /// No huge pages. This suits virtual devices; most cards need huge pages.
    None,
}

/// A memif peer (protocol version 2.0).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Memif {
    /// Unix socket on which both sides meet: a path, or `@` and an abstract name.
    pub socket: String,
    /// Role: the server listens on the socket, the client connects and provides the memory.
    pub role: MemifRole,
    /// Number of the interface on this socket, equal on both sides. Default: 0.
    #[serde(default)]
    pub id: u32,
    /// Shared secret that both sides must present, at most 24 bytes. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Number of descriptors in each ring: a power of two, 64 to 16384. The client decides.
    /// Default: 2048.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring: Option<u32>,
    /// Size of each buffer of the shared memory in bytes. The client decides. Default: 2048.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<u32>,
}

/// Role on the socket of a memif.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MemifRole {
    /// Listens on the socket.
    Server,
    /// Connects to the socket and provides the memory.
    Client,
}

/// Settings of a TAP device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Tap {
    /// Name in Linux, at most 15 bytes. Default: chosen by the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// MAC address. Default: chosen by the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// MTU in bytes. Default: 1500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Addresses of Linux on the device, such as `10.0.0.1/24`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
}

/// Settings of an ordinary UDP socket. Datagrams appear with Ethernet, IP and UDP headers. Only
/// datagrams from the socket's own address can be transmitted.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct UdpSocket {
    /// Address of this host and UDP port, such as `192.0.2.1:2152`.
    pub address: SocketAddr,
}

/// Settings of a port on capture files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Pcap {
    /// File to receive from: pcap or pcapng.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<PathBuf>,
    /// File to which transmitted frames are written, as pcapng.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<PathBuf>,
    /// Number of times that the file is received; 0 repeats it forever. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<u64>,
}

/// Settings of a memory port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Memory {
    /// Maximum number of frames in the port. Default: 1024.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<usize>,
    /// Frames in the port at the start, which circulate forever. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill: Option<Fill>,
}

/// Frames of a memory port at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Fill {
    /// Number of frames.
    pub frames: usize,
    /// Length of each frame in bytes without the frame check sequence: at least 14.
    pub length: usize,
}

/// Settings of a ring to another port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Ring {
    /// Port at the other end, whose `peer` is this port.
    pub peer: String,
    /// Capacity in frames for each direction: a power of two. Default: 1024.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<usize>,
}

/// Settings of a port that is a VLAN of another one (IEEE 802.1Q). Received frames lose the tag,
/// and transmitted ones get it with priority 0.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Vlan {
    /// Port that carries the VLAN. It keeps untagged frames and those of other VLANs.
    pub port: String,
    /// VLAN identifier: 1 to 4094.
    pub id: u16,
}

fn ring_size() -> u32 {
    2048
}

fn yes() -> bool {
    true
}
