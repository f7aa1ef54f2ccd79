//! Mechanisms that share an interface with Linux.

use std::io;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::PATIENCE;

/// A mechanism and its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// AF_XDP, native mode.
    XdpNative,
    /// AF_XDP, generic mode.
    XdpGeneric,
    /// AF_PACKET with a ring.
    Packet,
}

impl Mechanism {
    /// All mechanisms.
    pub const ALL: [Self; 3] = [Self::XdpNative, Self::XdpGeneric, Self::Packet];

    /// Returns the value of `driver` for an interface.
    #[must_use]
    pub fn on(self, interface: &str) -> Value {
        match self {
            Self::XdpNative => json!({"af-xdp": {"interface": interface, "mode": "native-copy"}}),
            Self::XdpGeneric => json!({"af-xdp": {"interface": interface, "mode": "generic-copy"}}),
            Self::Packet => json!({"af-packet": {"interface": interface}}),
        }
    }
}

/// Waits until `done` returns true.
///
/// # Panics
/// When that takes longer than [`PATIENCE`].
#[track_caller]
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "timeout: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Repeats a system call that is interrupted. One on a socket with a timeout is interrupted if the
/// process is frozen meanwhile (signal(7)).
///
/// # Errors
/// All other errors of the call.
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
