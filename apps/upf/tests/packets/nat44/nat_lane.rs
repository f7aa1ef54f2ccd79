//! A lane with NAT and two users, and the packets of users and servers.

use std::collections::BTreeMap;

use fastlane_table::EntryId;
use fastlane_wire::{Layers, checksum};
use serde_json::{Value, json};
use upf::config::Settings;
use upf::config::nat_plan::{BUCKET, NatPlan};
use upf::rules::layout::nat_tables::{NatBlock, NatUser, PortSlot, Protocol, Timers};
use upf::session::SessionIndex;

use crate::frames::{ethernet, from_gnb, g_pdu, ipv4, opened};
use crate::test_lane::*;

/// First external address, and another server.
pub(crate) const EXTERNAL: [u8; 4] = [198, 51, 100, 0];
pub(crate) const OTHER_SERVER: [u8; 4] = [203, 0, 113, 7];
/// Address, session and TEID of the other user.
pub(crate) const OTHER: [u8; 4] = [10, 45, 0, 6];
pub(crate) const OTHER_SESSION: SessionIndex = SessionIndex(300);
pub(crate) const OTHER_TEID: u32 = 0x77;
/// Blocks of the users.
pub(crate) const BLOCK: u32 = 3;
pub(crate) const OTHER_BLOCK: u32 = 4;
/// Ports of a block.
pub(crate) const PORTS: u16 = 64;
/// IP protocol numbers.
pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// A lane with NAT and two users.
pub(crate) struct NatLane {
    pub(crate) lane: TestLane,
    pub(crate) plan: NatPlan,
}

/// Mapping of an external port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// True if it is the other user's.
    pub(crate) other: bool,
    pub(crate) protocol: u8,
    /// Inside port or identifier.
    pub(crate) inside: u16,
    /// Time of the last packet of the user, in ticks.
    pub(crate) seen: u32,
}

/// Address and port.
pub(crate) type Endpoint = ([u8; 4], u16);

/// Protocol, source and destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Flow {
    pub(crate) protocol: u8,
    pub(crate) from: Endpoint,
    pub(crate) to: Endpoint,
}

/// Returns the settings with NAT, and `more` settings of it.
pub(crate) fn nat_settings(more: &Value) -> Value {
    let mut settings = settings();
    let nat = &mut settings["interfaces"]["n6"]["nat"];
    *nat = json!({ "addresses": ["198.51.100.0/30"], "ports-per-user": PORTS });
    for (key, value) in more.as_object().expect("an object") {
        nat[key] = value.clone();
    }
    settings
}

/// Builds a datagram or segment with a checksum. TCP has these control bits.
pub(crate) fn transport(flow: Flow, control: u8, data: &[u8]) -> Vec<u8> {
    let ports = [flow.from.1, flow.to.1].map(u16::to_be_bytes).concat();
    let rest = match flow.protocol {
        TCP => vec![0, 0, 0, 1, 0, 0, 0, 2, 0x50, control, 4, 0, 0, 0, 0, 0],
        _ => [(8 + data.len() as u16).to_be_bytes(), [0, 0]].concat(),
    };
    let payload = [&ports[..], &rest, data].concat();
    let mut packet = ipv4(flow.from.0, flow.to.0, flow.protocol, 64, &payload);
    let layers = Layers::parse_network(&packet, 0, 0x0800).expect("a packet");
    checksum::fill_transport(&mut packet, &layers).expect("a checksum");
    packet
}

/// Builds an ICMP echo: 8 a request, 0 a reply.
pub(crate) fn echo(kind: u8, from: [u8; 4], to: [u8; 4], identifier: u16) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0];
    message.extend(identifier.to_be_bytes());
    message.extend([0, 7, 0xab, 0xcd]);
    let sum = checksum::checksum(&message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    ipv4(from, to, ICMP, 64, &message)
}

/// Builds an ICMP error about a packet.
pub(crate) fn icmp_error(kind: u8, code: u8, from: [u8; 4], to: [u8; 4], about: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0];
    message.extend(&about[..about.len().min(548)]);
    let sum = checksum::checksum(&message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    ipv4(from, to, ICMP, 64, &message)
}

