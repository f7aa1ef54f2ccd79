//! The messages of rtnetlink(7) as plain values.
//!
//! The octets come from the kernel, and what is read from them steers packets: reading is total and
//! bounded, and what does not have the shape that it should have is refused by name. Attributes and
//! kinds that are not known are passed over, but for rules, where an attribute that is not known
//! may be what makes the rule match.

use std::net::IpAddr;

use thiserror::Error;

use super::Prefix;

mod address;
mod link;
mod neighbour;
mod netconf;
mod nexthop;
mod request;
mod route;
mod rule;

pub use address::Address;
pub use link::Link;
pub use neighbour::{Neighbour, Reachability};
pub use netconf::Netconf;
pub use nexthop::{Member, NextHop, NextHopKind};
pub(super) use request::{Dump, probe};
pub(crate) use route::read as read_route;
pub use route::{Hop, Route, RouteKind};
pub use rule::Rule;

/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;

/// `NLMSG_OVERRUN`, of `linux/netlink.h`.
const OVERRUN: i32 = 4;

/// `RTM_NEWNEXTHOP` and `RTM_DELNEXTHOP`, of `linux/rtnetlink.h`.
const NEW_NEXT_HOP: u16 = 104;
const REMOVED_NEXT_HOP: u16 = 105;

/// Where in a list of alike things the kernel has put a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Before those that are there: what is said without more.
    First,
    /// Behind those that are there (`NLM_F_APPEND`), as in every dump.
    Last,
    /// In place of the first (`NLM_F_REPLACE`).
    Replace,
}

/// One thing that Linux says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// An interface is there, or has changed.
    Link(Link),
    /// The interface of this number is gone.
    LinkRemoved(u32),
    /// An address is there.
    Address(Address),
    /// An address is gone.
    AddressRemoved(Address),
    /// A neighbour is there, or has changed.
    Neighbour(Neighbour),
    /// A neighbour is forgotten.
    NeighbourRemoved(Neighbour),
    /// A route is there.
    Route(Route, Position),
    /// A route is gone.
    RouteRemoved(Route),
    /// A next-hop object is there, or has changed.
    NextHop(NextHop),
    /// The next-hop object of this number is gone.
    NextHopRemoved(u32),
    /// A rule is there.
    Rule(Rule),
    /// A rule is gone.
    RuleRemoved(Rule),
    /// Settings of forwarding hold; what they do not say is as before.
    Netconf(Netconf),
    /// Settings of forwarding are gone, with their interface.
    NetconfRemoved(Netconf),
    /// The dump has ended, with an error of the kernel's or 0.
    Done(i32),
    /// The answer to a request: an error of the kernel's (positive), or 0.
    Ack(i32),
    /// Messages were lost.
    Overrun,
    /// Nothing that concerns forwarding.
    Other,
}

/// A message does not have the shape that rtnetlink(7) gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{subject} is malformed: the kernel speaks another rtnetlink than this program")]
pub struct Malformed {
    /// What should have been read.
    pub subject: &'static str,
}

pub(super) fn malformed(subject: &'static str) -> Malformed {
    Malformed { subject }
}

/// What a message says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    kind: u16,
    flags: u16,
    sequence: u32,
}

impl Header {
    /// Whether what was being dumped changed meanwhile, so that the dump may lack something
    /// (`NLM_F_DUMP_INTR`).
    #[must_use]
    pub fn was_interrupted(&self) -> bool {
        self.has(libc::NLM_F_DUMP_INTR)
    }

    /// The number of the request that it answers; 0 of an event.
    #[must_use]
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    fn has(&self, flag: i32) -> bool {
        i32::from(self.flags) & flag != 0
    }

    /// In a dump the flags of a route say nothing about its place.
    fn place(&self) -> Position {
        if self.has(libc::NLM_F_MULTI) || self.has(libc::NLM_F_APPEND) {
            Position::Last
        } else if self.has(libc::NLM_F_REPLACE) {
            Position::Replace
        } else {
            Position::First
        }
    }
}

