//! Events at a lane with NAT, each compared with the reference: packets of both sides, well-formed
//! or not, and time. The fuzz target reads them from its input.
//!
//! After each event: every packet has one outcome, and what left is what was counted as forwarded;
//! a packet has changed its own mapping at most; what left has right checksums if what arrived had;
//! no packet left with an inside address, and none reached a user but by its external port.

use std::collections::BTreeMap;

use upf::rules::layout::drop_reason::DropReason;

use super::mapping_model::MappingModel;
use super::nat_headers::{ERRORS, carried, own_mapping, repair, sums};
use super::nat_lane::*;
use crate::frames::{ethernet, from_gnb, g_pdu, opened};
use crate::test_lane::*;

/// An event.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A user (false: the first one) sends from a port, to one of two servers.
    Up { other: bool, protocol: u8, port: u16, server: bool, control: u8, data: u8 },
    /// The data network sends to an external port: an offset in the blocks of both users.
    Down { protocol: u8, offset: u16, from: u16, control: u8 },
    /// Time passes, in ticks.
    Pass(u32),
    /// Any packet, of a user or of the data network.
    Any(AnyPacket),
    /// A user or the data network reports an error about the packet that it got last.
    Error { is_up: bool, kind: u8, code: u8, length: u8 },
    /// A user sends to an external port.
    Between { other: bool, protocol: u8, port: u16, offset: u16 },
}

/// A packet of any octets.
#[derive(Clone, Debug)]
pub(crate) struct AnyPacket {
    pub(crate) is_up: bool,
    /// The user is the other one; or the packet goes past NAT to the inside address of the first
    /// one.
    pub(crate) other: bool,
    /// It has the address of its user, or is to the one that it is for.
    pub(crate) is_addressed: bool,
    /// It has its length and right checksums.
    pub(crate) is_repaired: bool,
    pub(crate) octets: Vec<u8>,
}

/// Plays events on a lane, which forgets its mappings first.
pub(crate) fn play(lane: &mut NatLane, events: &[Event]) {
    lane.forget();
    let mut player = Player { lane, model: MappingModel::default(), got: [None, None] };
    events.iter().for_each(|event| player.play(event));
}

/// Address and session of a user (false: the first one).
const fn user(other: bool) -> [u8; 4] {
    if other { OTHER } else { USER }
}

/// Builds a packet of a user; of ICMP, an echo request.
fn packet_of(flow: Flow, control: u8, data: &[u8]) -> Vec<u8> {
    match flow.protocol {
        ICMP => echo(8, flow.from.0, flow.to.0, flow.from.1),
        _ => transport(flow, control, data),
    }
}

/// A lane with its reference.
struct Player<'a> {
    lane: &'a mut NatLane,
    model: MappingModel,
    /// Packet that the data network got last; packet that a user got last, and which user.
    got: [Option<(bool, Vec<u8>)>; 2],
}

/// Packets that left after one arrived: to the data network, and to users (false: the first one).
#[derive(Debug, Default)]
struct Outputs {
    network: Vec<Vec<u8>>,
    users: Vec<(bool, Vec<u8>)>,
}

