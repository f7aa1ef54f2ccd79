//! Settings of a mirror: table capacities and what it follows.

use std::time::Duration;

use super::model::MAIN;

/// Table capacities and followed objects. A table that is full never misroutes packets: missing
/// entries are left to Linux and counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorSettings {
    /// Name prefix of the tables, for diagnostics.
    pub name: String,
    /// Numbers of the mirrored Linux routing tables. [`route4`](super::Mirror::route4) and
    /// [`route6`](super::Mirror::route6) use the first. Routes of the local table are included in
    /// each.
    pub tables: Vec<u32>,
    /// Maximum number of IPv4 destinations in each table.
    pub routes4: usize,
    /// Maximum number of IPv6 destinations in each table.
    pub routes6: usize,
    /// Maximum number of next-hop groups in all tables. With [`count_routes`](Self::count_routes)
    /// each destination needs one.
    pub groups: usize,
    /// Maximum number of pairs of interface and gateway.
    pub hops: usize,
    /// Maximum number of neighbours.
    pub neighbours: usize,
    /// Maximum number of interfaces.
    pub links: usize,
    /// Maximum number of addresses of this host.
    pub addresses: usize,
    /// True if each destination has its own route number for counting. Otherwise routes with equal
    /// next hops share one.
    pub count_routes: bool,
    /// True if packets are left to Linux that leave by an interface with traffic control
    /// ([`FallbackReason::TrafficControl`](super::FallbackReason::TrafficControl)).
    pub honour_traffic_control: bool,
    /// Receive buffer for events in bytes. Beyond it events are lost and everything is read again.
    pub receive_buffer: usize,
    /// Neighbours that are probed.
    pub keep_alive: KeepAlive,
}

/// Selection of neighbours that Linux is asked to probe, because it does not see the packets sent
/// to them. The neighbour answers, or Linux reports its failure as an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAlive {
    /// No neighbours.
    Off,
    /// Gateways of routes.
    Routers {
        /// Maximum number of probes per second.
        rate: u32,
    },
    /// All neighbours on the links of ports.
    All {
        /// Maximum number of probes per second.
        rate: u32,
    },
}

impl MirrorSettings {
    /// Creates default settings for the main table.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            tables: vec![MAIN],
            routes4: 1 << 16,
            routes6: 1 << 15,
            groups: 1 << 12,
            hops: 1 << 12,
            neighbours: 1 << 14,
            links: 1 << 10,
            addresses: 1 << 10,
            count_routes: false,
            honour_traffic_control: false,
            receive_buffer: 8 << 20,
            keep_alive: KeepAlive::All { rate: 100 },
        }
    }
}

/// Minimum pause between two resyncs; it is also at least [`REST`] times the duration of the last.
pub(super) const RESYNC_PAUSE: Duration = Duration::from_millis(20);
pub(super) const REST: u32 = 2;
