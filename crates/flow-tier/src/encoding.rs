//! Keys and values of the tables in words, as `bpf/flows.bpf.c` has them. Words have the byte order
//! of the machine.

use fastlane_mirror::flows::{FlowKey, FlowRecord, TierFlow, TierTotals};
use fastlane_table::EntryId;

/// `struct flow_key`.
type KeyWords = [u64; 5];
/// `struct flow`.
pub(crate) type FlowWords = [u64; 16];
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

/// An entry without a flow.
pub(crate) const NO_FLOW: FlowWords = [0; 16];

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

/// Hash of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowHash(u64);

impl FlowHash {
    /// Returns the hash of a key, as `hash_of` in `bpf/flows.bpf.c`.
    pub(crate) fn new(key: &FlowKey, seed: u64) -> Self {
        let words @ [.., last] = key_words(key);
        // The words of an IPv4 address are 0 but for half of the first one.
        let seed = match key.version {
            4 => hash(seed, words[0] | words[2] << 32),
            _ => words[..4].iter().fold(seed, |seed, word| hash(seed, *word)),
        };
        Self(hash(hash(seed, last), 0))
    }

    /// Returns the first slot in a table with a number of slots.
    pub(crate) fn first_slot(self, slots: usize) -> usize {
        (((self.0 & 0xffff_ffff) * slots as u64) >> 32) as usize
    }

    /// Returns the slot of a flow with an entry, in a table with room for a number of flows.
    pub(crate) fn slot(self, entry: EntryId, capacity: usize) -> u32 {
        let mask = entry_mask(capacity);
        (self.0 >> 32) as u32 & !mask | (entry.0 + 1) & mask
    }
}

/// Returns the bits of a slot that have the entry and one more, in a table with room for a number
/// of flows.
pub(crate) fn entry_mask(capacity: usize) -> u32 {
    u32::try_from(capacity).map_or(u32::MAX, |most| u32::MAX >> most.leading_zeros().min(31))
}

/// Returns the entry of a slot, in a table with room for a number of flows; `None` if it is free.
pub(crate) fn entry_of(slot: u32, capacity: usize) -> Option<EntryId> {
    (slot & entry_mask(capacity)).checked_sub(1).map(EntryId)
}

fn hash(seed: u64, word: u64) -> u64 {
    let product = (seed ^ word).wrapping_mul(ODD);
    product ^ product >> 32
}

/// Returns a flow with the serial number of its insertion.
pub(crate) fn flow_words(flow: &TierFlow, serial: u32) -> FlowWords {
    let (key, record) = (&flow.key, &flow.record);
    let (new_source, new_destination) = (record.source(), record.destination());
    let addresses =
        [&key.source, &key.destination, &new_source, &new_destination].map(address_words);
    let [source, destination, new_source, new_destination] = addresses.map(|words| words[0]);
    let numbers = [key_words(key)[4], zerocopy::transmute!([record.ports, record.differences])];
    let more: [[u32; 3]; 4] = addresses.map(|[_, more @ ..]| more);
    let mut words = NO_FLOW;
    words[0] = zerocopy::transmute!([source, destination]);
    words[1] = numbers[0];
    words[2] = zerocopy::transmute!([new_source, new_destination]);
    words[3] = numbers[1];
    words[4] = zerocopy::transmute!([record.id, record.is_reply]);
    words[5] = serial.into();
    let more: [u64; 6] = zerocopy::transmute!(more);
    words[8..14].copy_from_slice(&more);
    let [check, more_check] = flow_checks(&words);
    (words[6], words[14]) = (check, more_check);
    words
}

fn address_words(address: &[u8; 16]) -> [u32; 4] {
    zerocopy::transmute!(*address)
}

/// Returns the checks of both cache lines of a flow.
fn flow_checks(words: &FlowWords) -> [u64; 2] {
    let first = check(0, &words[..6], 0);
    [first, check(first, &words[8..14], 6)]
}

