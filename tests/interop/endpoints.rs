//! The gNB and the data network: ordinary UDP sockets in their namespaces.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use fastlane_tests::{Host, PATIENCE};
use fastlane_wire::checksum::checksum;
use fastlane_wire::{GtpMessage, GtpMessageType, GtpU, PduSession};

use crate::life::DownlinkFlow;
use crate::namespaces::{DATA_NETWORK, GNB, N3};

/// UDP port of the user.
const UE_PORT: u16 = 4000;
const IP: usize = 20;
const UDP: usize = 8;

/// UDP packet of a user or to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inner {
    /// Source address and port.
    pub(crate) from: (Ipv4Addr, u16),
    /// Destination address and port.
    pub(crate) to: (Ipv4Addr, u16),
    /// Payload of the UDP datagram.
    pub(crate) payload: Vec<u8>,
}

impl Inner {
    /// Creates a packet from the user to a port of the data network.
    pub(crate) fn uplink(ue: Ipv4Addr, port: u16, payload: &str) -> Self {
        let payload = payload.as_bytes().to_vec();
        Self { from: (ue, UE_PORT), to: (DATA_NETWORK, port), payload }
    }

    /// Creates a packet from a port of the data network to the user.
    pub(crate) fn downlink(ue: Ipv4Addr, port: u16, payload: &str) -> Self {
        let payload = payload.as_bytes().to_vec();
        Self { from: (DATA_NETWORK, port), to: (ue, UE_PORT), payload }
    }

    /// Returns the IP packet. RFC 768 allows UDP over IPv4 without a checksum.
    fn encode(&self) -> Vec<u8> {
        let length = (IP + UDP + self.payload.len()) as u16;
        let mut packet = vec![0x45, 0];
        packet.extend(length.to_be_bytes());
        packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
        packet.extend(self.from.0.octets());
        packet.extend(self.to.0.octets());
        let sum = checksum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        let words = [self.from.1, self.to.1, length - IP as u16, 0];
        packet.extend(words.into_iter().flat_map(u16::to_be_bytes));
        packet.extend(&self.payload);
        packet
    }

    /// Parses an IP packet with a valid header checksum.
    fn decode(packet: &[u8]) -> Option<Self> {
        let is_udp = *packet.first()? == 0x45 && *packet.get(9)? == 17;
        let address = |at: usize| Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?));
        let word = |at: usize| Some(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?));
        let is_whole = usize::from(word(2)?) == packet.len() && checksum(packet.get(..IP)?) == 0;
        let from = (address(12)?, word(IP)?);
        let to = (address(16)?, word(IP + 2)?);
        let payload = packet.get(IP + UDP..)?.to_vec();
        (is_udp && is_whole).then_some(Self { from, to, payload })
    }
}

/// Message that reached the gNB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// A G-PDU: its TEID, QoS flow and packet.
    Data(u32, Option<u8>, Inner),
    /// An end marker with its TEID.
    EndMarker(u32),
}

/// A gNB, or another UPF on N9.
pub(crate) struct Gnb {
    socket: UdpSocket,
}

impl Gnb {
    pub(crate) fn new(host: &Host) -> Self {
        let socket = host.enter(|| {
            let socket = UdpSocket::bind((GNB, GtpU::PORT)).expect("the gNB's address");
            socket.set_read_timeout(Some(Duration::from_millis(10))).expect("a read timeout");
            socket
        });
        Self { socket }
    }

    /// Sends a packet in a tunnel of the UPF, with a PDU session container.
    pub(crate) fn send(&self, teid: u32, pdu_type: u8, qfi: u8, inner: &Inner) {
        let packet = inner.encode();
        let mut message = vec![0x34, GtpMessageType::G_PDU];
        message.extend((packet.len() as u16 + 8).to_be_bytes());
        message.extend(teid.to_be_bytes());
        message.extend([0, 0, 0, 0x85, 1, pdu_type << 4, qfi, 0]);
        message.extend(packet);
        self.socket.send_to(&message, (N3, GtpU::PORT)).expect("the gNB sends");
    }

