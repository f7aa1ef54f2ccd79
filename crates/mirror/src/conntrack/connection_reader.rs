//! Parser of ctnetlink messages. The bytes come from the kernel and steer packets: reading is total
//! and bounded, and a message of another shape is refused by name. Unknown attributes are skipped.

use std::net::IpAddr;

use fastlane_netlink::{attributes, text};

use super::connection::{Connection, ConnectionTuple, Status, TcpFlags, TcpProgress, TcpState};
use crate::message::{Header, Malformed, Messages, code, malformed};

/// `struct nfgenmsg`: family, version, resource id.
const FAMILY_HEADER: usize = 4;

/// Message types: the subsystem in the upper byte (`linux/netfilter/nfnetlink.h`).
pub(super) mod kind {
    /// `NFNL_SUBSYS_CTNETLINK`, and the messages of `enum cntl_msg_types`.
    pub(crate) const NEW: u16 = 1 << 8;
    pub(crate) const GET: u16 = NEW | 1;
    pub(crate) const DELETE: u16 = NEW | 2;
    /// `NFNL_SUBSYS_NFTABLES` and `NFT_MSG_NEWGEN`: a transaction changed the rule set.
    pub(crate) const NEW_GENERATION: u16 = 10 << 8 | 15;
    /// `NFT_MSG_GETGEN`: request for the generation in force.
    pub(crate) const GET_GENERATION: u16 = 10 << 8 | 16;
}

/// Attributes (`linux/netfilter/nfnetlink_conntrack.h`).
pub(super) mod attribute {
    pub(crate) const TUPLE_ORIG: u16 = 1;
    pub(crate) const TUPLE_REPLY: u16 = 2;
    pub(crate) const STATUS: u16 = 3;
    pub(crate) const PROTOINFO: u16 = 4;
    pub(crate) const HELP: u16 = 5;
    pub(crate) const TIMEOUT: u16 = 7;
    pub(crate) const MARK: u16 = 8;
    pub(crate) const COUNTERS_ORIG: u16 = 9;
    pub(crate) const COUNTERS_REPLY: u16 = 10;
    pub(crate) const ID: u16 = 12;
    pub(crate) const TUPLE_MASTER: u16 = 14;
    pub(crate) const SEQ_ADJ_ORIG: u16 = 15;
    pub(crate) const SEQ_ADJ_REPLY: u16 = 16;
    pub(crate) const ZONE: u16 = 18;
    pub(crate) const MARK_MASK: u16 = 21;
    pub(crate) const SYNPROXY: u16 = 24;
    /// In a tuple.
    pub(crate) const TUPLE_IP: u16 = 1;
    pub(crate) const TUPLE_PROTO: u16 = 2;
    pub(crate) const TUPLE_ZONE: u16 = 3;
    /// In `TUPLE_IP`: source and destination of IPv4, then of IPv6.
    pub(crate) const V4_SOURCE: u16 = 1;
    pub(crate) const V4_DESTINATION: u16 = 2;
    pub(crate) const V6_SOURCE: u16 = 3;
    pub(crate) const V6_DESTINATION: u16 = 4;
    /// In `TUPLE_PROTO`.
    pub(crate) const PROTO_NUMBER: u16 = 1;
    pub(crate) const PROTO_SOURCE_PORT: u16 = 2;
    pub(crate) const PROTO_DESTINATION_PORT: u16 = 3;
    /// In `PROTOINFO`, and in that of TCP.
    pub(crate) const PROTOINFO_TCP: u16 = 1;
    pub(crate) const TCP_STATE: u16 = 1;
    pub(crate) const TCP_FLAGS_ORIG: u16 = 4;
    pub(crate) const TCP_FLAGS_REPLY: u16 = 5;
    /// In `HELP`.
    pub(crate) const HELP_NAME: u16 = 1;
    /// In `COUNTERS_ORIG` and `COUNTERS_REPLY`.
    pub(crate) const COUNTERS_PACKETS: u16 = 1;
    pub(crate) const COUNTERS_BYTES: u16 = 2;
    /// In a message of `NEW_GENERATION` (`NFTA_GEN_ID`, `linux/netfilter/nf_tables.h`).
    pub(crate) const GENERATION: u16 = 1;
}

