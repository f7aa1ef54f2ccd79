//! Policies, as Linux sends them, and the connections that they cover.

use std::net::IpAddr;

use fastlane_netlink::{attribute, number};

use crate::Prefix;
use crate::conntrack::ConnectionTuple;
use crate::message::{Malformed, malformed};

/// `sizeof(struct xfrm_userpolicy_info)`, which begins with `struct xfrm_selector`.
const INFO: usize = 168;
/// Offsets of `priority`, `dir` and `action` in it.
const PRIORITY: usize = 152;
const DIRECTION: usize = 160;
const ACTION: usize = 161;
/// `XFRM_POLICY_OUT`, `XFRM_POLICY_FWD` and `XFRM_POLICY_ALLOW`.
const OUT: u8 = 1;
const FORWARD: u8 = 2;
const ALLOW: u8 = 0;
/// Attributes `XFRMA_TMPL`, `XFRMA_MARK` and `XFRMA_IF_ID`.
const TEMPLATES: u16 = 5;
const MARK: u16 = 21;
const INTERFACE_ID: u16 = 31;

/// Policy for packets that Linux forwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpsecPolicy {
    direction: u8,
    priority: u32,
    source: Prefix,
    destination: Prefix,
    /// Source and destination port, each with the bits that count.
    ports: [(u16, u16); 2],
    /// IP protocol, 0 for all.
    protocol: u8,
    /// True if packets are transformed, must have been, or are dropped.
    intervenes: bool,
    /// True if it also depends on what is not known of a connection: mark or interface.
    is_conditional: bool,
}

impl IpsecPolicy {
    /// Parses the body of a `XFRM_MSG_NEWPOLICY`; `None` for policies that do not concern ordinary
    /// forwarded packets.
    ///
    /// # Errors
    /// Returns [`Malformed`] if it does not have the format.
    pub(crate) fn read(body: &[u8]) -> Result<Option<Self>, Malformed> {
        let refused = malformed("an IPsec policy");
        let (info, attributes) = body.split_first_chunk::<INFO>().ok_or(refused)?;
        let of_device = attribute(attributes, INTERFACE_ID).and_then(number).unwrap_or(0) != 0;
        let direction = info[DIRECTION];
        if of_device || ![OUT, FORWARD].contains(&direction) {
            return Ok(None);
        }
        let family = i32::from(u16::from_ne_bytes([info[40], info[41]]));
        let prefix = |at: usize, length: u8| {
            let octets: [u8; 16] = info.get(at..at + 16)?.try_into().ok()?;
            let (address, most) = match family {
                libc::AF_INET => (IpAddr::from([octets[0], octets[1], octets[2], octets[3]]), 32),
                libc::AF_INET6 => (IpAddr::from(octets), 128),
                _ => return None,
            };
            (length <= most).then(|| Prefix::new(address, length))
        };
        let port = |at: usize| {
            let word = |at: usize| u16::from_be_bytes([info[at], info[at + 1]]);
            (word(at), word(at + 2))
        };
        let word = |at: usize| number(info.get(at..)?);
        let has_mark = attribute(attributes, MARK)
            .is_some_and(|mark| mark.get(4..8).is_none_or(|mask| mask != [0; 4]));
        let transforms = attribute(attributes, TEMPLATES).is_some_and(|it| !it.is_empty());
        Ok(Some(Self {
            direction,
            priority: word(PRIORITY).ok_or(refused)?,
            source: prefix(16, info[43]).ok_or(refused)?,
            destination: prefix(0, info[42]).ok_or(refused)?,
            ports: [port(36), port(32)],
            protocol: info[44],
            intervenes: info[ACTION] != ALLOW || transforms,
            is_conditional: has_mark || word(48).is_none_or(|interface| interface != 0),
        }))
    }

    /// Returns true if the selector matches packets with these addresses and ports.
    fn matches(&self, packet: &ConnectionTuple) -> bool {
        let is_port = |(port, bits): (u16, u16), own: u16| (port ^ own) & bits == 0;
        (self.protocol == 0 || self.protocol == packet.protocol)
            && self.source.covers(&Prefix::host(packet.source))
            && self.destination.covers(&Prefix::host(packet.destination))
            && is_port(self.ports[0], packet.ports[0])
            && is_port(self.ports[1], packet.ports[1])
    }
}

/// Policies of a network namespace for forwarded packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IpsecPolicies {
    /// In the order in which Linux asks them; of those with equal priority the ones that intervene
    /// come first.
    policies: Vec<IpsecPolicy>,
}

impl IpsecPolicies {
    /// Creates the list.
    #[must_use]
    pub fn new(mut policies: Vec<IpsecPolicy>) -> Self {
        policies.sort_by_key(|policy| (policy.priority, !policy.intervenes));
        Self { policies }
    }

    /// Returns true if there is no policy.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }

    /// Returns true if Linux may transform or drop packets of a connection, whose packets arrive
    /// with these tuples. It asks the policies for packets whose destination is translated, and
    /// again once their source is.
    #[must_use]
    pub fn cover(&self, original: &ConnectionTuple, reply: &ConnectionTuple) -> bool {
        !self.is_empty()
            && [(original, reply), (reply, original)].into_iter().any(|(arrives, other)| {
                let leaves = ConnectionTuple {
                    source: other.destination,
                    destination: other.source,
                    protocol: arrives.protocol,
                    ports: [other.ports[1], other.ports[0]],
                };
                let ports = [arrives.ports[0], leaves.ports[1]];
                let forwarded = ConnectionTuple { source: arrives.source, ports, ..leaves };
                self.intervene(&forwarded) || self.intervene(&leaves)
            })
    }

    /// Returns true if a policy of either direction transforms or drops a packet.
    fn intervene(&self, packet: &ConnectionTuple) -> bool {
        [OUT, FORWARD].into_iter().any(|direction| {
            let own = self.policies.iter().filter(|policy| policy.direction == direction);
            let decides = |policy: &&IpsecPolicy| {
                policy.matches(packet) && (policy.intervenes || !policy.is_conditional)
            };
            let first = own.into_iter().find(decides);
            first.is_some_and(|policy| policy.intervenes)
        })
    }
}

#[cfg(test)]
mod tests;
