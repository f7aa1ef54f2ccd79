//! UDP packets of users and to them, over IPv4 and IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use fastlane_tests::uninterrupted;
use fastlane_wire::checksum::{self, checksum};

/// UDP port of the user.
const UE_PORT: u16 = 4000;
/// Protocol number of UDP.
const PROTOCOL: u8 = 17;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;

/// UDP packet of a user or to one. Both addresses are of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UserPacket {
    /// Source address and port.
    pub(crate) from: SocketAddr,
    /// Destination address and port.
    pub(crate) to: SocketAddr,
    /// Payload of the UDP datagram.
    pub(crate) payload: Vec<u8>,
}

impl UserPacket {
    /// Waits for this packet, which `send` sends, at a socket of its destination.
    #[track_caller]
    pub(crate) fn expect_at(&self, socket: &UdpSocket, send: impl FnOnce()) {
        send();
        let mut buffer = [0; 2048];
        let arrived = uninterrupted(|| socket.recv_from(&mut buffer));
        let (length, from) = arrived.expect("the uplink packet reaches the data network");
        assert_eq!((from, &buffer[..length]), (self.from, &*self.payload));
    }

    /// Creates a packet from the user.
    pub(crate) fn uplink(ue: IpAddr, to: SocketAddr, payload: &str) -> Self {
        Self { from: (ue, UE_PORT).into(), to, payload: payload.as_bytes().to_vec() }
    }

    /// Creates a packet to the user.
    pub(crate) fn downlink(ue: IpAddr, from: SocketAddr, payload: &str) -> Self {
        Self { from, to: (ue, UE_PORT).into(), payload: payload.as_bytes().to_vec() }
    }

    /// Returns the length of the IP packet in octets.
    pub(crate) fn length(&self) -> usize {
        let header = if self.from.is_ipv4() { IPV4 } else { IPV6 };
        header + UDP + self.payload.len()
    }

    /// Returns the IP packet, with both checksums.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let length = (UDP + self.payload.len()) as u16;
        let (mut packet, pseudo) = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => ipv4_header(from, to, length),
            (IpAddr::V6(from), IpAddr::V6(to)) => ipv6_header(from, to, length),
            pair => panic!("addresses of two families: {pair:?}"),
        };
        let words = [self.from.port(), self.to.port(), length, 0];
        let mut datagram: Vec<u8> = words.into_iter().flat_map(u16::to_be_bytes).collect();
        datagram.extend(&self.payload);
        let sum = checksum::udp(checksum(&[pseudo, datagram.clone()].concat()));
        datagram[6..8].copy_from_slice(&sum.to_be_bytes());
        packet.extend(datagram);
        packet
    }

    /// Parses an IP packet whose checksums are valid.
    pub(crate) fn decode(packet: &[u8]) -> Option<Self> {
        let (from, to, datagram) = match packet.first()? >> 4 {
            4 => {
                let (header, datagram) = packet.split_at_checked(IPV4)?;
                let is_udp = header[0] == 0x45 && header[9] == PROTOCOL && checksum(header) == 0;
                let address = |at| Some(Ipv4Addr::from(*header.get(at..)?.first_chunk::<4>()?));
                (IpAddr::V4(address(12)?), IpAddr::V4(address(16)?), is_udp.then_some(datagram)?)
            }
            6 => {
                let (header, datagram) = packet.split_at_checked(IPV6)?;
                let is_udp = header[6] == PROTOCOL;
                let address = |at| Some(Ipv6Addr::from(*header.get(at..)?.first_chunk::<16>()?));
                (IpAddr::V6(address(8)?), IpAddr::V6(address(24)?), is_udp.then_some(datagram)?)
            }
            _ => return None,
        };
        let word = |at: usize| Some(u16::from_be_bytes(*datagram.get(at..)?.first_chunk()?));
        let is_whole = usize::from(word(4)?) == datagram.len();
        let payload = datagram.get(UDP..)?.to_vec();
        let found = Self { from: (from, word(0)?).into(), to: (to, word(2)?).into(), payload };
        // The kernel left a part to the device if the checksum of the whole differs.
        (is_whole && found.encode()[IPV4..] == packet[IPV4..]).then_some(found)
    }
}

/// Returns the header, and the pseudo header of the UDP checksum.
fn ipv4_header(from: Ipv4Addr, to: Ipv4Addr, length: u16) -> (Vec<u8>, Vec<u8>) {
    let mut header = vec![0x45, 0];
    header.extend((IPV4 as u16 + length).to_be_bytes());
    header.extend([0, 0, 0x40, 0, 64, PROTOCOL, 0, 0]);
    let addresses = [from.octets(), to.octets()].concat();
    header.extend(&addresses);
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let [high, low] = length.to_be_bytes();
    (header, [&addresses[..], &[0, PROTOCOL, high, low]].concat())
}

/// Returns the header, and the pseudo header of the UDP checksum (RFC 8200, 8.1).
fn ipv6_header(from: Ipv6Addr, to: Ipv6Addr, length: u16) -> (Vec<u8>, Vec<u8>) {
    let [high, low] = length.to_be_bytes();
    let addresses = [from.octets(), to.octets()].concat();
    let header = [&[0x60, 0, 0, 0, high, low, PROTOCOL, 64][..], &addresses].concat();
    (header, [&addresses[..], &[0, 0, high, low, 0, 0, 0, PROTOCOL]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_both_families_survive_encoding() {
        let pairs = [("10.45.0.2", "10.6.0.2:9"), ("2001:db8:cafe::2", "[2001:db8:6::2]:9")];
        for (ue, far) in pairs {
            let packet = UserPacket::uplink(ue.parse().unwrap(), far.parse().unwrap(), "request 1");
            let octets = packet.encode();
            assert_eq!(octets.len(), packet.length());
            assert_eq!(UserPacket::decode(&octets), Some(packet));
            for at in IPV4..octets.len() {
                let mut wrong = octets.clone();
                wrong[at] ^= 0x10;
                assert_eq!(UserPacket::decode(&wrong), None, "octet {at}");
            }
        }
    }
}
