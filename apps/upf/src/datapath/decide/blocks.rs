//! Where blocks are read.

use fastlane::table::{ArrayReader, ArrayWriter, Guard};

use crate::rules::layout::rules::Block;

/// Gives blocks by their place.
pub trait Blocks<'t> {
    /// The block in a place.
    fn block(&self, place: usize) -> Option<&'t Block>;
}

/// Blocks of the table, during a turn.
#[derive(Debug)]
pub struct InTurn<'t, G: ?Sized> {
    /// The table.
    pub reader: &'t ArrayReader<Block>,
    /// The turn.
    pub turn: &'t G,
}

impl<'t, G: AsRef<Guard> + ?Sized> Blocks<'t> for InTurn<'t, G> {
    #[inline]
    fn block(&self, place: usize) -> Option<&'t Block> {
        self.reader.get(self.turn, place)
    }
}

/// For the writer itself, which is no lane.
impl<'t> Blocks<'t> for &'t ArrayWriter<Block> {
    fn block(&self, place: usize) -> Option<&'t Block> {
        self.get(place)
    }
}
