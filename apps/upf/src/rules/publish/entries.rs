//! How full the tables are.

use super::Published;
use super::places::Places;
use crate::rules::layout::table;

impl Published {
    /// The tables by name, with how many entries each has and may have.
    #[must_use]
    pub fn entries(&self) -> Vec<(&'static str, usize, usize)> {
        let it = &self.tables;
        let used = |places: &Places, capacity: usize| capacity - places.left() as usize;
        let (blocks, lines) = (it.blocks.capacity(), it.state.capacity());
        vec![
            (table::TUNNELS, it.tunnels.len(), it.tunnels.capacity()),
            (table::USERS, it.users.len(), it.users.capacity()),
            (table::FRAMED4, it.framed4.len(), it.framed4.capacity()),
            (table::FRAMED6, it.framed6.len(), it.framed6.capacity()),
            (table::BLOCKS, used(&self.blocks, blocks), blocks),
            // Of state those beyond the line that each session has.
            (table::STATE, used(&self.lines, lines - it.rules.capacity()), lines),
        ]
    }
}