/// A parsed message of ctnetlink or nftables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConntrackEvent {
    /// A new or changed connection, or one of a dump.
    Present(Box<Connection>),
    /// Removal of a connection.
    Removed(Box<Connection>),
    /// The rule set of nftables changed, or a request asked for its generation: the generation in
    /// force.
    Rules(u32),
    /// End of a dump, or reply to a request: an errno (positive), or 0.
    Result(i32),
    /// A message about something else, such as an IP version that the mirror does not know.
    Other,
}

/// Iterator over the messages of one datagram. `None` in place of a sequence number marks an event.
#[derive(Clone, Debug)]
pub struct ConntrackEvents<'a>(Messages<'a>);

impl<'a> ConntrackEvents<'a> {
    /// Starts parsing a datagram.
    #[must_use]
    pub fn new(datagram: &'a [u8]) -> Self {
        Self(Messages::new(datagram))
    }

    pub(super) fn of(messages: Messages<'a>) -> Self {
        Self(messages)
    }
}

impl Iterator for ConntrackEvents<'_> {
    type Item = Result<(Header, ConntrackEvent), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let split = self.0.next_body()?;
        Some(split.and_then(|(header, body)| Ok((header, read(header, body)?))))
    }
}

fn read(header: Header, body: &[u8]) -> Result<ConntrackEvent, Malformed> {
    Ok(match (header.kind(), i32::from(header.kind())) {
        (_, libc::NLMSG_DONE) => ConntrackEvent::Result(code(body).unwrap_or(0)),
        (_, libc::NLMSG_ERROR) => {
            ConntrackEvent::Result(code(body).ok_or(malformed("a netlink acknowledgement"))?)
        }
        (kind::NEW_GENERATION, _) => ConntrackEvent::Rules(read_generation(body)?),
        (kind::NEW, _) => present(header, body, ConntrackEvent::Present)?,
        (kind::DELETE, _) => present(header, body, ConntrackEvent::Removed)?,
        _ => ConntrackEvent::Other,
    })
}

fn present(
    header: Header,
    body: &[u8],
    event: impl FnOnce(Box<Connection>) -> ConntrackEvent,
) -> Result<ConntrackEvent, Malformed> {
    let Some(mut connection) = read_connection(body)? else { return Ok(ConntrackEvent::Other) };
    connection.is_refreshed = header.is_of_kernel();
    Ok(event(Box::new(connection)))
}

fn read_generation(body: &[u8]) -> Result<u32, Malformed> {
    let attributes = body.get(FAMILY_HEADER..);
    let generation = attributes.and_then(|it| be32(nested(it, attribute::GENERATION)?));
    generation.ok_or(malformed("a generation of rules"))
}

/// Parses a connection; `None` if it is of another family than IPv4 and IPv6.
fn read_connection(body: &[u8]) -> Result<Option<Connection>, Malformed> {
    let wrong = malformed("a connection");
    let (header, rest) = body.split_first_chunk::<FAMILY_HEADER>().ok_or(wrong)?;
    let family = header[0];
    if ![libc::AF_INET as u8, libc::AF_INET6 as u8].contains(&family) {
        return Ok(None);
    }
    let (mut tuples, mut zones, mut zone) = ([None; 2], [None; 2], None);
    let mut connection = Fields::default();
    for (kind, value) in attributes(rest) {
        match kind {
            attribute::TUPLE_ORIG => (tuples[0], zones[0]) = read_tuple(value).ok_or(wrong)?,
            attribute::TUPLE_REPLY => (tuples[1], zones[1]) = read_tuple(value).ok_or(wrong)?,
            attribute::ZONE => zone = Some(be16(value).ok_or(wrong)?),
            other => connection.read(other, value).ok_or(wrong)?,
        }
    }
    let [Some(original), Some(reply)] = tuples else { return Err(wrong) };
    let is_one_family = [original.source, reply.source]
        .iter()
        .all(|source| source.is_ipv4() == (family == libc::AF_INET as u8));
    if !is_one_family || original.protocol != reply.protocol {
        return Err(wrong);
    }
    let zones = zones.map(|own| own.or(zone).unwrap_or(0));
    Ok(Some(connection.finish(original, reply, zones)))
}

/// Fields of a connection besides its tuples.
#[derive(Default)]
struct Fields {
    id: u32,
    status: u32,
    mark: u32,
    timeout: Option<u32>,
    tcp: Option<TcpProgress>,
    helper: String,
    has_master: bool,
    adjusts_sequence: bool,
    counters: [Option<[u64; 2]>; 2],
}

