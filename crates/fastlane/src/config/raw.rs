//! The raw configuration: one struct for each JSON object, as written in the file.
//!
//! Meaning, unit and default of each key are documented here; the JSON schema and the error
//! messages are generated from the same structs. The resolved configuration is in `config::plan`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::unique::unique_map;

mod drivers;
mod switch_policy;

pub use drivers::{
    AfPacket, AfXdp, AfXdpMode, BusyPoll, Dpdk, DpdkEnvironment, Driver, Fill, HugePages, Memif,
    MemifRole, Memory, Pcap, Ring, Tap, UdpSocket, Vlan,
};
pub use switch_policy::{Load, LoadBounds, SwitchPolicy};

/// Default path of the agent's socket.
pub const AGENT_SOCKET: &str = "/run/fastlane/agent.sock";
/// Variable with the path of the agent's socket, which a container has.
const AGENT_VARIABLE: &str = "FASTLANE_AGENT";

/// Configuration of a Fastlane application: its ports and lanes.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Configuration {
    /// Location of this schema, for editors.
    #[serde(rename = "$schema", default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// Name of the running application (`fastlane top NAME`). Default: the name of the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The lanes: the threads that process packets.
    #[serde(default)]
    pub lanes: Lanes,
    /// The ports by name. Applications refer to them by these names.
    #[serde(deserialize_with = "unique_map")]
    pub ports: BTreeMap<String, Port>,
    /// Path of the Unix socket for tools and the slow path. Default: `/run/fastlane/NAME.sock`, or
    /// in the runtime directory of a user other than root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<PathBuf>,
    /// Process whose capabilities open the ports: this one or the agent. Default: `auto`.
    #[serde(default)]
    pub privileges: Privileges,
    /// Path of the agent's socket. Default: the variable `FASTLANE_AGENT`, or
    /// `/run/fastlane/agent.sock`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<PathBuf>,
    /// The Prometheus endpoint. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
    /// The tables that the application reads and its slow path writes, by name.
    #[serde(default, deserialize_with = "unique_map", skip_serializing_if = "BTreeMap::is_empty")]
    pub tables: BTreeMap<String, Table>,
    /// Messages between the lanes and the slow path. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Messages>,
    /// Copy of Linux's links, addresses, neighbours and routes in tables. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<Mirror>,
    /// Settings common to all `dpdk` ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dpdk: Option<DpdkEnvironment>,
    /// Settings of the application itself. Their form is defined by the application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<serde_json::Value>,
}

/// The lanes: the threads that process packets, and their common settings.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Lanes {
    /// CPU numbers. Each gets one lane, pinned to it. Default: one lane, not pinned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Vec<usize>>,
    /// Threading model. Default: `run-to-completion`.
    pub model: Model,
    /// Buffer for packets labelled `Hold`.
    pub hold: Hold,
    /// Behaviour of a lane without work.
    pub idle: Idle,
    /// Maximum number of packets per burst: 1 to 1024.
    pub burst: usize,
    /// Number of frames in the pool of each lane.
    pub frames: usize,
    /// Size of a frame in bytes, including 64 bytes of metadata: a power of two from 1024 to 65536,
    /// with AF_XDP from 2048 on. AF_XDP needs Linux 6.6 for more than a page (4096).
    pub frame_size: usize,
    /// Bytes before a packet that are free for prepended headers. With AF_XDP it is always 192.
    pub headroom: usize,
    /// Maximum number of packets that a lane passes to Linux per turn. ARP and ICMP have a reserved
    /// share in addition.
    pub kernel_budget: usize,
    /// Locks the memory that lanes use (mlock2), so that a machine short of memory never takes it.
    /// Needs `RLIMIT_MEMLOCK` or CAP_IPC_LOCK.
    pub lock_memory: bool,
}

impl Configuration {
    /// Returns the path of the agent's socket.
    #[must_use]
    pub fn agent_socket(&self) -> PathBuf {
        let variable = || std::env::var_os(AGENT_VARIABLE).filter(|path| !path.is_empty());
        let named = self.agent.clone().or_else(|| variable().map(PathBuf::from));
        named.unwrap_or_else(|| PathBuf::from(AGENT_SOCKET))
    }
}

