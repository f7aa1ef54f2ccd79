//! The tables that a lane reads and the counters that it writes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::table::{
    ArrayReader, EntryId, HashEntry, HashReader, LanePending, LaneState, Lpm4Reader, Lpm6Reader,
};
use fastlane::wire::{Ethernet, Ipv4, Ipv6, header};
use fastlane::{Error, LaneInfo, Shape, Turn};

use super::classify::{self, BlocksInTurn, Classifier};
use crate::config::nat_plan::BUCKET;
use crate::rules::layout::drop_reason::{CONFIGURED, DropReason, HOLDING};
use crate::rules::layout::nat_tables::{NAT_BLOCKS, NAT_PORTS, NAT_USERS, NatBlock, NatUser};
use crate::rules::layout::session_rules::{Block, Direction, Rules};
use crate::rules::layout::slices::{
    HOLD_BUDGETS, HoldBudget, SLICE_COUNTERS, SLICE_WORDS, SliceGroup, forwarded_words,
    outcome_word, smf_entry,
};
use crate::rules::layout::{
    FRAMED_ANY, Framed, SessionRef, TeidLayout, TunnelKey, UeKey, counter_slots as state, table,
};
use crate::session::{InstanceId, SessionIndex};

/// Words of an entry of the drop reason table: packets, octets.
pub const DROP_REASON_WORDS: usize = 2;
/// Words of the entry [`HOLDING`].
const HELD_NOW: usize = 0;
const LOST: usize = 1;

/// Tables of a lane.
#[derive(Clone, Debug)]
pub struct LaneTables {
    /// Session rules by session index.
    pub rules: ArrayReader<Rules>,
    /// Blocks of rules that exceed the simple form.
    pub blocks: ArrayReader<Block>,
    /// Tunnels whose TEID does not contain the session index.
    pub tunnels: HashReader<TunnelKey, SessionRef>,
    /// UE addresses.
    pub users: HashReader<UeKey, SessionRef>,
    /// IPv4 networks behind UEs (framed routes).
    pub framed4: Lpm4Reader,
    /// IPv6 networks behind UEs (framed routes).
    pub framed6: Lpm6Reader,
    /// Owners of networks behind UEs.
    pub framed: ArrayReader<Framed>,
    /// Counter slots: counters, meters and events of sessions.
    pub state: LaneState<{ state::WORDS }>,
    /// Pending events of sessions.
    pub events: LanePending,
    /// Packets and octets by drop reason.
    pub drop_reasons: LaneState<DROP_REASON_WORDS>,
    /// Packets and octets by slice and DNN.
    pub slice_counters: LaneState<SLICE_WORDS>,
    /// Limits of held packets, by slice and DNN, and by SMF.
    pub hold_budgets: ArrayReader<HoldBudget>,
    /// Users whose packets are translated, by session index.
    pub nat_users: ArrayReader<NatUser>,
    /// Owners of blocks of external ports.
    pub nat_blocks: ArrayReader<NatBlock>,
    /// Slots of external ports, by bucket.
    pub nat_ports: LaneState<{ BUCKET as usize }>,
}

impl LaneTables {
    /// Opens the tables of an application.
    ///
    /// # Errors
    /// If a table is not configured or memory is insufficient.
    pub fn of(lane: &LaneInfo<'_>) -> Result<Self, Error> {
        Ok(Self {
            rules: lane.array(table::RULES)?,
            blocks: lane.array(table::BLOCKS)?,
            tunnels: lane.hash(table::TUNNELS)?,
            users: lane.hash(table::USERS)?,
            framed4: lane.lpm4(table::FRAMED4)?,
            framed6: lane.lpm6(table::FRAMED6)?,
            framed: lane.array(table::FRAMED)?,
            state: lane.state(table::STATE, Shape::Owner)?,
            events: lane.pending(table::EVENTS)?,
            drop_reasons: lane.state(table::CAUSES, Shape::PerLane)?,
            slice_counters: lane.state(SLICE_COUNTERS, Shape::PerLane)?,
            hold_budgets: lane.array(HOLD_BUDGETS)?,
            nat_users: lane.array(NAT_USERS)?,
            nat_blocks: lane.array(NAT_BLOCKS)?,
            nat_ports: lane.state(NAT_PORTS, Shape::Owner)?,
        })
    }

