//! Random sessions and packets with few values each, so that they match.

use std::net::IpAddr;

use super::super::*;
use super::fixture;
use crate::session::{
    Destination, Filter, FlowDescription, Gate, Pdr, Prefix, Progress, Quota, Rate,
    ReportingTriggers, Session, Source, Urr, UserAddress, Volume,
};

/// SplitMix64 random number generator.
pub(super) struct Random(u64);

const REMOTES: [&str; 4] = ["192.0.2.1", "198.51.100.9", "2001:db8:f::1", "2001:db8:e::2"];
const USERS: [&str; 7] = [
    "10.0.0.1",
    "10.0.0.2",
    "172.16.0.5",
    "2001:db8:0:1::5",
    "2001:db8:0:2::7",
    "fe80::1",
    "ff02::2",
];
const FLOWS: [&str; 12] = [
    "permit out ip from any to assigned",
    "permit out 17 from any to assigned",
    "permit out 6 from any 80,443 to assigned",
    "permit out 17 from 192.0.2.0/24 53 to assigned",
    "permit out ip from 198.51.100.9 to assigned",
    "permit out ip from 2001:db8:f::/48 to assigned",
    "permit out ip from any to 10.0.0.1",
    "permit out 6 from any to assigned 5000-6000",
    "permit out ip from 0.0.0.0/0 to assigned",
    "permit out ip from ::/0 1-1000 to assigned 1,5000",
    "permit out 58 from any to ff02::2",
    "permit out 17 from any 53 to any 53",
];

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut value = self.0;
        value = (value ^ value >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        value = (value ^ value >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (value ^ value >> 31) % limit
    }

    pub(super) fn flip(&mut self) -> bool {
        self.below(2) == 0
    }

    fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    fn some(&mut self, most: u64) -> Vec<u32> {
        (1..=most as u32).filter(|_| self.one_in(2)).collect()
    }

    /// Returns a random session; one in four has about the simple form.
    pub(super) fn session(&mut self) -> Session {
        let mut session = fixture::typical();
        session.version = self.below(1 << 40);
        let is_plain = self.one_in(4);
        let (qers, urrs) = if is_plain { (1, 1) } else { (self.below(4), self.below(4)) };
        session.qers = (1..=qers as u32).map(|id| self.qer(id)).collect();
        session.urrs = (1..=urrs as u32).map(|id| self.urr(id)).collect();
        session.fars = (1..=4).map(|id| self.far(id)).collect();
        let most = if self.one_in(10) { 30 } else { 6 };
        let count = if is_plain { 2 } else { 1 + self.below(most) };
        session.pdrs = (1..=count as u16).map(|id| self.pdr(id, is_plain)).collect();
        if is_plain {
            session.pdrs[0].source = Source::Access;
            session.pdrs[0].tunnel = Some(fixture::tunnel(0x1007));
            session.pdrs[1].source = Source::Core;
        }
        for pdr in &mut session.pdrs {
            pdr.qers = self.some(qers);
            pdr.urrs = self.some(urrs);
        }
        session
    }

    fn qer(&mut self, id: u32) -> crate::session::Qer {
        let mut qer = fixture::qer(id, if id == 1 { 7 } else { 100 + id });
        let gates = [Gate::Open, Gate::Open, Gate::Open, Gate::Open, Gate::Closed];
        (qer.uplink, qer.downlink) = (self.of(&gates), self.of(&gates));
        // Rates whose cost has no remainder.
        let rates = [1000, 8000, 80_000, 1_000_000];
        let rate = Rate { uplink: self.of(&rates), downlink: self.of(&rates) };
        qer.maximum = self.flip().then_some(rate);
        qer.qfi = self.flip().then_some(self.below(64) as u8);
        qer
    }

    fn volume(&mut self) -> Option<Volume> {
        let one = |random: &mut Self| random.one_in(3).then(|| random.below(8000));
        let volume = Volume { total: one(self), uplink: one(self), downlink: one(self) };
        self.one_in(3).then_some(volume)
    }

    fn urr(&mut self, id: u32) -> Urr {
        let mut urr = fixture::urr(id, if id == 1 { 7 } else { 100 + id });
        urr.volume_threshold = self.volume();
        urr.quota = Quota { volume: self.volume(), ..Quota::default() };
        if self.one_in(6) {
            urr.quota.validity_s = Some(10);
            urr.progress = Progress { granted_at: 990_050_000_000, ..urr.progress };
        }
        urr.information = self.of(&[0, 0, 0, 1, 2]);
        urr.triggers =
            self.of(&[ReportingTriggers(0), ReportingTriggers::START, ReportingTriggers::DROTH]);
        urr.exhausted_far = self.one_in(4).then_some(4);
        urr
    }

    fn far(&mut self, id: u32) -> crate::session::Far {
        let words = ["forward", "forward", "forward duplicate", "drop", "buffer", "buffer notify"];
        let words = if id == 4 { "forward" } else { self.of(&words) };
        let to = [Destination::Access, Destination::Core, Destination::Control];
        let (to, teid) = (self.of(&to), 0x100 + id);
        // There is no way to the CP function but its tunnel.
        let is_tunnelled = self.flip() || to == Destination::Control;
        let mut far = fixture::far(id, words, to, is_tunnelled.then_some(teid));
        if self.one_in(3)
            && let Some(outer) = &mut far.forwarding.as_mut().unwrap().outer
        {
            (outer.v4, outer.v6) = (None, Some("2001:db8:9::9".parse().unwrap()));
        }
        let copy = fixture::far(9, "forward", Destination::Core, Some(0x999)).forwarding.unwrap();
        far.duplicating = (0..self.below(3)).map(|_| copy.clone()).collect();
        far
    }

    fn pdr(&mut self, id: u16, is_plain: bool) -> Pdr {
        let sources =
            [Source::Access, Source::Access, Source::Core, Source::SgiLan, Source::Control];
        let source = self.of(&sources);
        let mut pdr = fixture::pdr(id, source, 1 + self.below(4) as u32);
        pdr.precedence = self.below(5) as u32;
        let teid = match source {
            Source::Access => self.of(&[0x1007, 0x1007, 0x2007]),
            Source::Control => 0x3007,
            _ => 0x4007,
        };
        let is_tunnelled = match source {
            Source::Access | Source::Control => !self.one_in(10),
            _ => self.one_in(4) && !is_plain,
        };
        pdr.tunnel = is_tunnelled.then(|| fixture::tunnel(teid));
        pdr.instance = self.one_in(3).then(|| self.below(2) as u16);
        pdr.qfis =
            if self.one_in(4) { vec![5, 9][self.below(2) as usize..].to_vec() } else { vec![] };
        pdr.user = self.flip().then(|| self.user());
        if !is_plain {
            let many = if self.one_in(8) { 40 } else { 4 };
            pdr.filters = (0..self.below(many)).map(|_| self.filter()).collect();
            if self.one_in(5) {
                pdr.framed = vec![Prefix::new([172, 16, 0, 0].into(), 16).unwrap()];
            }
        }
        pdr
    }

    fn user(&mut self) -> UserAddress {
        let v4 = if self.one_in(8) { [10, 0, 0, 2] } else { [10, 0, 0, 1] };
        let v6: IpAddr = "2001:db8:0:1::".parse().unwrap();
        let IpAddr::V6(v6) = v6 else { unreachable!() };
        let length = if self.one_in(6) { 56 } else { 64 };
        UserAddress {
            v4: (!self.one_in(4)).then_some(v4.into()),
            v6: self.flip().then_some((v6, length)),
            is_ours: false,
        }
    }

    fn filter(&mut self) -> Filter {
        let flow = FlowDescription::parse(self.of(&FLOWS)).unwrap();
        Filter {
            id: None,
            flow: (!self.one_in(6)).then_some(flow),
            tos: self.one_in(4).then(|| self.of(&[(0x28, 0xFC), (0, 0), (0x10, 0xFF)])),
            spi: self.one_in(10).then_some(77),
            flow_label: self.one_in(10).then_some(5),
        }
    }

    fn address(&mut self, all: &[&str], v6: bool) -> u128 {
        let all: Vec<IpAddr> = all.iter().map(|it| it.parse().unwrap()).collect();
        let all: Vec<IpAddr> = all.into_iter().filter(|it| it.is_ipv6() == v6).collect();
        PacketFields::address(self.of(&all)).1
    }

    pub(super) fn fields(&mut self) -> PacketFields {
        let v6 = self.one_in(3);
        let user = if self.one_in(2) && !v6 { 0x0A00_0001 << 96 } else { self.address(&USERS, v6) };
        let remote = self.address(&REMOTES, v6);
        let tunnels = [0x1007, 0x1007, 0x1007, 0x2007, 0x3007, 0x4007, 0x9999];
        let tunnel = self.flip().then(|| self.of(&tunnels));
        let is_up = matches!(tunnel, Some(0x1007 | 0x2007));
        let (source, destination) = if is_up { (user, remote) } else { (remote, user) };
        let protocol = self.of(&[6, 17, 17, 58, 50]);
        let port = |random: &mut Self| random.of(&[1, 53, 80, 443, 5000, 6001]);
        let ports = match protocol {
            _ if self.one_in(12) => Ports::Unknown,
            6 | 17 => Ports::Known(port(self), port(self)),
            _ => Ports::None,
        };
        PacketFields {
            tunnel,
            instance: self.below(2) as u16,
            qfi: self.of(&[None, Some(5), Some(9)]),
            family: if v6 { 6 } else { 4 },
            source,
            destination,
            protocol,
            tos: self.of(&[0, 0x28, 0x29, 0x10]),
            ports,
            spi: (protocol == 50).then_some(self.of(&[77, 78])),
            flow_label: if v6 { self.of(&[0, 5]) } else { 0 },
            length: 28 + self.below(1400) as u32,
        }
    }
}
