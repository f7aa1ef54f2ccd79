//! A compiled session, and the references between its rules and its blocks.

use super::FramedRoute;
use crate::rules::layout::session_rules::{Block, Rules, flag};
use crate::rules::layout::{TunnelKey, UeKey};

/// Compiled session, as it is published.
#[derive(Clone, Debug, PartialEq)]
pub struct Compiled {
    /// Entry of the rules table.
    pub rules: Rules,
    /// Blocks in the order of evaluation. Whoever stores them calls [`link`](Self::link).
    pub blocks: Vec<Block>,
    /// Position in `blocks` of the first one for packets without a tunnel, if there are any.
    pub untunnelled: usize,
    /// UE addresses, each once.
    pub users: Vec<UeKey>,
    /// Tunnels whose TEID does not contain the session index, each once.
    pub tunnels: Vec<TunnelKey>,
    /// Networks behind the UE, each once.
    pub framed: Vec<FramedRoute>,
}

impl Compiled {
    /// Sets the references between rules and blocks to the indices at which the blocks are stored.
    pub fn link(&mut self, indices: &[u32]) {
        let reference = |at: usize| indices.get(at).map_or(0, |index| index + 1);
        let octets = |at: usize| self.blocks.get(at).map_or(0, Block::octets);
        let Rules { uplink, downlink, cold } = &mut self.rules;
        cold.block = reference(0);
        if uplink.common.flags & flag::BLOCKS != 0 {
            let at = self.untunnelled;
            (uplink.common.tunnel, uplink.common.burst) = (reference(0), octets(0));
            (downlink.common.tunnel, downlink.common.burst) = (reference(at), octets(at));
        }
        for (next, block) in (1..).zip(&mut self.blocks) {
            block.next = reference(next);
        }
    }
}
