//! Control plane functions that this one is associated with.

pub mod peers;
pub mod record;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A Node ID (TS 29.244 clause 8.2.38): what an association is known by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeName {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address.
    V6(Ipv6Addr),
    /// A domain name as labels with their lengths before them (RFC 1035 clause 3.1), without the
    /// end; upper case is lower case.
    Name(Vec<u8>),
}

/// An association with a control plane function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its place: less than the capacity of the table of peers. It is `Session::peer`.
    pub place: u16,
    /// Its Node ID.
    pub node_id: NodeName,
    /// Its recovery time stamp: seconds since 1900.
    pub recovery: u32,
    /// Where requests to it go.
    pub address: SocketAddr,
    /// The address of ours that it speaks to.
    pub local: Option<IpAddr>,
    /// CP Function Features (clause 8.2.58): octets as sent, octet 5 lowest.
    pub features: u64,
    /// Whether it is there: its sessions may stay for a time when it is not.
    pub is_up: bool,
}

impl From<IpAddr> for NodeName {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => Self::V6(address),
        }
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(address) => address.fmt(to),
            Self::V6(address) => address.fmt(to),
            Self::Name(labels) => labels_to_text(labels, to),
        }
    }
}

/// Writes labels with dots between them; what is not printable as in RFC 1035 clause 5.1.
fn labels_to_text(labels: &[u8], to: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut rest = labels;
    let mut is_first = true;
    while let Some((length, after)) = rest.split_first() {
        if !std::mem::take(&mut is_first) {
            to.write_str(".")?;
        }
        let (label, next) = after.split_at(after.len().min(usize::from(*length)));
        write!(to, "{}", label.escape_ascii())?;
        rest = next;
    }
    Ok(())
}
