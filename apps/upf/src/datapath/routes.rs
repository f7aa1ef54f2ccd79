//! Route lookup: Linux's routes, or one configured next hop.

use std::net::IpAddr;

use fastlane::mirror::{
    FallbackReason, Family, IngressInterface, Mirror, NextHop, RouteLookup, TableId,
};
use fastlane::{PortId, Turn};

use crate::rules::layout::drop_reason::DropReason;

/// Maximum number of packets that are looked up together.
pub(crate) const BATCH: usize = 32;

/// Route lookup. Results are valid for one turn. A table is a Linux routing table by number; `None`
/// is the first one that is mirrored.
pub trait Routes {
    /// Returns the Linux interface of a port; `None` if it is unknown.
    fn ingress(&self, turn: &Turn, port: PortId) -> Option<IngressInterface>;

    /// Returns an address of the Linux interface of a port that is not link-local.
    fn address(&self, turn: &Turn, port: PortId, is_v6: bool) -> Option<IpAddr>;

    /// Routes a packet. The flow hash selects among equal-cost paths.
    fn next_hop(&self, turn: &Turn, table: Option<u32>, to: IpAddr, flow: u32) -> RouteLookup;

    /// Routes up to 32 packets of an address family; all slices have the same length.
    fn next_hops<A: Family + Into<IpAddr>>(
        &self,
        turn: &Turn,
        table: Option<u32>,
        to: &[A],
        flows: &[u32],
        answers: &mut [RouteLookup],
    ) {
        for ((to, flow), answer) in to.iter().zip(flows).zip(answers) {
            *answer = self.next_hop(turn, table, (*to).into(), *flow);
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
    fn ingress(&self, turn: &Turn, port: PortId) -> Option<IngressInterface> {
        Self::ingress(self, turn, port)
    }

    fn address(&self, turn: &Turn, port: PortId, is_v6: bool) -> Option<IpAddr> {
        let interface = Self::ingress(self, turn, port)?;
        self.link(turn, interface.link)?.address(is_v6)
    }

    fn next_hop(&self, turn: &Turn, table: Option<u32>, to: IpAddr, flow: u32) -> RouteLookup {
        let Some(table) = table_of(self, turn, table) else {
            return RouteLookup::Fallback(FallbackReason::NoTable);
        };
        match to {
            IpAddr::V4(to) => self.route(turn, table, to, flow),
            IpAddr::V6(to) => self.route(turn, table, to, flow),
        }
    }

    #[inline]
    fn next_hops<A: Family + Into<IpAddr>>(
        &self,
        turn: &Turn,
        table: Option<u32>,
        to: &[A],
        flows: &[u32],
        answers: &mut [RouteLookup],
    ) {
        match table_of(self, turn, table) {
            Some(table) => self.route_many(turn, table, to, flows, answers),
            None => answers.fill(RouteLookup::Fallback(FallbackReason::NoTable)),
        }
    }
}

/// Source of egress routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteSource {
    /// Linux routing table by number; `None`: the first one that is mirrored.
    Table(Option<u32>),
    /// One configured next hop.
    Fixed(NextHop),
}

impl RouteSource {
    /// Routes a packet. The flow hash selects among equal-cost paths.
    #[inline]
    pub(crate) fn next_hop<R: Routes>(
        self,
        routes: &R,
        turn: &Turn,
        to: IpAddr,
        flow: u32,
    ) -> RouteLookup {
        match self {
            Self::Table(table) => routes.next_hop(turn, table, to, flow),
            Self::Fixed(hop) => RouteLookup::Forward(hop),
        }
    }
}

/// Returns the drop reason for a route lookup that failed.
pub(crate) const fn drop_reason_of(reason: FallbackReason) -> DropReason {
    match reason {
        FallbackReason::NoNeighbour => DropReason::NoNeighbour,
        FallbackReason::Local => DropReason::Loop,
        FallbackReason::LinkDown => DropReason::LinkDown,
        _ => DropReason::NoRoute,
    }
}
