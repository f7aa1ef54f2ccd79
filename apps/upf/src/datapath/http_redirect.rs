//! HTTP redirection (TS 29.244 clause 8.2.20): requests to port 80 are answered with status 302
//! (RFC 9110 clause 15.4.3).
//!
//! The responder is stateless: the reply to a TCP segment follows from the segment alone (RFC
//! 9293). A SYN is answered with SYN and ACK, the first octets of a request with the response and a
//! FIN, and later segments with an acknowledgement. The segment itself shows which of them it is:
//! the initial sequence number of this side contains part of the client's and eleven zero bits, and
//! returns as the client's acknowledgement number. So a segment behind a gap gets no reply until
//! the client has resent the gap. Segments of connections from before the redirection are reset.
//!
//! Responses are not counted as usage.

use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::Packet;
use fastlane::table::EntryId;
use fastlane::wire::checksum::Sum;
use fastlane::wire::{Fragment, IpProtocol, Ipv4, Ipv6, Tcp, U16, U32, header, header_mut};

use super::classify::{Action, Redirect};
use super::deferred_queue::{DeferredQueue, DeferredWork};
use super::encap::{ipv4, ipv6};
use super::forward::Forwarder;
use super::icmp::{self, IcmpError};
use super::inner_packet::{self, InnerPacket};
use super::lane_tables::{BurstContext, TurnContext};
use super::lookup::UePacket;
use super::outcome::Outcome;
use super::port_map::PortMap;
use super::rate_limiter::RateLimiter;
use super::routes::{BATCH, Routes};
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::session_rules::Direction;

/// Maximum rate of HTTP redirect responses, per second.
const MAX_REDIRECTS: u32 = 10_000;
/// Port of HTTP requests (RFC 9110 clause 4.2.1).
const HTTP_PORT: u16 = 80;
/// Maximum length of a reply: the IPv6 minimum MTU.
const MAX_LENGTH: usize = 1280;
/// Maximum segment size that is announced: it fits a tunnel over Ethernet.
const SEGMENT: u16 = 1360;
/// Receive window: the start of a request and more.
const WINDOW: u16 = 16_384;
/// TCP option maximum segment size: kind and length.
const MAXIMUM_SEGMENT_SIZE: [u8; 2] = [2, 4];
/// Number of low zero bits in the initial sequence number. They count the octets that this side
/// sends.
const ZEROS: u32 = 11;

/// Returns true if a packet is an unfragmented TCP segment to port 80.
fn is_http(inner: &InnerPacket) -> bool {
    let is_whole = inner.fragment == Fragment::None;
    is_whole && inner.protocol == IpProtocol::TCP && inner.ports[1] == HTTP_PORT
}

/// Responder to redirected HTTP clients.
pub(crate) struct HttpRedirector {
    limiter: RateLimiter,
}

impl HttpRedirector {
    /// Creates the responder.
    pub(crate) fn new() -> Self {
        Self { limiter: RateLimiter::new(MAX_REDIRECTS) }
    }

    /// Handles a packet of a redirecting rule: an HTTP request gets its response by deferred work.
    #[cold]
    pub(crate) fn redirect(
        &self,
        ue_packet: &UePacket,
        direction: Direction,
        inner: &InnerPacket,
        queue: &mut DeferredQueue,
        burst: BurstContext<'_>,
    ) -> Outcome {
        if direction == Direction::Downlink || !is_http(inner) {
            return Outcome::Drop(DropReason::Redirected);
        }
        if !self.limiter.has(burst.now) {
            burst.tables.count(DropReason::RedirectSuppressed, 1, u64::from(inner.length));
            return Outcome::Drop(DropReason::Redirected);
        }
        queue.push(DeferredWork::Redirect { ue_packet: ue_packet.number });
        Outcome::Deferred
    }

