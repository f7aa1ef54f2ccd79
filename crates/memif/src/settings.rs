//! Settings of a memif port. The mode is always Ethernet.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::Error;
use crate::message::{NAME, SECRET};

/// Role in the protocol: who listens, and who creates the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Listens on the socket, and maps the memory that the client created. Older texts call it
    /// master.
    Server,
    /// Connects to the socket, and creates the memory. Older texts call it slave.
    Client,
}

/// Address of the socket between server and client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Path of a socket in the file system.
    Path(PathBuf),
    /// Abstract name, without a file (unix(7)). It belongs to the network namespace.
    Abstract(String),
}

impl FromStr for Address {
    type Err = std::convert::Infallible;

    /// Parses an address. An abstract name begins with `@`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.strip_prefix('@') {
            Some(name) => Self::Abstract(name.to_owned()),
            None => Self::Path(text.into()),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(formatter),
            Self::Abstract(name) => write!(formatter, "@{name}"),
        }
    }
}

/// Settings of a memif port. The mode is always Ethernet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemifSettings {
    /// Address of the socket. Each port has a socket of its own.
    pub socket: Address,
    /// Role of this end.
    pub role: Role,
    /// Interface number behind the socket, the same at both ends.
    pub id: u32,
    /// Secret that the client must send, at most 24 octets; the same at both ends.
    pub secret: Option<String>,
    /// Interface name sent to the peer, at most 31 octets.
    pub name: String,
    /// Number of queues, 1 to 256. There is one ring per queue and direction, or fewer if the peer
    /// has fewer.
    pub queues: usize,
    /// Slots of a ring, a power of two from 2 to 16,384. Only a client decides; the server accepts
    /// any size up to 16,384.
    pub ring_size: usize,
    /// Octets of a buffer, a multiple of 64 from 128 to 65,472. Only a client decides. Longer
    /// frames take several buffers.
    pub buffer_size: usize,
    /// True if the queues have interrupts: an idle lane sleeps until the peer sends.
    pub interrupt: bool,
}

/// Maximum number of queues.
const MAX_QUEUES: usize = 256;
/// Maximum number of slots of a ring, as a power of two.
pub(crate) const MAX_SLOTS: u8 = 14;
/// Maximum number of octets of memory shared with a peer.
pub(crate) const MAX_MEMORY: u64 = 1 << 30;

impl MemifSettings {
    /// Returns the default settings: interface 0, one queue, 1024 slots, buffers of 2048 octets,
    /// interrupts.
    #[must_use]
    pub fn new(socket: Address, role: Role) -> Self {
        Self {
            socket,
            role,
            id: 0,
            secret: None,
            name: "memif0".to_owned(),
            queues: 1,
            ring_size: 1024,
            buffer_size: 2048,
            interrupt: true,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |what: String, reason: String, remedy: &str| {
            Err(Error::Setting { what, reason, remedy: remedy.to_owned() })
        };
        if !(1..=MAX_QUEUES).contains(&self.queues) {
            return refuse(
                format!("{} queues", self.queues),
                format!("memif has 1 to {MAX_QUEUES}"),
                "set another number",
            );
        }
        let most = 1 << MAX_SLOTS;
        if !self.ring_size.is_power_of_two() || !(2..=most).contains(&self.ring_size) {
            return refuse(
                format!("rings of {} slots", self.ring_size),
                format!("a ring has a power of two of them, 2 to {most}"),
                "1024 is usual",
            );
        }
        if !self.buffer_size.is_multiple_of(64) || !(128..=65_472).contains(&self.buffer_size) {
            return refuse(
                format!("buffers of {} octets", self.buffer_size),
                "a buffer has a multiple of 64 octets, 128 to 65472".to_owned(),
                "2048 is usual",
            );
        }
        let memory = 2 * self.queues as u64 * self.ring_size as u64 * self.buffer_size as u64;
        if memory > MAX_MEMORY / 2 {
            return refuse(
                format!("{} MiB of buffers", memory >> 20),
                format!("a memif port has at most {} MiB", MAX_MEMORY >> 21),
                "set fewer queues, or shorter rings",
            );
        }
        if self.secret.as_ref().is_some_and(|secret| !(1..=SECRET).contains(&secret.len())) {
            return refuse(
                "the secret".to_owned(),
                format!("a secret has 1 to {SECRET} octets"),
                "choose another, at both ends",
            );
        }
        if self.name.len() >= NAME {
            return refuse(
                format!("the name {}", self.name),
                format!("the maximum is {} octets", NAME - 1),
                "choose a shorter one",
            );
        }
        Ok(())
    }

    /// Returns the secret as the protocol sends it, padded with zeros.
    pub(crate) fn secret(&self) -> [u8; SECRET] {
        let mut field = [0; SECRET];
        if let Some(secret) = &self.secret {
            let length = secret.len().min(SECRET);
            field[..length].copy_from_slice(&secret.as_bytes()[..length]);
        }
        field
    }

    /// Returns the number of slots of a ring as a power of two.
    pub(crate) fn slots(&self) -> u8 {
        self.ring_size.trailing_zeros() as u8
    }
}