impl Default for Lanes {
    fn default() -> Self {
        Self {
            cpus: None,
            model: Model::RunToCompletion,
            hold: Hold::default(),
            idle: Idle::Adaptive,
            burst: 32,
            frames: 8192,
            frame_size: 2048,
            headroom: 192,
            kernel_budget: 32,
            lock_memory: false,
        }
    }
}

/// Threading model.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// Each lane has queues of every port and processes their packets completely.
    RunToCompletion,
    /// Some lanes have the ports (I/O lanes), the others the application (workers).
    MasterWorker(MasterWorker),
}

/// Master-worker model: I/O lanes and workers, with rings between them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MasterWorker {
    /// The I/O lanes, which have the ports, by their index in `cpus`. All others are workers: they
    /// run the application on the packets of their keys (`lane-by`).
    pub io: Vec<usize>,
    /// Capacity of each ring between two lanes, in packets: a power of two.
    #[serde(default = "pass_ring")]
    pub ring: usize,
}

/// Buffer of each lane for packets labelled `Hold`, with memory for that number of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Hold {
    /// Maximum number of held packets. Further ones are dropped and counted.
    pub packets: usize,
    /// Maximum number of held packets per key.
    pub per_key: usize,
}

impl Default for Hold {
    fn default() -> Self {
        Self { packets: 256, per_key: 64 }
    }
}

/// Behaviour of a lane without work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Idle {
    /// Polls continuously and uses a whole core.
    Busy,
    /// Waits for the device's interrupt immediately.
    Interrupt,
    /// Learns the gaps between packets: polls short ones, naps while packets gather, and waits for
    /// the interrupt in long ones. CPU use follows the load.
    Adaptive,
}

impl From<Idle> for fastlane_core::Idle {
    fn from(idle: Idle) -> Self {
        match idle {
            Idle::Busy => Self::Busy,
            Idle::Interrupt => Self::Interrupt,
            Idle::Adaptive => Self::Adaptive,
        }
    }
}

/// A port: a source and sink of frames.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Port {
    /// The driver: an object with one key, the driver's name.
    pub driver: Driver,
    /// Another driver under load. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<SwitchPolicy>,
    /// Tier that forwards flows which arrive at this port. Default: `lanes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// Steering rules. A frame that matches any rule belongs to the fast path, all others to Linux.
    /// Default: every frame belongs to the fast path. On a device that Linux does not have, the
    /// device applies the rules if it can, otherwise the lane. Frames of a VLAN that is a port are
    /// matched by the rules of that port only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steer: Vec<super::rules::Rule>,
    /// Path of packets labelled `Kernel` into Linux. Default: `re-enter` if Linux has the interface
    /// (af-xdp, af-packet), otherwise `none`; of a VLAN that of the port that carries it, with the
    /// tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Kernel>,
    /// Selection of the lane for received packets. Default: `rss`; in master-worker `flow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane_by: Option<LaneBy>,
    /// The lanes that have this port, by their index in `cpus`. Default: all. A VLAN has those of
    /// the port that carries it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes: Option<Vec<usize>>,
    /// Behaviour when the interface (af-xdp, af-packet) or the device (dpdk, if its driver reports
    /// it) is removed while the application runs. Default: `reopen`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_removal: Option<OnRemoval>,
    /// Time in seconds, 1 to 86400, within which `reopen` must succeed. After it the application
    /// ends with exit status 5. Default: 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reopen_within_s: Option<u64>,
}

/// Tier that forwards the flows of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// The lanes, which see all packets of the port.
    Lanes,
    /// A program in the kernel, without lanes: the slow path of the application attaches it to the
    /// interface of an af-xdp port and writes its flows. It is an XDP program or, in mode `auto`,
    /// one at the ingress of veth, bridges, VLANs, bonds and drivers without XDP (Linux 6.6 and
    /// later). What concerns lanes (`steer`, `lane-by`, `lanes`, ..) has no effect. Other packets
    /// are those of Linux.
    Kernel,
    /// The XDP program in the kernel, and lanes for what it does not forward.
    Both,
}

