//! Messages of rtnetlink(7) as plain values.
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
mod traffic_control;

pub use address::Address;
pub use link::Link;
pub use neighbour::{Neighbour, Reachability};
pub use netconf::Netconf;
pub use nexthop::{Member, NextHop, NextHopKind};
pub(super) use request::{Dump, probe, resolve};
pub(crate) use route::read as read_route;
pub use route::{Hop, Route, RouteKind};
pub use rule::Rule;
pub use traffic_control::{Effect, TrafficControl};

/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;

/// `NLMSG_OVERRUN`, of `linux/netlink.h`.
const OVERRUN: i32 = 4;

/// `RTM_NEWNEXTHOP` and `RTM_DELNEXTHOP`, of `linux/rtnetlink.h`.
const NEW_NEXT_HOP: u16 = 104;
const REMOVED_NEXT_HOP: u16 = 105;

/// Position of a new route among routes of equal rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Before the others: the default.
    First,
    /// After the others (`NLM_F_APPEND`), as in every dump.
    Last,
    /// Replaces the first (`NLM_F_REPLACE`).
    Replace,
}

/// A parsed rtnetlink message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A new or changed interface.
    Link(Link),
    /// Removal of the interface with this index.
    LinkRemoved(u32),
    /// A new address.
    Address(Address),
    /// Removal of an address.
    AddressRemoved(Address),
    /// A new or changed neighbour.
    Neighbour(Neighbour),
    /// Removal of a neighbour.
    NeighbourRemoved(Neighbour),
    /// A new route.
    Route(Route, Position),
    /// Removal of a route.
    RouteRemoved(Route),
    /// A new or changed next-hop object.
    NextHop(NextHop),
    /// Removal of the next-hop object with this id.
    NextHopRemoved(u32),
    /// A new routing rule.
    Rule(Rule),
    /// Removal of a routing rule.
    RuleRemoved(Rule),
    /// New or changed traffic control.
    TrafficControl(TrafficControl),
    /// Removal of traffic control.
    TrafficControlRemoved(TrafficControl),
    /// Changed forwarding settings; absent fields are unchanged.
    Netconf(Netconf),
    /// Removal of an interface's forwarding settings.
    NetconfRemoved(Netconf),
    /// End of a dump, with an errno or 0.
    Done(i32),
    /// Acknowledgement of a request: an errno (positive), or 0.
    Ack(i32),
    /// Notice that messages were lost.
    Overrun,
    /// A message that does not concern forwarding.
    Other,
}

/// Error: a message does not have the format of rtnetlink(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{subject} is malformed: the kernel speaks another rtnetlink than this program")]
pub struct Malformed {
    /// Kind of object that was expected.
    pub subject: &'static str,
}

pub(crate) fn malformed(subject: &'static str) -> Malformed {
    Malformed { subject }
}

/// Header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    kind: u16,
    flags: u16,
    sequence: u32,
    port: u32,
}

impl Header {
    /// Returns true if the dumped objects changed during the dump, so that it may be incomplete
    /// (`NLM_F_DUMP_INTR`).
    #[must_use]
    pub fn was_interrupted(&self) -> bool {
        self.has(libc::NLM_F_DUMP_INTR)
    }

    /// Returns the sequence number of the request; 0 for an event.
    #[must_use]
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Returns true if the kernel itself caused an event, not a request of a process.
    pub(crate) fn is_of_kernel(&self) -> bool {
        self.port == 0
    }

    pub(crate) fn kind(&self) -> u16 {
        self.kind
    }

    fn has(&self, flag: i32) -> bool {
        i32::from(self.flags) & flag != 0
    }

    /// Returns the position of a new route. In a dump the flags do not say it.
    fn position(&self) -> Position {
        if self.has(libc::NLM_F_MULTI) || self.has(libc::NLM_F_APPEND) {
            Position::Last
        } else if self.has(libc::NLM_F_REPLACE) {
            Position::Replace
        } else {
            Position::First
        }
    }
}

/// Iterator over the messages of one datagram.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    /// Starts parsing a datagram.
    #[must_use]
    pub fn new(datagram: &'a [u8]) -> Self {
        Self { rest: datagram }
    }

    /// Splits off the first message.
    fn split(&mut self) -> Option<(Header, &'a [u8])> {
        let header = self.rest.first_chunk::<HEADER>()?;
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let flags = u16::from_ne_bytes([header[6], header[7]]);
        let sequence = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
        let port = u32::from_ne_bytes([header[12], header[13], header[14], header[15]]);
        let body = self.rest.get(HEADER..length)?;
        self.rest = self.rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((Header { kind, flags, sequence, port }, body))
    }
}

impl<'a> Messages<'a> {
    /// Splits off the first message without parsing its body. An error ends the datagram.
    pub(crate) fn next_body(&mut self) -> Option<Result<(Header, &'a [u8]), Malformed>> {
        if self.rest.is_empty() {
            return None;
        }
        let split = self.split();
        if split.is_none() {
            self.rest = &[];
        }
        Some(split.ok_or(malformed("a datagram of netlink")))
    }
}

impl Iterator for Messages<'_> {
    type Item = Result<(Header, Message), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let split = self.next_body()?;
        Some(split.and_then(|(header, body)| Ok((header, read(header, body)?))))
    }
}

fn read(header: Header, body: &[u8]) -> Result<Message, Malformed> {
    let message = match (header.kind, i32::from(header.kind)) {
        (_, libc::NLMSG_DONE) => Message::Done(code(body).unwrap_or(0)),
        (_, libc::NLMSG_ERROR) => {
            Message::Ack(code(body).ok_or(malformed("a netlink acknowledgement"))?)
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
            let position = header.position();
            route::read(body)?.map_or(Message::Other, |route| Message::Route(route, position))
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
        (libc::RTM_NEWQDISC, _) => Message::TrafficControl(traffic_control::read_discipline(body)?),
        (libc::RTM_DELQDISC, _) => {
            Message::TrafficControlRemoved(traffic_control::read_discipline(body)?)
        }
        (libc::RTM_NEWTFILTER, _) => Message::TrafficControl(traffic_control::read_filter(body)?),
        (libc::RTM_DELTFILTER, _) => {
            Message::TrafficControlRemoved(traffic_control::read_filter(body)?)
        }
        _ => Message::Other,
    };
    Ok(message)
}

/// Returns the errno of a message, which the kernel sends negated.
pub(crate) fn code(body: &[u8]) -> Option<i32> {
    Some(i32::from_ne_bytes(*body.first_chunk()?).saturating_neg())
}

/// Returns true for the address families that are mirrored.
fn is_ip(family: u8) -> bool {
    [libc::AF_INET as u8, libc::AF_INET6 as u8].contains(&family)
}

/// Parses an address in network byte order.
fn ip(family: u8, value: &[u8]) -> Option<IpAddr> {
    if family == libc::AF_INET as u8 {
        <[u8; 4]>::try_from(value).ok().map(IpAddr::from)
    } else if family == libc::AF_INET6 as u8 {
        <[u8; 16]>::try_from(value).ok().map(IpAddr::from)
    } else {
        None
    }
}

/// Returns the all-zero address of a family.
fn unspecified(family: u8) -> IpAddr {
    if family == libc::AF_INET as u8 { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) }
}

#[cfg(test)]
mod tests;