    /// Counts packets.
    #[inline]
    pub(crate) fn count(&self, reason: DropReason, packets: u64, octets: u64) {
        let words = self.drop_reasons.at(EntryId(reason as u32));
        words.add(0, packets);
        words.add(1, octets);
    }

    /// Counts packets of sessions in a group that are not forwarded.
    #[cold]
    pub(crate) fn count_in_group(&self, group: SliceGroup, reason: DropReason, packets: u64) {
        self.slice_counters.at(group.entry()).add(outcome_word(reason), packets);
    }

    /// Adds forwarded packets and octets of sessions in a group.
    #[inline]
    pub(crate) fn add_forwarded(&self, group: SliceGroup, direction: Direction, counts: [u64; 2]) {
        let words = self.slice_counters.at(group.entry());
        for (word, count) in forwarded_words(direction as usize).into_iter().zip(counts) {
            words.add(word, count);
        }
    }

    /// Returns the limits of held packets of a session: of its slice and of its SMF.
    #[cold]
    pub(crate) fn hold_budgets(&self, turn: &Turn, rules: &Rules) -> [Option<HoldBudget>; 2] {
        let budget = |index| self.hold_budgets.get(turn, index).copied();
        let group = rules.group(Direction::Downlink);
        [budget(group.index()), rules.smf().and_then(|peer| budget(smf_entry(peer)))]
    }

    /// Publishes the number of packets that the lane holds. It remains readable if the lane is
    /// killed.
    #[inline]
    pub(crate) fn publish_held(&self, packets: u64) {
        self.drop_reasons.at(EntryId(HOLDING)).set(HELD_NOW, packets);
    }

    /// Publishes the generation of the configuration that the lane works with.
    pub(crate) fn publish_generation(&self, generation: u64) {
        self.drop_reasons.at(EntryId(CONFIGURED)).set(0, generation);
    }

    /// Counts the packets that a former lane held when it ended. The lane may be killed at any
    /// store here and still counts them once, because the sum is stored before they are cleared.
    pub(crate) fn count_lost(&self) {
        let (holding, lost) = (EntryId(HOLDING), EntryId(DropReason::HoldLost as u32));
        let (holding, lost) = (self.drop_reasons.at(holding), self.drop_reasons.at(lost));
        let held = holding.get(HELD_NOW);
        if held > 0 {
            holding.set(LOST, lost.get(0) + held);
            holding.set(HELD_NOW, 0);
        }
        lost.set(0, holding.get(LOST));
    }

    /// Returns access to rule blocks during a turn.
    #[inline]
    pub(crate) fn blocks<'t>(&'t self, turn: &'t Turn) -> BlocksInTurn<'t, Turn> {
        BlocksInTurn { reader: &self.blocks, turn }
    }

    /// Returns the rules of a session.
    #[inline]
    pub(crate) fn rules<'t>(&'t self, turn: &'t Turn, session: SessionIndex) -> Option<&'t Rules> {
        self.rules.get(turn, session.0 as usize)
    }

