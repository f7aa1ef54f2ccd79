//! User packets of control plane functions on N4 (N4-u, TS 29.244 clause 5.3): a control plane
//! function that no port leads to exchanges them with this process, and this process with the
//! lanes. They are few: router solicitations of UEs and the advertisements for them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use fastlane::table::messages::Punted;
use fastlane::wire::{
    EtherType, Ethernet, GtpMessage, GtpMessageType, GtpU, Ipv4, Ipv6, Udp, header,
};
use zerocopy::IntoBytes;

use super::{NodeContext, RequestPath};
use crate::datapath::GtpuMessage;
use crate::pfcp::LaneMessage;
use crate::pfcp::overload::Limiter;
use crate::rules::layout::message::UserPacket;
use crate::session::{Destination, Session, Source};

/// Maximum rate of datagrams of peers of associations, per second.
const OF_PEERS: u32 = 10_000;
/// Maximum rate of all other datagrams, per second.
const OF_OTHERS: u32 = 100;

/// Outcome of a GTP-U message on N4, or of a packet for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UserPlaneOutcome {
    /// Packet of a UE sent to its control plane function.
    Sent,
    /// Packet of a control plane function handed to the lanes.
    HandedOver,
    /// Echo request answered.
    EchoAnswered,
    /// No session has this tunnel, or not for control plane functions.
    UnknownTunnel,
    /// The source is neither a peer of the session's association nor the far end of a tunnel of the
    /// session.
    ForeignSource,
    /// Malformed, of another version, or longer than a lane takes.
    Malformed,
    /// Message that is not for a UPF.
    MessageType,
    /// Above the rate.
    RateExceeded,
}

impl UserPlaneOutcome {
    /// All outcomes.
    pub const ALL: [Self; 8] = [
        Self::Sent,
        Self::HandedOver,
        Self::EchoAnswered,
        Self::UnknownTunnel,
        Self::ForeignSource,
        Self::Malformed,
        Self::MessageType,
        Self::RateExceeded,
    ];

    /// Returns the name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::HandedOver => "handed_over",
            Self::EchoAnswered => "echo_answered",
            Self::UnknownTunnel => "unknown_tunnel",
            Self::ForeignSource => "foreign_source",
            Self::Malformed => "malformed",
            Self::MessageType => "message_type",
            Self::RateExceeded => "rate_exceeded",
        }
    }
}

/// Rates of GTP-U messages on N4.
pub(super) struct UserPlaneRates {
    of_peers: Limiter,
    of_others: Limiter,
}

impl UserPlaneRates {
    pub(super) const fn new() -> Self {
        Self {
            of_peers: Limiter::new(OF_PEERS, OF_PEERS / 10),
            of_others: Limiter::new(OF_OTHERS, OF_OTHERS),
        }
    }
}

/// Handles a GTP-U message that arrived on N4.
pub(super) fn datagram(cx: &mut NodeContext<'_>, path: RequestPath, datagram: &[u8]) {
    let outcome = handle(cx, path, datagram);
    count(cx, outcome);
}

/// Sends a packet of a UE that a lane handed over. It is in the outer header of its tunnel.
pub(super) fn punted(cx: &mut NodeContext<'_>, body: &[u8]) {
    let punted = Punted::read(body).filter(|it| it.length as usize == it.bytes.len());
    let outcome = match punted.and_then(|it| opened(it.bytes)) {
        Some((to, message)) => {
            cx.out.send_gtpu(None, SocketAddr::new(to, GtpU::PORT), message.to_vec());
            UserPlaneOutcome::Sent
        }
        None => UserPlaneOutcome::Malformed,
    };
    count(cx, outcome);
}

fn count(cx: &mut NodeContext<'_>, outcome: UserPlaneOutcome) {
    *cx.node.statistics.user_plane.entry(outcome).or_default() += 1;
}

