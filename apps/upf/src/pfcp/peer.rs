//! Control planes that this node is associated with.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Node ID (TS 29.244 clause 8.2.38), which identifies an association.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeName {
    /// IPv4 address.
    V4(Ipv4Addr),
    /// IPv6 address.
    V6(Ipv6Addr),
    /// Domain name as length-prefixed labels (RFC 1035 clause 3.1), in lower case, without the root
    /// label.
    Name(Vec<u8>),
}

/// Peer of an association.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Association index, less than the capacity of the table `peers`. `Session::peer` refers to
    /// it.
    pub place: u16,
    /// Node ID.
    pub node_id: NodeName,
    /// Recovery time stamp, in seconds since 1900.
    pub recovery: u32,
    /// Address for our requests.
    pub address: SocketAddr,
    /// Our address that the peer sends to.
    pub local: Option<IpAddr>,
    /// CP Function Features (clause 8.2.58): octets as received, octet 5 lowest.
    pub features: u64,
    /// The peer responds. Its sessions may stay for a time when it does not.
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

/// Writes labels separated by dots. Unprintable octets are escaped (RFC 1035 clause 5.1).
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
