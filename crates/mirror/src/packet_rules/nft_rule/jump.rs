//! Verdicts that lead to another chain.

use fastlane_netlink::{attribute, text};

use super::be32;

/// Attributes of a verdict (`NFTA_VERDICT_*`).
const CODE: u16 = 1;
const CHAIN: u16 = 2;
/// Codes `NFT_JUMP` and `NFT_GOTO`, which are negative.
const JUMP: u32 = 3_u32.wrapping_neg();
const GOTO: u32 = 4_u32.wrapping_neg();

/// Jump to a chain of the same table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Jump {
    /// Name of the chain.
    pub(crate) chain: String,
    /// True if the way does not return behind the rule.
    pub(crate) is_goto: bool,
}

impl Jump {
    /// Parses the attributes of a verdict; `None` for those that lead to no chain.
    pub(super) fn read(verdict: &[u8]) -> Option<Self> {
        let code = attribute(verdict, CODE).and_then(be32)?;
        let chain = attribute(verdict, CHAIN).map(text)?;
        matches!(code, JUMP | GOTO).then_some(Self { chain, is_goto: code == GOTO })
    }
}
