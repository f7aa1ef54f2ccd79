//! The configuration as it is written: one struct for each JSON object.
//!
//! What a key means, its unit and its default stand here once; the schema and the errors come from
//! the same structs. What the whole means is in [`plan`](super::plan).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::unique::unique_map;

mod drivers;

pub use drivers::{
    AfPacket, AfXdp, AfXdpMode, BusyPoll, Dpdk, DpdkEnvironment, Driver, Fill, HugePages, Memif,
    MemifRole, Memory, Pcap, Ring, Tap, UdpSocket,
};

/// A Fastlane application: its ports, its lanes, what they are for.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Configuration {
    /// Where this schema is, for editors.
    #[serde(rename = "$schema", default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// The name under which the running application is found (`fastlane top NAME`). Default: the
    /// name of the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The threads.
    #[serde(default)]
    pub lanes: Lanes,
    /// The ports by name. Applications call them by these names.
    #[serde(deserialize_with = "unique_map")]
    pub ports: BTreeMap<String, Port>,
    /// The Unix socket at which tools attach. Default: `/run/fastlane/NAME.sock`, or in the runtime
    /// directory of a user other than root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<PathBuf>,
    /// The Prometheus endpoint. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
    /// The tables that the application reads and its slow path writes, by the names under which the
    /// application asks for them.
    #[serde(default, deserialize_with = "unique_map", skip_serializing_if = "BTreeMap::is_empty")]
    pub tables: BTreeMap<String, Table>,
    /// Messages between the two halves. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Messages>,
    /// What Linux knows (links, addresses, neighbours, routes), in tables. Default: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<Mirror>,
    /// What all `dpdk` ports have alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dpdk: Option<DpdkEnvironment>,
    /// The application's own settings; what is allowed here is the application's to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<serde_json::Value>,
}

/// The threads that move packets, and what all of them have alike.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Lanes {
    /// One lane for each CPU named, pinned to it. Default: one lane, not pinned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Vec<usize>>,
    /// How ports and lanes belong together. Default: `run-to-completion`.
    pub model: Model,
    /// What packets labelled `Hold` are kept in.
    pub hold: Hold,
    /// What a lane does when nothing arrives.
    pub idle: Idle,
    /// The most packets shown to the application at once: 1 to 1024.
    pub burst: usize,
    /// Frames in the pool of each lane.
    pub frames: usize,
    /// Bytes in a frame, 64 of them for metadata: a power of two, 2048 or 4096 with AF_XDP.
    pub frame_size: usize,
    /// Bytes before a packet into which headers can be prepended. With AF_XDP it is always 192.
    pub headroom: usize,
    /// The most packets that one turn of a lane gives to Linux; ARP and ICMP have a share besides.
    pub kernel_budget: usize,
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
        }
    }
}

/// How ports and lanes belong together.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// Each lane has queues of each port and does everything for their packets.
    RunToCompletion,
    /// Some lanes have the ports, the others the application.
    MasterWorker(MasterWorker),
}

/// Lanes of two kinds, with rings between them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MasterWorker {
    /// The lanes that have the ports, by their place in `cpus`. All others are workers: they have
    /// the application, and get the packets whose key is theirs (`lane-by`).
    pub io: Vec<usize>,
    /// Packets under way from one lane to another, in each direction: a power of two.
    #[serde(default = "pass_ring")]
    pub ring: usize,
}

/// What packets labelled `Hold` are kept in, in each lane: memory for as many frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Hold {
    /// The most packets held at a time; one more is dropped, and counted.
    pub packets: usize,
    /// The most of them under one key.
    pub per_key: usize,
}

impl Default for Hold {
    fn default() -> Self {
        Self { packets: 256, per_key: 64 }
    }
}

/// What a lane does when nothing arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Idle {
    /// It looks again at once: a whole core.
    Busy,
    /// It waits for the device's interrupt at once.
    Interrupt,
    /// It looks again for a while, naps, then waits for the interrupt: CPU follows load.
    Adaptive,
}