/// Returns the flow of a packet, whose checksums must be right. The identifier of an echo
/// stands for both ports.
pub(crate) fn flow_of(packet: &[u8]) -> Flow {
    let layers = Layers::parse_network(packet, 0, 0x0800).expect("a packet");
    assert_eq!(checksum::verify_ipv4_header(packet, &layers), Ok(true), "{packet:02x?}");
    let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let protocol = packet[9];
    let start = usize::from(layers.transport);
    let ports = match protocol {
        ICMP => {
            assert_eq!(checksum::checksum(&packet[start..]), 0, "{packet:02x?}");
            [port(start + 4); 2]
        }
        _ => {
            assert_eq!(checksum::verify_transport(packet, &layers), Ok(true), "{packet:02x?}");
            [port(start), port(start + 2)]
        }
    };
    let address = |at: usize| [packet[at], packet[at + 1], packet[at + 2], packet[at + 3]];
    Flow { protocol, from: (address(12), ports[0]), to: (address(16), ports[1]) }
}

impl Flow {
    /// Creates a flow of the user.
    pub(crate) fn of_user(protocol: u8, port: u16, to: [u8; 4]) -> Self {
        Self { protocol, from: (USER, port), to: (to, 53) }
    }

    /// Returns the flow of an answer.
    pub(crate) fn answer(self) -> Self {
        Self { from: self.to, to: self.from, ..self }
    }
}

impl NatLane {
    pub(crate) fn new() -> Self {
        Self::with(json!({}))
    }

    /// Creates a lane with `more` settings of NAT.
    pub(crate) fn with(more: Value) -> Self {
        let settings = nat_settings(&more);
        let parsed: Settings = serde_json::from_value(settings.clone()).expect("settings");
        let mut routes = TestRoutes::new();
        routes.set("203.0.113.7", out_of(N6, 1500));
        let lane = TestLane::new(routes, settings);
        let mut world = Self { lane, plan: NatPlan::new(&parsed) };
        world.lane.publish(&simple(1));
        let mut rules = simple(1);
        rules.uplink.ue4 = u32::from_be_bytes(OTHER);
        rules.uplink.common.tunnel = teid(OTHER_SESSION);
        rules.downlink.common.forwarding.teid = OTHER_TEID;
        world.lane.publish_other(OTHER_SESSION, OTHER, &rules);
        world.give(SESSION, USER, BLOCK, 1);
        world.give(OTHER_SESSION, OTHER, OTHER_BLOCK, 1);
        world
    }

    /// Gives a session a block in a generation.
    pub(crate) fn give(
        &mut self,
        session: SessionIndex,
        inside: [u8; 4],
        number: u32,
        generation: u16,
    ) {
        let block = self.plan.pools[0].block(number).expect("a block");
        let inside = u32::from_be_bytes(inside);
        let owner = NatBlock { inside, session: session.0, since: 1, generation, reserved: [0; 3] };
        let user = NatUser {
            inside,
            external: block.address.to_bits(),
            block: number,
            bucket: block.bucket,
            buckets: u32::from(PORTS) / 8,
            key: 0x1234_5678,
            first_port: block.first_port,
            generation,
            reserved: 0,
        };
        let tables = &mut self.lane.tables;
        tables.nat_blocks.set(number as usize, &owner).expect("there is room");
        tables.nat_users.set(session.0 as usize, &user).expect("there is room");
    }

    /// Returns true if a port belongs to a block.
    pub(crate) fn is_in_block(&self, number: u32, port: u16) -> bool {
        let first = self.plan.pools[0].block(number).expect("a block").first_port;
        (first..first + PORTS).contains(&port)
    }

    /// Sends a packet of a session to N6; returns what leaves there.
    pub(crate) fn up_of(&mut self, session: SessionIndex, packet: &[u8]) -> Vec<Vec<u8>> {
        self.lane.show(N3, &[from_gnb(&g_pdu(teid(session), 1, 1, packet))]);
        self.lane.left(N6).into_iter().map(|frame| frame[14..].to_vec()).collect()
    }

    /// Sends a packet of the user.
    pub(crate) fn up(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        self.up_of(SESSION, packet).pop()
    }