    /// Sends the HTTP response or TCP segment for a redirected packet. The packet itself is
    /// dropped.
    pub(crate) fn respond<R: Routes>(
        &mut self,
        forwarder: &mut Forwarder<R>,
        ue_packet: &UePacket,
        packet: &Packet,
        context: &mut TurnContext<'_>,
    ) -> Outcome {
        let done = Outcome::Drop(DropReason::Redirected);
        let Some(session) = ue_packet.session else { return done };
        let bytes = ue_packet.inner(packet.bytes());
        let Some(inner) = inner_packet::read(bytes) else { return done };
        let bytes = bytes.get(..inner.length as usize).unwrap_or_default();
        if !icmp::may_send(&inner, bytes, IcmpError::TimeExceeded) {
            return done;
        }
        let burst = context.burst();
        let mut scratch = [0; MAX_LENGTH];
        let response = redirection(burst, ue_packet, &inner, &forwarder.ports)
            .and_then(|to| write(&mut scratch, &inner, bytes, to));
        let Some(response) = response.and_then(|length| scratch.get(..length)) else {
            return done;
        };
        // Half of a turn's new packets are reserved for other uses.
        let is_due = burst.turn.new_packets_left() > BATCH / 2 && self.limiter.take(burst.now);
        let out = is_due.then(|| forwarder.egress_to_ue(burst, session, response).ok());
        let is_sent = out.flatten().is_some_and(|out| out.send(context.turn, response));
        let counted =
            if is_sent { DropReason::RedirectSent } else { DropReason::RedirectSuppressed };
        context.tables.count(counted, 1, response.len() as u64);
        done
    }
}

/// Returns the redirection of a packet. Its rules may have changed since it was classified.
fn redirection<'t>(
    burst: BurstContext<'t>,
    ue_packet: &UePacket,
    inner: &InnerPacket,
    ports: &PortMap,
) -> Option<Redirect<'t>> {
    let session = ue_packet.session?;
    let rules = burst.tables.rules(burst.turn, session)?;
    let decision = burst.classifier(session, rules).decide(&ue_packet.fields(inner, ports)?);
    if decision.events != 0 {
        burst.tables.events.raise(EntryId(session.0));
    }
    match decision.action {
        Action::Forward(path) => path.redirect,
        Action::Drop(_) | Action::Hold(_) => None,
    }
}

/// Writes the reply to a segment, if it gets one; returns its length.
fn write(to: &mut [u8], inner: &InnerPacket, bytes: &[u8], target: Redirect<'_>) -> Option<usize> {
    let at = usize::from(inner.transport);
    let tcp: &Tcp = header(bytes, at)?;
    let data = bytes.get(at + tcp.header_length().max(Tcp::LENGTH)..)?;
    let begin = if inner.is_v6 { Ipv6::LENGTH } else { Ipv4::LENGTH };
    let mut page = ReplyBuffer { to: to.get_mut(begin + Tcp::LENGTH..)?, length: 0 };
    let (control, sequence, next) = answer(tcp, data, inner, &mut page, target)?;
    let options = if control & Tcp::SYN != 0 { MAXIMUM_SEGMENT_SIZE.len() + 2 } else { 0 };
    let carried = Tcp::LENGTH + page.length;
    let reply = Tcp {
        source_port: tcp.destination_port,
        destination_port: tcp.source_port,
        sequence_number: U32::new(sequence),
        acknowledgment_number: U32::new(next),
        data_offset_control: U16::new(
            ((Tcp::LENGTH + options) as u16 / 4) << 12 | u16::from(control),
        ),
        window: U16::new(WINDOW),
        checksum: U16::new(0),
        urgent_pointer: U16::new(0),
    };
    let to = to.get_mut(..begin + carried)?;
    *header_mut::<Tcp>(to, begin)? = reply;
    let sum = if inner.is_v6 {
        let (own, user) = (Ipv6Addr::from_bits(inner.destination), inner.source.into());
        *header_mut::<Ipv6>(to, 0)? = ipv6(own, user, 0, carried, IpProtocol::TCP);
        let (own, user) = (own.octets(), user.octets());
        Sum::pseudo_ipv6(&own, &user, IpProtocol::TCP, carried as u32)
    } else {
        let address = |address: u128| Ipv4Addr::from_bits((address >> 96) as u32);
        let (own, user) = (address(inner.destination), address(inner.source));
        *header_mut::<Ipv4>(to, 0)? = ipv4(own, user, 0, carried, IpProtocol::TCP);
        Sum::pseudo_ipv4(own.octets(), user.octets(), IpProtocol::TCP, carried as u16)
    };
    let sum = sum.add_bytes(to.get(begin..)?).checksum();
    header_mut::<Tcp>(to, begin)?.checksum.set(sum);
    Some(to.len())
}

