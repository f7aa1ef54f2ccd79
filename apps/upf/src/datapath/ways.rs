//! Next hop cache: Linux's routes to tunnel endpoints, looked up once per turn and endpoint.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::mirror::{Entrance, Mirror};
use fastlane::mirror::{FallbackReason, RouteLookup, TableId};
use fastlane::{PortId, Turn};

use super::encapsulate::{Ends, Exit};
use super::sides::Sides;
use crate::config::Role;
use crate::rules::layout::cause::Cause;
use crate::session::InstanceId;

/// Maximum number of packets that are looked up together.
pub(crate) const BATCH: usize = 32;
/// Number of cached endpoints.
const REMEMBERED: usize = 64;

/// Route lookup. Results are valid for one turn. A table is a Linux routing table by number; `None`
/// is the first one that is mirrored.
pub trait Routes {
    /// Returns the Linux interface of a port; `None` if it is unknown.
    fn entrance(&self, turn: &Turn, port: PortId) -> Option<Entrance>;

    /// Routes a packet. The flow hash selects among equal-cost paths.
    fn way(&self, turn: &Turn, table: Option<u32>, to: IpAddr, flow: u32) -> RouteLookup;

    /// Routes up to 32 IPv4 packets; all slices have the same length.
    fn ways4(
        &self,
        turn: &Turn,
        table: Option<u32>,
        to: &[Ipv4Addr],
        flows: &[u32],
        answers: &mut [RouteLookup],
    ) {
        for ((to, flow), answer) in to.iter().zip(flows).zip(answers) {
            *answer = self.way(turn, table, IpAddr::V4(*to), *flow);
        }
    }

    /// Routes up to 32 IPv6 packets; all slices have the same length.
    fn ways6(
        &self,
        turn: &Turn,
        table: Option<u32>,
        to: &[Ipv6Addr],
        flows: &[u32],
        answers: &mut [RouteLookup],
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

    fn way(&self, turn: &Turn, table: Option<u32>, to: IpAddr, flow: u32) -> RouteLookup {
        let Some(table) = table_of(self, turn, table) else {
            return RouteLookup::Fallback(FallbackReason::NoTable);
        };
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
        answers: &mut [RouteLookup],
    ) {
        match table_of(self, turn, table) {
            Some(table) => self.route_many(turn, table, to, flows, answers),
            None => answers.fill(RouteLookup::Fallback(FallbackReason::NoTable)),
        }
    }

    #[inline]
    fn ways6(
        &self,
        turn: &Turn,
        table: Option<u32>,
        to: &[Ipv6Addr],
        flows: &[u32],
        answers: &mut [RouteLookup],
    ) {
        match table_of(self, turn, table) {
            Some(table) => self.route_many(turn, table, to, flows, answers),
            None => answers.fill(RouteLookup::Fallback(FallbackReason::NoTable)),
        }
    }
}

/// Route to an endpoint in a turn.
#[derive(Clone, Copy, Debug)]
struct Remembered {
    turn: u64,
    instance: Option<InstanceId>,
    to: IpAddr,
    exit: Result<Exit, Cause>,
}

/// Cache of routes to tunnel endpoints. There are few of them and each is looked up once per turn.
#[derive(Clone, Debug)]
pub(crate) struct Ways {
    remembered: Box<[Remembered; REMEMBERED]>,
}

impl Ways {
    /// Creates an empty cache.
    pub(crate) fn new() -> Self {
        let (to, exit) = (Ipv4Addr::UNSPECIFIED.into(), Err(Cause::NoRoute));
        let nothing = Remembered { turn: 0, instance: None, to, exit };
        Self { remembered: Box::new([nothing; REMEMBERED]) }
    }

    /// Returns the route to an endpoint. All tunnels to it share one route, so packets stay in
    /// order.
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
        RouteLookup::Forward(hop) => hop,
        RouteLookup::Fallback(reason) => return Err(cause_of(reason)),
    };
    let interface = sides.exit(hop.port, instance, is_gtpu).ok_or(Cause::NoRoute)?;
    let ends = match to {
        IpAddr::V4(to) => Ends::Four(interface.v4.ok_or(Cause::NoRoute)?, to),
        IpAddr::V6(to) => Ends::Six(interface.v6.ok_or(Cause::NoRoute)?, to),
    };
    Ok(Exit::new(ends, hop))
}

/// Returns the drop reason for a route lookup that failed.
pub(crate) const fn cause_of(reason: FallbackReason) -> Cause {
    match reason {
        FallbackReason::NoNeighbour => Cause::NoNeighbour,
        FallbackReason::Local => Cause::Loop,
        FallbackReason::LinkDown => Cause::LinkDown,
        _ => Cause::NoRoute,
    }
}
