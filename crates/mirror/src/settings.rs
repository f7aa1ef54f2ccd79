//! How large the tables of a mirror are, and what it follows.

use std::time::Duration;

use super::model::MAIN;

/// How large the tables are, and what is followed. A table that is full does not lead packets
/// astray: what it lacks is Linux's, and is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorSettings {
    /// In the names of the tables, for people.
    pub name: String,
    /// The numbers of Linux's routing tables; the first is what [`route4`](super::Mirror::route4)
    /// and [`route6`](super::Mirror::route6) ask. The routes of the local table are in each of
    /// them.
    pub tables: Vec<u32>,
    /// The most IPv4 destinations of each table.
    pub routes4: usize,
    /// The most IPv6 destinations of each table.
    pub routes6: usize,
    /// The most groups of next hops, of all tables: with [`count_routes`](Self::count_routes) one
    /// for each destination.
    pub groups: usize,
    /// The most pairs of interface and router that routes name.
    pub hops: usize,
    /// The most neighbours.
    pub neighbours: usize,
    /// The most interfaces.
    pub links: usize,
    /// The most addresses of this host.
    pub addresses: usize,
    /// Whether each destination has a route number of its own, to count by; else routes that go the
    /// same ways have the same one.
    pub count_routes: bool,
    /// Octets of the receive buffer for events. Beyond it events are lost, and everything is read
    /// anew.
    pub receive_buffer: usize,
    /// Which neighbours are kept alive.
    pub keep_alive: KeepAlive,
}

/// Which neighbours Linux is asked to look after, because it does not see the packets that go to
/// them. One that is asked about answers, or is given up by Linux: that is an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAlive {
    /// None.
    Off,
    /// Those that routes name.
    Routers {
        /// The most requests in a second.
        rate: u32,
    },
    /// All that are on the links of ports.
    All {
        /// The most requests in a second.
        rate: u32,
    },
}

impl MirrorSettings {
    /// Of the main table.
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
            receive_buffer: 8 << 20,
            keep_alive: KeepAlive::All { rate: 100 },
        }
    }
}

/// Between two times that everything is read anew lies at least this, and [`REST`] times as long as
/// the last time has taken.
pub(super) const RESYNC_PAUSE: Duration = Duration::from_millis(20);
pub(super) const REST: u32 = 2;
