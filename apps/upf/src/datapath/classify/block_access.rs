//! Access to rule blocks.

use fastlane::table::{ArrayReader, ArrayWriter, Guard};

use crate::rules::layout::session_rules::Block;

/// Access to blocks by index.
pub trait Blocks<'t> {
    /// Returns the block at an index.
    fn block(&self, place: usize) -> Option<&'t Block>;
}

/// Blocks of the table during a turn.
#[derive(Debug)]
pub struct BlocksInTurn<'t, G: ?Sized> {
    /// Table of blocks.
    pub reader: &'t ArrayReader<Block>,
    /// Turn, which keeps blocks valid.
    pub turn: &'t G,
}

impl<'t, G: AsRef<Guard> + ?Sized> Blocks<'t> for BlocksInTurn<'t, G> {
    #[inline]
    fn block(&self, place: usize) -> Option<&'t Block> {
        self.reader.get(self.turn, place)
    }
}

/// Access for the writer, which is no lane.
impl<'t> Blocks<'t> for &'t ArrayWriter<Block> {
    fn block(&self, place: usize) -> Option<&'t Block> {
        self.get(place)
    }
}
