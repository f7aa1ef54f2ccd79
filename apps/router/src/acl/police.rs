//! Meters of `police` rules: lane state with the colours that they gave.
//!
//! ```text
//! word 0       number of the rule that the words belong to (epoch)
//!      1 to 3  state of the meter
//!      4 to 9  packets and bytes that were green, yellow, red
//! ```
//! Each lane has a meter of its own for its share of the rates.

use fastlane::table::{Colour, EntryId, LaneState, MeterProfile, MeterState, State};

use super::MeterId;

/// Number of words of a meter.
pub const WORDS: usize = COLOURS + 6;
/// First word of the counters.
const COLOURS: usize = 1 + MeterState::WORDS;

/// Packet that is metered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Bytes from the Ethernet header on.
    pub(crate) octets: u64,
    /// DSCP and ECN.
    pub(crate) traffic_class: u8,
}

impl Arrival {
    /// Returns the colour that an earlier router gave: the drop precedence of assured forwarding
    /// (RFC 2597). All else is green.
    fn colour(self) -> Colour {
        let dscp = self.traffic_class >> 2;
        match (dscp >> 3, dscp & 7) {
            (1..=4, 4) => Colour::Yellow,
            (1..=4, 6) => Colour::Red,
            _ => Colour::Green,
        }
    }
}

/// Meter of a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    pub(crate) id: MeterId,
    pub(crate) profile: MeterProfile,
    /// True if it begins with the colour that an earlier router gave.
    pub(crate) is_aware: bool,
}

impl Meter {
    /// Meters a packet and counts its colour. If there is no such meter, every packet is red.
    #[inline]
    pub(crate) fn meter(&self, meters: &LaneState<WORDS>, packet: Arrival, now: u64) -> Colour {
        let words = meters.at(EntryId(self.id.index));
        if words.get(0) != self.id.epoch {
            (1..WORDS).for_each(|word| words.set(word, 0));
            words.set(0, self.id.epoch);
            if words.get(0) != self.id.epoch {
                return Colour::Red;
            }
        }
        let mut state = MeterState::load(words, 1);
        let colour = if self.is_aware { packet.colour() } else { Colour::Green };
        let colour = self.profile.meter(&mut state, now, packet.octets, colour);
        state.store(words, 1);
        let counters = COLOURS + 2 * colour as usize;
        words.add(counters, 1);
        words.add(counters + 1, packet.octets);
        colour
    }
}

/// Returns the packets and bytes of each colour, of all lanes: green, yellow, red.
pub(crate) fn colours(meters: &State<WORDS>, meter: MeterId) -> [[u64; 2]; 3] {
    let mut sums = [[0; 2]; 3];
    for lane in 0..meters.lanes().max(1) {
        let words = meters.lane(lane);
        let words = words.at(EntryId(meter.index));
        if words.get(0) != meter.epoch {
            continue; // the lane has met no packet of this rule
        }
        for (colour, sum) in sums.iter_mut().enumerate() {
            for (part, sum) in sum.iter_mut().enumerate() {
                *sum += words.get(COLOURS + 2 * colour + part);
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use fastlane::table::Spec;

    use super::*;

    #[test]
    fn colours_are_counted_for_the_rule_that_has_the_meter_now() {
        let memory = Spec::state::<WORDS>("police", 2, 2).create().unwrap();
        let meters = State::<WORDS>::attach(&memory).unwrap();
        let lane = meters.lane(1);
        let profile = MeterProfile::single_rate(1000, 200, 100).unwrap();
        let first = MeterId { index: 1, reserved: 0, epoch: 7 };
        let packet = |octets| Arrival { octets, traffic_class: 0 };
        let meter =
            |id, octets| Meter { id, profile, is_aware: false }.meter(&lane, packet(octets), 1);
        let found = [200, 100, 1].map(|octets| meter(first, octets));
        assert_eq!(found, [Colour::Green, Colour::Yellow, Colour::Red]);
        assert_eq!(colours(&meters, first), [[1, 200], [1, 100], [1, 1]]);
        // Another rule gets the index: full buckets, counters from zero.
        let second = MeterId { epoch: 8, ..first };
        assert_eq!(colours(&meters, second), [[0; 2]; 3]);
        assert_eq!(meter(second, 150), Colour::Green);
        assert_eq!(colours(&meters, second), [[1, 150], [0; 2], [0; 2]]);
        assert_eq!(meter(MeterId { index: 2, ..first }, 1), Colour::Red, "there is no such meter");
    }

    #[test]
    fn the_colour_of_a_packet_is_its_drop_precedence() {
        let colour = |dscp: u8| Arrival { octets: 0, traffic_class: dscp << 2 | 1 }.colour();
        // AF11, AF12, AF13, AF42, AF43, EF, CS1, and what is no class of AF.
        let found = [10, 12, 14, 36, 38, 46, 8, 44].map(colour);
        use Colour::{Green, Red, Yellow};
        assert_eq!(found, [Green, Yellow, Red, Yellow, Red, Green, Green, Green]);
    }
}
