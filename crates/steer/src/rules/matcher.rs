//! Reference matcher: reads the key of a frame and evaluates rules on it.
//!
//! The eBPF programs mirror this file (`read_key` and `rule_matches` in `bpf/steer.bpf.c`). A
//! change here requires the same change there, and in `plain_ipv4.rs` if it changes the result for
//! plain IPv4 frames.

use super::{
    GTP_U_PORT, IPV4, IPV6, PortRange, Prefix, Rule, TAG, TCP, UDP, VLAN, VLAN_BITS, knows,
};

/// Maximum number of VLAN tags that are skipped. A frame with more has a tag as its EtherType.
const MAX_TAGS: usize = 2;
/// Maximum number of IPv6 extension headers that are skipped. After more the protocol is unknown.
const MAX_EXTENSIONS: usize = 6;
/// IPv6 next header: hop-by-hop options, routing, destination options (RFC 8200 4).
const EXTENSIONS: [u8; 3] = [0, 43, 60];
/// IPv6 next header: fragment (RFC 8200 4.5).
const FRAGMENT: u8 = 44;

/// Fields that every fragment has.
const EACH_FRAGMENT: u32 = knows::IPV4 | knows::IPV6 | knows::PROTOCOL;

/// Fields that could be read before the frame ended. `knows` flags the valid ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FrameKey {
    knows: u32,
    fragment: bool,
    protocol: u8,
    /// VLAN identifier of the outermost tag if it is an 802.1Q tag, otherwise 0.
    pub(super) vlan: u16,
    /// EtherType, or 0 (which is none) if it is unknown.
    ethertype: u16,
    /// UDP or TCP destination port.
    port: u16,
    source: Address,
    destination: Address,
}

/// IP address or mask, in network byte order. IPv4 uses the first four octets.
type Address = [u64; 2];

/// Rule prepared for comparison with keys. Every frame meets a condition that the rule does not
/// have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuleMatcher {
    /// VLAN of the rule. The list decides by it which rules are compared.
    pub(super) vlan: Option<u16>,
    /// Fields that must be known of the frame.
    needs: u32,
    has_prefix: bool,
    protocol: Option<u8>,
    /// True if the rule matches fragments; then `protocol` is also the one that ports imply.
    fragments: bool,
    ethertype: Option<u16>,
    ports: PortRange,
    source: Network,
    destination: Network,
}

/// Prefix as an address and a mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Network {
    address: Address,
    mask: Address,
}

impl RuleMatcher {
    pub(crate) fn new(rule: &Rule) -> Self {
        Self {
            vlan: rule.vlan,
            needs: rule.needs(),
            has_prefix: rule.has_prefix(),
            protocol: if rule.fragments { rule.ip_protocol() } else { rule.protocol },
            fragments: rule.fragments,
            ethertype: rule.ethertype,
            ports: rule.ports(),
            source: rule.source.map_or_else(Network::default, Network::new),
            destination: rule.destination.map_or_else(Network::default, Network::new),
        }
    }

    /// Returns true if the rule matches a frame with this key.
    #[inline]
    pub(crate) fn matches(&self, key: &FrameKey) -> bool {
        if key.fragment && !self.fragments {
            return false;
        }
        // Only the first fragment has ports, so they are not required of any.
        let needs = if key.fragment { self.needs & EACH_FRAGMENT } else { self.needs };
        key.knows & needs == needs
            && self.ethertype.is_none_or(|wanted| key.ethertype == wanted)
            && self.protocol.is_none_or(|wanted| key.protocol == wanted)
            && (key.fragment || self.ports.contains(key.port))
            && (!self.has_prefix
                || self.source.contains(key.source) && self.destination.contains(key.destination))
    }
}

impl Network {
    fn new(prefix: Prefix) -> Network {
        Network { address: words(prefix.octets()), mask: words(prefix.mask()) }
    }

    #[inline]
    fn contains(&self, [high, low]: Address) -> bool {
        let differ = |at: usize, is: u64| (is ^ self.address[at]) & self.mask[at];
        differ(0, high) | differ(1, low) == 0
    }
}

fn words(octets: [u8; 16]) -> Address {
    let (halves, _) = octets.as_chunks();
    [u64::from_ne_bytes(halves[0]), u64::from_ne_bytes(halves[1])]
}