/// A port: anything that frames come from and go to.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Port {
    /// The mechanism: one key, its name.
    pub driver: Driver,
    /// What is fast; any match is enough, all else is Linux's. Default: everything is fast. Where
    /// Linux does not have the device, the lane sorts it out, or the device if it can.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steer: Vec<super::rules::Rule>,
    /// How a packet labelled `Kernel` gets into Linux. Default: `re-enter` where Linux has the
    /// interface (af-xdp, af-packet), else `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Kernel>,
    /// Which lane gets a packet that arrives here. Default: `rss`; of master-worker, `flow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane_by: Option<LaneBy>,
    /// The lanes that have this port, by their place in `cpus`. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes: Option<Vec<usize>>,
}

/// Which lane gets a packet. Packets with the same key always get to the same lane, so what the
/// application keeps under that key needs no lock. Those without the key (ARP, for example) are
/// shown to the lane where they arrive, of master-worker to the worker of shard 0. Fragments of IP
/// are Linux's without the application seeing them, because not each has the key; but an address is
/// in each, so by that they have their lane.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LaneBy {
    /// The lane whose queue the device has chosen.
    Rss,
    /// Addresses, protocol and ports, the same for both directions.
    Flow,
    /// A field of the packet.
    Key(Key),
    /// What the application says: its `shard` of the packet.
    Application,
}

/// A field of a packet that says whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Key {
    /// Which.
    pub field: KeyField,
    /// The field has its shard (a number of eight bits) in it, from this bit on, counted from the
    /// least significant. Default: it has none, and the shard is a hash of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard_at: Option<u32>,
}

/// The fields that can be keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KeyField {
    /// The tunnel endpoint identifier of GTP-U.
    GtpTeid,
    /// The IPv4 source address, or the first eight bytes of the IPv6 one.
    SourceAddress,
    /// The IPv4 destination address, or the first eight bytes of the IPv6 one.
    DestinationAddress,
    /// Bytes at a place.
    Bytes(KeyBytes),
}

/// Bytes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct KeyBytes {
    /// Where they begin, from the Ethernet header on.
    pub offset: u16,
    /// How many there are: 1 to 16. As a number, the first byte is the most significant.
    pub length: u8,
}

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Table {
    /// The most entries.
    pub capacity: usize,
}

/// Messages between the two halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Messages {
    /// KiB of messages under way from each lane, and to each lane: a power of two from 4 on.
    pub ring_kib: usize,
}

impl Default for Messages {
    fn default() -> Self {
        Self { ring_kib: 256 }
    }
}

/// What is mirrored of what Linux knows, in the network namespace of the application.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Mirror {
    /// The most routes of IPv4, and of IPv6.
    pub routes: usize,
    /// The most neighbours.
    pub neighbours: usize,
    /// The routing tables to follow, besides local. Default: 254, which is main.
    pub tables: Vec<u32>,
    /// Whether each destination has a number of its own, to count by. Else those that go the same
    /// way share one, and the lanes read less memory.
    pub count_routes: bool,
}

impl Default for Mirror {
    fn default() -> Self {
        Self { routes: 1 << 17, neighbours: 1 << 14, tables: vec![254], count_routes: false }
    }
}

/// How packets get into Linux.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kernel {
    /// Not at all: such a packet is dropped and counted.
    None,
    /// As if it had just arrived on the interface (af-xdp and af-packet).
    ReEnter,
    /// Through a TAP device that stands for this port in Linux, and through which Linux also sends.
    Tap(Tap),
}

/// The Prometheus endpoint.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Metrics {
    /// Where `/metrics` is served. Default: 127.0.0.1:9464.
    #[serde(default = "metrics_address")]
    pub listen: SocketAddr,
}

fn pass_ring() -> usize {
    1024
}

fn metrics_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 9464))
}
