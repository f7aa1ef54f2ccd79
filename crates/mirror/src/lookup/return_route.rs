//! Routes back to the sources of packets.
//!
//! A packet of a flow must arrive by the interface that its replies leave by. Only the interface
//! counts: it is known, too, if Linux must send the replies.

use fastlane_table::Guard;

use super::super::records::{GroupRecord, HopRecord, ON_LINK, SEND};
use super::{BATCH, FallbackReason, Family, Mirror, NextHop, RouteLookup, SelectedHops, TableId};

/// Route back to the source of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnRoute {
    /// Index of the interface by which packets to the source leave; `None` if the route has none.
    pub link: Option<u32>,
    /// Reason why Linux must send them, if there is one. The neighbour of an on-link route is not
    /// looked up.
    pub reason: Option<FallbackReason>,
    /// True if the route has next hops by other interfaces, too.
    pub is_divided: bool,
}

impl ReturnRoute {
    /// Result of a lookup that was not made.
    pub const UNKNOWN: Self = Self::fallback(FallbackReason::Incomplete);

    /// Returns the interface if packets can leave by it, be it that Linux must send them: it shapes
    /// them, or resolves their neighbour first.
    #[must_use]
    pub fn usable_link(&self) -> Option<u32> {
        use FallbackReason::{NoNeighbour, TrafficControl};
        self.link.filter(|_| matches!(self.reason, None | Some(TrafficControl | NoNeighbour)))
    }

    const fn fallback(reason: FallbackReason) -> Self {
        Self { link: None, reason: Some(reason), is_divided: false }
    }

    fn by(group: &GroupRecord, hop: &HopRecord) -> Self {
        let reason = match hop.state {
            SEND | ON_LINK => None,
            reason => Some(FallbackReason::from_number(reason)),
        };
        Self { link: Some(hop.link), reason, is_divided: group.is_divided != 0 }
    }
}

impl From<RouteLookup> for ReturnRoute {
    fn from(lookup: RouteLookup) -> Self {
        match lookup {
            RouteLookup::Forward(NextHop { link, is_divided, .. }) => {
                Self { link: Some(link), reason: None, is_divided }
            }
            RouteLookup::Fallback(reason) => Self::fallback(reason),
        }
    }
}

impl Mirror {
    /// Looks up the routes back to many sources, in a table. Packets with equal hashes take the
    /// same path. The number of results is the shortest length of the three slices.
    pub fn return_routes<G, A>(
        &self,
        turn: &G,
        table: TableId,
        sources: &[A],
        flow_hashes: &[u32],
        returns: &mut [ReturnRoute],
    ) where
        G: AsRef<Guard> + ?Sized,
        A: Family,
    {
        let guard = turn.as_ref();
        let count = sources.len().min(flow_hashes.len()).min(returns.len());
        let routes = match self.prefix_readers(guard, table, A::IPV6) {
            Ok(routes) => A::readers(routes),
            Err(reason) => return returns[..count].fill(ReturnRoute::fallback(reason)),
        };
        let both = sources[..count].chunks(BATCH).zip(flow_hashes[..count].chunks(BATCH));
        for ((sources, hashes), returns) in both.zip(returns[..count].chunks_mut(BATCH)) {
            let selected = self.select_hops(guard, routes, sources, hashes);
            for (index, (source, result)) in sources.iter().zip(returns).enumerate() {
                *result = self.return_route(guard, *source, &selected, index);
            }
        }
    }

    /// Returns the route of the source at an index of a batch.
    #[inline]
    fn return_route<A: Family>(
        &self,
        guard: &Guard,
        source: A,
        selected: &SelectedHops<'_>,
        index: usize,
    ) -> ReturnRoute {
        if let Some(reason) = source.unroutable() {
            return ReturnRoute::fallback(reason);
        }
        if selected.numbers[index].is_none() {
            return ReturnRoute::fallback(FallbackReason::NoRoute);
        }
        let Some((group, hop)) = selected.found[index] else { return ReturnRoute::UNKNOWN };
        if group.reason != 0 {
            return ReturnRoute::fallback(FallbackReason::from_number(group.reason));
        }
        let hop = self.hops.get(guard, hop as usize);
        hop.map_or(ReturnRoute::UNKNOWN, |hop| ReturnRoute::by(group, hop))
    }
}