    /// Returns the next message of the UPF, if there is one within 10 ms. Answers its echo
    /// requests.
    fn poll(&self) -> Option<Arrival> {
        let mut buffer = [0; 2048];
        let (length, from) = self.socket.recv_from(&mut buffer).ok()?;
        let bytes = &buffer[..length];
        let message = GtpMessage::parse(bytes).expect("GTP-U");
        assert_eq!(from.ip(), N3, "{message:?}");
        match message.message_type {
            GtpMessageType::ECHO_REQUEST => {
                let [high, low] = message.sequence_number.unwrap_or(0).to_be_bytes();
                let answer = [0x32, 2, 0, 6, 0, 0, 0, 0, high, low, 0, 0, 14, 0];
                self.socket.send_to(&answer, from).expect("the gNB sends");
                None
            }
            GtpMessageType::END_MARKER => Some(Arrival::EndMarker(message.teid)),
            GtpMessageType::G_PDU => {
                let qfi = message.pdu_session.map(|container| container.qfi);
                let inner = message.payload(bytes).and_then(Inner::decode);
                Some(Arrival::Data(message.teid, qfi, inner.expect("a user's packet")))
            }
            other => panic!("unexpected GTP-U message of type {other}"),
        }
    }

    /// Waits for the next G-PDU or end marker.
    #[track_caller]
    pub(crate) fn receive(&self) -> Arrival {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(arrival) = self.poll() {
                return arrival;
            }
        }
        panic!("nothing reached the gNB");
    }

    /// Returns what has reached the gNB, without end markers, which SMFs request without waiting
    /// for them.
    pub(crate) fn rest(&self) -> Vec<Arrival> {
        let mut rest: Vec<Arrival> = std::iter::from_fn(|| self.poll()).collect();
        rest.retain(|arrival| !matches!(arrival, Arrival::EndMarker(_)));
        rest
    }

    /// Asserts that nothing has reached the gNB.
    #[track_caller]
    pub(crate) fn assert_quiet(&self) {
        let arrival = self.poll();
        assert_eq!(arrival, None, "it must not reach the gNB");
    }

    /// Waits for a packet in a flow. An end marker of another tunnel may come before it: SMFs
    /// request them without waiting for them.
    #[track_caller]
    pub(crate) fn expect(&self, flow: DownlinkFlow, inner: &Inner) {
        let mut arrival = self.receive();
        while let Arrival::EndMarker(teid) = arrival {
            assert_ne!(teid, flow.teid, "the end of the tunnel in use");
            arrival = self.receive();
        }
        let Arrival::Data(teid, qfi, found) = arrival else { unreachable!() };
        assert_eq!((teid, &found), (flow.teid, inner), "tunnel and packet");
        // QoS flow 0 may be left out.
        let is_right = |wanted| qfi == Some(wanted) || wanted == 0 && qfi.is_none();
        assert!(flow.qfi.is_none_or(is_right), "{flow:?}, not {qfi:?}");
    }
}

/// A host in the data network.
pub(crate) struct DataNetwork<'a> {
    host: &'a Host,
}

impl<'a> DataNetwork<'a> {
    pub(crate) const fn new(host: &'a Host) -> Self {
        Self { host }
    }

    fn open(&self, port: u16) -> UdpSocket {
        self.host.enter(|| {
            let socket = UdpSocket::bind((DATA_NETWORK, port)).expect("the port is free");
            socket.set_read_timeout(Some(PATIENCE)).expect("a read timeout");
            socket
        })
    }

    /// Sends a packet to the user.
    pub(crate) fn send(&self, inner: &Inner) {
        let socket = self.open(inner.from.1);
        socket.send_to(&inner.payload, inner.to).expect("the data network sends");
    }

    /// Sends an uplink packet by `send`, waits for it, and answers with `answer`.
    #[track_caller]
    pub(crate) fn exchange(&self, uplink: &Inner, answer: &Inner, send: impl FnOnce()) {
        let socket = self.open(uplink.to.1);
        send();
        let mut buffer = [0; 2048];
        let (length, from) =
            socket.recv_from(&mut buffer).expect("the uplink packet reaches the data network");
        assert_eq!((from, &buffer[..length]), (SocketAddr::from(uplink.from), &*uplink.payload));
        socket.send_to(&answer.payload, answer.to).expect("the data network sends");
    }
}

/// PDU type of a packet from the user.
pub(crate) const UPLINK: u8 = PduSession::UPLINK;
/// PDU type of a packet to the user.
pub(crate) const DOWNLINK: u8 = PduSession::DOWNLINK;
