//! Requests of ctnetlink: dumps, look-ups, changes and removal of connections.

use std::net::IpAddr;

use fastlane_netlink::Request;

use super::connection::{Connection, ConnectionTuple, TcpFlags};
use super::connection_reader::{attribute, kind};

const TCP: u8 = libc::IPPROTO_TCP as u8;

/// A change of one connection, which is named by its original tuple and zone. Absent fields stay
/// as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConntrackChange {
    /// Packets of the side that began.
    pub original: ConnectionTuple,
    /// Zone of that direction.
    pub zone: u16,
    /// New timeout, in seconds from now.
    pub timeout: Option<u32>,
    /// Status bits, all of them: Linux refuses to unset those that cannot be.
    pub status: Option<u32>,
    /// New bits of the mark, and the mask of those that change.
    pub mark: Option<(u32, u32)>,
    /// True if sequence numbers outside of the TCP windows are to be accepted. Linux does not see
    /// the packets that the fast path forwards, so its windows are old. Also forgets the greatest
    /// acknowledgement, with which the sequence number of a RST is compared.
    pub be_liberal: bool,
}

impl ConntrackChange {
    /// Creates a change of a connection that changes nothing.
    #[must_use]
    pub fn of(connection: &Connection) -> Self {
        let (original, zone) = (connection.original, connection.zones[0]);
        Self { original, zone, timeout: None, status: None, mark: None, be_liberal: false }
    }

    /// Creates a change that prepares a connection for the fast path: TCP accepts sequence numbers
    /// outside of its windows. Linux reports the connection in an event afterwards, also if nothing
    /// was changed, unless its events are not followed.
    #[must_use]
    pub fn touch(connection: &Connection) -> Self {
        let be_liberal = connection.original.protocol == TCP;
        // A mask of zero selects no bit of the mark.
        Self { mark: Some((0, 0)), be_liberal, ..Self::of(connection) }
    }

    /// Appends the request to `bytes`. Linux replies only if it refuses.
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        let mut request = named(kind::NEW, &self.original, self.zone);
        if let Some(timeout) = self.timeout {
            request = request.attribute(attribute::TIMEOUT, &timeout.to_be_bytes());
        }
        if let Some(status) = self.status {
            request = request.attribute(attribute::STATUS, &status.to_be_bytes());
        }
        if let Some((bits, mask)) = self.mark {
            request = request.attribute(attribute::MARK, &bits.to_be_bytes());
            request = request.attribute(attribute::MARK_MASK, &mask.to_be_bytes());
        }
        if self.be_liberal && self.original.protocol == TCP {
            // `struct nf_ct_tcp_flags`: values, mask.
            let mask = TcpFlags::BE_LIBERAL | TcpFlags::MAX_ACK_SET;
            let flags = [TcpFlags::BE_LIBERAL, mask];
            request = nest(request, attribute::PROTOINFO, |info| {
                nest(info, attribute::PROTOINFO_TCP, |tcp| {
                    let tcp = tcp.attribute(attribute::TCP_FLAGS_ORIG, &flags);
                    tcp.attribute(attribute::TCP_FLAGS_REPLY, &flags)
                })
            });
        }
        bytes.extend(silent(request));
    }
}

/// Appends a request to remove a connection.
pub(super) fn write_removal(connection: &Connection, bytes: &mut Vec<u8>) {
    let request = named(kind::DELETE, &connection.original, connection.zones[0]);
    bytes.extend(silent(request.attribute(attribute::ID, &connection.id.to_be_bytes())));
}

/// Builds a request for the connection of a tuple of either direction.
pub(super) fn look_up(tuple: &ConnectionTuple, zone: u16) -> Vec<u8> {
    named(kind::GET, tuple, zone).finish()
}

/// Builds a request for the generation of the nftables rules.
pub(super) fn rules_generation() -> Vec<u8> {
    Request::new(kind::GET_GENERATION, 0, &[libc::AF_UNSPEC as u8, 0, 0, 0]).finish()
}

/// Builds a request for all connections whose marks match.
pub(super) fn dump(mark: u32, mask: u32, sequence: u32) -> Vec<u8> {
    let request = Request::new(kind::GET, libc::NLM_F_DUMP, &[libc::AF_UNSPEC as u8, 0, 0, 0]);
    // Linux compares `mark & mask` with the value as it is.
    let request = request.attribute(attribute::MARK, &(mark & mask).to_be_bytes());
    let mut bytes = request.attribute(attribute::MARK_MASK, &mask.to_be_bytes()).finish();
    bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    bytes
}

/// Starts a request about the connection of a tuple.
fn named(kind: u16, tuple: &ConnectionTuple, zone: u16) -> Request {
    let family = if tuple.source.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let request = Request::new(kind, 0, &[family as u8, 0, 0, 0]);
    let request = nest(request, attribute::TUPLE_ORIG, |it| write_tuple(it, tuple));
    request.attribute(attribute::ZONE, &zone.to_be_bytes())
}

fn write_tuple(request: Request, tuple: &ConnectionTuple) -> Request {
    let kinds = match tuple.source.is_ipv4() {
        true => [attribute::V4_SOURCE, attribute::V4_DESTINATION],
        false => [attribute::V6_SOURCE, attribute::V6_DESTINATION],
    };
    let request = nest(request, attribute::TUPLE_IP, |ip| {
        let both = kinds.into_iter().zip([tuple.source, tuple.destination]);
        both.fold(ip, |ip, (kind, address)| match address {
            IpAddr::V4(address) => ip.attribute(kind, &address.octets()),
            IpAddr::V6(address) => ip.attribute(kind, &address.octets()),
        })
    });
    nest(request, attribute::TUPLE_PROTO, |protocol| {
        let kinds = [attribute::PROTO_SOURCE_PORT, attribute::PROTO_DESTINATION_PORT];
        let protocol = protocol.attribute(attribute::PROTO_NUMBER, &[tuple.protocol]);
        let both = kinds.into_iter().zip(tuple.ports);
        both.fold(protocol, |it, (kind, port)| it.attribute(kind, &port.to_be_bytes()))
    })
}

/// Appends an attribute that contains attributes, marked as such.
fn nest(request: Request, kind: u16, fill: impl FnOnce(Request) -> Request) -> Request {
    request.nest(kind | libc::NLA_F_NESTED as u16, fill)
}

/// Finishes a request that is not acknowledged: Linux replies only if it refuses.
fn silent(request: Request) -> Vec<u8> {
    let mut bytes = request.finish();
    bytes[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    let end = bytes.len().next_multiple_of(4);
    bytes.resize(end, 0);
    bytes
}
