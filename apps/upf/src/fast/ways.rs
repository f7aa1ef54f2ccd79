//! Where packets leave: what Linux routes, asked once a turn for each far end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::Turn;
use fastlane::kernel::mirror::{Answer, Reason, TableId};
use fastlane::mirror::{Entrance, Mirror};
use fastlane::PortId;

/// The most packets that are looked up together.
pub(crate) const BATCH: usize = 32;
/// How many far ends of tunnels are remembered for a turn.
const REMEMBERED: usize = 64;

/// Who knows the routes. What it says holds for one turn. A table is one of Linux by its number;
/// without one, the first that is mirrored.
pub trait Routes {
    /// The interface behind a port; `None` when it is not known.
    fn entrance(&self, turn: &Turn, port: PortId) -> Option<Entrance>;

    /// The way of a packet, of which the flow hash chooses where there are several.
    fn way(&self, turn: &Turn, table: Option<u32>, to: IpAddr, flow: u32) -> Answer;

    /// The ways of IPv4 packets; there are as many of each, at most 32.
    fn ways4(
        &self,
        turn: &Turn,
        table: Option<u32>,
        to: &[Ipv4Addr],
        flows: &[u32],
        answers: &mut [Answer],
    ) {
        for ((to, flow), answer) in to.iter().zip(flows).zip(answers) {
            *answer = self.way(turn, table, IpAddr::V4(*to), *flow);
        }
    }

    /// The ways of IPv6 packets.
    fn ways6(
        &self,
        turn: &Turn,
        table: Option<u32>,
        to: &[Ipv6Addr],
        flows: &[u32],
        answers: &mut [Answer],
    ) {
        for ((to, flow), answer) in to.iter().zip(flows).zip(answers) {
            *answer = self.way(turn, table, IpAddr::V6(*to), *flow);
        }
    }
}

fn table_of(mirror: &Mirror, turn: &Turn, number: Option<u32>) -> Option<TableId> {
    match number {
        None => Some(TableId::default()),
        Some(number) => mirror.table(turn, number),
    }
}

impl Routes for Mirror {
    #[inline]
    fn entrance(&self, turn: &Turn, port: PortId) -> Option<Entrance> {
        Self::entrance(self, turn, port)
    }

    fn way(&self, turn: &Turn, table: Option<u32>, to: IpAddr, flow: u32) -> Answer {
        let Some(table) = table_of(self, turn, table) else { return Answer::Ask(Reason::NoTable) };
        match to {
            IpAddr::V4(to) => self.route(turn, table, to, flow),
            IpAddr::V6(to) => self.route(turn, table, to, flow),
        }
    }

    #[inline]
    fn ways4(
        &self,
        turn: &Turn,
        table: Option<u32>,
        to: &[Ipv4Addr],
        flows: &[u32],
        answers: &mut [Answer],
    ) {
        match table_of(self, turn, table) {
            Some(table) => self.route_many(turn, table, to, flows, answers),
            None => answers.fill(Answer::Ask(Reason::NoTable)),
        }
    }

    #[inline]
    fn ways6(
        &self,
        turn: &Turn,
        table: Option<u32>,
        to: &[Ipv6Addr],
        flows: &[u32],
        answers: &mut [Answer],
    ) {
        match table_of(self, turn, table) {
            Some(table) => self.route_many(turn, table, to, flows, answers),
            None => answers.fill(Answer::Ask(Reason::NoTable)),
        }
    }
}

/// The way to a far end, as it was in a turn.
#[derive(Clone, Copy, Debug)]
struct Remembered {
    turn: u64,
    table: Option<u32>,
    to: IpAddr,
    answer: Answer,
}

/// Ways to the far ends of tunnels, which are few: each is looked up once a turn.
#[derive(Clone, Debug)]
pub(crate) struct Ways {
    remembered: Box<[Remembered; REMEMBERED]>,
}

impl Ways {
    /// Nothing is known.
    pub(crate) fn new() -> Self {
        let (to, answer) = (Ipv4Addr::UNSPECIFIED.into(), Answer::Ask(Reason::Incomplete));
        let nothing = Remembered { turn: 0, table: None, to, answer };
        Self { remembered: Box::new([nothing; REMEMBERED]) }
    }

    /// The way to a far end. All tunnels to it go the same way, so that they stay in order.
    #[inline]
    pub(crate) fn to<R: Routes>(
        &mut self,
        routes: &R,
        turn: &Turn,
        table: Option<u32>,
        to: IpAddr,
    ) -> Answer {
        let hash = match to {
            IpAddr::V4(to) => to.to_bits(),
            IpAddr::V6(to) => {
                let bits = to.to_bits();
                (bits ^ bits >> 32 ^ bits >> 64) as u32
            }
        };
        let hash = hash.wrapping_mul(0x9e37_79b1);
        let place = &mut self.remembered[(hash >> 26) as usize];
        if place.turn != turn.number() || place.to != to || place.table != table {
            let answer = routes.way(turn, table, to, hash);
            *place = Remembered { turn: turn.number(), table, to, answer };
        }
        place.answer
    }
}
