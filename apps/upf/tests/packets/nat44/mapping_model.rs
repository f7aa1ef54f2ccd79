//! The reference of NAT: all mappings in a map, with what a packet may change of them.

use std::collections::BTreeMap;

use upf::rules::layout::nat_tables::Timers;

use super::nat_lane::{ICMP, Mapping, NatLane, PORTS, UDP};

/// User (false: the first one), protocol and inside port of a mapping.
pub(crate) type Key = (bool, u8, u16);

/// Ticks that a test itself may take. Ages this close to a timer are of no use to it.
const VAGUE: u32 = 3;

/// A mapping as the reference knows it.
#[derive(Clone, Copy, Debug)]
struct KnownMapping {
    external: u16,
    /// Ticks since the last packet of the user, without those that the test takes.
    age: u32,
    /// Time of that packet as the slot has it.
    seen: u32,
}

/// All mappings.
#[derive(Debug, Default)]
pub(crate) struct MappingModel(BTreeMap<Key, KnownMapping>);

/// Returns true if a mapping exists at an age, false if its time is over, and `None` if that
/// depends on the state of TCP or on how long the test takes.
fn is_live(protocol: u8, age: u32) -> Option<bool> {
    let timers = Timers::of([300, 60, 7440, 240]);
    let (timer, longest) = match protocol {
        ICMP => (timers.icmp, timers.icmp),
        UDP => (timers.udp, timers.udp),
        _ => (timers.tcp_transitory, timers.tcp),
    };
    if age + VAGUE <= timer {
        return Some(true);
    }
    (age > longest + VAGUE).then_some(false)
}

impl MappingModel {
    /// Lets time pass, in ticks.
    pub(crate) fn pass(&mut self, ticks: u32) {
        for known in self.0.values_mut() {
            known.age += ticks;
            known.seen = known.seen.wrapping_sub(ticks);
        }
    }

    /// Returns true if there is a mapping, false if its time is over; `None` if that is not sure.
    pub(crate) fn is_live(&self, key: Key) -> Option<bool> {
        self.0.get(&key).map_or(Some(false), |known| is_live(key.1, known.age))
    }

    /// Returns the external port of a mapping, whose time may be over.
    pub(crate) fn external(&self, key: Key) -> Option<u16> {
        self.0.get(&key).map(|known| known.external)
    }

    /// Returns the mapping of an external port, whose time may be over.
    pub(crate) fn owner(&self, protocol: u8, external: u16) -> Option<Key> {
        let mut found = self
            .0
            .iter()
            .filter(|((_, of, _), known)| (*of, known.external) == (protocol, external));
        let first = found.next().map(|(key, _)| *key);
        assert!(found.next().is_none(), "{external} has two owners");
        first
    }

    /// Returns true if a user may have no free port.
    pub(crate) fn may_be_full(&self, other: bool) -> bool {
        let live = |(key, known): &(&Key, &KnownMapping)| {
            key.0 == other && is_live(key.1, known.age) != Some(false)
        };
        self.0.iter().filter(live).count() >= usize::from(PORTS)
    }

    /// Compares the mappings of the lane with the reference after a packet that may make or
    /// refresh the mapping `own`, and no other. Returns the number of mappings that were made.
    ///
    /// # Panics
    /// When another mapping has changed, or one that must exist does not.
    pub(crate) fn settle(&mut self, lane: &NatLane, own: Option<Key>) -> u64 {
        let slots = lane.mappings();
        let mut made = 0;
        for (external, Mapping { other, protocol, inside, seen }) in &slots {
            let key = (*other, *protocol, *inside);
            let known = self.0.get(&key).filter(|known| known.external == *external).copied();
            if let Some(known) = known.filter(|known| known.seen == *seen || Some(key) != own) {
                assert_eq!(known.seen, *seen, "{key:?} was prolonged by a packet for {own:?}");
                continue;
            }
            assert_eq!(Some(key), own, "{external} was given without a packet of its user");
            let is_kept = known.is_some();
            assert!(is_kept || self.is_live(key) != Some(true), "{key:?} has moved to {external}");
            made += u64::from(!is_kept);
            self.0.insert(key, KnownMapping { external: *external, age: 0, seen: *seen });
        }
        self.0.retain(|key, known| {
            let is_there = slots
                .get(&known.external)
                .is_some_and(|slot| (slot.other, slot.protocol, slot.inside) == *key);
            assert!(is_there || is_live(key.1, known.age) != Some(true), "{key:?} is lost");
            is_there
        });
        made
    }
}
