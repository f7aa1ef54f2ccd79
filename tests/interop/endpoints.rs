//! The gNB and the data network: ordinary UDP sockets in their namespaces.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fastlane_tests::{Host, PATIENCE};
use fastlane_wire::{GtpMessage, GtpMessageType, GtpU, PduSession};

use crate::life::DownlinkFlow;
use crate::namespaces::{DATA_NETWORK, DATA_NETWORK_V6, N3};
use crate::user_packet::UserPacket;

/// Time within which a packet that must be dropped would have arrived.
const ABSENT: Duration = Duration::from_millis(100);

/// Message that reached the gNB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// A G-PDU: its TEID, QoS flow and packet.
    Data(u32, Option<u8>, UserPacket),
    /// An end marker with its TEID.
    EndMarker(u32),
}

/// A gNB, or another UPF on N9.
pub(crate) struct Gnb {
    socket: UdpSocket,
    /// It has sent into a tunnel that does not exist, so error indications are in order.
    has_sent_in_vain: bool,
    /// End markers that came before other packets, by their TEIDs.
    ended: RefCell<Vec<u32>>,
}

impl Gnb {
    pub(crate) fn new(host: &Host, address: Ipv4Addr) -> Self {
        let socket = host.enter(|| {
            let socket = UdpSocket::bind((address, GtpU::PORT)).expect("the gNB's address");
            socket.set_read_timeout(Some(Duration::from_millis(10))).expect("a read timeout");
            socket
        });
        Self { socket, has_sent_in_vain: false, ended: RefCell::default() }
    }

    /// Sends a packet in a tunnel of the UPF that does not exist.
    pub(crate) fn send_in_vain(&mut self, teid: u32, inner: &UserPacket) {
        self.has_sent_in_vain = true;
        self.send(teid, UPLINK, 1, inner);
    }

    /// Sends a packet in a tunnel of the UPF, with a PDU session container.
    pub(crate) fn send(&self, teid: u32, pdu_type: u8, qfi: u8, inner: &UserPacket) {
        self.send_packet(teid, pdu_type, qfi, &inner.encode());
    }

    /// Sends any packet in a tunnel of the UPF, with a PDU session container.
    pub(crate) fn send_packet(&self, teid: u32, pdu_type: u8, qfi: u8, packet: &[u8]) {
        let mut message = vec![0x34, GtpMessageType::G_PDU];
        message.extend((packet.len() as u16 + 8).to_be_bytes());
        message.extend(teid.to_be_bytes());
        message.extend([0, 0, 0, 0x85, 1, pdu_type << 4, qfi, 0]);
        message.extend(packet);
        self.socket.send_to(&message, (N3, GtpU::PORT)).expect("the gNB sends");
    }

