//! Records of the protocol: requests of an application and responses of the agent, one each.
//!
//! ```text
//! record   8 magic "FLagent1"   4 version   4 number of the request   then JSON
//! ```
//!
//! A record is one message of a SOCK_SEQPACKET socket of at most [`RECORD_LIMIT`] bytes, with the
//! descriptors that it names. Numbers are little endian. A response has the number of its request,
//! so that one that comes too late is recognised. Magic and version are the same in every version.
//!
//! A client says nothing about who it is: the kernel tells the agent.

use std::net::IpAddr;

use fastlane_kernel::{Interface, Offload};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::config::Rule;
use crate::config::raw::{AfPacket, AfXdp};

/// Version of this protocol.
pub const VERSION: u32 = 2;
/// Maximum length of a record in bytes: enough for the longest list of rules.
pub const RECORD_LIMIT: usize = 1 << 16;
/// Maximum number of descriptors of a record. The kernel's limit is 253 (unix(7), SCM_MAX_FD).
pub const DESCRIPTORS: usize = 250;
/// Number of words that describe an AF_XDP queue.
const QUEUE_WORDS: usize = fastlane_af_xdp::QueueDescription::WORDS;
/// Number of words that describe an AF_XDP device.
const DEVICE_WORDS: usize = fastlane_af_xdp::DeviceDescription::WORDS;

const MAGIC: [u8; 8] = *b"FLagent1";
/// Length of the header in bytes.
const HEADER: usize = 16;

/// Request of an application.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Request {
    /// Asks what the client may use, and where. Response: [`Response::Rights`].
    Rights,
    /// Reads the properties of an interface in the network namespace of the agent: by the index of
    /// a device that the client has, or by the name, which is in its pools. Response:
    /// [`Response::Interface`].
    Interface {
        /// Name of the interface.
        name: String,
        /// Index of the interface, which survives renaming.
        index: Option<u32>,
    },
    /// Attaches a steering program to an interface. Response: [`Response::Attached`], for AF_PACKET
    /// with the sockets.
    Attach(Attach),
    /// Takes over the program of a token after the agent was restarted. Response:
    /// [`Response::Done`].
    Resume(Resume),
    /// Binds the AF_XDP sockets of a lane. Its descriptor is the memory of the lane's pool: a
    /// populated memfd, sealed against shrinking, growing and further seals. Response:
    /// [`Response::Bound`].
    BindLane(BindLane),
    /// Redirects the claimed frames of a queue to a socket, the descriptor of the record. Response:
    /// [`Response::Done`].
    Claim {
        /// Token of the device.
        device: Token,
        /// Queue number on the device.
        queue: u32,
    },
    /// Replaces the rules of a device. Response: [`Response::Done`].
    ReplaceRules {
        /// Token of the device.
        device: Token,
        /// The new rules.
        steer: Vec<Rule>,
    },
    /// Leaves all frames of a device to Linux. Response: [`Response::Done`].
    Release {
        /// Token of the device.
        device: Token,
    },
    /// Leaves longer frames of a device to Linux. Response: [`Response::Done`].
    SetMaxLength {
        /// Token of the device.
        device: Token,
        /// Maximum length of a claimed frame in bytes.
        length: u32,
    },
    /// Reads the counters of a device. Response: [`Response::Counts`].
    Counts {
        /// Token of the device.
        device: Token,
    },
    /// Detaches the steering program of a device. Response: [`Response::Done`].
    Detach {
        /// Token of the device.
        device: Token,
    },
    /// Opens the queues by which frames re-enter Linux on the interface of a device. Response:
    /// [`Response::Reentry`].
    Reenter {
        /// Token of the device.
        device: Token,
        /// Number of queues.
        queues: u32,
    },
    /// Creates a TAP device in the network namespace of the client. Its descriptors are datagram
    /// sockets of that namespace, by which the agent sets addresses: one of IPv4, IPv6 or each.
    /// Response: [`Response::Tap`].
    Tap(TapRequest),
    /// Gives a TAP device in another network namespace the Ethernet address and the MTU of the
    /// interface of a device, whose kernel peer it is. Response: [`Response::Done`].
    Follow {
        /// Name of the TAP device.
        tap: String,
        /// Token of the device.
        device: Token,
    },
    /// Sets a TAP device down, before its queues are closed. Response: [`Response::Done`].
    SetTapDown {
        /// Name of the interface.
        name: String,
    },
    /// Opens the device node of the IOMMU group of a PCI device to the user of the client, as long
    /// as it is connected. Response: [`Response::Done`].
    Vfio {
        /// Address of the device, such as `0000:3b:02.0`.
        address: String,
    },
    /// Lets a re-entry follow its interface, or another one that has taken its place. Its
    /// descriptor is a queue of the re-entry, by which an agent that was restarted takes it over.
    /// Response: [`Response::Done`].
    Redirect {
        /// Number of the re-entry.
        reentry: u32,
        /// Token of the device on the interface.
        device: Token,
    },
}