/// Returns the destination of a frame and its UDP payload.
fn opened(frame: &[u8]) -> Option<(IpAddr, &[u8])> {
    let (to, length) = match header::<Ethernet>(frame, 0)?.ethertype.get() {
        EtherType::IPV4 => {
            let ip: &Ipv4 = header(frame, Ethernet::LENGTH)?;
            (Ipv4Addr::from(ip.destination).into(), ip.header_length())
        }
        EtherType::IPV6 => {
            let ip: &Ipv6 = header(frame, Ethernet::LENGTH)?;
            (Ipv6Addr::from(ip.destination).into(), Ipv6::LENGTH)
        }
        _ => return None,
    };
    Some((to, frame.get(Ethernet::LENGTH + length + Udp::LENGTH..)?))
}

fn handle(cx: &mut NodeContext<'_>, path: RequestPath, datagram: &[u8]) -> UserPlaneOutcome {
    let from = path.from.ip();
    let rates = &mut cx.node.user_plane;
    let limiter = match cx.node.peers.iter().any(|peer| peer.has_address(from)) {
        true => &mut rates.of_peers,
        false => &mut rates.of_others,
    };
    if !limiter.admit(cx.now) {
        return UserPlaneOutcome::RateExceeded;
    }
    let Ok(message) = GtpMessage::parse(datagram) else { return UserPlaneOutcome::Malformed };
    match message.message_type {
        GtpMessageType::ECHO_REQUEST => {
            let sequence = message.sequence_number.unwrap_or(0);
            answer(cx, path, path.from.port(), &GtpuMessage::echo_response(sequence));
            UserPlaneOutcome::EchoAnswered
        }
        GtpMessageType::G_PDU => {
            let inner = usize::from(message.header_length)..message.end as usize;
            let Some(packet) = datagram.get(inner) else { return UserPlaneOutcome::Malformed };
            let outcome = user_packet(cx, from, message.teid, packet);
            if outcome == UserPlaneOutcome::UnknownTunnel {
                let port = path.from.port();
                let error = GtpuMessage::error_indication(message.teid, path.local, port);
                answer(cx, path, GtpU::PORT, &error);
            }
            outcome
        }
        _ => UserPlaneOutcome::MessageType,
    }
}

/// Sends a message to the sender of a datagram.
fn answer(cx: &mut NodeContext<'_>, path: RequestPath, port: u16, message: &GtpuMessage) {
    let to = SocketAddr::new(path.from.ip(), port);
    cx.out.send_gtpu(Some(path.local), to, message.bytes().to_vec());
}

/// Hands a packet to the lanes if its tunnel is one for the control plane function of a session,
/// and its source may be that.
fn user_packet(
    cx: &mut NodeContext<'_>,
    from: IpAddr,
    teid: u32,
    packet: &[u8],
) -> UserPlaneOutcome {
    if packet.len() > UserPacket::MAX_LENGTH {
        return UserPlaneOutcome::Malformed;
    }
    let sessions = &cx.node.sessions;
    let found = sessions.find_tunnel(teid).and_then(|id| sessions.get(id));
    let Some(session) = found.filter(|session| is_for_control(session, teid)) else {
        return UserPlaneOutcome::UnknownTunnel;
    };
    let of_peer = cx.node.peers.get(session.peer).is_some_and(|peer| peer.has_address(from));
    if !of_peer && !is_far_end(&session, from) {
        return UserPlaneOutcome::ForeignSource;
    }
    let header = UserPacket { session: session.id.0, teid };
    let body = [header.as_bytes(), packet].concat();
    cx.out.lanes.push(LaneMessage::UserPacket(body));
    UserPlaneOutcome::HandedOver
}

/// Returns true if a tunnel of a session is one in which a control plane function sends.
fn is_for_control(session: &Session, teid: u32) -> bool {
    let mut pdrs = session.pdrs.iter().filter(|pdr| pdr.source == Source::Control);
    pdrs.any(|pdr| pdr.tunnel.is_some_and(|tunnel| tunnel.teid == teid))
}

/// Returns true if a session has a tunnel to the control plane function at this address.
fn is_far_end(session: &Session, address: IpAddr) -> bool {
    let forwardings = session.fars.iter().filter_map(|far| far.forwarding.as_ref());
    let mut to_control = forwardings.filter(|it| it.destination == Destination::Control);
    to_control.any(|it| {
        it.outer.is_some_and(|outer| match address {
            IpAddr::V4(address) => outer.v4 == Some(address),
            IpAddr::V6(address) => outer.v6 == Some(address),
        })
    })
}