impl Tier {
    /// Returns true if an XDP program in the kernel forwards flows.
    #[must_use]
    pub fn has_program(self) -> bool {
        matches!(self, Self::Kernel | Self::Both)
    }
}

/// Behaviour when the interface or the device of a port is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnRemoval {
    /// Waits for an interface of the same name that is up, or for the device, and opens the port on
    /// it.
    Reopen,
    /// Ends the application with exit status 5.
    Exit,
}

/// Selection of the lane for a packet. Packets with the same key always go to the same lane, so
/// state per key needs no lock. Packets without the key (for example ARP) stay in the lane in which
/// they arrive; in master-worker they go to the worker of shard 0. IP fragments go to Linux,
/// because only the first one carries ports or a TEID. With an address as the key, they go to its
/// lane.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LaneBy {
    /// The lane of the queue that the device selected (receive side scaling).
    Rss,
    /// The 5-tuple: addresses, protocol and ports. Both directions of a flow go to one lane.
    Flow,
    /// A field of the packet.
    Key(Key),
    /// The shard that the application returns for the packet (`App::shard`).
    Application,
}

/// A field of the packet that selects its lane.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Key {
    /// The field.
    pub field: KeyField,
    /// Position of an 8-bit shard inside the field: its lowest bit, counted from the least
    /// significant bit. Default: the shard is a hash of the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard_at: Option<u32>,
}

/// Fields that can be keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KeyField {
    /// The tunnel endpoint identifier (TEID) of GTP-U.
    GtpTeid,
    /// The IPv4 source address, or the first eight bytes of the IPv6 one.
    SourceAddress,
    /// The IPv4 destination address, or the first eight bytes of the IPv6 one.
    DestinationAddress,
    /// Bytes at an offset.
    Bytes(KeyBytes),
}

/// Bytes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct KeyBytes {
    /// Offset of the first byte from the start of the Ethernet header.
    pub offset: u16,
    /// Number of bytes: 1 to 16. The first byte is the most significant.
    pub length: u8,
}

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Table {
    /// Maximum number of entries.
    pub capacity: usize,
}

/// Messages between the lanes and the slow path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Messages {
    /// Size of each message ring in KiB, one ring in each direction per lane: a power of two, at
    /// least 4.
    pub ring_kib: usize,
}

impl Default for Messages {
    fn default() -> Self {
        Self { ring_kib: 256 }
    }
}

/// Copy of Linux's routes and neighbours, in the network namespace of the application.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Mirror {
    /// Maximum number of routes, for IPv4 and IPv6 each.
    pub routes: usize,
    /// Maximum number of neighbours.
    pub neighbours: usize,
    /// Routing tables to follow, in addition to `local`. Default: 254, which is `main`.
    pub tables: Vec<u32>,
    /// If true, each destination has its own number for counters. Otherwise destinations with the
    /// same next hop share one, and lanes read less memory.
    pub count_routes: bool,
    /// If true, packets are left to Linux whose exit has traffic control: a queueing discipline
    /// that does more than queue, or filters of `clsact` for frames that leave. Default: false, of
    /// the router true.
    pub honour_traffic_control: bool,
}

impl Default for Mirror {
    fn default() -> Self {
        Self {
            routes: 1 << 17,
            neighbours: 1 << 14,
            tables: vec![254],
            count_routes: false,
            honour_traffic_control: false,
        }
    }
}

/// Path of packets into Linux.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kernel {
    /// No path: the packets are dropped and counted.
    None,
    /// Re-entry: the packets continue as if they had just arrived on the interface (af-xdp and
    /// af-packet).
    ReEnter,
    /// A TAP device that stands for this port in Linux. Linux also transmits through it.
    Tap(Tap),
}

/// Process whose capabilities open the ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Privileges {
    /// This process if it has the capabilities that its ports need, otherwise the agent.
    #[default]
    Auto,
    /// The agent (`fastlane agent`), also if this process has the capabilities.
    Agent,
    /// This process.
    Own,
}

/// The Prometheus endpoint.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Metrics {
    /// Address on which `/metrics` is served. Default: 127.0.0.1:9464.
    #[serde(default = "metrics_address")]
    pub listen: SocketAddr,
}

fn pass_ring() -> usize {
    1024
}

fn metrics_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 9464))
}
