//! Keys and values of the tables in words, as `bpf/flows.bpf.c` has them. Words have the byte order
//! of the machine.

use fastlane_mirror::flows::{FlowKey, FlowRecord, TierFlow, TierTotals};
use fastlane_table::EntryId;

/// `struct flow_key`.
type KeyWords = [u64; 5];
/// `struct flow`.
type FlowWords = [u64; 8];
/// `struct slot`: key, flow, and words without a meaning.
pub(crate) type SlotWords = [u64; 16];
/// `struct flow_state`.
pub(crate) type StateWords = [u64; 8];
/// `struct status`.
pub(crate) type StatusWords = [u64; 5];
/// `struct entrance`.
pub(crate) type EntranceWords = [u64; 4];
/// `struct count`.
pub(crate) type CountWords = [u64; 2];

/// Factor of the first word of a check.
const ODD: u64 = 0x9E37_79B9_7F4A_7C15;

/// A free slot.
pub(crate) const FREE: SlotWords = [0; 16];

/// Flags of an entrance: packets may leave by their ingress interface; Linux takes IPv6 packets
/// from it.
pub(crate) const FORWARDS_BACK: u16 = 1;
pub(crate) const TAKES_IPV6: u16 = 2;

/// Flags of a state: a packet that closes the connection was seen; its route leads to another exit.
const CLOSING: u32 = 1;
const REROUTED: u32 = 2;

/// Adds words to a check, of which the first has an index.
fn check(sum: u64, words: &[u64], first: u64) -> u64 {
    let products = (first..).zip(words).map(|(index, word)| {
        word.wrapping_mul(ODD.wrapping_mul(2 * index + 1)) // an odd factor for each
    });
    products.fold(sum, u64::wrapping_add)
}