impl FrameKey {
    /// Reads as much of the key as the frame contains.
    pub(crate) fn read(frame: &[u8]) -> Self {
        let mut key = FrameKey::default();
        // Each step returns None when the frame ends; the fields read before stay valid.
        let _ = key.read_ethernet(frame);
        key
    }

    fn read_ethernet(&mut self, frame: &[u8]) -> Option<()> {
        let mut offset = 12;
        let mut ethertype = u16::from_be_bytes(bytes(frame, offset)?);
        for tag in 0..MAX_TAGS {
            if !VLAN.contains(&ethertype) {
                break;
            }
            offset += 4;
            let [high, low, next @ ..] = bytes::<4>(frame, offset - 2)?;
            if tag == 0 && ethertype == TAG {
                self.vlan = u16::from_be_bytes([high, low]) & VLAN_BITS;
            }
            ethertype = u16::from_be_bytes(next);
        }
        self.ethertype = ethertype;
        match ethertype {
            IPV4 => self.read_ipv4(frame, offset + 2),
            IPV6 => self.read_ipv6(frame, offset + 2),
            _ => None,
        }
    }

    /// Reads an IPv4 header (RFC 791 3.1).
    #[inline]
    fn read_ipv4(&mut self, frame: &[u8], offset: usize) -> Option<()> {
        let header: [u8; 20] = bytes(frame, offset)?;
        let header_length = usize::from(header[0] & 0x0f) * 4;
        if header[0] >> 4 != 4 || header_length < header.len() {
            return None;
        }
        let address = |at: usize| {
            let octets = [header[at], header[at + 1], header[at + 2], header[at + 3], 0, 0, 0, 0];
            [u64::from_ne_bytes(octets), 0]
        };
        self.source = address(12);
        self.destination = address(16);
        // More-fragments flag or an offset. The don't-fragment flag and the reserved bit do not
        // count.
        self.fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
        self.protocol = header[9];
        self.knows |= knows::IPV4 | knows::PROTOCOL;
        if self.fragment {
            return None;
        }
        self.read_transport(frame, offset + header_length)
    }

    /// Reads an IPv6 header and its extension headers (RFC 8200 3 and 4).
    fn read_ipv6(&mut self, frame: &[u8], offset: usize) -> Option<()> {
        let header: [u8; 40] = bytes(frame, offset)?;
        if header[0] >> 4 != 6 {
            return None;
        }
        self.source = words(bytes(&header, 8)?);
        self.destination = words(bytes(&header, 24)?);
        self.knows |= knows::IPV6;
        let (mut next, mut offset) = (header[6], offset + header.len());
        for _ in 0..MAX_EXTENSIONS {
            if !EXTENSIONS.contains(&next) {
                break;
            }
            let extension: [u8; 2] = bytes(frame, offset)?;
            next = extension[0];
            offset += (usize::from(extension[1]) + 1) * 8;
        }
        if EXTENSIONS.contains(&next) {
            return None;
        }
        self.fragment = next == FRAGMENT;
        if self.fragment {
            let header: [u8; 8] = bytes(frame, offset)?;
            next = header[0];
        }
        self.protocol = next;
        self.knows |= knows::PROTOCOL;
        if self.fragment {
            return None;
        }
        self.read_transport(frame, offset)
    }

    /// Reads a UDP, TCP or GTP-U header (RFC 768, RFC 9293 3.1, 3GPP TS 29.281 5.1).
    #[inline]
    fn read_transport(&mut self, frame: &[u8], offset: usize) -> Option<()> {
        match self.protocol {
            UDP => {
                let header: [u8; 8] = bytes(frame, offset)?;
                self.port = u16::from_be_bytes([header[2], header[3]]);
                self.knows |= knows::UDP;
                if self.port == GTP_U_PORT {
                    let gtp: [u8; 8] = bytes(frame, offset + header.len())?;
                    // Version 1 in the upper three bits, protocol type GTP in the fourth.
                    if gtp[0] >> 4 == 0b0011 {
                        self.knows |= knows::GTP_U;
                    }
                }
            }
            TCP => {
                let header: [u8; 20] = bytes(frame, offset)?;
                self.port = u16::from_be_bytes([header[2], header[3]]);
                self.knows |= knows::TCP;
            }
            _ => {}
        }
        Some(())
    }
}

/// Returns `N` bytes at `offset`, if the frame has them.
fn bytes<const N: usize>(frame: &[u8], offset: usize) -> Option<[u8; N]> {
    frame.get(offset..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests;
