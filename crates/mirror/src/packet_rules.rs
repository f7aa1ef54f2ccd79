//! Rules of nftables that act on each packet of an established connection: they limit, log, queue
//! or change packets, depend on time or volume, or drop packets in a chain of a device, which knows
//! no connections. Flows that lanes forward do not pass them.
//!
//! A rule is found by its expressions (`linux/netfilter/nf_tables.h`), in chains that forwarded
//! packets pass: those of hooks, and those to which rules jump from there. Rules behind one that
//! accepts all established connections concern no packet of theirs, nor do those for other states
//! (`ct state new`). Counters are no reason: they only count less. Nor are marks: the rules of
//! routing say whether they matter. Nor is a rule that makes connections fast once they have grown.

mod chain_walk;
mod nft_rule;
mod rule_reader;

pub use nft_rule::PerPacketRule;
pub(crate) use rule_reader::RuleSearch;
pub use rule_reader::per_packet_rule;
