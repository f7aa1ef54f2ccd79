//! Entrances: the interfaces on which flows may arrive, in a hash table of the program.
//!
//! Invariant, after each single write: the table has a whole entrance of an interface, from its
//! first write to its removal. So it is changed by a second one, in another slot, before the first
//! is cleared. A program that has searched in between searches once more.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use aya::maps::{Array, HashMap, Map, MapData, MapError};
use fastlane_steer::ArrayReader;

use crate::encoding::{Entrance, EntranceWords};
use crate::error::system;

/// Number of bits of a hash and its factor, as in `bpf/flows.bpf.c`.
const BITS: u32 = 10;
const FACTOR: u32 = 0x9E37_79B1;

/// Number of slots in which an entrance may be. Behind the last slot of a hash there are as many
/// more, less one.
const MAX_PROBES: u32 = 16;

/// A free slot.
const FREE: EntranceWords = [0; 4];

/// Returns the slots in which the entrance of an interface may be.
fn slots_of(interface: u32) -> Range<u32> {
    let first = interface.wrapping_mul(FACTOR) >> (u32::BITS - BITS);
    first..first + MAX_PROBES
}

/// The table. Nothing of it is kept here: it has few entrances, and is written rarely.
pub(crate) struct Entrances {
    table: Array<MapData, EntranceWords>,
    slots: ArrayReader<{ FREE.len() }>,
}

impl Entrances {
    /// Opens the table by its descriptor.
    ///
    /// # Errors
    /// Returns an error if it is another kind of table.
    pub(crate) fn open(descriptor: OwnedFd) -> Result<Self, MapError> {
        let slots = ArrayReader::new(descriptor.as_fd())?;
        let table = Map::from_map_data(MapData::from_fd(descriptor)?)?.try_into()?;
        Ok(Self { table, slots })
    }

    /// Returns the entrances of a table of whatever layout; none if it is of no known kind. Up to
    /// layout 4 it was a hash table of the kernel.
    ///
    /// # Errors
    /// Returns the refusal of the kernel.
    pub(crate) fn of_any_layout(descriptor: OwnedFd) -> io::Result<Vec<Entrance>> {
        match Self::open(descriptor.try_clone()?) {
            Err(MapError::IoError(error)) if error.kind() == io::ErrorKind::InvalidInput => {}
            opened => return opened.map_err(system)?.all(),
        }
        let table = Map::from_map_data(MapData::from_fd(descriptor).map_err(system)?);
        let table = HashMap::<_, u32, [u64; 2]>::try_from(table.map_err(system)?);
        let Ok(table) = table else { return Ok(Vec::new()) };
        let entrances = table.iter().map(|found| {
            let (interface, words) = found.map_err(system)?;
            Ok(Entrance::of_layout_4(interface, words))
        });
        entrances.collect()
    }

    /// Returns the entrances. After a kill an interface may have two.
    ///
    /// # Errors
    /// Returns the refusal of the kernel.
    pub(crate) fn all(&self) -> io::Result<Vec<Entrance>> {
        let mut slots = vec![FREE; self.slots.len() as usize];
        self.slots.read(0, &mut slots)?;
        Ok(slots.iter().filter_map(Entrance::of).collect())
    }

    /// Adds an entrance, instead of one of the same interface.
    ///
    /// # Errors
    /// Returns the refusal of the kernel, or an error if there is no room. What was there before
    /// is unchanged then.
    pub(crate) fn set(&mut self, entrance: &Entrance) -> io::Result<()> {
        let interface = entrance.interface;
        let found = self.around(interface)?;
        if found.iter().filter_map(Entrance::of).any(|it| it == *entrance) {
            return self.clear(interface, Some(entrance));
        }
        let free = found.iter().position(|words| Entrance::of(words).is_none());
        let free = free.and_then(|at| slots_of(interface).nth(at)).ok_or_else(|| {
            io::Error::other(format!(
                "other interfaces have the {MAX_PROBES} places of its index {interface}; make it \
                 anew, with another index, or give the tier fewer interfaces"
            ))
        })?;
        self.table.set(free, entrance.words(), 0).map_err(system)?;
        self.clear(interface, Some(entrance))
    }

    /// Removes the entrance of an interface, if it has one.
    ///
    /// # Errors
    /// Returns the refusal of the kernel.
    pub(crate) fn remove(&mut self, interface: u32) -> io::Result<()> {
        self.clear(interface, None)
    }

    /// Frees the slots of an interface, but for the first one with what is kept.
    fn clear(&mut self, interface: u32, mut kept: Option<&Entrance>) -> io::Result<()> {
        for (slot, words) in slots_of(interface).zip(self.around(interface)?) {
            let found = Entrance::of(&words).filter(|it| it.interface == interface);
            if found.is_some() && found.as_ref() == kept {
                kept = None;
            } else if found.is_some() {
                self.table.set(slot, FREE, 0).map_err(system)?;
            }
        }
        Ok(())
    }

