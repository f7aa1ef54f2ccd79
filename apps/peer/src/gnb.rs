//! Base station: users behind a TUN device on one side, GTP-U (TS 29.281) on the other.
//!
//! It uses an ordinary UDP socket and no lanes, so it is an independent check of a UPF that uses
//! lanes.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use fastlane_wire::{GtpMessage, GtpMessageType, GtpU};

use crate::tunnel::{Line, Tunnel};

mod event_loop;
mod message;

pub use event_loop::{Gnb, GnbError};

/// Packet and message counts of a base station.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of users' packets sent to the UPF.
    pub uplink: u64,
    /// Number of packets received for users.
    pub downlink: u64,
    /// Number of packets whose source address has no tunnel.
    pub strangers: u64,
    /// Number of echo requests answered.
    pub echoes: u64,
    /// Number of error indications received.
    pub errors: u64,
    /// Number of error indications sent for unknown tunnels.
    pub unknown: u64,
    /// Number of end markers received.
    pub end_markers: u64,
    /// Number of other or malformed messages.
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

/// Tunnels and the handling of packets, without sockets and files.
#[derive(Debug, Default)]
pub struct Tunnels {
    by_user: HashMap<IpAddr, Tunnel>,
    by_teid: HashMap<u32, IpAddr>,
    /// Packet and message counts.
    pub counts: Counts,
}

/// Handling of a GTP-U message from a UPF.
#[derive(Debug, PartialEq, Eq)]
pub enum DownlinkAction<'a> {
    /// Deliver this packet to the user.
    Packet(&'a [u8]),
    /// Send this reply to the source of the message.
    Answer(Vec<u8>),
    /// Do nothing.
    Nothing,
}

impl Tunnels {
    /// Adds, replaces or removes a tunnel as `line` says.
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

    /// Writes the GTP-U message for a user's IP packet to `message`. Returns its destination, or
    /// `None` if the source address has no tunnel.
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

    /// Handles a message of a UPF that arrived at the address `local`.
    pub fn downlink<'a>(&mut self, datagram: &'a [u8], local: IpAddr) -> DownlinkAction<'a> {
        let Ok(gtp) = GtpMessage::parse(datagram) else {
            self.counts.other += 1;
            return DownlinkAction::Nothing;
        };
        match gtp.message_type {
            GtpMessageType::G_PDU if self.by_teid.contains_key(&gtp.teid) => {
                self.counts.downlink += 1;
                gtp.payload(datagram).map_or(DownlinkAction::Nothing, DownlinkAction::Packet)
            }
            GtpMessageType::G_PDU => {
                self.counts.unknown += 1;
                DownlinkAction::Answer(message::error_indication(gtp.teid, local))
            }
            GtpMessageType::ECHO_REQUEST => {
                self.counts.echoes += 1;
                DownlinkAction::Answer(message::echo_response(gtp.sequence_number.unwrap_or(0)))
            }
            GtpMessageType::ERROR_INDICATION => {
                self.counts.errors += 1;
                DownlinkAction::Nothing
            }
            GtpMessageType::END_MARKER => {
                self.counts.end_markers += 1;
                DownlinkAction::Nothing
            }
            _ => {
                self.counts.other += 1;
                DownlinkAction::Nothing
            }
        }
    }
}

/// Returns the address by which a user is found: for IPv6 the prefix of 64 bits.
fn key(user: IpAddr) -> IpAddr {
    match user {
        IpAddr::V4(_) => user,
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
    }
}

/// Returns the source address of an IP packet.
fn source(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(packet.get(12..16)?.first_chunk::<4>().copied()?.into()),
        6 => Some(packet.get(8..24)?.first_chunk::<16>().copied()?.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