    /// Finds the session and rules of a tunnel, in most cases by the index in its TEID.
    #[inline]
    pub(crate) fn by_tunnel<'t>(
        &'t self,
        turn: &'t Turn,
        teid_layout: TeidLayout,
        teid: u32,
    ) -> Option<(SessionIndex, &'t Rules)> {
        let session = teid_layout.session(teid);
        if let Some(rules) = self.rules(turn, session)
            && classify::has_tunnel(rules, &self.blocks(turn), teid)
        {
            return Some((session, rules));
        }
        self.by_other_tunnel(turn, teid)
    }

    /// Finds the session of a tunnel whose TEID does not contain its index.
    #[inline(never)]
    pub(crate) fn by_other_tunnel<'t>(
        &'t self,
        turn: &'t Turn,
        teid: u32,
    ) -> Option<(SessionIndex, &'t Rules)> {
        let found = self.tunnels.get(turn, &TunnelKey { teid })?;
        let session = found.value.session();
        let rules = self.rules(turn, session)?;
        classify::has_tunnel(rules, &self.blocks(turn), teid).then_some((session, rules))
    }

    /// Finds the session of an address: a UE's, or one in a network behind a UE.
    pub(crate) fn owner(
        &self,
        turn: &Turn,
        instance: InstanceId,
        to: DestinationAddress,
    ) -> Option<SessionIndex> {
        let found = self.users.get(turn, &to.key(instance));
        found
            .map(|found: HashEntry<'_, SessionRef>| found.value.session())
            .or_else(|| self.behind(turn, instance, to))
    }

    /// Finds the session of the UE behind which a network is.
    pub(crate) fn behind(
        &self,
        turn: &Turn,
        instance: InstanceId,
        to: DestinationAddress,
    ) -> Option<SessionIndex> {
        self.framed.get(turn, FRAMED_ANY)?;
        let index = match to {
            DestinationAddress::V4(address) => self.framed4.lookup(turn, address)?,
            DestinationAddress::V6(address) => self.framed6.lookup(turn, address)?,
        };
        self.framed.get(turn, index as usize)?.session(instance)
    }
}

/// Context of a burst: tables, turn and time.
#[derive(Clone, Copy)]
pub(crate) struct BurstContext<'t> {
    pub(crate) tables: &'t LaneTables,
    pub(crate) turn: &'t Turn,
    /// Time in ns of `CLOCK_MONOTONIC`.
    pub(crate) now: u64,
}

impl<'t> BurstContext<'t> {
    /// Returns the classifier of a session's packets.
    #[inline]
    pub(crate) fn classifier(
        self,
        session: SessionIndex,
        rules: &'t Rules,
    ) -> Classifier<'t, 't, BlocksInTurn<'t, Turn>> {
        let Self { tables, turn, now } = self;
        Classifier { rules, session, blocks: tables.blocks(turn), state: &tables.state, now }
    }
}

/// Context of work that adds packets and messages to the turn.
pub(crate) struct TurnContext<'a> {
    pub(crate) tables: &'a LaneTables,
    pub(crate) turn: &'a mut Turn,
}

impl TurnContext<'_> {
    /// Returns the context for work that only reads.
    #[inline]
    pub(crate) fn burst(&self) -> BurstContext<'_> {
        BurstContext { tables: self.tables, turn: self.turn, now: self.turn.now() }
    }
}

/// Destination address of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DestinationAddress {
    /// IPv4 address.
    V4(Ipv4Addr),
    /// IPv6 address.
    V6(Ipv6Addr),
}

impl DestinationAddress {
    /// Returns the destination of the IP packet behind an Ethernet header.
    #[inline]
    pub(crate) fn of(frame: &[u8], is_v6: bool) -> Option<Self> {
        Some(if is_v6 {
            Self::V6(header::<Ipv6>(frame, Ethernet::LENGTH)?.destination.into())
        } else {
            Self::V4(header::<Ipv4>(frame, Ethernet::LENGTH)?.destination.into())
        })
    }

    /// Returns the address.
    #[inline]
    pub(crate) fn ip(self) -> IpAddr {
        match self {
            Self::V4(address) => IpAddr::V4(address),
            Self::V6(address) => IpAddr::V6(address),
        }
    }

    /// Returns the lookup key of a UE with this address.
    #[inline]
    pub(crate) fn key(self, instance: InstanceId) -> UeKey {
        match self {
            Self::V4(address) => UeKey::v4(instance, address),
            Self::V6(address) => UeKey::v6(instance, address),
        }
    }
}

impl From<Ipv4Addr> for DestinationAddress {
    fn from(address: Ipv4Addr) -> Self {
        Self::V4(address)
    }
}

impl From<Ipv6Addr> for DestinationAddress {
    fn from(address: Ipv6Addr) -> Self {
        Self::V6(address)
    }
}
