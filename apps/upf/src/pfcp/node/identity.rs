//! Identity and features of this node.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane_pfcp::Writer;
use fastlane_pfcp::ie::{
    NetworkInstance, NodeId, UpFunctionFeatures, UserPlaneIpResourceInformation,
};

use crate::config::{Interface, Role, Settings, TeidChoice};
use crate::pfcp::NodeName;

/// Maximum length of a domain name label in octets (RFC 1035 clause 2.3.4).
const LABEL: usize = 63;

/// Identity that this node announces to its peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Node ID.
    pub node_id: NodeName,
    /// Recovery time stamp, in seconds since 1900.
    pub recovery: u32,
    /// UP Function Features.
    pub features: UpFunctionFeatures,
    resources: Vec<Resource>,
}

/// Address from which control planes may allocate F-TEIDs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Resource {
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
    instance: String,
}

impl Identity {
    /// Creates the identity from settings.
    #[must_use]
    pub fn new(settings: &Settings, recovery: u32) -> Self {
        Self {
            node_id: parse(&settings.node_id),
            recovery,
            features: features(settings),
            resources: Resource::all(settings),
        }
    }

    /// Appends the addresses from which control planes may allocate F-TEIDs.
    pub fn put_resources(&self, to: &mut Writer<'_>) {
        for Resource { v4, v6, instance } in &self.resources {
            let instance = Some(NetworkInstance(instance.as_bytes()));
            let (v4, v6) = (*v4, *v6);
            to.put(&UserPlaneIpResourceInformation { v4, v6, instance, ..Default::default() });
        }
    }
}

/// Parses a Node ID of the configuration.
pub(super) fn parse(text: &str) -> NodeName {
    if let Ok(address) = text.parse::<IpAddr>() {
        return address.into();
    }
    let mut labels = Vec::with_capacity(text.len() + 1);
    for label in text.split('.').filter(|label| !label.is_empty()) {
        let octets = &label.as_bytes()[..label.len().min(LABEL)];
        labels.push(octets.len() as u8);
        labels.extend(octets.iter().map(u8::to_ascii_lowercase));
    }
    NodeName::Name(labels)
}

impl From<NodeId<'_>> for NodeName {
    fn from(node_id: NodeId<'_>) -> Self {
        match node_id {
            NodeId::V4(address) => Self::V4(address),
            NodeId::V6(address) => Self::V6(address),
            NodeId::Name(labels) => {
                let labels = &labels[..labels.len().min(255)];
                // Some peers send the root label, which carries no information.
                let labels = labels.strip_suffix(&[0]).unwrap_or(labels);
                Self::Name(labels.to_ascii_lowercase())
            }
        }
    }
}

impl NodeName {
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

/// Returns the supported features (TS 29.244 clause 8.2.25).
fn features(settings: &Settings) -> UpFunctionFeatures {
    type Up = UpFunctionFeatures;
    let always = Up::DDND
        | Up::DLBD
        | Up::EMPU
        | Up::QUOAC
        | Up::FRRT
        | Up::ADPDP
        | Up::MNOP
        | Up::BUNDL
        | Up::VTIME;
    let with = |features: Up, wanted: bool, more| if wanted { features | more } else { features };
    let chosen = with(always, settings.teid == TeidChoice::Upf, Up::FTUP);
    let mut pools = settings.pools.iter().filter(|pool| pool.allocate);
    let chosen = with(chosen, pools.clone().next().is_some(), Up::UEIP);
    // Pools allocate a /64 per UE. Prefixes of other lengths come from the control plane.
    with(chosen, !pools.any(|pool| pool.prefix.contains(':')), Up::IP6PL)
}

impl Resource {
    /// Returns the addresses of interfaces with tunnels if control planes allocate TEIDs. Release
    /// 15 control planes ask for addresses in this path (clause 8.2.82 there).
    fn all(settings: &Settings) -> Vec<Self> {
        if settings.teid == TeidChoice::Upf {
            return Vec::new();
        }
        let tunnels = settings.interfaces.values().filter(|it| it.role != Role::N6);
        let resource = |interface: &Interface| Self {
            v4: interface.addresses.iter().find_map(|address| match address {
                IpAddr::V4(address) => Some(*address),
                IpAddr::V6(_) => None,
            }),
            v6: interface.addresses.iter().find_map(|address| match address {
                IpAddr::V6(address) => Some(*address),
                IpAddr::V4(_) => None,
            }),
            instance: interface.network_instance.clone(),
        };
        tunnels.map(resource).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_same_however_it_is_sent() {
        let name = parse("SMF-1.Example.org");
        assert_eq!(name, NodeName::Name(b"\x05smf-1\x07example\x03org".to_vec()));
        assert_eq!(name.to_string(), "smf-1.example.org");
        let sent = NodeId::Name(b"\x05SMF-1\x07example\x03ORG\0");
        assert_eq!(NodeName::from(sent), name);
        assert_eq!(NodeName::from(name.ie()), name);
        assert_eq!(parse("192.0.2.1"), NodeName::V4(Ipv4Addr::new(192, 0, 2, 1)));
        assert_eq!(parse("2001:db8::1"), NodeName::V6("2001:db8::1".parse().unwrap()));
    }

    #[test]
    fn any_name_can_be_shown() {
        for labels in [&b"\xff"[..], b"\x04ab", b"", b"\0\0\0", b"\x01\n\x02\xff\xfe"] {
            let shown = NodeName::Name(labels.to_vec()).to_string();
            assert!(shown.is_ascii() && shown.len() < 100, "{shown}");
        }
    }
}
