//! The tables as a lane reads them, and the words that it writes.

use std::net::{Ipv4Addr, Ipv6Addr};

use fastlane::table::{
    ArrayReader, EntryId, HashEntry, HashReader, LanePending, LaneState, Lpm4Reader, Lpm6Reader,
};
use fastlane::wire::{Ethernet, Ipv4, Ipv6, header};
use fastlane::{Error, LaneInfo, Shape, Turn};

use super::decide::{self, InTurn};
use crate::rules::layout::cause::{Cause, HOLDING};
use crate::rules::layout::framed::{self, Framed};
use crate::rules::layout::identifier::TeidShape;
use crate::rules::layout::key::{SessionRef, TunnelKey, UserKey};
use crate::rules::layout::rules::{Block, Rules};
use crate::rules::layout::{state, table};
use crate::session::{InstanceId, SessionId};

/// Words of an entry of the causes: packets, octets.
pub const CAUSE_WORDS: usize = 2;
/// Words of the entry [`HOLDING`].
const HELD_NOW: usize = 0;
const LOST_THEN: usize = 1;

/// All tables of a lane.
#[derive(Clone, Debug)]
pub struct Tables {
    /// What becomes of packets, by session.
    pub rules: ArrayReader<Rules>,
    /// Rules that need more than a line.
    pub blocks: ArrayReader<Block>,
    /// Tunnels whose number does not say whose they are.
    pub tunnels: HashReader<TunnelKey, SessionRef>,
    /// Users' addresses.
    pub users: HashReader<UserKey, SessionRef>,
    /// Networks behind users.
    pub framed4: Lpm4Reader,
    /// Networks behind users.
    pub framed6: Lpm6Reader,
    /// Whose they are.
    pub framed: ArrayReader<Framed>,
    /// What the lane counts and meters.
    pub state: LaneState<{ state::WORDS }>,
    /// Events that must not be lost.
    pub events: LanePending,
    /// Packets and octets by cause.
    pub causes: LaneState<CAUSE_WORDS>,
}

impl Tables {
    /// Those of an application.
    ///
    /// # Errors
    /// When one is not configured, or there is no memory.
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
            causes: lane.state(table::CAUSES, Shape::PerLane)?,
        })
    }

    /// Counts packets.
    #[inline]
    pub(crate) fn count(&self, cause: Cause, packets: u64, octets: u64) {
        let words = self.causes.at(EntryId(cause as u32));
        words.add(0, packets);
        words.add(1, octets);
    }

    /// Says how many packets the lane holds now: one that is killed leaves it behind.
    #[inline]
    pub(crate) fn holds(&self, packets: u64) {
        self.causes.at(EntryId(HOLDING)).set(HELD_NOW, packets);
    }

    /// Counts what a lane before this one held when it ended. It may be killed at any store here,
    /// and counts them once: the sum is known before they are forgotten.
    pub(crate) fn count_lost(&self) {
        let (holding, lost) = (EntryId(HOLDING), EntryId(Cause::HoldLost as u32));
        let (holding, lost) = (self.causes.at(holding), self.causes.at(lost));
        let held = holding.get(HELD_NOW);
        if held > 0 {
            holding.set(LOST_THEN, lost.get(0) + held);
            holding.set(HELD_NOW, 0);
        }
        lost.set(0, holding.get(LOST_THEN));
    }

    /// The blocks of rules in a turn.
    #[inline]
    pub(crate) fn blocks<'t>(&'t self, turn: &'t Turn) -> InTurn<'t, Turn> {
        InTurn { reader: &self.blocks, turn }
    }

    /// The rules of a session.
    #[inline]
    pub(crate) fn rules<'t>(&'t self, turn: &'t Turn, session: SessionId) -> Option<&'t Rules> {
        self.rules.get(turn, session.0 as usize)
    }

    /// Whose a tunnel is, and the rules: most often its number says so.
    #[inline]
    pub(crate) fn by_tunnel<'t>(
        &'t self,
        turn: &'t Turn,
        shape: TeidShape,
        teid: u32,
    ) -> Option<(SessionId, &'t Rules)> {
        let session = shape.session(teid);
        if let Some(rules) = self.rules(turn, session)
            && decide::has_tunnel(rules, &self.blocks(turn), teid)
        {
            return Some((session, rules));
        }
        self.by_other_tunnel(turn, teid)
    }

    /// Whose a tunnel is whose number does not say so.
    #[inline(never)]
    pub(crate) fn by_other_tunnel<'t>(
        &'t self,
        turn: &'t Turn,
        teid: u32,
    ) -> Option<(SessionId, &'t Rules)> {
        let found = self.tunnels.get(turn, &TunnelKey { teid })?;
        let session = found.value.session();
        let rules = self.rules(turn, session)?;
        decide::has_tunnel(rules, &self.blocks(turn), teid).then_some((session, rules))
    }

    /// Whose an address is: a user's, or of a network behind one.
    pub(crate) fn owner(&self, turn: &Turn, key: &UserKey, to: To) -> Option<SessionId> {
        let found = self.users.get(turn, key);
        found
            .map(|found: HashEntry<'_, SessionRef>| found.value.session())
            .or_else(|| self.behind(turn, key.instance, to))
    }

    /// The user behind whom a network is.
    pub(crate) fn behind(&self, turn: &Turn, instance: InstanceId, to: To) -> Option<SessionId> {
        self.framed.get(turn, framed::ANY)?;
        let place = match to {
            To::Four(address) => self.framed4.lookup(turn, address)?,
            To::Six(address) => self.framed6.lookup(turn, address)?,
        };
        self.framed.get(turn, place as usize)?.session(instance)
    }
}

/// A destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// IPv4.
    Four(Ipv4Addr),
    /// IPv6.
    Six(Ipv6Addr),
}

impl To {
    /// The destination of the IP packet behind an Ethernet header.
    #[inline]
    pub(crate) fn of(frame: &[u8], is_v6: bool) -> Option<Self> {
        Some(if is_v6 {
            Self::Six(header::<Ipv6>(frame, Ethernet::LENGTH)?.destination.into())
        } else {
            Self::Four(header::<Ipv4>(frame, Ethernet::LENGTH)?.destination.into())
        })
    }

    /// The key of a user with this address.
    #[inline]
    pub(crate) fn key(self, instance: InstanceId) -> UserKey {
        match self {
            Self::Four(address) => UserKey::v4(instance, address),
            Self::Six(address) => UserKey::v6(instance, address),
        }
    }
}