impl Fields {
    /// Parses an attribute; `None` if it is malformed.
    fn read(&mut self, kind: u16, value: &[u8]) -> Option<()> {
        match kind {
            attribute::ID => self.id = be32(value)?,
            attribute::STATUS => self.status = be32(value)?,
            attribute::MARK => self.mark = be32(value)?,
            attribute::TIMEOUT => self.timeout = Some(be32(value)?),
            attribute::PROTOINFO => self.tcp = read_progress(value)?,
            attribute::HELP => self.helper = nested(value, attribute::HELP_NAME).map(text)?,
            attribute::TUPLE_MASTER => self.has_master = true,
            attribute::SEQ_ADJ_ORIG | attribute::SEQ_ADJ_REPLY | attribute::SYNPROXY => {
                self.adjusts_sequence = true;
            }
            attribute::COUNTERS_ORIG => self.counters[0] = Some(read_counters(value)?),
            attribute::COUNTERS_REPLY => self.counters[1] = Some(read_counters(value)?),
            _ => {}
        }
        Some(())
    }

    fn finish(
        self,
        original: ConnectionTuple,
        reply: ConnectionTuple,
        zones: [u16; 2],
    ) -> Connection {
        Connection {
            id: self.id,
            original,
            reply,
            zones,
            status: Status(self.status),
            mark: self.mark,
            timeout: self.timeout,
            is_refreshed: false,
            tcp: self.tcp,
            helper: self.helper,
            has_master: self.has_master,
            adjusts_sequence: self.adjusts_sequence,
            counters: self.counters,
        }
    }
}

/// A tuple with its own zone, if it has one.
type ZonedTuple = (Option<ConnectionTuple>, Option<u16>);

fn read_tuple(value: &[u8]) -> Option<ZonedTuple> {
    let (mut addresses, mut protocol, mut zone) = (None, None, None);
    for (kind, value) in attributes(value) {
        match kind {
            attribute::TUPLE_IP => addresses = Some(read_addresses(value)?),
            attribute::TUPLE_PROTO => protocol = Some(read_protocol(value)?),
            attribute::TUPLE_ZONE => zone = Some(be16(value)?),
            _ => {}
        }
    }
    let ((source, destination), (protocol, ports)) = (addresses?, protocol?);
    Some((Some(ConnectionTuple { source, destination, protocol, ports }), zone))
}

fn read_addresses(value: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let v4 = |kind| nested(value, kind).and_then(|it| <[u8; 4]>::try_from(it).ok());
    let v6 = |kind| nested(value, kind).and_then(|it| <[u8; 16]>::try_from(it).ok());
    match (v4(attribute::V4_SOURCE), v4(attribute::V4_DESTINATION)) {
        (Some(source), Some(destination)) => Some((source.into(), destination.into())),
        _ => {
            let (source, destination) = (v6(attribute::V6_SOURCE)?, v6(attribute::V6_DESTINATION)?);
            Some((source.into(), destination.into()))
        }
    }
}

fn read_protocol(value: &[u8]) -> Option<(u8, [u16; 2])> {
    let protocol = *nested(value, attribute::PROTO_NUMBER)?.first()?;
    let port = |kind| nested(value, kind).map_or(Some(0), be16);
    let source = port(attribute::PROTO_SOURCE_PORT)?;
    Some((protocol, [source, port(attribute::PROTO_DESTINATION_PORT)?]))
}

/// Parses protocol information; `Some(None)` if it is not that of TCP.
fn read_progress(value: &[u8]) -> Option<Option<TcpProgress>> {
    let Some(tcp) = nested(value, attribute::PROTOINFO_TCP) else { return Some(None) };
    let byte = |kind| nested(tcp, kind).map_or(Some(0), |it| it.first().copied());
    let state = TcpState(*nested(tcp, attribute::TCP_STATE)?.first()?);
    let flags = [byte(attribute::TCP_FLAGS_ORIG)?, byte(attribute::TCP_FLAGS_REPLY)?];
    Some(Some(TcpProgress { state, flags: flags.map(TcpFlags) }))
}

fn read_counters(value: &[u8]) -> Option<[u64; 2]> {
    let count = |kind| nested(value, kind)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    Some([count(attribute::COUNTERS_PACKETS)?, count(attribute::COUNTERS_BYTES)?])
}

fn nested(value: &[u8], kind: u16) -> Option<&[u8]> {
    fastlane_netlink::attribute(value, kind)
}

fn be16(value: &[u8]) -> Option<u16> {
    value.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

fn be32(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests;
