//! Rules and settings as the eBPF programs read them: `struct steering` in `bpf/steer.bpf.c`.
//!
//! The value is a plain array of words, so no unsafe code is needed to hand it to the kernel. Words
//! are in the machine's byte order, addresses in network byte order.

use crate::{
    program::Settings,
    rule::{MAX_RULES, Rule, Rules},
};

/// Words of `struct rule`.
const RULE_WORDS: usize = 21;
/// Words of `struct steering` before its rules.
const HEAD_WORDS: usize = 4;

/// `struct steering` as words.
pub(crate) type Steering = [u32; HEAD_WORDS + MAX_RULES * RULE_WORDS];

/// A rule with a prefix says so, the others skip the comparison: `HAS_PREFIX`.
const HAS_PREFIX: u32 = 1 << 16;
/// Not an IP protocol: any will do.
const ANY_PROTOCOL: u32 = 0x100;

/// Lays out `rules` and `settings` for the map.
pub(crate) fn steering(rules: &Rules, settings: &Settings) -> Steering {
    let mut words = [0; _];
    let rules = rules.as_slice();
    // At most MAX_RULES, as Rules::new made sure.
    let count = rules.len() as u32;
    let head = [count, settings.max_length, settings.mark, settings.reenter_ifindex];
    words[..HEAD_WORDS].copy_from_slice(&head);
    for (place, rule) in words[HEAD_WORDS..].chunks_exact_mut(RULE_WORDS).zip(rules) {
        place.copy_from_slice(&rule_words(rule));
    }
    words
}

fn rule_words(rule: &Rule) -> [u32; RULE_WORDS] {
    let mut words = [0; RULE_WORDS];
    let ports = rule.ports();
    words[0] = rule.needs() | if rule.has_prefix() { HAS_PREFIX } else { 0 };
    // No EtherType is 0, so 0 means any.
    words[1] = rule.ethertype.map_or(0, u32::from);
    words[2] = rule.protocol.map_or(ANY_PROTOCOL, u32::from);
    words[3] = u32::from(ports.first);
    words[4] = u32::from(ports.last);
    for (place, prefix) in [(5, rule.source), (13, rule.destination)] {
        let Some(prefix) = prefix else { continue };
        copy_octets(&mut words[place..place + 4], prefix.octets());
        copy_octets(&mut words[place + 4..place + 8], prefix.mask());
    }
    words
}

fn copy_octets(words: &mut [u32], octets: [u8; 16]) {
    let (chunks, _) = octets.as_chunks::<4>();
    for (word, octets) in words.iter_mut().zip(chunks) {
        *word = u32::from_ne_bytes(*octets);
    }
}
