//! Encodes rules and settings for the eBPF programs: `struct steering` in `bpf/steer.bpf.c`.
//!
//! The value is a plain array of words, so it is passed to the kernel without unsafe code. Words
//! are in the machine's byte order, addresses in network byte order.

use crate::{
    rule::Rule,
    rules::{MAX_RULES, Rules},
    settings::Settings,
};

/// Number of words of `struct rule`.
const RULE_WORDS: usize = 21;
/// Number of words of `struct steering` before its rules.
const HEAD_WORDS: usize = 4;

/// `struct steering` as words.
pub(crate) type EncodedSteering = [u32; HEAD_WORDS + MAX_RULES * RULE_WORDS];

/// Flag of rules with a prefix. The others skip the comparison of addresses.
const HAS_PREFIX: u32 = 1 << 16;
/// Marker for any IP protocol.
const ANY_PROTOCOL: u32 = 0x100;

/// Encodes `rules` and `settings` for the map.
pub(crate) fn encode(rules: &Rules, settings: &Settings) -> EncodedSteering {
    let mut words = [0; _];
    let rules = rules.as_slice();
    // At most MAX_RULES, checked by Rules::new.
    let count = rules.len() as u32;
    let head = [count, settings.max_length, settings.mark, settings.reenter_ifindex];
    words[..HEAD_WORDS].copy_from_slice(&head);
    for (encoded, rule) in words[HEAD_WORDS..].chunks_exact_mut(RULE_WORDS).zip(rules) {
        encoded.copy_from_slice(&encode_rule(rule));
    }
    words
}

/// `struct rule` as words.
type EncodedRule = [u32; RULE_WORDS];

fn encode_rule(rule: &Rule) -> EncodedRule {
    let mut words = [0; RULE_WORDS];
    let ports = rule.ports();
    words[0] = rule.needs() | if rule.has_prefix() { HAS_PREFIX } else { 0 };
    // No EtherType is 0, so 0 means any.
    words[1] = rule.ethertype.map_or(0, u32::from);
    words[2] = rule.protocol.map_or(ANY_PROTOCOL, u32::from);
    words[3] = u32::from(ports.first);
    words[4] = u32::from(ports.last);
    for (offset, prefix) in [(5, rule.source), (13, rule.destination)] {
        let Some(prefix) = prefix else { continue };
        copy_octets(&mut words[offset..offset + 4], prefix.octets());
        copy_octets(&mut words[offset + 4..offset + 8], prefix.mask());
    }
    words
}

fn copy_octets(words: &mut [u32], octets: [u8; 16]) {
    let (chunks, _) = octets.as_chunks::<4>();
    for (word, octets) in words.iter_mut().zip(chunks) {
        *word = u32::from_ne_bytes(*octets);
    }
}