    /// Returns the words of an interface's slots.
    fn around(&self, interface: u32) -> io::Result<[EntranceWords; MAX_PROBES as usize]> {
        let mut found = [FREE; MAX_PROBES as usize];
        self.slots.read(slots_of(interface).start, &mut found)?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use fastlane_testing::namespace::{command, ip, private};

    use super::*;
    use crate::{KernelTier, TierOutcome};

    /// Returns interfaces whose entrances have the first slot of another one.
    fn meeting(other: u32) -> impl Iterator<Item = u32> {
        (1..).filter(move |it| *it != other && slots_of(*it).start == slots_of(other).start)
    }

    /// Returns a tier in a namespace of its own, as [`private`].
    fn tier(test: &str) -> Option<KernelTier> {
        private(test).then(|| KernelTier::load(4).unwrap())
    }

    fn of(entrances: &Entrances, interface: u32) -> Vec<Entrance> {
        let all = entrances.all().unwrap().into_iter();
        all.filter(|it| it.interface == interface).collect()
    }

    fn entrance(interface: u32, zone: u16) -> Entrance {
        Entrance { interface, mac: [2, 0, 0, 0, 0, 1], zone, flags: 1, lanes: Some(3) }
    }

    #[test]
    fn entrances_are_changed_while_others_have_their_slots() {
        let Some(mut tier) = tier("tier-entrances") else { return };
        let entrances = &mut tier.tables.entrances;
        let interfaces: Vec<u32> = meeting(7).take(MAX_PROBES as usize - 1).collect();
        for zone in [1, 1, 2] {
            for interface in &interfaces {
                entrances.set(&entrance(*interface, zone)).unwrap();
            }
            assert_eq!(entrances.all().unwrap().len(), interfaces.len());
            for interface in &interfaces {
                assert_eq!(of(entrances, *interface), [entrance(*interface, zone)]);
            }
        }
        for interface in interfaces {
            entrances.remove(interface).unwrap();
            assert_eq!(of(entrances, interface), []);
        }
        assert_eq!(entrances.all().unwrap(), []);
    }

    #[test]
    fn one_without_room_is_refused_by_its_index() {
        let Some(mut tier) = tier("tier-entrances-full") else { return };
        let entrances = &mut tier.tables.entrances;
        let mut interfaces = meeting(7);
        for interface in interfaces.by_ref().take(MAX_PROBES as usize) {
            entrances.set(&entrance(interface, 0)).unwrap();
        }
        let next = interfaces.next().unwrap();
        let refusal = entrances.set(&entrance(next, 0)).unwrap_err().to_string();
        assert!(refusal.contains(&format!("index {next}")), "{refusal}");
    }

    #[test]
    fn two_that_a_kill_has_left_become_one() {
        let Some(mut tier) = tier("tier-entrances-two") else { return };
        let entrances = &mut tier.tables.entrances;
        let first = slots_of(7).start;
        for (slot, zone) in [(first + 2, 1), (first + 5, 2)] {
            entrances.table.set(slot, entrance(7, zone).words(), 0).unwrap();
        }
        assert_eq!(of(entrances, 7), [entrance(7, 1), entrance(7, 2)]);
        entrances.set(&entrance(7, 2)).unwrap();
        assert_eq!(entrances.all().unwrap(), [entrance(7, 2)]);
    }

    #[test]
    fn the_program_finds_an_entrance_behind_others() {
        let Some(mut tier) = tier("tier-entrances-behind") else { return };
        ip("link add in type veth peer out");
        let shown = command("ip", "-o link show in");
        let index: u32 = shown.split_once(':').unwrap().0.parse().unwrap();
        let mut others = meeting(index);
        let [first, rest @ ..] = entrance(index, 1).words();
        for (count, slot) in slots_of(index).enumerate() {
            let table = |tier: &mut KernelTier, words| {
                tier.tables.entrances.table.set(slot, words, 0).unwrap();
                tier.test_run(index, &[0; 60], 1).unwrap();
            };
            // A frame for another station has no other outcome, once its interface is known.
            table(&mut tier, entrance(index, 1).words());
            table(&mut tier, [first ^ 1, rest[0], rest[1], 0]); // not whole
            table(&mut tier, entrance(others.next().unwrap(), 1).words());
            let outcomes = tier.outcomes().unwrap();
            let packets = |outcome: TierOutcome| outcomes[outcome as usize].packets;
            let seen = [TierOutcome::OtherStation, TierOutcome::UnknownInterface].map(packets);
            assert_eq!(seen, [count as u64 + 1, 2 * count as u64 + 2], "behind {count} others");
        }
    }
}
