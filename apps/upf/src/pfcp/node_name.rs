//! Node IDs, which identify PFCP nodes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane_pfcp::Message;
use fastlane_pfcp::ie::NodeId;

/// Maximum length of a domain name label in octets (RFC 1035 clause 2.3.4).
const LABEL: usize = 63;

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

impl NodeName {
    /// Parses a Node ID of the configuration.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if let Ok(address) = text.parse::<IpAddr>() {
            return address.to_canonical().into();
        }
        let mut labels = Vec::with_capacity(text.len() + 1);
        for label in text.split('.').filter(|label| !label.is_empty()) {
            let octets = &label.as_bytes()[..label.len().min(LABEL)];
            labels.push(octets.len() as u8);
            labels.extend(octets.iter().map(u8::to_ascii_lowercase));
        }
        Self::Name(labels)
    }

    /// Returns the Node ID of a message, if it has a valid one.
    pub(super) fn of(message: &Message<'_>) -> Option<Self> {
        message.group().find::<NodeId<'_>>().ok().flatten().map(Self::from)
    }

    /// Returns the Node ID IE.
    #[must_use]
    pub fn ie(&self) -> NodeId<'_> {
        match self {
            Self::V4(address) => NodeId::V4(*address),
            Self::V6(address) => NodeId::V6(*address),
            Self::Name(labels) => NodeId::Name(labels),
        }
    }
}

impl From<IpAddr> for NodeName {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => Self::V6(address),
        }
    }
}

impl From<NodeId<'_>> for NodeName {
    fn from(node_id: NodeId<'_>) -> Self {
        match node_id {
            NodeId::V4(address) => Self::V4(address),
            // An IPv4 address mapped into IPv6 is the same node.
            NodeId::V6(address) => IpAddr::V6(address).to_canonical().into(),
            NodeId::Name(labels) => {
                let labels = &labels[..labels.len().min(255)];
                // Some peers send the root label, which carries no information.
                let labels = labels.strip_suffix(&[0]).unwrap_or(labels);
                Self::Name(labels.to_ascii_lowercase())
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_same_however_it_is_sent() {
        let name = NodeName::parse("SMF-1.Example.org");
        assert_eq!(name, NodeName::Name(b"\x05smf-1\x07example\x03org".to_vec()));
        assert_eq!(name.to_string(), "smf-1.example.org");
        let sent = NodeId::Name(b"\x05SMF-1\x07example\x03ORG\0");
        assert_eq!(NodeName::from(sent), name);
        assert_eq!(NodeName::from(name.ie()), name);
        assert_eq!(NodeName::parse("192.0.2.1"), NodeName::V4(Ipv4Addr::new(192, 0, 2, 1)));
        assert_eq!(NodeName::parse("2001:db8::1"), NodeName::V6("2001:db8::1".parse().unwrap()));
        let mapped = Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped();
        assert_eq!(NodeName::from(NodeId::V6(mapped)), NodeName::parse("192.0.2.1"));
    }

    #[test]
    fn any_name_can_be_shown() {
        for labels in [&b"\xff"[..], b"\x04ab", b"", b"\0\0\0", b"\x01\n\x02\xff\xfe"] {
            let shown = NodeName::Name(labels.to_vec()).to_string();
            assert!(shown.is_ascii() && shown.len() < 100, "{shown}");
        }
    }
}
