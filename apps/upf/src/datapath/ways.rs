//! Where packets leave: what Linux routes, asked once a turn for each far end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::kernel::mirror::{Answer, Reason, TableId};
use fastlane::mirror::{Entrance, Mirror};
use fastlane::{PortId, Turn};

use super::encapsulate::{Ends, Exit};
use super::sides::Sides;
use crate::config::Role;
use crate::rules::layout::cause::Cause;
use crate::session::InstanceId;

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
    instance: Option<InstanceId>,
    to: IpAddr,
    exit: Result<Exit, Cause>,
}

/// Ways to the far ends of tunnels, which are few: each is looked up once a turn.
#[derive(Clone, Debug)]
pub(crate) struct Ways {
    remembered: Box<[Remembered; REMEMBERED]>,
}

impl Ways {
    /// Nothing is known.
    pub(crate) fn new() -> Self {
        let (to, exit) = (Ipv4Addr::UNSPECIFIED.into(), Err(Cause::NoRoute));
        let nothing = Remembered { turn: 0, instance: None, to, exit };
        Self { remembered: Box::new([nothing; REMEMBERED]) }
    }

    /// The way to a far end. All tunnels to it go the same way, so that they stay in order.
    #[inline]
    pub(crate) fn to<R: Routes>(
        &mut self,
        routes: &R,
        sides: &Sides,
        turn: &Turn,
        instance: Option<InstanceId>,
        to: IpAddr,
    ) -> Result<&Exit, Cause> {
        let hash = match to {
            IpAddr::V4(to) => to.to_bits(),
            IpAddr::V6(to) => {
                let bits = to.to_bits();
                (bits ^ bits >> 32 ^ bits >> 64) as u32
            }
        };
        let hash = hash.wrapping_mul(0x9e37_79b1);
        let place = &mut self.remembered[(hash >> 26) as usize];
        if place.turn != turn.number() || place.to != to || place.instance != instance {
            let exit = find(routes, sides, turn, instance, to, hash);
            *place = Remembered { turn: turn.number(), instance, to, exit };
        }
        place.exit.as_ref().map_err(|cause| *cause)
    }
}

#[inline(never)]
fn find<R: Routes>(
    routes: &R,
    sides: &Sides,
    turn: &Turn,
    instance: Option<InstanceId>,
    to: IpAddr,
    hash: u32,
) -> Result<Exit, Cause> {
    if sides.is_own(to) {
        return Err(Cause::Loop);
    }
    let is_gtpu = |role| role != Role::N6;
    let hop = match sides.leading(instance, is_gtpu).way(routes, turn, to, hash) {
        Answer::Forward(hop) => hop,
        Answer::Ask(reason) => return Err(cause_of(reason)),
    };
    let interface = sides.exit(hop.port, instance, is_gtpu).ok_or(Cause::NoRoute)?;
    let ends = match to {
        IpAddr::V4(to) => Ends::Four(interface.v4.ok_or(Cause::NoRoute)?, to),
        IpAddr::V6(to) => Ends::Six(interface.v6.ok_or(Cause::NoRoute)?, to),
    };
    Ok(Exit::new(ends, hop))
}

/// Why a packet does not leave, when Linux is not to have it.
pub(crate) const fn cause_of(reason: Reason) -> Cause {
    match reason {
        Reason::NoNeighbour => Cause::NoNeighbour,
        Reason::Local => Cause::Loop,
        Reason::LinkDown => Cause::LinkDown,
        _ => Cause::NoRoute,
    }
}