/// Returns the FNV-1a hash of octets, which tells versions apart.
pub(crate) fn digest(octets: &[u8]) -> u64 {
    octets.iter().fold(0xcbf2_9ce4_8422_2325, |hash, octet| {
        (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Returns the key in words.
fn key_words(key: &FlowKey) -> KeyWords {
    zerocopy::transmute!(*key)
}

/// Returns the first slot of a key in a table with a number of slots, as `first_slot` in
/// `bpf/flows.bpf.c`.
pub(crate) fn first_slot(key: &FlowKey, seed: u64, slots: usize) -> usize {
    let words @ [.., last] = key_words(key);
    // The words of an IPv4 address are 0 but for half of the first one.
    let seed = match key.version {
        4 => hash(seed, words[0] | words[2] << 32),
        _ => words[..4].iter().fold(seed, |seed, word| hash(seed, *word)),
    };
    let hash = hash(hash(seed, last), 0) & 0xffff_ffff;
    ((hash * slots as u64) >> 32) as usize
}

fn hash(seed: u64, word: u64) -> u64 {
    let product = (seed ^ word).wrapping_mul(ODD);
    product ^ product >> 32
}

/// Returns the value of a flow with the serial number of its insertion.
fn flow_words(flow: &TierFlow, serial: u32) -> FlowWords {
    let record: [u64; 6] = zerocopy::transmute!(flow.record);
    let numbers: u64 = zerocopy::transmute!([flow.entry.0, serial]);
    let mut words = [0; 8];
    words[..6].copy_from_slice(&record);
    words[6] = numbers;
    words[7] = flow_check(&key_words(&flow.key), &words);
    words
}

fn flow_check(key: &KeyWords, words: &FlowWords) -> u64 {
    check(check(0, key, 0), &words[..7], key.len() as u64)
}

/// Returns a slot with a flow.
pub(crate) fn slot_words(flow: &TierFlow, serial: u32) -> SlotWords {
    let mut words = FREE;
    words[..5].copy_from_slice(&key_words(&flow.key));
    words[5..13].copy_from_slice(&flow_words(flow, serial));
    words
}

/// Returns true if a slot has a flow, whole or not.
pub(crate) fn is_taken(words: &SlotWords) -> bool {
    let [a, b, c, d, e, ..] = *words;
    let key: FlowKey = zerocopy::transmute!([a, b, c, d, e]);
    key.version != 0
}

/// Returns the flow of a slot and its serial number; `None` if it is free or not whole.
pub(crate) fn flow_of(words: &SlotWords) -> Option<(TierFlow, u32)> {
    let [k0, k1, k2, k3, k4, a, b, c, d, e, f, numbers, sum, ..] = *words;
    let key_words = [k0, k1, k2, k3, k4];
    let key: FlowKey = zerocopy::transmute!(key_words);
    let is_whole = sum == flow_check(&key_words, &[a, b, c, d, e, f, numbers, sum]);
    let record: FlowRecord = zerocopy::transmute!([a, b, c, d, e, f]);
    let [entry, serial]: [u32; 2] = zerocopy::transmute!(numbers);
    let flow = (TierFlow { key, record, entry: EntryId(entry) }, serial);
    (key.version != 0 && is_whole).then_some(flow)
}

/// Status of the slow path. Times are in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// Time after which everything goes to Linux; 0: now.
    pub(crate) deadline: u64,
    /// Time after which remembered next hops do not hold.
    pub(crate) hops_until: u64,
    /// Generation of the remembered next hops.
    pub(crate) generation: u32,
    /// Last serial number that may have been given to an insertion; 0: none. States of earlier
    /// flows have such numbers, so a successor continues after it.
    pub(crate) last_serial: u32,
    /// Seed of the hash of slots.
    pub(crate) seed: u64,
}

impl Status {
    /// Returns the words with their check.
    pub(crate) fn words(&self) -> StatusWords {
        let numbers: u64 = zerocopy::transmute!([self.generation, self.last_serial]);
        let words = [self.deadline, self.hops_until, numbers, self.seed];
        [words[0], words[1], words[2], words[3], check(0, &words, 0)]
    }

    /// Returns the status in words, whose check only the program looks at: it is replaced by one
    /// system call.
    pub(crate) fn of(words: &StatusWords) -> Self {
        let [deadline, hops_until, numbers, seed, _] = *words;
        let [generation, last_serial]: [u32; 2] = zerocopy::transmute!(numbers);
        Self { deadline, hops_until, generation, last_serial, seed }
    }
}

/// Entrance of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entrance {
    pub(crate) interface: u32,
    pub(crate) mac: [u8; 6],
    pub(crate) zone: u16,
    pub(crate) flags: u16,
    /// Index in `lanes` of the program that gets what the tier passes; `None`: Linux gets it.
    pub(crate) lanes: Option<u16>,
}

impl Entrance {
    /// Returns the words with their check.
    pub(crate) fn words(&self) -> EntranceWords {
        let [a, b, c, d, e, f] = self.mac;
        let [g, h] = self.zone.to_ne_bytes();
        let lanes = self.lanes.map_or(0, |index| index + 1);
        let numbers: u32 = zerocopy::transmute!([lanes, self.flags]);
        let words = [
            u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            zerocopy::transmute!([self.interface, numbers]),
        ];
        [words[0], words[1], check(0, &words, 0), 0]
    }

    /// Returns the entrance in a table of layout 4, where `flags` and `lanes` had 32 bits each.
    pub(crate) fn of_layout_4(interface: u32, [first, second]: [u64; 2]) -> Self {
        let [a, b, c, d, e, f, g, h] = first.to_ne_bytes();
        let [flags, lanes]: [u32; 2] = zerocopy::transmute!(second);
        Self {
            interface,
            mac: [a, b, c, d, e, f],
            zone: u16::from_ne_bytes([g, h]),
            flags: flags as u16,
            lanes: lanes.checked_sub(1).map(|index| index as u16),
        }
    }

    /// Returns the entrance in a slot; `None` if it is free or not whole.
    pub(crate) fn of(words: &EntranceWords) -> Option<Self> {
        let [first, second, sum, _] = *words;
        let [a, b, c, d, e, f, g, h] = first.to_ne_bytes();
        let [interface, numbers]: [u32; 2] = zerocopy::transmute!(second);
        let [lanes, flags]: [u16; 2] = zerocopy::transmute!(numbers);
        let is_whole = interface != 0 && sum == check(0, &[first, second], 0);
        is_whole.then_some(Self {
            interface,
            mac: [a, b, c, d, e, f],
            zone: u16::from_ne_bytes([g, h]),
            flags,
            lanes: lanes.checked_sub(1),
        })
    }
}

/// Adds the state of one CPU to totals, if it belongs to the insertion with this serial number.
pub(crate) fn add_state(totals: &mut TierTotals, state: &StateWords, serial: u32) {
    let [packets, octets, last_seen, numbers, ..] = *state;
    let [owner, flags]: [u32; 2] = zerocopy::transmute!(numbers);
    if owner == serial {
        let (is_closing, is_rerouted) = (flags & CLOSING != 0, flags & REROUTED != 0);
        *totals += TierTotals { packets, octets, last_seen, is_closing, is_rerouted };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow() -> TierFlow {
        let key = FlowKey {
            source: [1; 16],
            destination: [2; 16],
            ports: [3, 4],
            zone: 5,
            protocol: 6,
            version: 4,
        };
        let record = FlowRecord {
            source: [7; 16],
            destination: [8; 16],
            ports: [9, 10],
            differences: [11, 12],
            id: 13,
            is_reply: 1,
        };
        TierFlow { key, record, entry: EntryId(14) }
    }

    #[test]
    fn a_flow_comes_back_from_its_slot() {
        let words = slot_words(&flow(), 15);
        assert!(is_taken(&words) && !is_taken(&FREE));
        assert_eq!(flow_of(&words), Some((flow(), 15)));
        assert_eq!(flow_of(&FREE), None);
    }

    #[test]
    fn a_status_comes_back_from_its_words() {
        let status = Status { deadline: 1, hops_until: 2, generation: 3, last_serial: 4, seed: 5 };
        assert_eq!(Status::of(&status.words()), status);
    }

    #[test]
    fn an_entrance_comes_back_from_its_slot() {
        let mac = [1, 2, 3, 4, 5, 6];
        for lanes in [None, Some(0), Some(255)] {
            let entrance = Entrance { interface: 7, mac, zone: 8, flags: TAKES_IPV6, lanes };
            let words = entrance.words();
            assert_eq!(Entrance::of(&words), Some(entrance));
            let other = Entrance { zone: 9, ..entrance }.words();
            assert_eq!(Entrance::of(&[other[0], words[1], words[2], 0]), None, "a mixture");
        }
        assert_eq!(Entrance::of(&[0; 4]), None);
    }

    #[test]
    fn a_mixture_of_two_flows_is_none() {
        let (one, other) =
            (flow(), TierFlow { record: FlowRecord { id: 99, ..flow().record }, ..flow() });
        let (one, other) = (slot_words(&one, 1), slot_words(&other, 2));
        for count in 0..13 {
            let mut mixture = other;
            mixture[..count].copy_from_slice(&one[..count]);
            let is_whole = mixture == one || mixture == other;
            assert_eq!(flow_of(&mixture).is_some(), is_whole, "{count} words");
        }
        // Nor is the flow that of another key.
        let another = TierFlow { key: FlowKey { zone: 6, ..flow().key }, ..flow() };
        let mut mixture = one;
        mixture[..5].copy_from_slice(&slot_words(&another, 1)[..5]);
        assert_eq!(flow_of(&mixture), None);
    }

    #[test]
    fn keys_spread_over_the_slots() {
        let mut counts = [0_u32; 8];
        for port in 0..8000 {
            let key = FlowKey { ports: [port, 53], ..flow().key };
            counts[first_slot(&key, 7, counts.len())] += 1;
        }
        assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
    }

    #[test]
    fn state_of_an_earlier_flow_is_not_counted() {
        let numbers: u64 = zerocopy::transmute!([7_u32, CLOSING]);
        let state = [2, 200, 30, numbers, 0, 0, 0, 0];
        let mut totals = TierTotals::default();
        add_state(&mut totals, &state, 8);
        assert_eq!(totals, TierTotals::default());
        add_state(&mut totals, &state, 7);
        add_state(&mut totals, &state, 7);
        let (packets, octets, last_seen) = (4, 400, 30);
        let wanted =
            TierTotals { packets, octets, last_seen, is_closing: true, is_rerouted: false };
        assert_eq!(totals, wanted);
    }
}