/// Determines the reply to a segment: control bits, sequence and acknowledgement number. Writes its
/// options or data to `page`.
fn answer(
    tcp: &Tcp,
    data: &[u8],
    inner: &InnerPacket,
    page: &mut ReplyBuffer<'_>,
    target: Redirect<'_>,
) -> Option<(u8, u32, u32)> {
    let control = tcp.control();
    let has = |bits| control & bits != 0;
    let [received, acknowledged] =
        [tcp.sequence_number, tcp.acknowledgment_number].map(|number| number.get());
    let length = data.len() as u32 + u32::from(has(Tcp::FIN));
    let next = received.wrapping_add(length);
    // Octets that the client has received, without the SYN.
    let acknowledged_octets = acknowledged.wrapping_sub(1) & ((1 << ZEROS) - 1);
    Some(match (has(Tcp::SYN), has(Tcp::ACK)) {
        _ if has(Tcp::RST) => return None,
        (true, false) => {
            page.put(&MAXIMUM_SEGMENT_SIZE)?;
            page.put(&SEGMENT.to_be_bytes())?;
            // Data with a SYN is not acknowledged, so the client sends it again.
            (Tcp::SYN | Tcp::ACK, initial(inner, received), received.wrapping_add(1))
        }
        (false, true) if length == 0 => return None,
        (false, true) if acknowledged_octets == 0 => {
            if initial(inner, received.wrapping_sub(1)) != acknowledged.wrapping_sub(1) {
                return None; // behind a gap
            }
            if !data.is_empty() {
                write_page(page, target).ok()?;
            }
            (Tcp::ACK | Tcp::PSH | Tcp::FIN, acknowledged, next)
        }
        (false, true) => {
            write_page(page, target).ok()?;
            let all = page.length as u32 + 1;
            page.length = 0;
            match acknowledged_octets == all {
                true => (Tcp::ACK, acknowledged, next),
                // A connection from before the redirection: the client starts a new one.
                false => (Tcp::RST, acknowledged, 0),
            }
        }
        _ => return None,
    })
}

/// Returns the initial sequence number for the client's.
fn initial(inner: &InnerPacket, client: u32) -> u32 {
    client.wrapping_add(inner.flow_hash()) << ZEROS
}

/// Writes the HTTP response.
fn write_page(page: &mut ReplyBuffer<'_>, target: Redirect<'_>) -> fmt::Result {
    page.write_str("HTTP/1.1 302 Found\r\nLocation: ")?;
    match target {
        Redirect::Url(url) => page.put(url).ok_or(fmt::Error)?,
        Redirect::Address(IpAddr::V4(to)) => write!(page, "http://{to}/")?,
        Redirect::Address(IpAddr::V6(to)) => write!(page, "http://[{to}]/")?,
    }
    page.write_str("\r\nContent-Length: 0\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n")
}

/// Buffer that is filled from the front.
struct ReplyBuffer<'a> {
    to: &'a mut [u8],
    length: usize,
}

