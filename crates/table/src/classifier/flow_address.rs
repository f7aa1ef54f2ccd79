//! Address families of a classifier.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::intervals::{Node4, Node6, SearchNode};
use crate::Address;

/// Address of packets that can be classified: IPv4 or IPv6.
pub trait FlowAddress: Address + Family {}
impl<A: Address + Family> FlowAddress for A {}

/// Address family of a classifier.
pub trait Family: Copy {
    /// Number of the family in a generation.
    const NUMBER: usize;
    /// Node of the search trees of addresses.
    type Node: SearchNode;
    /// Returns the address as a number.
    fn number(self) -> u128;
}

impl Family for Ipv4Addr {
    const NUMBER: usize = 0;
    type Node = Node4;

    #[inline(always)]
    fn number(self) -> u128 {
        Self::to_bits(self).into()
    }
}

impl Family for Ipv6Addr {
    const NUMBER: usize = 1;
    type Node = Node6;

    #[inline(always)]
    fn number(self) -> u128 {
        Self::to_bits(self)
    }
}