/// Secret name of a device, made by the agent: whoever knows it may take the device over.
pub type Token = String;

/// Steering program to be attached.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Attach {
    /// Settings of the driver, with the interface.
    pub driver: SharedDriver,
    /// Steering rules.
    pub steer: Vec<Rule>,
    /// Maximum length of a claimed frame in bytes.
    pub max_length: u32,
    /// Number of AF_PACKET sockets. Those of AF_XDP are bound by [`Request::BindLane`].
    #[serde(default)]
    pub sockets: u32,
}

/// Driver of an interface that Linux keeps.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharedDriver {
    /// The driver `af-xdp`.
    AfXdp(AfXdp),
    /// The driver `af-packet`.
    AfPacket(AfPacket),
}

impl SharedDriver {
    /// Returns the name of the interface.
    #[must_use]
    pub fn interface(&self) -> &str {
        match self {
            Self::AfXdp(driver) => &driver.interface,
            Self::AfPacket(driver) => &driver.interface,
        }
    }
}

/// Socket mark of frames that re-enter Linux, so that an AF_PACKET port does not receive them
/// again. Steering clears it before Linux's own rules see the frame.
pub const REENTRY_MARK: u32 = 0x_fa57_1a4e;

/// Steering program to be taken over.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Resume {
    /// Token of the device.
    pub device: Token,
    /// Description of the device when it was attached.
    pub words: [u32; DEVICE_WORDS],
    /// The program as attached, with the rules in force.
    pub attach: Attach,
    /// True if all frames were left to Linux.
    pub is_released: bool,
}

/// AF_XDP sockets to be bound for one lane.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BindLane {
    /// Size of a frame in bytes.
    pub frame_size: u32,
    /// The queues of each device.
    pub devices: Vec<LaneQueues>,
}

/// TAP device to be created.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TapRequest {
    /// Name of the interface.
    pub name: String,
    /// Ethernet address; `None` lets the kernel choose one.
    pub mac: Option<[u8; 6]>,
    /// MTU in bytes; `None` leaves it at 1500.
    pub mtu: Option<u32>,
    /// Number of queues.
    pub queues: u32,
    /// Addresses with prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// Queues of a device.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LaneQueues {
    /// Token of the device.
    pub device: Token,
    /// Queue numbers on the device.
    pub queues: Vec<u32>,
}

/// Response of the agent.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Response {
    /// The request was refused, for this reason. Nothing has changed.
    Refused(String),
    /// The request was carried out.
    Done,
    /// A steering program was attached.
    Attached(Attached),
    /// The sockets of a lane were bound. They are the descriptors, in the order of the request.
    Bound(Vec<BoundQueue>),
    /// A TAP device was created. Its queues are the descriptors.
    Tap,
    /// Re-entry with this number was opened. Its queues are the descriptors.
    Reentry(u32),
    /// The client's rights.
    Rights(Rights),
    /// Properties of an interface; `None` if it does not exist.
    Interface(Option<InterfaceProperties>),
    /// Counters of a device.
    Counts(DeviceCounts),
}

/// Rights of a client: the names that it may use, and where they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rights {
    /// True if the client is in another network namespace than the agent and its interfaces.
    pub is_elsewhere: bool,
    /// Names of the interfaces.
    pub interfaces: Vec<String>,
    /// Names of the TAP devices.
    pub taps: Vec<String>,
}

/// Properties of an interface.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct InterfaceProperties {
    name: String,
    index: u32,
    mac: [u8; 6],
    mtu: u32,
    up: bool,
    carrier: bool,
    ethernet: bool,
    driver: String,
    receive_queues: u32,
    transmit_queues: u32,
    is_virtual: bool,
    /// Offloads by their names, with their states.
    offloads: Vec<(String, bool)>,
}

impl From<Interface> for InterfaceProperties {
    fn from(interface: Interface) -> Self {
        let offloads = interface.offloads.into_iter().map(|it| (it.name.to_owned(), it.on));
        Self {
            offloads: offloads.collect(),
            name: interface.name,
            index: interface.index,
            mac: interface.mac,
            mtu: interface.mtu,
            up: interface.up,
            carrier: interface.carrier,
            ethernet: interface.ethernet,
            driver: interface.driver,
            receive_queues: interface.receive_queues,
            transmit_queues: interface.transmit_queues,
            is_virtual: interface.is_virtual,
        }
    }
}

