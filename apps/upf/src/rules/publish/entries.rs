//! Fill levels of the tables.

use super::Published;
use super::index_allocator::IndexAllocator;
use crate::rules::layout::table;

impl Published {
    /// Returns the tables by name with their entries and capacities.
    #[must_use]
    pub fn entries(&self) -> Vec<(&'static str, usize, usize)> {
        let it = &self.tables;
        let used = |places: &IndexAllocator, capacity: usize| capacity - places.left() as usize;
        let (blocks, lines) = (it.blocks.capacity(), it.state.capacity());
        vec![
            (table::TUNNELS, it.tunnels.len(), it.tunnels.capacity()),
            (table::USERS, it.users.len(), it.users.capacity()),
            (table::FRAMED4, it.framed4.len(), it.framed4.capacity()),
            (table::FRAMED6, it.framed6.len(), it.framed6.capacity()),
            (table::BLOCKS, used(&self.blocks, blocks), blocks),
            // Of the counter slots only those beyond the one that each session has.
            (table::STATE, used(&self.slots, lines - it.rules.capacity()), lines),
        ]
    }
}