    /// Sends a datagram of the user; returns the external port.
    pub(crate) fn map(&mut self, protocol: u8, port: u16, to: [u8; 4]) -> u16 {
        let flow = Flow::of_user(protocol, port, to);
        let packet = match protocol {
            ICMP => echo(8, USER, to, port),
            _ => transport(flow, 0x02, b"data"),
        };
        let left = self.up(&packet).unwrap_or_else(|| panic!("{:?}", self.lane.drop_reasons()));
        let left = flow_of(&left);
        assert_eq!((left.from.0, left.to.0), (EXTERNAL, to));
        left.from.1
    }

    /// Passes a packet of the data network; returns what the gNB gets, with the TEID.
    pub(crate) fn down(&mut self, packet: &[u8]) -> Option<(u32, Vec<u8>)> {
        self.lane.show(N6, &[ethernet(N6, packet)]);
        self.received()
    }

    /// Returns what the gNB got, with the TEID.
    pub(crate) fn received(&mut self) -> Option<(u32, Vec<u8>)> {
        let frame = self.lane.left(N3).pop()?;
        let (teid, _, inner) = opened(&frame);
        Some((teid, inner))
    }

    /// Passes a datagram of a server to an external port; returns the user's inside port.
    pub(crate) fn reaches(&mut self, protocol: u8, from: Endpoint, port: u16) -> Option<u16> {
        let flow = Flow { protocol, from, to: (EXTERNAL, port) };
        let packet = match protocol {
            ICMP => echo(0, from.0, EXTERNAL, port),
            _ => transport(flow, 0x10, b"answer"),
        };
        let (teid, inner) = self.down(&packet)?;
        assert_eq!(teid, GNB_TEID);
        let got = flow_of(&inner);
        assert_eq!((got.to.0, got.from.0), (USER, from.0));
        Some(got.to.1)
    }

    /// Makes all mappings older by a number of seconds.
    pub(crate) fn age(&mut self, seconds: u32) {
        // The ticks that surely pass within these seconds.
        self.age_by_ticks(Timers::of([seconds, 0, 0, 0]).udp - 1);
    }

    /// Makes all mappings older by a number of ticks.
    pub(crate) fn age_by_ticks(&mut self, ticks: u32) {
        self.each_slot(|slot| slot.with(slot.seen().wrapping_sub(ticks), slot.state()));
    }

    /// Forgets all mappings, as if the lane were new.
    pub(crate) fn forget(&mut self) {
        self.each_slot(|_| PortSlot(0));
    }

    /// Returns the mappings of both users by external port.
    pub(crate) fn mappings(&self) -> BTreeMap<u16, Mapping> {
        let state = self.lane.tables.nat_ports.lane(0);
        let mut all = BTreeMap::new();
        for (number, other) in [(BLOCK, false), (OTHER_BLOCK, true)] {
            let block = self.plan.pools[0].block(number).expect("a block");
            let table = &self.lane.tables.nat_blocks;
            let generation = table.get(number as usize).expect("it has an owner").generation;
            for offset in 0..PORTS {
                let bucket = EntryId(block.bucket + u32::from(offset) / BUCKET);
                let slot = PortSlot(state.at(bucket).get(usize::from(offset) % BUCKET as usize));
                let Some(protocol) = slot.protocol(generation) else { continue };
                let protocol = match protocol {
                    Protocol::Udp => UDP,
                    Protocol::Tcp => TCP,
                    Protocol::Icmp => ICMP,
                };
                let (inside, seen) = (slot.inside(), slot.seen());
                all.insert(block.first_port + offset, Mapping { other, protocol, inside, seen });
            }
        }
        all
    }

    /// Changes all slots that were ever used.
    pub(crate) fn each_slot(&mut self, change: impl Fn(PortSlot) -> PortSlot) {
        let state = self.lane.tables.nat_ports.lane(0);
        for bucket in 0..self.plan.buckets() {
            for index in 0..8 {
                let word = state.at(EntryId(bucket)).get(index);
                if word != 0 {
                    state.at(EntryId(bucket)).set(index, change(PortSlot(word)).0);
                }
            }
        }
    }
}