impl Player<'_> {
    fn play(&mut self, event: &Event) {
        match *event {
            Event::Pass(ticks) => {
                self.lane.age_by_ticks(ticks);
                self.model.pass(ticks);
            }
            Event::Up { other, protocol, port, server, control, data } => {
                let to = if server { SERVER } else { OTHER_SERVER };
                let flow = Flow { protocol, from: (user(other), port), to: (to, 53) };
                let packet = packet_of(flow, control, &vec![data; usize::from(data)]);
                self.up(other, &packet, Some(to));
            }
            Event::Between { other, protocol, port, offset } => {
                let to = (EXTERNAL, 1024 + BLOCK as u16 * PORTS + offset);
                let packet = packet_of(Flow { protocol, from: (user(other), port), to }, 2, b"hi");
                self.up(other, &packet, None);
            }
            Event::Down { protocol, offset, from, control } => {
                self.down(protocol, 1024 + BLOCK as u16 * PORTS + offset, from, control);
            }
            Event::Any(ref any) => self.any(any),
            Event::Error { is_up, kind, code, length } => self.error(is_up, [kind, code, length]),
        }
    }

    /// Sends a packet of a user, which leaves for `to` unless all ports are in use.
    fn up(&mut self, other: bool, packet: &[u8], to: Option<[u8; 4]>) {
        let sent = flow_of(packet);
        let key = (other, sent.protocol, sent.from.1);
        let (live, before) = (self.model.is_live(key), self.model.external(key));
        let is_full = self.model.may_be_full(other);
        let exhausted = self.lane.lane.count(DropReason::NatPortsExhausted);
        let left = self.send(true, other, packet);
        if self.lane.lane.count(DropReason::NatPortsExhausted) > exhausted {
            assert!(is_full && live != Some(true), "{key:?} got no port");
            assert!(left.network.is_empty());
            return;
        }
        let Some(to) = to else { return };
        let external = self.model.external(key).expect("a mapping");
        if live == Some(true) {
            assert_eq!(Some(external), before, "the mapping changed");
        }
        let block = if other { OTHER_BLOCK } else { BLOCK };
        assert!(self.lane.is_in_block(block, external), "{external}");
        let [got] = &left.network[..] else { panic!("{left:?}: {:?}", self.reasons()) };
        let got = flow_of(got);
        assert_eq!((got.from, got.to.0), ((EXTERNAL, external), to));
    }

    /// Sends a packet of the data network to an external port.
    fn down(&mut self, protocol: u8, port: u16, from: u16, control: u8) {
        let packet = match protocol {
            ICMP => echo(0, SERVER, EXTERNAL, port),
            _ => {
                let flow = Flow { protocol, from: (SERVER, from), to: (EXTERNAL, port) };
                transport(flow, control, b"answer")
            }
        };
        let owner = self.model.owner(protocol, port);
        let live = owner.map_or(Some(false), |key| self.model.is_live(key));
        let before = self.lane.lane.count(DropReason::NatNoMapping);
        let left = self.send(false, false, &packet);
        let dropped = self.lane.lane.count(DropReason::NatNoMapping) - before;
        assert_eq!(dropped + left.users.len() as u64, 1, "{:?}", self.reasons());
        if let Some(live) = live {
            assert_eq!(dropped == 0, live, "{owner:?}");
        }
        for (other, inner) in &left.users {
            let got = flow_of(inner);
            assert_eq!((got.from.0, got.to.0), (SERVER, user(*other)));
            assert_eq!(Some((*other, protocol, got.to.1)), owner);
            assert!(protocol == ICMP || got.from.1 == from);
        }
    }

    /// Sends a packet of any octets.
    fn any(&mut self, any: &AnyPacket) {
        let mut packet = any.octets.clone();
        if any.is_addressed && packet.len() >= 20 {
            let at = if any.is_up { 12 } else { 16 };
            let address = match (any.is_up, any.other) {
                (true, other) => user(other),
                (false, true) => USER,
                (false, false) => EXTERNAL,
            };
            packet[at..at + 4].copy_from_slice(&address);
        }
        if any.is_repaired {
            repair(&mut packet);
        }
        if !packet.is_empty() {
            self.send(any.is_up, any.other, &packet);
        }
    }

    /// Reports an error about the packet that a side got last.
    fn error(&mut self, is_up: bool, [kind, code, length]: [u8; 3]) {
        let Some((other, about)) = self.got[usize::from(is_up)].clone() else { return };
        let about = &about[..about.len().min(usize::from(length))];
        let kind = ERRORS[usize::from(kind) % ERRORS.len()];
        let packet = match is_up {
            true => icmp_error(kind, code, user(other), SERVER, about),
            false => icmp_error(kind, code, OTHER_SERVER, EXTERNAL, about),
        };
        self.send(is_up, other, &packet);
    }

    fn reasons(&self) -> BTreeMap<&'static str, u64> {
        self.lane.lane.drop_reasons()
    }

    /// Shows a packet to the lane, and checks all that must hold of any packet.
    fn send(&mut self, is_up: bool, other: bool, packet: &[u8]) -> Outputs {
        let own = if is_up { own_mapping(other, packet) } else { None };
        let [forwarded, made, fragments] = [
            self.forwarded(),
            self.lane.lane.count(DropReason::NatMappingMade),
            self.lane.lane.count(DropReason::Fragmented),
        ];
        let world = &mut self.lane.lane;
        if is_up {
            let session = if other { OTHER_SESSION } else { SESSION };
            world.show(N3, &[from_gnb(&g_pdu(teid(session), 1, 1, packet))]);
        } else {
            world.show(N6, &[ethernet(N6, packet)]);
        }
        // Between users, and no further.
        let between = world.pass();
        assert_eq!(if between == 0 { 0 } else { world.pass() }, 0, "a packet goes round");
        let mut left = Outputs::default();
        left.network.extend(world.left(N6).into_iter().map(|frame| frame[14..].to_vec()));
        let frames = world.left(N3);
        let count = between + left.network.len() + frames.len() + world.linux().len();
        world.check_causes();
        for frame in frames {
            let (tunnel, _, inner) = opened(&frame);
            assert!([GNB_TEID, OTHER_TEID].contains(&tunnel), "{tunnel:x}");
            left.users.push((tunnel == OTHER_TEID, inner));
        }
        // A packet that was reassembled may leave as several ones.
        if self.lane.lane.count(DropReason::Fragmented) == fragments {
            let forwarded = self.forwarded() - forwarded;
            assert_eq!(count as u64, forwarded, "frames that left: {:?}", self.reasons());
        }
        let new = self.model.settle(self.lane, own);
        let made = self.lane.lane.count(DropReason::NatMappingMade) - made;
        assert_eq!(new, made, "mappings that were made");
        let arrived = InputPacket { is_up, other, packet };
        left.network.iter().for_each(|packet| self.check_network(&arrived, packet));
        left.users.iter().for_each(|(other, packet)| self.check_user(&arrived, *other, packet));
        if let Some(packet) = left.network.last() {
            self.got[0] = Some((false, packet.clone()));
        }
        if let Some((other, packet)) = left.users.last() {
            self.got[1] = Some((*other, packet.clone()));
        }
        left
    }

    /// Returns the number of frames that were counted as leaving.
    fn forwarded(&self) -> u64 {
        let reasons = [
            DropReason::ForwardedUplink,
            DropReason::ForwardedDownlink,
            DropReason::ForwardedByLinux,
            DropReason::NotOurs,
            DropReason::IcmpSent,
        ];
        reasons.map(|reason| self.lane.lane.count(reason)).iter().sum()
    }

    /// Checks a packet that has left for the data network.
    fn check_network(&self, arrived: &InputPacket<'_>, packet: &[u8]) {
        arrived.check_sums(packet);
        if packet[0] >> 4 != 4 {
            return; // IPv6 is not translated
        }
        let from = [packet[12], packet[13], packet[14], packet[15]];
        if from == [192, 0, 2, 254] {
            return; // an ICMP error of the lane
        }
        assert_eq!(from, EXTERNAL, "{packet:02x?}");
        // A fragment but the first one has no port.
        if let (Some((protocol, inside)), Some((_, external))) =
            (carried(arrived.packet, 0), carried(packet, 0))
        {
            let owner = self.model.owner(protocol, external);
            assert_eq!(owner, Some((arrived.other, protocol, inside)), "{packet:02x?}");
        }
    }

    /// Checks a packet that has left for a user.
    fn check_user(&self, arrived: &InputPacket<'_>, other: bool, packet: &[u8]) {
        arrived.check_sums(packet);
        if packet[0] >> 4 != 4 {
            return;
        }
        assert_eq!(packet[16..20], user(other), "{packet:02x?}");
        if arrived.is_up {
            return; // of another user, or an ICMP error of the lane
        }
        assert_eq!(arrived.packet[16..19], EXTERNAL[..3], "past NAT: {packet:02x?}");
        if u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff != 0 {
            return; // a later fragment of one that was reassembled, and too long
        }
        let (protocol, inside) = carried(packet, 2).expect("a port");
        let external = self.model.external((other, protocol, inside)).expect("a mapping");
        // A packet that was reassembled has the port of its first fragment.
        if let Some((_, port)) = carried(arrived.packet, 2) {
            assert_eq!(external, port, "{packet:02x?}");
        }
    }
}

/// A packet that has arrived.
struct InputPacket<'a> {
    is_up: bool,
    other: bool,
    packet: &'a [u8],
}

impl InputPacket<'_> {
    /// Checks that a packet that left has right checksums as far as this one has.
    fn check_sums(&self, left: &[u8]) {
        let (before, after) = (sums(self.packet), sums(left));
        for (before, after) in before.iter().zip(after) {
            assert!(after || !before, "{before:02x?}: {:02x?}: {left:02x?}", self.packet);
        }
    }
}