/// Returns a flow and its serial number; `None` if there is none or it is not whole.
pub(crate) fn flow_of(words: &FlowWords, entry: EntryId) -> Option<(TierFlow, u32)> {
    let [addresses, last, new_addresses, numbers, ids, serial, check, _, more @ .., _, _] = *words;
    let first: [[u32; 2]; 2] = zerocopy::transmute!([addresses, new_addresses]);
    let more: [[u32; 3]; 4] = zerocopy::transmute!(more);
    let address =
        |first: u32, [a, b, c]: [u32; 3]| -> [u8; 16] { zerocopy::transmute!([first, a, b, c]) };
    let source = address(first[0][0], more[0]);
    let destination = address(first[0][1], more[1]);
    let ends: [[u64; 2]; 2] = [zerocopy::transmute!(source), zerocopy::transmute!(destination)];
    let key: FlowKey = zerocopy::transmute!([ends[0][0], ends[0][1], ends[1][0], ends[1][1], last]);
    let [ports, differences]: [[u16; 2]; 2] = zerocopy::transmute!(numbers);
    let [id, is_reply]: [u32; 2] = zerocopy::transmute!(ids);
    let (source, destination) = (address(first[1][0], more[2]), address(first[1][1], more[3]));
    let between = FlowRecord::between(source, destination);
    let record = FlowRecord { ports, differences, id, is_reply, ..between };
    let is_whole = key.version != 0 && [check, words[14]] == flow_checks(words);
    is_whole.then_some((TierFlow { key, record, entry }, serial as u32))
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
        let (ports, differences) = ([9, 10], [11, 12]);
        let between = FlowRecord::between([7; 16], [8; 16]);
        let record = FlowRecord { ports, differences, id: 13, is_reply: 1, ..between };
        TierFlow { key, record, entry: EntryId(14) }
    }

    #[test]
    fn a_flow_comes_back_from_its_words() {
        for version in [4, 6] {
            let flow = TierFlow { key: FlowKey { version, ..flow().key }, ..flow() };
            assert_eq!(flow_of(&flow_words(&flow, 15), flow.entry), Some((flow, 15)));
        }
        assert_eq!(flow_of(&NO_FLOW, EntryId(0)), None);
    }

    #[test]
    fn ipv4_is_whole_in_the_first_cache_line() {
        let address = |octet| std::array::from_fn(|index| if index < 4 { octet } else { 0 });
        let FlowKey { ports, zone, protocol, .. } = flow().key;
        let (source, destination) = (address(1), address(2));
        let key = FlowKey { source, destination, ports, zone, protocol, version: 4 };
        let (source, destination) = (address(3), address(4));
        let record = FlowRecord { ports, ..FlowRecord::between(source, destination) };
        let words = flow_words(&TierFlow { key, record, entry: EntryId(14) }, 15);
        assert_eq!((&words[8..14], words[14]), (&[0; 6][..], words[6]));
    }

    #[test]
    fn a_slot_has_the_entry_and_bits_of_the_hash() {
        let hash = FlowHash::new(&flow().key, 7);
        for capacity in [1, 2, 3, 4, 1000, 1 << 20, u32::MAX as usize] {
            let last = EntryId(capacity as u32 - 1);
            let slot = hash.slot(last, capacity);
            assert_eq!(entry_of(slot, capacity), Some(last), "room for {capacity}");
            let mask = entry_mask(capacity);
            assert_eq!((slot ^ (hash.0 >> 32) as u32) & !mask, 0, "room for {capacity}");
            assert!(mask >> 1 <= last.0, "{mask:#x} for {capacity}");
        }
        assert_eq!(entry_of(0, 8), None);
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
        let (one, other) = (flow_words(&one, 1), flow_words(&other, 2));
        for count in 0..15 {
            let mut mixture = other;
            mixture[..count].copy_from_slice(&one[..count]);
            let is_whole = mixture == one || mixture == other;
            let found = flow_of(&mixture, EntryId(14));
            assert_eq!(found.is_some(), is_whole, "{count} words");
        }
        // Nor is the flow that of another key.
        let another = TierFlow { key: FlowKey { zone: 6, ..flow().key }, ..flow() };
        let mut mixture = one;
        mixture[..2].copy_from_slice(&flow_words(&another, 1)[..2]);
        assert_eq!(flow_of(&mixture, EntryId(14)), None);
    }

    #[test]
    fn keys_spread_over_the_slots() {
        let mut counts = [0_u32; 8];
        for port in 0..8000 {
            let key = FlowKey { ports: [port, 53], ..flow().key };
            counts[FlowHash::new(&key, 7).first_slot(counts.len())] += 1;
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