impl From<InterfaceProperties> for Interface {
    fn from(properties: InterfaceProperties) -> Self {
        let offloads = properties.offloads.iter();
        Self {
            offloads: offloads.filter_map(|(name, on)| Offload::named(name, *on)).collect(),
            name: properties.name,
            index: properties.index,
            mac: properties.mac,
            mtu: properties.mtu,
            up: properties.up,
            carrier: properties.carrier,
            ethernet: properties.ethernet,
            driver: properties.driver,
            receive_queues: properties.receive_queues,
            transmit_queues: properties.transmit_queues,
            is_virtual: properties.is_virtual,
        }
    }
}

/// Counters of a device.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DeviceCounts {
    /// Frames that were claimed, passed, uncovered, too long, and re-entered.
    pub counts: [u64; 5],
    /// Number that changes when an interface in the network namespace of the agent has changed.
    pub changes: u64,
}

/// Steering program that was attached.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Attached {
    /// Token of the device.
    pub device: Token,
    /// Description of the device.
    pub words: [u32; DEVICE_WORDS],
    /// Number of queues, from 0 on, that the client may open.
    pub queues: u32,
    /// Modes that the driver refused, one text each.
    pub notes: Vec<String>,
}

/// Socket that was bound.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BoundQueue {
    /// Description of the queue.
    pub words: [u32; QUEUE_WORDS],
    /// Modes and settings that the driver refused, one text each.
    pub notes: Vec<String>,
}

/// Encodes a record. Returns `None` if it exceeds the limit.
pub fn encode(number: u32, body: &impl Serialize) -> Option<Vec<u8>> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    serde_json::to_writer(&mut bytes, body).ok()?;
    (bytes.len() <= RECORD_LIMIT).then_some(bytes)
}

/// Decodes a record into its number and its body.
///
/// # Errors
/// The reason why it is no record of this version.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<(u32, T), String> {
    let Some((header, body)) = bytes.split_first_chunk::<HEADER>() else {
        return Err(format!("a record has at least {HEADER} bytes, not {}", bytes.len()));
    };
    if header[..8] != MAGIC {
        return Err("it does not begin as a record of the agent does (wrong magic)".to_owned());
    }
    let word = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    if word(8) != VERSION {
        return Err(format!(
            "it has version {} of the protocol, not {VERSION}; install agent and application from \
             one release",
            word(8)
        ));
    }
    let body = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    Ok((word(12), body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_keeps_its_number_and_its_body() {
        let request = Request::Claim { device: "x".to_owned(), queue: 3 };
        let bytes = encode(7, &request).unwrap();
        let (number, decoded): (u32, Request) = decode(&bytes).unwrap();
        assert_eq!(number, 7);
        assert!(matches!(decoded, Request::Claim { device, queue: 3 } if device == "x"));
    }

    #[test]
    fn records_of_others_are_refused_with_the_reason() {
        let bytes = encode(7, &Response::Done).unwrap();
        let refused = |bytes: &[u8]| decode::<Response>(bytes).unwrap_err();
        assert!(refused(&bytes[..10]).contains("at least 16 bytes"));
        let mut other = bytes.clone();
        other[0] = b'x';
        assert!(refused(&other).contains("wrong magic"));
        let mut newer = bytes.clone();
        newer[8] = 9;
        assert!(refused(&newer).contains("version 9 of the protocol, not 2"));
        let unknown = [&bytes[..HEADER], br#"{"nonsense":1}"#].concat();
        assert!(refused(&unknown).contains("unknown variant `nonsense`"));
        let twice = [&bytes[..], &bytes[HEADER..]].concat();
        assert!(refused(&twice).contains("trailing characters"));
    }

    #[test]
    fn an_interface_survives_the_transport() {
        let loopback = Interface::query("lo").unwrap();
        let properties = InterfaceProperties::from(loopback.clone());
        let bytes = encode(1, &Response::Interface(Some(properties))).unwrap();
        let (_, decoded) = decode(&bytes).unwrap();
        let Response::Interface(Some(properties)) = decoded else { panic!("{decoded:?}") };
        assert_eq!(Interface::from(properties), loopback);
    }

    #[test]
    fn a_record_is_bounded() {
        assert!(encode(0, &Response::Refused("x".repeat(RECORD_LIMIT))).is_none());
    }
}
