//! A base station: users behind a TUN device on one side, GTP-U (TS 29.281) on the other.
//!
//! It uses an ordinary UDP socket and knows nothing of lanes, so that it says something about a UPF
//! that does.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use fastlane_wire::{GtpMessage, GtpMessageType, GtpU};

use crate::tunnel::{Line, Tunnel};

mod message;
mod run;

pub use run::{Gnb, GnbError};

/// What it has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets of users that were sent.
    pub uplink: u64,
    /// Packets to users that arrived.
    pub downlink: u64,
    /// Packets of addresses that have no tunnel.
    pub strangers: u64,
    /// Echo requests answered.
    pub echoes: u64,
    /// Error indications taken.
    pub errors: u64,
    /// Error indications sent: the tunnel is not known here.
    pub unknown: u64,
    /// End markers taken.
    pub end_markers: u64,
    /// What was neither.
    pub other: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            to,
            "uplink {} downlink {} strangers {} echoes {} errors {} unknown {} end-markers {} \
             other {}",
            self.uplink,
            self.downlink,
            self.strangers,
            self.echoes,
            self.errors,
            self.unknown,
            self.end_markers,
            self.other
        )
    }
}

/// The tunnels, and what becomes of packets: no socket and no file.
#[derive(Debug, Default)]
pub struct Tunnels {
    by_user: HashMap<IpAddr, Tunnel>,
    by_teid: HashMap<u32, IpAddr>,
    /// What was done.
    pub counts: Counts,
}

/// What becomes of a message of a UPF.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken<'a> {
    /// A packet for a user.
    Packet(&'a [u8]),
    /// This is answered, to where the message came from or to the port of GTP-U.
    Answer(Vec<u8>),
    /// Nothing.
    Nothing,
}

impl Tunnels {
    /// Does what the control plane says.
    pub fn change(&mut self, line: Line) {
        let user = match line {
            Line::Tunnel(tunnel) => tunnel.user,
            Line::Release(user) => user,
        };
        if let Some(before) = self.by_user.remove(&key(user)) {
            self.by_teid.remove(&before.downlink);
        }
        if let Line::Tunnel(tunnel) = line {
            self.by_user.insert(key(user), tunnel);
            self.by_teid.insert(tunnel.downlink, user);
        }
    }

    /// Writes the message for an IP packet of a user to `message`, and says where it goes.
    pub fn uplink(&mut self, packet: &[u8], message: &mut Vec<u8>) -> Option<SocketAddr> {
        let tunnel = source(packet).and_then(|source| self.by_user.get(&key(source)));
        let Some(tunnel) = tunnel else {
            self.counts.strangers += 1;
            return None;
        };
        message::data(tunnel.uplink, tunnel.qfi, packet, message);
        self.counts.uplink += 1;
        Some(SocketAddr::new(tunnel.upf, GtpU::PORT))
    }

    /// Takes a message of a UPF, which came to our address `local`.
    pub fn downlink<'a>(&mut self, datagram: &'a [u8], local: IpAddr) -> Taken<'a> {
        let Ok(gtp) = GtpMessage::parse(datagram) else {
            self.counts.other += 1;
            return Taken::Nothing;
        };
        match gtp.message_type {
            GtpMessageType::G_PDU if self.by_teid.contains_key(&gtp.teid) => {
                self.counts.downlink += 1;
                gtp.payload(datagram).map_or(Taken::Nothing, Taken::Packet)
            }
            GtpMessageType::G_PDU => {
                self.counts.unknown += 1;
                Taken::Answer(message::error_indication(gtp.teid, local))
            }
            GtpMessageType::ECHO_REQUEST => {
                self.counts.echoes += 1;
                Taken::Answer(message::echo_response(gtp.sequence_number.unwrap_or(0)))
            }
            GtpMessageType::ERROR_INDICATION => {
                self.counts.errors += 1;
                Taken::Nothing
            }
            GtpMessageType::END_MARKER => {
                self.counts.end_markers += 1;
                Taken::Nothing
            }
            _ => {
                self.counts.other += 1;
                Taken::Nothing
            }
        }
    }
}

/// Users of IPv6 have 64 bits.
fn key(user: IpAddr) -> IpAddr {
    match user {
        IpAddr::V4(_) => user,
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
    }
}

/// The source of an IP packet.
fn source(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(packet.get(12..16)?.first_chunk::<4>().copied()?.into()),
        6 => Some(packet.get(8..24)?.first_chunk::<16>().copied()?.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