/// The messages of one datagram.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    /// Reads a datagram.
    #[must_use]
    pub fn new(datagram: &'a [u8]) -> Self {
        Self { rest: datagram }
    }

    /// Splits the first message off.
    fn split(&mut self) -> Option<(Header, &'a [u8])> {
        let header = self.rest.first_chunk::<HEADER>()?;
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let flags = u16::from_ne_bytes([header[6], header[7]]);
        let sequence = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
        let body = self.rest.get(HEADER..length)?;
        self.rest = self.rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((Header { kind, flags, sequence }, body))
    }
}

impl Iterator for Messages<'_> {
    type Item = Result<(Header, Message), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let Some((header, body)) = self.split() else {
            self.rest = &[];
            return Some(Err(malformed("a datagram of netlink")));
        };
        Some(read(header, body).map(|message| (header, message)))
    }
}

fn read(header: Header, body: &[u8]) -> Result<Message, Malformed> {
    let message = match (header.kind, i32::from(header.kind)) {
        (_, libc::NLMSG_DONE) => Message::Done(code(body).unwrap_or(0)),
        (_, libc::NLMSG_ERROR) => {
            Message::Ack(code(body).ok_or(malformed("an answer of netlink"))?)
        }
        (_, OVERRUN) => Message::Overrun,
        (libc::RTM_NEWLINK, _) => link::read(body)?.map_or(Message::Other, Message::Link),
        (libc::RTM_DELLINK, _) => {
            link::read_gone(body)?.map_or(Message::Other, Message::LinkRemoved)
        }
        (libc::RTM_NEWADDR, _) => address::read(body)?.map_or(Message::Other, Message::Address),
        (libc::RTM_DELADDR, _) => {
            address::read(body)?.map_or(Message::Other, Message::AddressRemoved)
        }
        (libc::RTM_NEWNEIGH, _) => {
            neighbour::read(body)?.map_or(Message::Other, Message::Neighbour)
        }
        (libc::RTM_DELNEIGH, _) => {
            neighbour::read(body)?.map_or(Message::Other, Message::NeighbourRemoved)
        }
        (libc::RTM_NEWROUTE, _) => {
            let place = header.place();
            route::read(body)?.map_or(Message::Other, |route| Message::Route(route, place))
        }
        (libc::RTM_DELROUTE, _) => route::read(body)?.map_or(Message::Other, Message::RouteRemoved),
        (NEW_NEXT_HOP, _) => Message::NextHop(nexthop::read(body)?),
        (REMOVED_NEXT_HOP, _) => Message::NextHopRemoved(nexthop::read(body)?.id),
        (libc::RTM_NEWRULE, _) => rule::read(body)?.map_or(Message::Other, Message::Rule),
        (libc::RTM_DELRULE, _) => rule::read(body)?.map_or(Message::Other, Message::RuleRemoved),
        (libc::RTM_NEWNETCONF, _) => netconf::read(body)?.map_or(Message::Other, Message::Netconf),
        (libc::RTM_DELNETCONF, _) => {
            netconf::read(body)?.map_or(Message::Other, Message::NetconfRemoved)
        }
        _ => Message::Other,
    };
    Ok(message)
}

/// The kernel's errors are negative.
fn code(body: &[u8]) -> Option<i32> {
    Some(i32::from_ne_bytes(*body.first_chunk()?).saturating_neg())
}

/// The families whose routing is mirrored.
fn is_ip(family: u8) -> bool {
    [libc::AF_INET as u8, libc::AF_INET6 as u8].contains(&family)
}

/// An address of a family in network order.
fn ip(family: u8, value: &[u8]) -> Option<IpAddr> {
    if family == libc::AF_INET as u8 {
        <[u8; 4]>::try_from(value).ok().map(IpAddr::from)
    } else if family == libc::AF_INET6 as u8 {
        <[u8; 16]>::try_from(value).ok().map(IpAddr::from)
    } else {
        None
    }
}

/// The address of a family that is all zeroes.
fn unspecified(family: u8) -> IpAddr {
    if family == libc::AF_INET as u8 { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) }
}

#[cfg(test)]
mod tests;
