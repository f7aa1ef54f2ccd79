//! Encoding of GTP-U messages.

use std::net::IpAddr;

use fastlane_wire::{
    GtpExtensionType, GtpMessageType, GtpU, GtpUOptional, PduSession, PduSessionContainer,
};
use zerocopy::IntoBytes;

// Types of information elements (TS 29.281 clause 8): recovery, tunnel endpoint identifier data I,
// GTP-U peer address.
const RECOVERY: u8 = 14;
const TEID_DATA: u8 = 16;
const PEER_ADDRESS: u8 = 133;

/// Encodes the header and the optional part of a message. `rest` is the length of what follows.
fn begin(kind: u8, teid: u32, flags: u8, optional: GtpUOptional, rest: usize) -> Vec<u8> {
    let length = (GtpUOptional::LENGTH + rest) as u16; // an IP packet at most
    let header = GtpU {
        flags: GtpU::VERSION_1 | flags,
        message_type: kind,
        length: length.into(),
        teid: teid.into(),
    };
    let mut message = Vec::with_capacity(GtpU::LENGTH + usize::from(length));
    message.extend_from_slice(header.as_bytes());
    message.extend_from_slice(optional.as_bytes());
    message
}

/// Encodes a user's packet with its QoS flow (TS 38.415 clause 5.5.2.2).
pub(super) fn data(teid: u32, qfi: u8, packet: &[u8], message: &mut Vec<u8>) {
    let container = PduSessionContainer::new(PduSession::UPLINK, qfi);
    let optional = GtpUOptional {
        next_extension: GtpExtensionType::PDU_SESSION_CONTAINER,
        ..GtpUOptional::default()
    };
    let rest = PduSessionContainer::LENGTH + packet.len();
    *message = begin(GtpMessageType::G_PDU, teid, GtpU::EXTENSION, optional, rest);
    message.extend_from_slice(container.as_bytes());
    message.extend_from_slice(packet);
}

/// Encodes the response to an echo request with its sequence number. The recovery counter is 0; the
/// receiver ignores it (clause 8.2).
pub(super) fn echo_response(sequence: u16) -> Vec<u8> {
    let optional = GtpUOptional { sequence_number: sequence.into(), ..GtpUOptional::default() };
    let mut message = begin(GtpMessageType::ECHO_RESPONSE, 0, GtpU::SEQUENCE, optional, 2);
    message.extend_from_slice(&[RECOVERY, 0]);
    message
}

/// Encodes an error indication: the tunnel `teid` does not exist (clause 7.3.1).
pub(super) fn error_indication(teid: u32, local: IpAddr) -> Vec<u8> {
    let address = match local {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let (kind, optional) = (GtpMessageType::ERROR_INDICATION, GtpUOptional::default());
    let mut message = begin(kind, 0, GtpU::SEQUENCE, optional, 5 + 3 + address.len());
    message.push(TEID_DATA);
    message.extend_from_slice(&teid.to_be_bytes());
    message.extend_from_slice(&[PEER_ADDRESS, 0, address.len() as u8]);
    message.extend_from_slice(&address);
    message
}