impl ReplyBuffer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.length.checked_add(bytes.len())?;
        self.to.get_mut(self.length..end)?.copy_from_slice(bytes);
        self.length = end;
        Some(())
    }
}

impl Write for ReplyBuffer<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put(text.as_bytes()).ok_or(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use fastlane::wire::{EtherType, Layers, checksum};

    use super::*;

    const CLIENT: u32 = 0xffff_fff0;

    /// Builds a segment of a client to port 80, `after` octets after its SYN.
    fn segment(is_v6: bool, control: u8, after: u32, acknowledged: u32, data: &[u8]) -> Vec<u8> {
        let carried = Tcp::LENGTH + data.len();
        let begin = if is_v6 { Ipv6::LENGTH } else { Ipv4::LENGTH };
        let mut bytes = vec![0; begin + Tcp::LENGTH];
        if is_v6 {
            let [user, server] = ["2001:db8:45::5", "2001:db8::80"].map(|it| it.parse().unwrap());
            *header_mut::<Ipv6>(&mut bytes, 0).unwrap() =
                ipv6(user, server, 0, carried, IpProtocol::TCP);
        } else {
            let [user, server] = [[10, 45, 0, 5], [192, 0, 2, 80]].map(Ipv4Addr::from);
            *header_mut::<Ipv4>(&mut bytes, 0).unwrap() =
                ipv4(user, server, 0, carried, IpProtocol::TCP);
        }
        *header_mut::<Tcp>(&mut bytes, begin).unwrap() = Tcp {
            source_port: U16::new(40_000),
            destination_port: U16::new(HTTP_PORT),
            sequence_number: U32::new(CLIENT.wrapping_add(after)),
            acknowledgment_number: U32::new(acknowledged),
            data_offset_control: U16::new(5 << 12 | u16::from(control)),
            ..Tcp::default()
        };
        bytes.extend(data);
        bytes
    }

    /// Returns the reply to a segment: control bits, sequence and acknowledgement number, data.
    fn answered(bytes: &[u8], target: Redirect<'_>) -> Option<(u8, u32, u32, Vec<u8>)> {
        let inner = inner_packet::read(bytes).unwrap();
        assert!(is_http(&inner));
        let mut to = [0; MAX_LENGTH];
        let length = write(&mut to, &inner, bytes, target)?;
        let answer = &to[..length];
        let back = inner_packet::read(answer).unwrap();
        assert_eq!((back.source, back.destination), (inner.destination, inner.source));
        assert_eq!(back.ports, [inner.ports[1], inner.ports[0]]);
        let ethertype = if inner.is_v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        let layers = Layers::parse_network(answer, 0, ethertype).unwrap();
        assert_eq!(checksum::verify_transport(answer, &layers), Ok(true));
        let tcp: &Tcp = header(answer, usize::from(back.transport)).unwrap();
        let data = answer[usize::from(back.transport) + tcp.header_length()..].to_vec();
        let numbers = [tcp.sequence_number, tcp.acknowledgment_number].map(|it| it.get());
        Some((tcp.control(), numbers[0], numbers[1], data))
    }

    const URL: Redirect<'_> = Redirect::Url(b"https://top-up.example/?from=upf");

    #[test]
    fn a_connection_is_set_up_answered_and_ended() {
        const FIN: u8 = Tcp::FIN | Tcp::ACK;
        for is_v6 in [false, true] {
            let ask = |control, (after, acknowledged), data: &[u8]| {
                answered(&segment(is_v6, control, after, acknowledged, data), URL)
            };
            let at = |after| CLIENT.wrapping_add(after);
            let (control, begin, next, data) = ask(Tcp::SYN, (0, 0), b"").unwrap();
            assert_eq!((control, next), (Tcp::SYN | Tcp::ACK, at(1)));
            assert!(data.is_empty());
            let first = begin.wrapping_add(1);
            assert_eq!(ask(Tcp::ACK, (1, first), b""), None, "there is nothing to say");
            assert_eq!(ask(FIN, (1, first), b""), Some((FIN | Tcp::PSH, first, at(2), vec![])));
            let request = b"GET /index.html HTTP/1.1\r\nHost: somewhere.example\r\n\r\n";
            let end = 1 + request.len() as u32;
            let (control, sequence, next, page) = ask(Tcp::ACK, (1, first), request).unwrap();
            assert_eq!((control, sequence, next), (FIN | Tcp::PSH, first, at(end)));
            let acknowledged_octets = sequence.wrapping_add(page.len() as u32 + 1);
            let page = String::from_utf8(page).unwrap();
            let (status, rest) = page.split_once("\r\n").unwrap();
            assert_eq!(status, "HTTP/1.1 302 Found");
            assert!(rest.starts_with("Location: https://top-up.example/?from=upf\r\n"), "{rest}");
            assert!(rest.ends_with("\r\n\r\n"));
            // Segments behind a gap, or sent before the response arrived, are resent.
            for after in [2, 7, end, 2048, 1 << 20] {
                assert_eq!(ask(Tcp::ACK, (after, first), b"more"), None, "{after}");
                assert_eq!(ask(FIN, (after, first), b""), None, "{after}");
            }
            // More of the request, then the end.
            let more = ask(Tcp::ACK, (end, acknowledged_octets), b"more");
            assert_eq!(more, Some((Tcp::ACK, acknowledged_octets, at(end + 4), vec![])));
            let last = ask(FIN, (end + 4, acknowledged_octets), b"");
            assert_eq!(last, Some((Tcp::ACK, acknowledged_octets, at(end + 5), vec![])));
            let before = ask(Tcp::ACK, (end, acknowledged_octets + 1), request);
            assert_eq!(
                before,
                Some((Tcp::RST, acknowledged_octets + 1, 0, vec![])),
                "with somebody else"
            );
            for quiet in [Tcp::RST, Tcp::RST | Tcp::ACK, Tcp::SYN | Tcp::ACK, 0] {
                assert_eq!(ask(quiet, (1, first), request), None);
            }
        }
    }

    #[test]
    fn addresses_are_written_as_a_url_has_them() {
        let (_, begin, ..) = answered(&segment(false, Tcp::SYN, 0, 0, b""), URL).unwrap();
        let to = |target| {
            let request = segment(false, Tcp::ACK, 1, begin.wrapping_add(1), b"HEAD / ");
            let (.., page) = answered(&request, target).unwrap();
            let page = String::from_utf8(page).unwrap();
            page.lines().nth(1).unwrap().to_owned()
        };
        let (four, six) = ([192, 0, 2, 9].into(), "2001:db8::9".parse().unwrap());
        assert_eq!(to(Redirect::Address(four)), "Location: http://192.0.2.9/");
        assert_eq!(to(Redirect::Address(six)), "Location: http://[2001:db8::9]/");
    }

    #[test]
    fn what_does_not_fit_or_is_cut_short_gets_no_answer() {
        let (_, begin, ..) = answered(&segment(true, Tcp::SYN, 0, 0, b""), URL).unwrap();
        let whole = segment(true, Tcp::ACK, 1, begin.wrapping_add(1), b"GET / ");
        let inner = inner_packet::read(&whole).unwrap();
        assert!(write(&mut [0; MAX_LENGTH], &inner, &whole, URL).is_some());
        for length in 0..Ipv6::LENGTH + Tcp::LENGTH {
            assert_eq!(write(&mut [0; MAX_LENGTH], &inner, &whole[..length], URL), None);
        }
        for room in 0..200 {
            assert!(write(&mut vec![0; room], &inner, &whole, URL).is_none_or(|it| it <= room));
        }
        let long = [b'u'; MAX_LENGTH];
        assert_eq!(write(&mut [0; MAX_LENGTH], &inner, &whole, Redirect::Url(&long)), None);
    }
}