    /// Waits for the next G-PDU of any packet. Returns its TEID and the packet.
    #[track_caller]
    pub(crate) fn receive_packet(&self) -> (u32, Vec<u8>) {
        let end = Instant::now() + PATIENCE;
        let mut buffer = [0; 2048];
        while Instant::now() < end {
            let Ok((length, _)) = self.socket.recv_from(&mut buffer) else { continue };
            let message = GtpMessage::parse(&buffer[..length]).expect("GTP-U");
            if message.message_type == GtpMessageType::G_PDU {
                let packet = message.payload(&buffer[..length]).expect("a packet");
                return (message.teid, packet.to_vec());
            }
        }
        panic!("no packet reached the gNB");
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
            GtpMessageType::ERROR_INDICATION if self.has_sent_in_vain => None,
            GtpMessageType::END_MARKER => Some(Arrival::EndMarker(message.teid)),
            GtpMessageType::G_PDU => {
                let qfi = message.pdu_session.map(|container| container.qfi);
                let inner = message.payload(bytes).and_then(UserPacket::decode);
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
        rest.retain(|arrival| match arrival {
            Arrival::EndMarker(teid) => {
                self.ended.borrow_mut().push(*teid);
                false
            }
            Arrival::Data(..) => true,
        });
        rest
    }

    /// Waits for an end marker, which may have come already.
    #[track_caller]
    pub(crate) fn expect_end(&self, teid: u32) {
        let mut ended = self.ended.borrow_mut();
        match ended.iter().position(|it| *it == teid) {
            Some(at) => drop(ended.remove(at)),
            None => assert_eq!(self.receive(), Arrival::EndMarker(teid)),
        }
    }

    /// Asserts that no user's packet reaches the gNB for a while.
    #[track_caller]
    pub(crate) fn assert_no_packet(&self) {
        let end = Instant::now() + ABSENT;
        while Instant::now() < end {
            assert_eq!(self.rest(), [], "it must not reach the gNB");
        }
    }

    /// Waits for a packet in a flow. An end marker of another tunnel may come before it: SMFs
    /// request them without waiting for them.
    #[track_caller]
    pub(crate) fn expect(&self, flow: DownlinkFlow, inner: &UserPacket) {
        let mut arrival = self.receive();
        while let Arrival::EndMarker(teid) = arrival {
            assert_ne!(teid, flow.teid, "the end of the tunnel in use");
            self.ended.borrow_mut().push(teid);
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

/// Binds a socket. A program that another test is starting holds a copy of each socket between fork
/// and exec, so a port that was closed may be taken for a moment.
fn bind(endpoint: SocketAddr) -> UdpSocket {
    let end = Instant::now() + PATIENCE;
    loop {
        match UdpSocket::bind(endpoint) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(1));
            }
            result => return result.expect("the port is free"),
        }
    }
}

/// Lock of the ports in the data network: lives that are played at a time use the same ones.
static PORTS: Mutex<()> = Mutex::new(());

impl<'a> DataNetwork<'a> {
    pub(crate) const fn new(host: &'a Host) -> Self {
        Self { host }
    }

    /// Returns the address of the host and a port of it, as a user reaches it.
    pub(crate) const fn endpoint(ue: IpAddr, port: u16) -> SocketAddr {
        match ue {
            IpAddr::V4(_) => SocketAddr::new(IpAddr::V4(DATA_NETWORK), port),
            IpAddr::V6(_) => SocketAddr::new(IpAddr::V6(DATA_NETWORK_V6), port),
        }
    }

    /// Calls `body` with the socket of an endpoint, of which there is one at a time.
    fn with<T>(&self, endpoint: SocketAddr, body: impl FnOnce(&UdpSocket) -> T) -> T {
        let _only = PORTS.lock().unwrap_or_else(PoisonError::into_inner);
        let socket = self.host.enter(|| {
            let socket = bind(endpoint);
            socket.set_read_timeout(Some(PATIENCE)).expect("a read timeout");
            socket
        });
        body(&socket)
    }

    /// Sends a packet to the user.
    pub(crate) fn send(&self, inner: &UserPacket) {
        let sent = self.with(inner.from, |socket| socket.send_to(&inner.payload, inner.to));
        sent.expect("the data network sends");
    }

    /// Sends an uplink packet by `send` and asserts that it does not arrive for a while.
    #[track_caller]
    pub(crate) fn assert_dropped(&self, uplink: &UserPacket, send: impl FnOnce()) {
        self.with(uplink.to, |socket| {
            socket.set_read_timeout(Some(ABSENT)).expect("a read timeout");
            send();
            let mut buffer = [0; 2048];
            let arrived = socket.recv_from(&mut buffer);
            assert!(arrived.is_err(), "an uplink packet of nobody arrived: {arrived:?}");
        });
    }

    /// Sends an uplink packet by `send` and waits for it.
    #[track_caller]
    pub(crate) fn expect(&self, uplink: &UserPacket, send: impl FnOnce()) {
        self.with(uplink.to, |socket| uplink.expect_at(socket, send));
    }

    /// Sends an uplink packet by `send`, waits for it, and answers with `answer`.
    #[track_caller]
    pub(crate) fn exchange(&self, uplink: &UserPacket, answer: &UserPacket, send: impl FnOnce()) {
        self.with(uplink.to, |socket| {
            uplink.expect_at(socket, send);
            socket.send_to(&answer.payload, answer.to).expect("the data network sends");
        });
    }
}

/// PDU type of a packet from the user.
pub(crate) const UPLINK: u8 = PduSession::UPLINK;
/// PDU type of a packet to the user.
pub(crate) const DOWNLINK: u8 = PduSession::DOWNLINK;
