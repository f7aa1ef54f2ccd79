//! Builds blocks.

use zerocopy::{Immutable, IntoBytes};

use super::{
    AddressPrefix, Block, Count, Limit, Meter, OuterPath, PacketFilter, ROOM, Rule, SECTIONS,
    Section, Span,
};

/// Content of a block to be built. The lists may exceed a block; [`build`](Self::build) then
/// returns `None`.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    /// Rules in the order of evaluation.
    pub rules: Vec<Rule>,
    /// Addresses of UEs and filters.
    pub addresses: Vec<AddressPrefix>,
    /// Limits of the counters.
    pub limits: Vec<Limit>,
    /// Counters of URRs.
    pub counts: Vec<Count>,
    /// Paths of packets and copies.
    pub paths: Vec<OuterPath>,
    /// Meters of QERs.
    pub meters: Vec<Meter>,
    /// Packet filters of the rules.
    pub matches: Vec<PacketFilter>,
    /// Ranges of ports.
    pub ports: Vec<[u16; 2]>,
    /// Redirections in bytes.
    pub text: Vec<u8>,
}

impl Builder {
    /// Returns the index of a value in a list, which is appended if it is missing.
    pub fn place<T: PartialEq>(list: &mut Vec<T>, value: T) -> usize {
        list.iter().position(|it| *it == value).unwrap_or_else(|| {
            list.push(value);
            list.len() - 1
        })
    }

    /// Returns true if the content fits the block and the widths of the indices in rules.
    #[must_use]
    pub fn fits(&self) -> bool {
        let bytes: usize = self.sections().iter().map(|(_, bytes)| bytes.len()).sum();
        bytes <= ROOM
            && self.meters.len() <= 32
            && self.counts.len() <= 32
            && self.addresses.len() <= 64
    }

    fn sections(&self) -> [(usize, &[u8]); SECTIONS] {
        fn of<T: IntoBytes + Immutable>(list: &[T]) -> (usize, &[u8]) {
            (list.len(), list.as_bytes())
        }
        let mut sections: [(usize, &[u8]); SECTIONS] = [(0, &[]); SECTIONS];
        sections[Section::Rules as usize] = of(&self.rules);
        sections[Section::Addresses as usize] = of(&self.addresses);
        sections[Section::Limits as usize] = of(&self.limits);
        sections[Section::Counts as usize] = of(&self.counts);
        sections[Section::Paths as usize] = of(&self.paths);
        sections[Section::Meters as usize] = of(&self.meters);
        sections[Section::Matches as usize] = of(&self.matches);
        sections[Section::Ports as usize] = of(&self.ports);
        sections[Section::Text as usize] = of(&self.text);
        sections
    }

    /// Returns the block as the last of its chain, or `None` if the content does not fit.
    #[must_use]
    pub fn build(&self, session: u32, version: u32) -> Option<Block> {
        if !self.fits() {
            return None;
        }
        let mut block = Block { session, version, ..Block::empty() };
        let mut offset = 0;
        for ((count, bytes), span) in self.sections().into_iter().zip(&mut block.spans) {
            block.room.get_mut(offset..offset + bytes.len())?.copy_from_slice(bytes);
            *span = Span { offset: u16::try_from(offset).ok()?, count: u16::try_from(count).ok()? };
            offset += bytes.len();
        }
        Some(block)
    }
}
