//! The mechanisms that share an interface with Linux.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::PATIENCE;

/// A mechanism on an interface, and its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// AF_XDP, native mode.
    XdpNative,
    /// AF_XDP, generic mode.
    XdpGeneric,
    /// AF_PACKET.
    Packet,
}

impl Mechanism {
    /// All.
    pub const ALL: [Self; 3] = [Self::XdpNative, Self::XdpGeneric, Self::Packet];

    /// The value of `driver` in the configuration.
    #[must_use]
    pub fn on(self, interface: &str) -> Value {
        match self {
            Self::XdpNative => json!({"af-xdp": {"interface": interface, "mode": "native-copy"}}),
            Self::XdpGeneric => json!({"af-xdp": {"interface": interface, "mode": "generic-copy"}}),
            Self::Packet => json!({"af-packet": {"interface": interface}}),
        }
    }
}

/// Waits until `done` says so.
///
/// # Panics
/// When that takes longer than [`PATIENCE`].
#[track_caller]
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "it did not come about that {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
