//! The mechanisms, one struct each.

use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The mechanisms.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// AF_XDP sockets on the queues of a network interface, which Linux keeps.
    AfXdp(AfXdp),
    /// AF_PACKET rings on a network interface, which Linux keeps.
    AfPacket(AfPacket),
    /// A TAP device: the other side is Linux.
    Tap(Tap),
    /// An ordinary UDP socket, for tunnels that end at an address of Linux: without privilege.
    Udp(UdpSocket),
    /// Capture files, for tests.
    Pcap(Pcap),
    /// A network card or virtual function that DPDK drives, or one of DPDK's virtual devices.
    Dpdk(Dpdk),
    /// A memif peer: shared memory with another process (Fastlane, DPDK, VPP), without privilege.
    Memif(Memif),
    /// Plain memory: what is sent is received again. For tests and benchmarks.
    Memory(Memory),
    /// A ring to another port of this application, of another lane for example.
    Ring(Ring),
}

/// AF_XDP.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AfXdp {
    /// The network interface.
    pub interface: String,
    /// What to use; `auto` takes the best that works.
    #[serde(default)]
    pub mode: AfXdpMode,
    /// Descriptors in each receive and fill ring: a power of two.
    #[serde(default = "ring_size")]
    pub receive_ring: u32,
    /// Descriptors in each transmit and completion ring: a power of two.
    #[serde(default = "ring_size")]
    pub transmit_ring: u32,
    /// Whether the kernel is woken only when it asks to be.
    #[serde(default = "yes")]
    pub need_wakeup: bool,
    /// Busy polling: the lane drives the device's NAPI. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_poll: Option<BusyPoll>,
}

/// The modes of AF_XDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AfXdpMode {
    /// Zero-copy, else native copy, else generic copy.
    #[default]
    Auto,
    /// The driver works on the frames themselves, or the start is refused.
    ZeroCopy,
    /// XDP in the driver, one copy for each packet, or the start is refused.
    NativeCopy,
    /// XDP in the stack: any device.
    GenericCopy,
}

/// Busy polling of a socket (kernel document networking/napi).
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BusyPoll {
    /// How long a call polls the device, in microseconds (SO_BUSY_POLL).
    pub time_us: u32,
    /// The most packets of one poll (SO_BUSY_POLL_BUDGET).
    pub budget: u32,
}

/// AF_PACKET.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AfPacket {
    /// The network interface.
    pub interface: String,
    /// Frames in the receive ring of each lane: a power of two.
    #[serde(default = "ring_size")]
    pub ring: u32,
    /// Whether the interface also takes in what is not addressed to it.
    #[serde(default)]
    pub promiscuous: bool,
}

/// DPDK; exactly one of `device` and `vdev`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Dpdk {
    /// The PCI address of a card or virtual function, as `0000:04:02.0`, with devargs behind a
    /// comma if need be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// A virtual device with its devargs, as `net_memif0,role=client,socket=/run/m.sock`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vdev: Option<String>,
    /// Descriptors in each receive ring. Default: 1024.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_ring: Option<u16>,
    /// Descriptors in each transmit ring. Default: 1024.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transmit_ring: Option<u16>,
    /// Whether the device also takes in what is not addressed to it. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promiscuous: Option<bool>,
}

/// What all ports of DPDK have alike: its environment abstraction layer is one for a process.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct DpdkEnvironment {
    /// Where DPDK's memory comes from.
    pub huge_pages: HugePages,
    /// MiB of memory without huge pages. Default: as much as the ports need.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<usize>,
    /// Further arguments of EAL, as on the command line of a DPDK program.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub eal_arguments: Vec<String>,
}

/// Where DPDK's memory comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HugePages {
    /// Huge pages where there are enough, else none.
    #[default]
    Auto,
    /// Huge pages, or the start is refused.
    Required,
    /// None: enough for virtual devices; most cards need them.
    None,
}

/// A memif peer (protocol version 2.0).
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Memif {
    /// The Unix socket at which both sides meet: a path, or with `@` in front an abstract name.
    pub socket: String,
    /// The server listens at the socket, the client connects to it and brings the memory.
    pub role: MemifRole,
    /// The number of the interface at this socket: the same on both sides. Default: 0.
    #[serde(default)]
    pub id: u32,
    /// What both sides know and must agree on, at most 24 bytes. Default: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Descriptors in each ring: a power of two, 64 to 16384. The client decides. Default: 2048.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring: Option<u32>,
    /// Bytes in each buffer of the shared memory. The client decides. Default: 2048.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<u32>,
}

/// Who listens and who connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MemifRole {
    /// Listens at the socket.
    Server,
    /// Connects to it, and brings the memory.
    Client,
}

/// A TAP device.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Tap {
    /// Its name in Linux, at most 15 bytes. Default: the kernel's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its hardware address. Default: the kernel's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Its MTU in bytes. Default: 1500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Linux's addresses on it, as `10.0.0.1/24`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
}

/// An ordinary UDP socket. Its datagrams are shown with Ethernet, IP and UDP headers; only
/// datagrams from its own address can be sent.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct UdpSocket {
    /// The address of this host and the UDP port: `192.0.2.1:2152`.
    pub address: SocketAddr,
}

/// Capture files.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Pcap {
    /// What is received: a pcap or pcapng file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<PathBuf>,
    /// Where what is sent is written, as pcapng.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<PathBuf>,
    /// How many times the file is received, 0 for ever. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<u64>,
}

/// Plain memory.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Memory {
    /// The most frames that it holds, and that it may be filled with. Default: 1024.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<usize>,
    /// Frames in it at the start, to go round for ever. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill: Option<Fill>,
}

/// What a memory port holds at the start.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Fill {
    /// How many frames.
    pub frames: usize,
    /// Bytes in each, without the frame check sequence: 14 or more.
    pub length: usize,
}

/// A ring to another port.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Ring {
    /// The port at the other end, which names this one.
    pub peer: String,
    /// Frames under way in each direction: a power of two. Default: 1024.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<usize>,
}

fn ring_size() -> u32 {
    2048
}

fn yes() -> bool {
    true
}
