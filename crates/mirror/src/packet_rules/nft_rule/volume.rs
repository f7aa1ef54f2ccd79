//! Rules that ask for the packets or bytes of a connection. Those of fast packets are not counted,
//! so such a rule acts on each packet, unless it does no more than to make connections fast that
//! have grown: fast ones are that already.

use std::mem::take;
use std::ops::RangeInclusive;

use fastlane_netlink::attribute;

use super::{
    ACCEPT, CT_SOURCE, IMMEDIATE, KEY, MAPPED, MASK, META_SOURCE, OPERATION, PAYLOAD_SOURCE, VALUE,
    VERDICT, be32, ne32,
};
use crate::flows::FlowPolicy;

/// Keys `NFT_CT_MARK`, and those of volume: `NFT_CT_PKTS`, `NFT_CT_BYTES`, `NFT_CT_AVGPKT`. The
/// last one may shrink.
const MARK: u32 = 3;
const VOLUME: RangeInclusive<u32> = 14..=16;
const AVERAGE: u32 = 16;
/// Operations `NFT_CMP_GT` and `NFT_CMP_GTE`.
const GREATER: RangeInclusive<u32> = 4..=5;
/// Attribute of `bitwise` with the bits that it inverts (`NFTA_BITWISE_XOR`).
const XOR: u16 = 5;

/// Actions of the expressions of a rule so far that depend on the volume of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VolumeUse {
    asks: bool,
    /// It does something else, or by another condition than that the connection has grown.
    does_more: bool,
    /// Register that the last expression has loaded.
    loaded: Loaded,
}

/// Content of a register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Loaded {
    #[default]
    Unknown,
    /// Volume of the connection, and the same after a comparison: a range takes two.
    Volume,
    Compared,
    /// A number of which the bits outside of the mask are those of the value.
    Bits {
        mask: u32,
        value: u32,
    },
}

impl Loaded {
    /// Returns true if this is a mark by which a connection is fast.
    fn is_fast(self, policy: &FlowPolicy) -> bool {
        let Self::Bits { mask, value } = self else { return false };
        mask & policy.mask == 0 && policy.selects(value)
    }
}

impl VolumeUse {
    /// Returns true if the rule acts on each packet.
    pub(super) fn acts(&self) -> bool {
        self.asks && (self.does_more || self.loaded == Loaded::Volume)
    }

    /// Takes the next expression. `policy` says which marks make a connection fast.
    pub(super) fn take(&mut self, name: &str, data: &[u8], policy: &FlowPolicy) {
        let number = |kind| attribute(data, kind).and_then(be32);
        let has = |kind| attribute(data, kind).is_some();
        let before = take(&mut self.loaded);
        let is_harmless = match name {
            "ct" if has(CT_SOURCE) => number(KEY) == Some(MARK) && before.is_fast(policy),
            "ct" => {
                let is_volume = number(KEY).is_some_and(|key| VOLUME.contains(&key));
                if is_volume {
                    (self.asks, self.loaded) = (true, Loaded::Volume);
                }
                number(KEY) != Some(AVERAGE)
            }
            "byteorder" => {
                self.loaded = before;
                true
            }
            "cmp" if matches!(before, Loaded::Volume | Loaded::Compared) => {
                self.loaded = Loaded::Compared;
                number(OPERATION).is_some_and(|operation| GREATER.contains(&operation))
            }
            "cmp" | "counter" | "last" => true,
            "bitwise" => {
                let operand = |kind| attribute(data, kind).and_then(value);
                if let (Some(mask), Some(value)) = (operand(MASK), operand(XOR)) {
                    self.loaded = Loaded::Bits { mask, value };
                }
                true
            }
            "immediate" => {
                let data = attribute(data, IMMEDIATE).unwrap_or_default();
                if let Some(value) = value(data) {
                    self.loaded = Loaded::Bits { mask: 0, value };
                }
                let verdict = attribute(data, VERDICT).and_then(|it| attribute(it, 1));
                let accepts = verdict.and_then(be32) == Some(ACCEPT);
                accepts || verdict.is_none()
            }
            "meta" => !has(META_SOURCE),
            "payload" => !has(PAYLOAD_SOURCE),
            "lookup" => !has(MAPPED),
            _ => false,
        };
        // A volume is good for a comparison only.
        let is_misused = before == Loaded::Volume && !matches!(name, "byteorder" | "cmp");
        self.does_more |= is_misused || !is_harmless;
    }
}

/// Reads the number in data of an expression, in the order of registers.
fn value(data: &[u8]) -> Option<u32> {
    attribute(data, VALUE).and_then(ne32)
}
