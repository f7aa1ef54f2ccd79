//! The way of packets through chains: from the chains of hooks, by jumps, up to a rule that accepts
//! all packets of connections that may be fast.

use std::collections::HashMap;

use super::PerPacketRule;
use super::nft_rule::{ChainName, NftRule};

/// Maximum number of jumps, `NFT_JUMP_STACK_SIZE` of Linux.
const DEPTH: usize = 16;

/// Kind of a chain that begins at a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum HookKind {
    /// Hook on the way of forwarded packets.
    Way,
    /// Hook of a device: it knows no connections, so what it drops it drops of all.
    Device,
}

/// Chains in the order of their dump, with their rules.
#[derive(Clone, Debug, Default)]
pub(super) struct Chains {
    /// Chains that begin at a hook.
    pub(super) hooks: Vec<(ChainName, HookKind)>,
    rules: HashMap<ChainName, Vec<NftRule>>,
}

/// End of the way through a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WayEnd {
    /// At a rule that acts on each packet.
    Found(PerPacketRule),
    /// All packets were accepted.
    Accepted,
    /// Some packets go on behind the jump to the chain.
    Returned,
}

impl Chains {
    /// Adds a rule behind the others of its chain.
    pub(super) fn push(&mut self, rule: NftRule) {
        self.rules.entry(rule.place.clone()).or_default().push(rule);
    }

    /// Returns the first rule on the way of the packets that acts on each of them.
    pub(super) fn find(&self) -> Option<PerPacketRule> {
        self.hooks.iter().find_map(|(chain, kind)| {
            let mut walk = Walk { chains: self, kind: *kind, known: HashMap::new() };
            match walk.through(chain, 0) {
                WayEnd::Found(rule) => Some(rule),
                WayEnd::Accepted | WayEnd::Returned => None,
            }
        })
    }
}

/// Walk from a hook.
struct Walk<'a> {
    chains: &'a Chains,
    kind: HookKind,
    /// Ends of chains that were passed, or are being passed.
    known: HashMap<&'a ChainName, WayEnd>,
}

impl<'a> Walk<'a> {
    fn through(&mut self, chain: &ChainName, depth: usize) -> WayEnd {
        let Some((chain, rules)) = self.chains.rules.get_key_value(chain) else {
            return WayEnd::Returned;
        };
        if let Some(known) = self.known.get(chain) {
            return known.clone();
        }
        self.known.insert(chain, WayEnd::Returned);
        let end = self.along(rules, depth);
        self.known.insert(chain, end.clone());
        end
    }

    fn along(&mut self, rules: &'a [NftRule], depth: usize) -> WayEnd {
        for rule in rules.iter().filter(|rule| !rule.is_for_others) {
            let drop = (rule.drops && self.kind == HookKind::Device).then(|| "drop".to_owned());
            if let Some(what) = rule.effect.clone().or(drop) {
                let (place, handle) = (rule.place.clone(), rule.handle);
                return WayEnd::Found(PerPacketRule { what, place, handle });
            }
            for jump in &rule.jumps {
                let to = ChainName { chain: jump.chain.clone(), ..rule.place.clone() };
                let end = match depth < DEPTH {
                    true => self.through(&to, depth + 1),
                    false => WayEnd::Returned,
                };
                match end {
                    WayEnd::Returned if !(jump.is_goto && rule.is_for_all) => {}
                    WayEnd::Accepted if !rule.is_for_all => {}
                    end => return end,
                }
            }
            if rule.accepts_all {
                return WayEnd::Accepted;
            }
            if rule.returns && rule.is_for_all {
                break;
            }
        }
        WayEnd::Returned
    }
}
