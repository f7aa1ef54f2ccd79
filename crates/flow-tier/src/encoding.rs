//! Keys and values of the tables in words, as `bpf/flows.bpf.c` has them. Words have the byte order
//! of the machine.

use fastlane_mirror::flows::{FlowKey, FlowRecord, TierFlow, TierTotals};
use fastlane_table::EntryId;

/// `struct flow_key`.
pub(crate) type KeyWords = [u64; 5];
/// `struct flow`.
pub(crate) type FlowWords = [u64; 8];
/// `struct flow_state`.
pub(crate) type StateWords = [u64; 8];
/// `struct status`.
pub(crate) type StatusWords = [u64; 4];
/// `struct entrance`.
pub(crate) type EntranceWords = [u64; 2];
/// `struct count`.
pub(crate) type CountWords = [u64; 2];

/// Factor of the first word of a check.
const ODD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Flag of an entrance: packets may leave by their ingress interface.
const FORWARDS_BACK: u32 = 1;

/// Adds words to a check, of which the first has an index.
fn check(sum: u64, words: &[u64], first: u64) -> u64 {
    let products = (first..).zip(words).map(|(index, word)| {
        word.wrapping_mul(ODD.wrapping_mul(2 * index + 1)) // an odd factor for each
    });
    products.fold(sum, u64::wrapping_add)
}

/// Returns the key in words.
pub(crate) fn key_words(key: &FlowKey) -> KeyWords {
    zerocopy::transmute!(*key)
}

/// Returns the key of words.
pub(crate) fn key_of(words: KeyWords) -> FlowKey {
    zerocopy::transmute!(words)
}

/// Returns the value of a flow with the serial number of its insertion.
pub(crate) fn flow_words(flow: &TierFlow, serial: u32) -> FlowWords {
    let record: [u64; 6] = zerocopy::transmute!(flow.record);
    let numbers: u64 = zerocopy::transmute!([flow.entry.0, serial]);
    let mut words = [0; 8];
    words[..6].copy_from_slice(&record);
    words[6] = numbers;
    let key = key_words(&flow.key);
    words[7] = check(check(0, &key, 0), &words[..7], key.len() as u64);
    words
}

/// Returns the flow and its serial number.
pub(crate) fn flow_of(key: FlowKey, words: &FlowWords) -> (TierFlow, u32) {
    let [a, b, c, d, e, f, numbers, _] = *words;
    let record: FlowRecord = zerocopy::transmute!([a, b, c, d, e, f]);
    let [entry, serial]: [u32; 2] = zerocopy::transmute!(numbers);
    (TierFlow { key, record, entry: EntryId(entry) }, serial)
}

/// Returns the status: times in nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn status_words(deadline: u64, hops_until: u64, generation: u32) -> StatusWords {
    let words = [deadline, hops_until, u64::from(generation)];
    [words[0], words[1], words[2], check(0, &words, 0)]
}

/// Returns the value of an entrance.
pub(crate) fn entrance_words(mac: [u8; 6], zone: u16, forwards_back: bool) -> EntranceWords {
    let [a, b, c, d, e, f] = mac;
    let [g, h] = zone.to_ne_bytes();
    let flags = if forwards_back { FORWARDS_BACK } else { 0 };
    [u64::from_ne_bytes([a, b, c, d, e, f, g, h]), zerocopy::transmute!([flags, 0])]
}

/// Adds the state of one CPU to totals, if it belongs to the insertion with this serial number.
pub(crate) fn add_state(totals: &mut TierTotals, state: &StateWords, serial: u32) {
    let [packets, octets, last_seen, numbers, ..] = *state;
    let [owner, is_closing]: [u32; 2] = zerocopy::transmute!(numbers);
    if owner == serial {
        totals.packets += packets;
        totals.octets += octets;
        totals.last_seen = totals.last_seen.max(last_seen);
        totals.is_closing |= is_closing != 0;
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
    fn a_flow_comes_back_from_its_words() {
        let words = flow_words(&flow(), 15);
        assert_eq!(flow_of(key_of(key_words(&flow().key)), &words), (flow(), 15));
    }

    #[test]
    fn a_mixture_of_two_flows_has_another_check() {
        let (one, other) =
            (flow(), TierFlow { record: FlowRecord { id: 99, ..flow().record }, ..flow() });
        let (one_words, other_words) = (flow_words(&one, 1), flow_words(&other, 2));
        let key = key_words(&one.key);
        let holds = |words: &FlowWords| words[7] == check(check(0, &key, 0), &words[..7], 5);
        assert!(holds(&one_words) && holds(&other_words));
        for count in 1..8 {
            let mut mixture = other_words;
            mixture[..count].copy_from_slice(&one_words[..count]);
            assert!(!holds(&mixture) || mixture == other_words, "{count} words");
        }
        // Nor does it hold for another key.
        let key = key_words(&FlowKey { zone: 6, ..one.key });
        assert_ne!(one_words[7], check(check(0, &key, 0), &one_words[..7], 5));
    }

    #[test]
    fn state_of_an_earlier_flow_is_not_counted() {
        let numbers: u64 = zerocopy::transmute!([7_u32, 1]);
        let state = [2, 200, 30, numbers, 0, 0, 0, 0];
        let mut totals = TierTotals::default();
        add_state(&mut totals, &state, 8);
        assert_eq!(totals, TierTotals::default());
        add_state(&mut totals, &state, 7);
        add_state(&mut totals, &state, 7);
        let wanted = TierTotals { packets: 4, octets: 400, last_seen: 30, is_closing: true };
        assert_eq!(totals, wanted);
    }
}
