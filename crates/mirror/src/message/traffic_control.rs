//! Queueing disciplines and filters: `struct tcmsg` and `TCA_*`, of `linux/rtnetlink.h`.

use super::{Malformed, malformed};
use fastlane_netlink::{attribute, text};

/// `sizeof(struct tcmsg)`.
const HEADER: usize = 20;
/// Attribute `TCA_KIND`.
const KIND: u16 = 1;
/// Attribute `TCA_EGRESS_BLOCK`: number of the block whose filters see frames before they leave.
const EGRESS_BLOCK: u16 = 14;
/// `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_EGRESS)`: parent of filters that see frames before they leave.
pub(super) const EGRESS: u32 = 0xffff_fff3;
/// Disciplines that only queue, which Linux gives interfaces by itself (`net.core.default_qdisc`),
/// and those of arriving frames.
const PLAIN: [&str; 10] = [
    "noqueue",
    "noop",
    "mq",
    "pfifo_fast",
    "pfifo",
    "bfifo",
    "fq",
    "fq_codel",
    "ingress",
    "clsact",
];

/// A queueing discipline or a filter of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrafficControl {
    /// Index of the interface.
    pub link: u32,
    /// Effect on frames that leave.
    pub effect: Effect,
}

/// Effect of traffic control on frames that leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// They are queued only, or not touched.
    None,
    /// None by itself; filters of a `clsact` may have one.
    Filters,
    /// They may be delayed, changed, dropped or sent elsewhere.
    Control,
}

/// Returns the header of a request: the interface, 0 for all, and the parent.
pub(super) fn header(link: u32, parent: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[4..8].copy_from_slice(&link.to_ne_bytes());
    header[12..16].copy_from_slice(&parent.to_ne_bytes());
    header
}

/// Parses a message about a discipline.
pub(super) fn read_discipline(body: &[u8]) -> Result<TrafficControl, Malformed> {
    let (link, _, attributes) = split(body)?;
    let kind = attribute(attributes, KIND).map(text).unwrap_or_default();
    let effect = match &*kind {
        // Events of the filters in a block name no interface, so it is taken for one with filters.
        "clsact" if attribute(attributes, EGRESS_BLOCK).is_some() => Effect::Control,
        "clsact" => Effect::Filters,
        kind if PLAIN.contains(&kind) => Effect::None,
        _ => Effect::Control,
    };
    Ok(TrafficControl { link, effect })
}

/// Parses a message about a filter.
pub(super) fn read_filter(body: &[u8]) -> Result<TrafficControl, Malformed> {
    let (link, parent, _) = split(body)?;
    let effect = if parent == EGRESS { Effect::Control } else { Effect::None };
    Ok(TrafficControl { link, effect })
}

/// Returns the interface, the parent, and the attributes.
fn split(body: &[u8]) -> Result<(u32, u32, &[u8]), Malformed> {
    let refused = malformed("a message about traffic control");
    let (header, attributes) = body.split_first_chunk::<HEADER>().ok_or(refused)?;
    let word = |at: usize| fastlane_netlink::number(&header[at..]).unwrap_or(0);
    Ok((word(4), word(12), attributes))
}
